"""Raft's own entries and gaps: batches that Kafka's arithmetic and tools accept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records.batch import (
    CorruptBatch,
    build_batch,
    check_batch,
    crc_matches,
    decode_records,
    parse_header,
    seal,
)
from penstock.records.own_entries import (
    GAP_SPAN_MAX,
    OwnContent,
    OwnKind,
    build_gap,
    build_gaps,
    build_own,
    parse_own,
)
from penstock.records.record import Record

ONE = [Record(key=None, value=b"v", timestamp_ms=1)]


@given(
    kind=st.sampled_from(OwnKind),
    index=st.integers(0, 2**64 - 1),
    term=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    payload=st.binary(max_size=100),
)
def test_an_own_entry_says_what_was_put_in(
    kind: OwnKind, index: int, term: int, offset: int, payload: bytes
) -> None:
    batch = build_own(kind, index=index, term=term, offset=offset, payload=payload)
    header = parse_header(batch)
    assert header.is_own
    assert header.is_control
    assert not header.is_gap
    assert crc_matches(batch, 0, header)
    assert (header.size, header.leader_epoch) == (len(batch), term)
    # It holds no offset: the next record gets the one that it begins with.
    assert (header.base_offset, header.last_offset, header.next_offset) == (
        offset,
        offset - 1,
        offset,
    )
    assert parse_own(batch) == OwnContent(kind, index, payload)
    # It holds no records either.
    with pytest.raises(CorruptBatch):
        list(decode_records(batch))


@given(span=st.integers(1, GAP_SPAN_MAX), offset=st.integers(0, 2**60))
def test_a_gap_covers_its_offsets(span: int, offset: int) -> None:
    batch = build_gap(offset=offset, span=span, term=7)
    header = parse_header(batch)
    assert header.is_gap
    assert not header.is_own
    assert crc_matches(batch, 0, header)
    assert (header.base_offset, header.next_offset) == (offset, offset + span)
    assert list(decode_records(batch)) == []


def test_a_large_gap_takes_several_batches() -> None:
    headers = [parse_header(one) for one in build_gaps(offset=10, span=2**32, term=1)]
    assert headers[0].base_offset == 10
    assert [header.next_offset for header in headers[:-1]] == [
        header.base_offset for header in headers[1:]
    ]
    assert headers[-1].next_offset == 10 + 2**32


def test_an_empty_batch_of_a_producer_is_no_gap() -> None:
    header = parse_header(build_batch(ONE, producer_id=5, producer_epoch=0, base_sequence=3))
    assert not parse_header(seal(header._replace(record_count=0), b"")).is_gap


def test_a_producer_cant_send_an_own_entry_or_a_gap() -> None:
    with pytest.raises(CorruptBatch):
        check_batch(build_own(OwnKind.NEW_TERM, index=1, term=1, offset=0))
    with pytest.raises(CorruptBatch):
        check_batch(build_gap(offset=0, span=1, term=1))


@pytest.mark.parametrize(
    "change",
    [{"attributes": 0}, {"record_count": 1}, {"last_offset_delta": -2}, {"base_offset": -1}],
)
def test_what_only_looks_like_an_own_entry_is_no_batch(change: dict[str, int]) -> None:
    header = parse_header(build_own(OwnKind.NEW_TERM, index=1, term=1, offset=0))
    with pytest.raises(CorruptBatch, match="impossible header"):
        parse_header(seal(header._replace(**change), b""))


@pytest.mark.parametrize(
    "content", [b"", b"\x01", b"\x09" + bytes(15) + b"\x01", b"\x00" * 16, b"\x01" + bytes(16)]
)
def test_an_own_entry_without_sense_is_corrupt(content: bytes) -> None:
    header = parse_header(build_own(OwnKind.NEW_TERM, index=1, term=1, offset=0))
    with pytest.raises(CorruptBatch):
        parse_own(seal(header, content))
    with pytest.raises(CorruptBatch):
        parse_own(build_batch(ONE))
