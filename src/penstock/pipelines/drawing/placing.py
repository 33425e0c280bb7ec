"""Gives each node of a layered graph its place, in pixels."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.pipelines.drawing.layers import Layers

LAYER_GAP = 72
NODE_GAP = 22
_ROUNDS = 16


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle; `middle` is its height's half."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def middle(self) -> float:
        return self.top + self.height / 2


def boxes_of(layers: Layers, sizes: Mapping[str, tuple[float, float]]) -> dict[str, Box]:
    """Every node and stand-in; a stand-in has no size of its own and is as wide as its layer."""
    middles = _middles(layers, sizes)
    heights = {name: sizes.get(name, (0.0, 0.0))[1] for layer in layers.layers for name in layer}
    top = min((middles[name] - heights[name] / 2 for name in middles), default=0.0)
    boxes: dict[str, Box] = {}
    left = 0.0
    for layer in layers.layers:
        width = max((sizes[name][0] for name in layer if name in sizes), default=0.0)
        for name in layer:
            # A node keeps the width of its layer, so that edges end in one line.
            upper = middles[name] - heights[name] / 2 - top
            boxes[name] = Box(left, upper, width, heights[name])
        left += width + LAYER_GAP
    return boxes


def _middles(layers: Layers, sizes: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Heights at which nodes are near their neighbours, and no two overlap."""
    near: dict[str, list[str]] = {name: [] for layer in layers.layers for name in layer}
    for start, end in layers.links:
        near[start].append(end)
        near[end].append(start)
    middles: dict[str, float] = {}
    for layer in layers.layers:
        distances = _distances(layer, sizes)
        height = sum(distances)
        at = -height / 2
        for name, distance in zip(layer, (0.0, *distances), strict=True):
            at += distance
            middles[name] = at
    for turn in range(_ROUNDS):
        for layer in layers.layers if turn % 2 == 0 else reversed(layers.layers):
            wanted = [
                sum(middles[other] for other in near[name]) / len(near[name])
                if near[name]
                else middles[name]
                for name in layer
            ]
            placed = apart(wanted, _distances(layer, sizes))
            middles.update(zip(layer, placed, strict=True))
    return middles


def _distances(layer: Sequence[str], sizes: Mapping[str, tuple[float, float]]) -> list[float]:
    """How far the middles of neighbours in a layer must lie apart."""
    heights = [sizes.get(name, (0.0, 0.0))[1] for name in layer]
    return [(a + b) / 2 + NODE_GAP for a, b in itertools.pairwise(heights)]


def apart(wanted: Sequence[float], distances: Sequence[float]) -> list[float]:
    """The places nearest to those wanted, by the sum of squares, that keep distances and order.

    With the distances taken off, this is a regression under the constraint that values never fall:
    neighbours that would change places are pooled at their mean.
    """
    offsets = [0.0]
    for distance in distances:
        offsets.append(offsets[-1] + distance)
    pools: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=False):
        total, count = want - offset, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before = pools.pop()
            total, count = total + before[0], count + before[1]
        pools.append((total, count))
    level = [total / count for total, count in pools for _ in range(count)]
    return [value + offset for value, offset in zip(level, offsets, strict=False)]
