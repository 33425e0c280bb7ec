"""Pairs the rows that are expected with those that came, in any order.

An expected row names some columns, each row perhaps others, and fits every row that agrees in them.
So that a row which fits several does not take the only partner of another, pairs are found by
augmenting paths (a largest matching in a bipartite graph).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as spark

# Sums of floating-point numbers depend on the order of the rows, which Spark does not promise.
DOUBLE_TOLERANCE = 1e-9
FLOAT_TOLERANCE = 1e-6

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """Indices: which expected row goes with which found one, and what is left over."""

    pairs: Mapping[int, int]
    missing: tuple[int, ...]
    unexpected: tuple[int, ...]

    @property
    def is_complete(self) -> bool:
        return not self.missing and not self.unexpected


def match_rows(expected: Sequence[Row], found: Sequence[Row], schema: spark.StructType) -> Matching:
    """The largest set of pairs; `expected` has values of the schema's types."""
    fitting = [
        [index for index, row in enumerate(found) if row_fits(wanted, row, schema)]
        for wanted in expected
    ]
    taken: dict[int, int] = {}
    for index in range(len(expected)):
        _place(index, fitting, taken)
    pairs = {wanted: got for got, wanted in taken.items()}
    return Matching(
        pairs=pairs,
        missing=tuple(index for index in range(len(expected)) if index not in pairs),
        unexpected=tuple(index for index in range(len(found)) if index not in taken),
    )


def _place(start: int, fitting: Sequence[Sequence[int]], taken: dict[int, int]) -> None:
    """Find a partner for one expected row, moving others to another partner where they have one."""
    came_from: dict[int, int] = {}
    waiting = [start]
    while waiting:
        wanted = waiting.pop()
        for got in fitting[wanted]:
            if got in came_from:
                continue
            came_from[got] = wanted
            if got not in taken:
                _shift(got, start, came_from, taken)
                return
            waiting.append(taken[got])


def _shift(free: int, start: int, came_from: Mapping[int, int], taken: dict[int, int]) -> None:
    """Walk back from a free partner and give each expected row on the way the next one."""
    got = free
    while True:
        wanted = came_from[got]
        before = next((other for other, owner in taken.items() if owner == wanted), None)
        taken[got] = wanted
        if wanted == start:
            return
        assert before is not None, "only the first row of a path has no partner yet"
        del taken[before]
        got = before


def row_fits(wanted: Row, found: Row, schema: spark.StructType) -> bool:
    """Whether the row agrees in every column that is named."""
    return not differing(wanted, found, schema)


def differing(wanted: Row, found: Row, schema: spark.StructType) -> tuple[str, ...]:
    """The named columns in which the row does not agree."""
    return tuple(
        name
        for name, value in wanted.items()
        if not fits(value, found.get(name), schema[name].dataType)
    )


def fits(wanted: Any, found: Any, kind: spark.DataType) -> bool:
    """Whether two values of a type are the same, as far as `wanted` says something."""
    if wanted is None or found is None:
        return wanted is found
    if isinstance(kind, spark.StructType):
        return row_fits(wanted, found, kind)
    if isinstance(kind, spark.ArrayType):
        same_length = len(wanted) == len(found)
        pairs = zip(wanted, found, strict=False)
        return same_length and all(fits(one, two, kind.elementType) for one, two in pairs)
    if isinstance(kind, spark.MapType):
        return _maps_fit(dict(wanted), dict(found), kind)
    if isinstance(kind, spark.DoubleType | spark.FloatType):
        return _numbers_fit(wanted, found, kind)
    return bool(wanted == found)


def _maps_fit(wanted: dict[Any, Any], found: dict[Any, Any], kind: spark.MapType) -> bool:
    return wanted.keys() == found.keys() and all(
        fits(value, found[key], kind.valueType) for key, value in wanted.items()
    )


def _numbers_fit(wanted: float, found: float, kind: spark.DataType) -> bool:
    if math.isnan(wanted) or math.isnan(found):
        return math.isnan(wanted) and math.isnan(found)
    tolerance = FLOAT_TOLERANCE if isinstance(kind, spark.FloatType) else DOUBLE_TOLERANCE
    return math.isclose(wanted, found, rel_tol=tolerance, abs_tol=tolerance)
