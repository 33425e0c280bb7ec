"""What a query's own conditions say about which ranges need not be read.

A condition on topic, partition or offset that is understood is kept exactly, so that Spark need not
look at it again. A condition on the timestamp only bounds where reading starts: timestamps are not
sorted, so records that don't meet it come along and Spark still has to look at every row.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from penstock.model.ids import TopicPartition

OFFSET_MAX = 2**63 - 1
# These are never null, so conditions on null are decided at once. A timestamp may be: one that is
# too far from 1970 for Spark's microseconds.
NEVER_NULL = frozenset({"topic", "partition", "offset", "timestampType"})

Test = Callable[[Any], bool]

_COMPARISONS: Mapping[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda found, values: found in values,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}


@dataclass(slots=True)
class Narrowing:
    """What is left of a topic once the conditions of a query are known."""

    topic_tests: list[Test] = field(default_factory=list)
    partition_tests: list[Test] = field(default_factory=list)
    offset_min: int = 0
    offset_stop: int = OFFSET_MAX
    # The first millisecond that may be wanted; None while every time is.
    timestamp_ms_min: int | None = None
    nothing: bool = False

    def keeps(self, partition: TopicPartition) -> bool:
        return (
            not self.nothing
            and all(test(str(partition.topic)) for test in self.topic_tests)
            and all(test(int(partition.partition)) for test in self.partition_tests)
        )

    def cut(self, start: int, stop: int) -> tuple[int, int]:
        """The part of a range that is wanted; empty when both are equal."""
        start = max(start, self.offset_min)
        return start, max(start, min(stop, self.offset_stop))

    def push(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take in what is understood and return the filters that Spark must still apply."""
        return [each for each in filters if not self._take(each)]

    def _take(self, given: Filter) -> bool:
        column = _column(given)
        if column == "timestamp":
            self._bound_start(given)
        if column not in NEVER_NULL:
            return False
        if isinstance(given, IsNotNull):
            return True
        if isinstance(given, IsNull):
            self.nothing = True
            return True
        match column:
            case "topic":
                return _take_test(given, self.topic_tests, str)
            case "partition":
                return _take_test(given, self.partition_tests, int)
            case "offset":
                return self._take_offset(given)
        return False

    def _take_offset(self, given: Filter) -> bool:
        match given:
            case EqualTo(value=int(value)) | EqualNullSafe(value=int(value)):
                self._keep_offsets(value, value + 1)
            case GreaterThan(value=int(value)):
                self._keep_offsets(value + 1, OFFSET_MAX)
            case GreaterThanOrEqual(value=int(value)):
                self._keep_offsets(value, OFFSET_MAX)
            case LessThan(value=int(value)):
                self._keep_offsets(0, value)
            case LessThanOrEqual(value=int(value)):
                self._keep_offsets(0, value + 1)
            case In(value=values):
                return self._take_offsets_in(values)
            case _:
                return False
        return True

    def _take_offsets_in(self, values: Sequence[Any]) -> bool:
        """A list of offsets bounds the range; only one without holes says it all."""
        offsets = sorted({value for value in values if isinstance(value, int)})
        if not offsets:
            return False
        self._keep_offsets(offsets[0], offsets[-1] + 1)
        return offsets[-1] - offsets[0] + 1 == len(offsets)

    def _keep_offsets(self, start: int, stop: int) -> None:
        self.offset_min = max(self.offset_min, start)
        self.offset_stop = min(self.offset_stop, max(stop, 0))

    def _bound_start(self, given: Filter) -> None:
        match given:
            case (
                EqualTo(value=datetime() as value)
                | EqualNullSafe(value=datetime() as value)
                | GreaterThan(value=datetime() as value)
                | GreaterThanOrEqual(value=datetime() as value)
            ):
                wanted = _floor_ms(value)
            case In(value=values) if values and all(isinstance(v, datetime) for v in values):
                each = [_floor_ms(value) for value in values]
                wanted = min((ms for ms in each if ms is not None), default=None)
                wanted = None if None in each else wanted
            case _:
                return
        if wanted is not None:
            self.timestamp_ms_min = max(self.timestamp_ms_min or 0, wanted)


def _column(given: Filter) -> str:
    inner = given.child if isinstance(given, Not) else given
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _take_test(given: Filter, tests: list[Test], kind: type) -> bool:
    test = _test_of(given, kind)
    if test is not None:
        tests.append(test)
    return test is not None


def _test_of(given: Filter, kind: type) -> Test | None:
    if isinstance(given, Not):
        inner = _test_of(given.child, kind)
        return None if inner is None else lambda found: not inner(found)
    compare = _COMPARISONS.get(type(given))
    value = getattr(given, "value", None)
    if compare is None or not _fits(value, kind):
        return None
    return lambda found: compare(found, value)


def _fits(value: Any, kind: type) -> bool:
    """Nulls and other types compare by Spark's rules, which are left to Spark."""
    values = value if isinstance(value, list | tuple) else [value]
    return bool(values) and all(type(each) is kind for each in values)


def _floor_ms(value: datetime) -> int | None:
    # A time without a zone is of a type that does not compare with ours.
    if value.tzinfo is None:
        return None
    wanted = int(value.replace(microsecond=0).timestamp()) * 1000 + value.microsecond // 1000
    # A record without a timestamp counts as older than the year 1970.
    return wanted if wanted > 0 else None
