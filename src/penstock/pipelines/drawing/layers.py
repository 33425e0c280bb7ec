"""Lays a graph out in layers from left to right, with few crossings.

The steps are those of Sugiyama, Tagawa and Toda (1981): a layer for each node, stand-ins where an
edge passes a layer, then sweeps that put each node near the middle of its neighbours.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.pipelines.specification.graph import Graph, NodeKind

_SWEEPS = 12


@dataclass(frozen=True, slots=True)
class Layers:
    """Names of nodes by layer, from top to bottom, and the edges between neighbouring layers."""

    layers: tuple[tuple[str, ...], ...]
    links: tuple[tuple[str, str], ...]
    paths: dict[tuple[str, str], tuple[str, ...]]
    """For each edge of the graph the nodes it runs through, stand-ins included."""


def layers_of(graph: Graph) -> Layers:
    edges = [(edge.start, edge.end) for edge in graph.edges if not edge.is_handed_over]
    depth = _depths(graph, edges)
    columns: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in graph.nodes:
        columns[depth[node.identity]].append(node.identity)
    paths: dict[tuple[str, str], tuple[str, ...]] = {}
    for start, end in edges:
        between = [f"{start} -> {end} in {one}" for one in range(depth[start] + 1, depth[end])]
        for offset, stand_in in enumerate(between, 1):
            columns[depth[start] + offset].append(stand_in)
        paths[start, end] = (start, *between, end)
    links = tuple(
        dict.fromkeys(pair for path in paths.values() for pair in itertools.pairwise(path))
    )
    return Layers(tuple(map(tuple, _with_few_crossings(columns, links))), links, paths)


def _depths(graph: Graph, edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Sources first, flows last, everything else right after its inputs."""
    depth: dict[str, int] = {}
    for node in graph.nodes:
        depth[node.identity] = max(
            (depth[start] + 1 for start, end in edges if end == node.identity), default=0
        )
    last = max(depth.values(), default=0)
    flows = {node.identity: last for node in graph.nodes if node.kind is NodeKind.FLOW}
    return depth | flows


def _with_few_crossings(
    columns: list[list[str]], links: Sequence[tuple[str, str]]
) -> list[list[str]]:
    best, fewest = columns, crossings(columns, links)
    current = columns
    for sweep in range(_SWEEPS):
        current = _swept(current, links, is_rightward=sweep % 2 == 0)
        count = crossings(current, links)
        if count < fewest:
            best, fewest = current, count
    return best


def _swept(
    columns: list[list[str]], links: Sequence[tuple[str, str]], *, is_rightward: bool
) -> list[list[str]]:
    """Each layer ordered by the middle of the neighbours in the layer before it."""
    result = [list(column) for column in columns]
    numbers = range(1, len(result)) if is_rightward else range(len(result) - 2, -1, -1)
    for number in numbers:
        before = result[number - 1 if is_rightward else number + 1]
        rank = {name: index for index, name in enumerate(before)}
        own = {name: index for index, name in enumerate(result[number])}
        middle = {}
        for name, index in own.items():
            near = [rank[other] for other in _neighbours(name, links) if other in rank]
            middle[name] = sum(near) / len(near) if near else float(index)
        result[number].sort(key=lambda name: (middle[name], own[name]))
    return result


def _neighbours(name: str, links: Sequence[tuple[str, str]]) -> list[str]:
    starts = [start for start, end in links if end == name]
    return starts + [end for start, end in links if start == name]


def crossings(columns: Sequence[Sequence[str]], links: Sequence[tuple[str, str]]) -> int:
    """How many pairs of links cross."""
    total = 0
    for left, right in itertools.pairwise(columns):
        starts = {name: index for index, name in enumerate(left)}
        ends = {name: index for index, name in enumerate(right)}
        pairs = [(starts[a], ends[b]) for a, b in links if a in starts and b in ends]
        for number, (a, b) in enumerate(pairs):
            total += sum((a - c) * (b - d) < 0 for c, d in pairs[number + 1 :])
    return total
