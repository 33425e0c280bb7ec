"""Proves what a broker is asked for each kind of bound, and what follows from its answers."""

import pytest

from penstock.spark.options.bounds import (
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Bound,
    Earliest,
    Latest,
    NoMatch,
    Side,
)
from penstock.spark.planning.bounds import Answers, Questions, batch_ranges, questions, resolve
from penstock.spark.planning.errors import PlanError
from tests.unit.spark.planning.places import at, span

BOTH = {at(0), at(1)}
ANSWERS = Answers(
    earliest={at(0): 3, at(1): 4},
    latest={at(0): 30, at(1): 40},
    at_timestamp={at(0): 15, at(1): None},
)


@pytest.mark.parametrize(
    ("bound", "side", "expected"),
    [
        (Earliest(), Side.STARTING, Questions(earliest=frozenset(BOTH))),
        (Latest(), Side.ENDING, Questions(latest=frozenset(BOTH))),
        (AtOffsets({at(0): 5, at(1): 6}), Side.STARTING, Questions()),
        (
            AtOffsets({at(0): -2, at(1): -1}),
            Side.STARTING,
            Questions(earliest=frozenset({at(0)}), latest=frozenset({at(1)})),
        ),
        (
            AtTimestamp(9, NoMatch.ERROR),
            Side.STARTING,
            Questions(at_timestamp={at(0): 9, at(1): 9}),
        ),
        (
            AtTimestamp(9, NoMatch.LATEST),
            Side.STARTING,
            Questions(at_timestamp={at(0): 9, at(1): 9}, latest=frozenset(BOTH)),
        ),
        (
            AtTimestamps({at(0): 8, at(1): 9}, NoMatch.ERROR),
            Side.ENDING,
            Questions(at_timestamp={at(0): 8, at(1): 9}, latest=frozenset(BOTH)),
        ),
    ],
)
def test_only_what_is_needed_is_asked_for(bound: Bound, side: Side, expected: Questions) -> None:
    assert questions(bound, BOTH, side) == expected


@pytest.mark.parametrize(
    ("bound", "side", "first", "second"),
    [
        (Earliest(), Side.STARTING, 3, 4),
        (Latest(), Side.ENDING, 30, 40),
        (AtOffsets({at(0): 7, at(1): -1}), Side.STARTING, 7, 40),
        (AtOffsets({at(0): -2, at(1): 8}), Side.STARTING, 3, 8),
        (AtTimestamp(9, NoMatch.LATEST), Side.STARTING, 15, 40),
        (AtTimestamps({at(0): 9, at(1): 9}, NoMatch.LATEST), Side.STARTING, 15, 40),
        # An end that no record reaches is the end of the log, whatever the strategy of the start.
        (AtTimestamp(9, NoMatch.ERROR), Side.ENDING, 15, 40),
        (AtTimestamps({at(0): 9, at(1): 9}, NoMatch.ERROR), Side.ENDING, 15, 40),
    ],
)
def test_bounds_become_offsets(bound: Bound, side: Side, first: int, second: int) -> None:
    assert resolve(bound, BOTH, side, ANSWERS) == {at(0): first, at(1): second}


@pytest.mark.parametrize(
    "bound", [AtTimestamp(9, NoMatch.ERROR), AtTimestamps({at(0): 1, at(1): 9}, NoMatch.ERROR)]
)
def test_a_start_that_no_record_reaches_is_an_error_by_default(bound: Bound) -> None:
    with pytest.raises(PlanError, match="No record of orders-1 has a timestamp of 9 or later"):
        resolve(bound, BOTH, Side.STARTING, ANSWERS)


@pytest.mark.parametrize(
    ("bound", "side", "reason"),
    [
        (
            AtOffsets({at(0): 1}),
            Side.STARTING,
            r"startingOffsets must .* -1 for the latest offset .* it leaves out orders-1\.$",
        ),
        (
            AtOffsets({at(0): 1, at(1): 1, at(2): 1}),
            Side.ENDING,
            r"endingOffsets must .*; it also names orders-2\.$",
        ),
        (
            AtTimestamps({at(0): 1, at(2): 1}, NoMatch.ERROR),
            Side.STARTING,
            r"startingOffsetsByTimestamp must name exactly the partitions that are read; "
            r"it leaves out orders-1 and also names orders-2\.$",
        ),
    ],
)
def test_a_bound_names_exactly_what_is_read(bound: Bound, side: Side, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        questions(bound, BOTH, side)
    with pytest.raises(PlanError, match=reason):
        resolve(bound, BOTH, side, ANSWERS)


def test_ranges_are_in_order_and_none_is_empty() -> None:
    starts = {at(2): 5, at(0): 3, at(1): 4}
    ends = {at(1): 4, at(2): 9, at(0): 30}
    assert batch_ranges(Earliest(), Latest(), starts, ends) == [span(0, 3, 30), span(2, 5, 9)]


NAMED = AtOffsets({at(0): 20})
NAMED_EARLIEST = AtOffsets({at(0): -2})
NAMED_END = AtOffsets({at(0): 10})
NAMED_LATEST = AtOffsets({at(0): -1})
BY_TIME = AtTimestamp(9, NoMatch.ERROR)


@pytest.mark.parametrize(
    ("starting", "ending"),
    [
        (NAMED, NAMED_END),
        (NAMED, Latest()),
        (NAMED, NAMED_LATEST),
        (NAMED, BY_TIME),
        (BY_TIME, NAMED_END),
        (BY_TIME, BY_TIME),
    ],
)
def test_a_start_behind_the_end_is_refused_where_it_contradicts_itself(
    starting: Bound, ending: Bound
) -> None:
    with pytest.raises(PlanError, match="start at offset 20 of orders-0, which is after its end a"):
        batch_ranges(starting, ending, {at(0): 20}, {at(0): 10})


@pytest.mark.parametrize(
    ("starting", "ending"),
    [
        # Retention has overtaken the end.
        (Earliest(), NAMED_END),
        (NAMED_EARLIEST, NAMED_END),
        (Earliest(), BY_TIME),
        # The record of the start arrived after the latest offset was asked for.
        (BY_TIME, Latest()),
    ],
)
def test_otherwise_nothing_is_left_to_read(starting: Bound, ending: Bound) -> None:
    assert batch_ranges(starting, ending, {at(0): 20}, {at(0): 10}) == []
