"""Whatever a file holds, reading it gives a pipeline or problems that are sentences with places."""

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.pipelines.specification.graph import Graph, graph_of
from penstock.pipelines.specification.problems import SpecificationRefused
from penstock.pipelines.specification.reading import read_pipeline

TEXT = """\
pipeline: iot
parameters: {lake: {default: ./lake}, brokers: "localhost:9092"}
settings: {a: 1}
sources:
  readings:
    topic: readings
    brokers: ${brokers}
    options: {maxOffsetsPerTrigger: 100}
    decode: {format: json, schema: sensor STRING, keep: [key]}
    watermark: {column: at, delay: 10 seconds}
    rules: {plausible: {condition: t < 80, action: route}}
    dead_letters: dead
  rooms: {files: rooms.csv, format: csv, schema: sensor STRING, stream: false}
steps:
  averages: {sql: "SELECT window.start, avg(t) FROM readings GROUP BY window(at, '1 day')"}
  once: {deduplicate: averages, by: [sensor]}
flows:
  out: {from: once, to: {delta: "${lake}/x", partition_by: [a]}, every: 5 seconds}
  topic: {from: readings_rejected, to: {topic: out, key: a}}
tests:
  - {name: a, given: {readings: [{a: 1}]}, expect: {once: [{a: 1}]}}
"""
JUNK = [
    None,
    True,
    -1,
    "",
    "x",
    "${lake}",
    "${",
    "${no}",
    [],
    {},
    [None],
    [[1]],
    {"a": {"b": [1]}},
    "SELECT * FROM once",
    "SELECT",
    "a.py:b",
    "readings",
    "console",
    {"topic": "t"},
    "\n\n a",
]
SIGNS = "{}[]:#&*!|>'\"%@`\t\n\x07-? ,$"


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = node.items() if isinstance(node, dict) else enumerate(node)
    found = [] if not path else [path]
    if isinstance(node, dict | list):
        for key, child in children:
            found += (
                places(child, (*path, key)) if isinstance(child, dict | list) else [(*path, key)]
            )
    return found


def spoil(chance: random.Random, tree: Any) -> None:
    path = chance.choice(places(tree))
    holder = tree
    for key in path[:-1]:
        holder = holder[key]
    what = chance.random()
    if what < 0.6:
        holder[path[-1]] = copy.deepcopy(chance.choice(JUNK))
    elif what < 0.8 or isinstance(holder, list):
        del holder[path[-1]]
    else:
        holder[f"{path[-1]}s"] = holder.pop(path[-1])


@pytest.mark.parametrize("seed", range(60))
def test_spoilt_files(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    tree = yaml.safe_load(TEXT)
    for _ in range(chance.choice([1, 2, 4])):
        spoil(chance, tree)
    text = yaml.safe_dump(tree, sort_keys=False)
    if seed % 4 == 0:
        at = chance.randrange(len(text))
        text = text[:at] + chance.choice(SIGNS) + text[at:]
    path = tmp_path / "iot.yaml"
    path.write_text(text)
    outcome = graph_or_refusal(path)
    if isinstance(outcome, Graph):
        assert outcome.nodes
        return
    assert outcome.problems
    for problem in outcome.problems:
        assert problem.place.file == str(path)
        assert problem.sentence.endswith(".")
        assert "\n" not in problem.sentence


def graph_or_refusal(path: Path) -> Graph | SpecificationRefused:
    try:
        return graph_of(read_pipeline(path, {}, {}))
    except SpecificationRefused as refused:
        return refused
