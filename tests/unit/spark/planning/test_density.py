"""Proves that a few batch headers say what a range of offsets holds, gaps and all."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records.batch import BatchHeader
from penstock.spark.planning.density import (
    NOTHING,
    ROW_COST_BYTES,
    UNKNOWN,
    Piece,
    Rates,
    Sample,
    density,
    probe_points,
)


def sample(asked: int, offset: int, span: int, records: int, size_bytes: int = 1000) -> Sample:
    return Sample(asked=asked, offset=offset, span=span, records=records, size_bytes=size_bytes)


def dense(asked: int) -> Sample:
    """A batch of ten records that begins where it was asked for."""
    return sample(asked, asked, 10, 10)


def test_points_are_spread_from_the_start_and_never_doubled() -> None:
    assert probe_points(100, 200, 4) == [100, 125, 150, 175]
    assert probe_points(5, 7, 8) == [5, 6]
    assert probe_points(5, 5, 8) == []


def test_a_sample_is_taken_from_a_header() -> None:
    header = BatchHeader(
        base_offset=50,
        batch_length=488,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=19,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=5,
    )
    found = Sample.of(45, header)
    assert found == sample(45, 50, 20, 5, 500)
    assert found.rates == Rates(records=0.25, cost=(500 + 5 * ROW_COST_BYTES) / 20)


def test_without_samples_every_offset_counts_as_a_record() -> None:
    assert density(0, 100, []) == (Piece(start=0, stop=100, rates=UNKNOWN),)
    assert density(0, 100, [dense(100), dense(-1)]) == density(0, 100, [])


def test_what_lies_between_the_offset_asked_for_and_the_batch_is_empty() -> None:
    found = density(0, 100, [sample(0, 60, 10, 10)])
    rates = sample(0, 60, 10, 10).rates
    assert rates is not None
    assert found == (
        Piece(start=0, stop=60, rates=NOTHING),
        Piece(start=60, stop=70, rates=rates),
        Piece(start=70, stop=100, rates=rates),
    )


def test_a_batch_that_began_before_counts_from_the_offset_asked_for() -> None:
    found = density(50, 60, [sample(50, 45, 10, 10)])
    assert [(piece.start, piece.stop) for piece in found] == [(50, 55), (55, 60)]


def test_between_samples_the_denser_counts_for_records_and_the_mean_for_cost() -> None:
    thin, thick = sample(0, 0, 10, 1, 100), sample(50, 50, 10, 10, 1000)
    found = density(0, 100, [thick, thin])
    assert thin.rates is not None
    assert thick.rates is not None
    assert found[1] == Piece(
        start=10,
        stop=50,
        rates=Rates(records=1.0, cost=(thin.rates.cost + thick.rates.cost) / 2),
    )


def test_a_batch_that_compaction_emptied_says_nothing_of_its_neighbours() -> None:
    found = density(0, 100, [sample(0, 0, 20, 0, 61)])
    assert found == (
        Piece(start=0, stop=20, rates=NOTHING),
        Piece(start=20, stop=100, rates=UNKNOWN),
    )


def test_where_a_peek_finds_nothing_the_rest_is_empty() -> None:
    found = density(0, 100, [dense(0), Sample.of(50, None)])
    assert found[-1] == Piece(start=50, stop=100, rates=NOTHING)
    assert found[-2].stop == 50
    assert found[-2].rates == dense(0).rates


def test_offsets_before_the_first_sample_are_taken_to_be_like_it() -> None:
    assert density(0, 100, [dense(40)])[0] == Piece(
        start=0, stop=40, rates=dense(40).rates or NOTHING
    )


@given(
    st.integers(0, 1000),
    st.integers(1, 1000),
    st.lists(
        st.tuples(
            st.integers(0, 2000), st.integers(-50, 500), st.integers(0, 300), st.integers(0, 300)
        ),
        max_size=8,
    ),
)
def test_pieces_cover_the_range_without_holes(
    start: int, size: int, drawn: list[tuple[int, int, int, int]]
) -> None:
    samples = [
        sample(asked, max(0, asked + shift), span, min(records, span))
        for asked, shift, span, records in drawn
    ]
    found = density(start, start + size, samples)
    assert found[0].start == start
    assert found[-1].stop == start + size
    assert all(piece.start < piece.stop for piece in found)
    assert all(left.stop == right.start for left, right in pairwise(found))
    assert all(0.0 <= piece.rates.records <= 1.0 for piece in found)


def test_an_empty_range_has_no_pieces() -> None:
    assert sum(piece.stop - piece.start for piece in density(5, 5, [])) == pytest.approx(0)
