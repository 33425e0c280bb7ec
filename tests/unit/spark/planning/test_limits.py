"""Proves that limits share a batch among partitions as Spark's Kafka source does, and always get
further; and when a batch below the minimum is held back.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.planning.limits import is_held_back, limited_end
from tests.unit.spark.planning.places import at


def test_shares_are_in_proportion_to_what_waits() -> None:
    start = {at(0): 0, at(1): 100, at(2): 7}
    latest = {at(0): 900, at(1): 200, at(2): 7}
    end = limited_end(start, latest, {}, offsets_max=100)
    assert end == {at(0): 90, at(1): 110, at(2): 7}


def test_shares_are_rounded_down_but_never_to_nothing() -> None:
    start = {at(0): 0, at(1): 0, at(2): 0}
    latest = {at(0): 1000, at(1): 1, at(2): 999}
    assert limited_end(start, latest, {}, offsets_max=15) == {at(0): 7, at(1): 1, at(2): 7}


def test_a_limit_above_what_waits_reads_it_all() -> None:
    latest = {at(0): 10, at(1): 20}
    assert limited_end({at(0): 5, at(1): 5}, latest, {}, offsets_max=2**63 - 1) == latest


def test_new_partitions_take_their_share_from_their_earliest_offset() -> None:
    end = limited_end({at(0): 0}, {at(0): 100, at(1): 150}, {at(1): 50}, offsets_max=20)
    assert end == {at(0): 10, at(1): 60}


def test_a_partition_whose_start_nobody_knows_or_that_went_back_keeps_its_end() -> None:
    latest = {at(0): 100, at(1): 50, at(2): 8}
    end = limited_end({at(0): 0, at(2): 9}, latest, {}, offsets_max=10)
    assert end == {at(0): 10, at(1): 50, at(2): 8}


def test_nothing_waits() -> None:
    assert limited_end({at(0): 5}, {at(0): 5}, {}, offsets_max=10) == {at(0): 5}


@given(
    st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)), min_size=1, max_size=20),
    st.integers(1, 2**63 - 1),
)
def test_every_batch_gets_further_and_stays_near_its_limit(
    partitions: list[tuple[int, int]], offsets_max: int
) -> None:
    start = {at(number): begin for number, (begin, _) in enumerate(partitions)}
    latest = {at(number): begin + size for number, (begin, size) in enumerate(partitions)}
    end = limited_end(start, latest, {}, offsets_max=offsets_max)
    assert all(start[place] <= end[place] <= latest[place] for place in start)
    assert all(end[place] > start[place] for place in start if latest[place] > start[place])
    assert sum(end[place] - start[place] for place in start) <= offsets_max + len(start)


def held_back(waiting: int, since_last_s: float | None) -> bool:
    return is_held_back(
        {at(0): 10},
        {at(0): 10 + waiting, at(1): 5},
        {at(1): 5},
        offsets_min=100,
        delay_max_s=60.0,
        since_last_s=since_last_s,
    )


@pytest.mark.parametrize(
    ("waiting", "since_last_s", "expected"),
    [
        (99, 1.0, True),
        (100, 1.0, False),
        (0, 59.9, True),
        (99, 60.0, False),
        (0, None, False),
    ],
)
def test_a_small_batch_waits_until_more_comes_or_time_is_up(
    waiting: int, since_last_s: float | None, expected: bool
) -> None:
    assert held_back(waiting, since_last_s) is expected
