"""Proves that ranges are split only on request, as Spark's Kafka source splits them while nothing
is known of what they hold, and by what they hold once it is; and that nothing is lost or doubled.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import TopicPartition
from penstock.spark.planning.density import Density, Sample, density, probe_points
from penstock.spark.planning.errors import PlanError
from penstock.spark.planning.ranges import OffsetRange, is_split_wanted, split
from tests.unit.spark.planning.places import at, span


def cut(
    ranges: list[OffsetRange],
    densities: dict[TopicPartition, Density] | None = None,
    *,
    least: int | None = None,
    records_max: int | None = None,
) -> list[OffsetRange]:
    return split(
        ranges, densities or {}, partitions_min=least, records_per_partition_max=records_max
    )


def sizes(ranges: list[OffsetRange]) -> list[int]:
    return [offsets.size for offsets in ranges]


def test_nothing_is_split_unasked() -> None:
    assert cut([span(0, 0, 10**9), span(1, 5, 5), span(2, 1, 2)]) == [
        span(0, 0, 10**9),
        span(2, 1, 2),
    ]


def test_enough_ranges_stay_as_they_are() -> None:
    ranges = [span(0, 0, 1000), span(1, 0, 10)]
    assert cut(ranges, least=2) == ranges
    assert cut(ranges, least=1) == ranges


def test_one_range_is_cut_evenly_and_the_later_parts_take_the_rest() -> None:
    assert cut([span(0, 0, 10)], least=3) == [span(0, 0, 3), span(0, 3, 6), span(0, 6, 10)]


def test_large_ranges_share_the_tasks_that_small_ones_leave() -> None:
    found = cut([span(0, 0, 10000), span(1, 0, 100), span(2, 0, 100)], least=6)
    assert [offsets.partition.partition for offsets in found] == [0, 0, 0, 0, 1, 2]
    assert sizes(found) == [2500, 2500, 2500, 2500, 100, 100]


def test_halves_are_rounded_up() -> None:
    # 1.5 of 3 tasks each: two for both.
    assert len(cut([span(0, 0, 100), span(1, 0, 100)], least=3)) == 4


def test_empty_ranges_count_for_nothing() -> None:
    assert sizes(cut([span(0, 0, 100), span(1, 7, 7), span(2, 9, 5)], least=2)) == [50, 50]


def test_records_are_limited() -> None:
    found = cut([span(0, 0, 10), span(1, 100, 103)], records_max=3)
    assert found == [span(0, 0, 2), span(0, 2, 4), span(0, 4, 7), span(0, 7, 10), span(1, 100, 103)]


def test_the_minimum_comes_after_the_limit_and_only_if_it_is_not_met() -> None:
    ranges = [span(0, 0, 100)]
    assert len(cut(ranges, records_max=10, least=5)) == 10
    assert len(cut(ranges, records_max=50, least=4)) == 4
    assert sizes(cut(ranges, records_max=50, least=4)) == [25, 25, 25, 25]


def test_no_more_tasks_than_offsets() -> None:
    assert cut([span(0, 5, 7)], least=1000) == [span(0, 5, 6), span(0, 6, 7)]


def test_too_many_tasks_are_refused() -> None:
    with pytest.raises(PlanError, match=r"maxRecordsPerPartition \(1\) would split .* 1000000 tas"):
        cut([span(0, 0, 10**6)], records_max=1)
    with pytest.raises(PlanError, match=r"minPartitions \(2147483647\) would split one batch into"):
        cut([span(0, 0, 10**12)], least=2**31 - 1)


@pytest.mark.parametrize(
    ("least", "records_max", "wanted"),
    [
        (None, None, False),
        (2, None, False),
        (3, None, True),
        (None, 100, False),
        (None, 99, True),
        (2, 100, False),
    ],
)
def test_peeking_is_worth_it_only_if_something_is_split(
    least: int | None, records_max: int | None, wanted: bool
) -> None:
    ranges = [span(0, 0, 100), span(1, 0, 10), span(2, 0, 0)]
    found = is_split_wanted(ranges, partitions_min=least, records_per_partition_max=records_max)
    assert found is wanted


def test_nothing_is_wanted_of_nothing() -> None:
    empty = [span(0, 3, 3)]
    assert not is_split_wanted(empty, partitions_min=5, records_per_partition_max=1)
    assert cut(empty, least=5, records_max=1) == []


def dense(asked: int, size_bytes: int = 1000) -> Sample:
    return Sample(asked=asked, offset=asked, span=10, records=10, size_bytes=size_bytes)


def test_a_range_without_gaps_is_split_as_if_nothing_were_known_of_it() -> None:
    known = {at(0): density(0, 1000, [dense(point) for point in probe_points(0, 1000)])}
    ranges = [span(0, 0, 1000)]
    assert cut(ranges, known, records_max=250) == cut(ranges, records_max=250)
    assert cut(ranges, known, least=8) == cut(ranges, least=8)


def test_a_gap_takes_no_tasks() -> None:
    # Compaction left the last thousand of a million offsets.
    head = Sample(asked=0, offset=999_000, span=10, records=10, size_bytes=1000)
    known = {at(0): density(0, 10**6, [head])}
    found = cut([span(0, 0, 10**6)], known, records_max=250)
    assert sizes(found) == [999_250, 250, 250, 250]
    assert sizes(cut([span(0, 0, 10**6)], known, least=2)) == [999_500, 500]


def test_large_records_get_more_tasks_than_small_ones() -> None:
    # The second half holds ten times the bytes.
    samples = [dense(0), dense(499), dense(500, 11_000), dense(999, 11_000)]
    known = {at(0): density(0, 1000, samples)}
    first, second = cut([span(0, 0, 1000)], known, least=2)
    assert first.stop == second.start
    assert 700 < first.stop < 750


def test_a_partition_of_large_records_is_split_before_one_of_small_records() -> None:
    known = {
        at(0): density(0, 1000, [dense(0, 100)]),
        at(1): density(0, 1000, [dense(0, 100_000)]),
    }
    found = cut([span(0, 0, 1000), span(1, 0, 1000)], known, least=4)
    assert [offsets.partition.partition for offsets in found] == [0, 1, 1, 1]


def test_ranges_known_to_be_empty_are_still_read_by_one_task() -> None:
    known = {at(0): density(0, 1000, [Sample.of(0, None)])}
    assert cut([span(0, 0, 1000)], known, least=8, records_max=10) == [span(0, 0, 1000)]


SAMPLES = st.lists(
    st.builds(
        lambda asked, shift, span, records: Sample(
            asked=asked,
            offset=asked + shift,
            span=span,
            records=min(records, span),
            size_bytes=61 + records * 10,
        ),
        st.integers(0, 5000),
        st.integers(0, 500),
        st.integers(1, 300),
        st.integers(0, 300),
    ),
    max_size=6,
)


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 3000), SAMPLES), max_size=5),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 500),
)
def test_every_offset_is_read_once_and_in_order(
    drawn: list[tuple[int, int, list[Sample]]], least: int | None, records_max: int | None
) -> None:
    ranges = [span(number, start, start + size) for number, (start, size, _) in enumerate(drawn)]
    known = {
        at(number): density(start, start + size, samples)
        for number, (start, size, samples) in enumerate(drawn)
        if samples and size
    }
    found = cut(ranges, known, least=least, records_max=records_max)
    assert all(offsets.size > 0 for offsets in found)
    for whole in ranges:
        parts = [offsets for offsets in found if offsets.partition == whole.partition]
        position = whole.start
        for part in parts:
            assert part.start == position
            position = part.stop
        assert position == (whole.stop if whole.size else whole.start)


@given(st.integers(0, 100), st.integers(1, 5000), st.integers(1, 700))
def test_without_samples_the_limit_on_records_holds_exactly(
    start: int, size: int, records_max: int
) -> None:
    found = cut([span(0, start, start + size)], records_max=records_max)
    assert max(sizes(found)) <= records_max
    assert len(found) == -(-size // records_max)
