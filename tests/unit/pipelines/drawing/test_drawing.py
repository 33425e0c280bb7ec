"""Every node and edge of a pipeline is in its text and in its picture, and boxes keep apart."""

import itertools
import re
from pathlib import Path
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from penstock.pipelines.drawing.layers import crossings, layers_of
from penstock.pipelines.drawing.placing import apart
from penstock.pipelines.drawing.svg import svg_of
from penstock.pipelines.drawing.text import text_of
from penstock.pipelines.specification.graph import Edge, Graph, Node, NodeKind, graph_of
from penstock.pipelines.specification.reading import read_pipeline

SVG = "{http://www.w3.org/2000/svg}"
TEXT = """\
pipeline: iot
sources:
  readings:
    topic: readings
    decode: {format: json, schema: sensor STRING}
    watermark: {column: at, delay: 10 seconds}
    rules: {plausible: {condition: t < 80, action: route}}
    dead_letters: readings-dead
  rooms: {files: rooms.csv, format: csv, schema: sensor STRING, stream: false}
  back: {topics: [alerts, other]}
steps:
  averages: {sql: SELECT * FROM once}
  named: {sql: SELECT * FROM readings JOIN rooms}
  once: {deduplicate: readings, by: [sensor, at]}
flows:
  averages: {from: averages, to: {delta: lake/averages}, every: 5 seconds, mode: update}
  alerts: {from: named, to: {topic: alerts}}
  bad: {from: readings_rejected, to: console}
  back: {from: back, to: {parquet: "/<&>/x"}}
"""
DRAWN = """\
readings  (topic readings; decoded from json; watermark 10 seconds on at; rules plausible)
├─ readings_undecodable  (can't be decoded)
│  └─> readings_dead_letters  (topic readings-dead)
├─ readings_rejected  (broke a rule)
│  └─> bad  (console)
├─ once  (deduplicated by sensor, at)
│  └─ averages  (SQL)
│     └─> averages  (delta lake/averages; every 5 seconds; mode update)
└─ named  (SQL; with rooms)
   └─> alerts  (topic alerts; read by back)

rooms  (csv rooms.csv, read at the start)
└─ named, as above

back  (topics alerts, other)
└─> back  (parquet /<&>/x)
"""


def graph(folder: Path) -> Graph:
    path = folder / "iot.yaml"
    path.write_text(TEXT)
    return graph_of(read_pipeline(path))


def test_the_text(tmp_path: Path) -> None:
    assert text_of(graph(tmp_path)) == DRAWN


def test_the_picture_has_a_box_for_each_node_and_a_line_for_each_edge(tmp_path: Path) -> None:
    drawn = graph(tmp_path)
    root = ElementTree.fromstring(svg_of(drawn))
    groups = root.findall(f"{SVG}g")
    titles = [str(group.findtext(f"{SVG}title")) for group in groups]
    assert titles == ["\n".join([node.name, *node.details]) for node in drawn.nodes]
    assert [group.get("class") for group in groups] == [node.kind for node in drawn.nodes]
    lines = [path.get("class") for path in root.findall(f"{SVG}path")]
    assert lines.count("edge") == sum(not edge.is_handed_over for edge in drawn.edges)
    assert lines.count("edge handed") == 1


def test_boxes_keep_apart_and_inside_the_picture(tmp_path: Path) -> None:
    root = ElementTree.fromstring(svg_of(graph(tmp_path)))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    boxes = [
        [float(box.get(name, 0)) for name in ("x", "y", "width", "height")]
        for box in root.iter(f"{SVG}rect")
        if box.get("class") == "box"
    ]
    for left, top, wide, high in boxes:
        assert left >= 0
        assert top >= 0
        assert left + wide <= width
        assert top + high <= height
    for (ax, ay, aw, ah), (bx, by, bw, bh) in itertools.combinations(boxes, 2):
        assert ax + aw <= bx or bx + bw <= ax or ay + ah <= by or by + bh <= ay


def test_lines_leave_and_reach_boxes_from_left_to_right(tmp_path: Path) -> None:
    root = ElementTree.fromstring(svg_of(graph(tmp_path)))
    for path in root.findall(f"{SVG}path"):
        if path.get("class") == "edge":
            numbers = [float(one) for one in re.findall(r"-?[\d.]+", path.get("d", ""))]
            assert numbers[0] < numbers[-2]


def test_crossings_that_can_be_avoided_are() -> None:
    """Two sources whose flows are declared in the opposite order."""
    nodes = [
        Node(identity=name, kind=kind, name=name, details=())
        for name, kind in (
            ("a", NodeKind.SOURCE),
            ("b", NodeKind.SOURCE),
            ("to b", NodeKind.FLOW),
            ("to a", NodeKind.FLOW),
        )
    ]
    edges = (Edge(start="a", end="to a"), Edge(start="b", end="to b"))
    layers = layers_of(Graph(name="x", nodes=tuple(nodes), edges=edges))
    assert crossings(layers.layers, layers.links) == 0


@given(st.lists(st.tuples(st.floats(-1000, 1000), st.floats(0, 100)), min_size=1, max_size=8))
def test_places_keep_their_distance_and_stay_where_they_can(
    wanted: list[tuple[float, float]],
) -> None:
    places = [place for place, _ in wanted]
    distances = [distance for _, distance in wanted[1:]]
    result = apart(places, distances)
    for (a, b), distance in zip(itertools.pairwise(result), distances, strict=True):
        assert b - a >= distance - 1e-6
    if all(
        b - a >= distance
        for (a, b), distance in zip(itertools.pairwise(places), distances, strict=True)
    ):
        assert all(abs(a - b) < 1e-6 for a, b in zip(places, result, strict=True))


def test_nothing_is_drawn_too() -> None:
    nothing = Graph(name="empty", nodes=(), edges=())
    assert text_of(nothing) == ""
    assert ElementTree.fromstring(svg_of(nothing)).tag == f"{SVG}svg"
