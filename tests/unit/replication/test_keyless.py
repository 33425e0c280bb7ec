"""Proves that the fast scan takes what compaction can read, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records.batch import batch_payload, build_batch, parse_header
from penstock.records.errors import CorruptBatch
from penstock.records.raw_records import scan_records
from penstock.records.record import Record
from penstock.replication.keyless import keyless_records

data = st.one_of(st.none(), st.binary(max_size=10), st.binary(min_size=60, max_size=300))
records = st.lists(
    st.builds(
        Record,
        timestamp_ms=st.integers(0, 2**40),
        key=data,
        value=data,
        headers=st.lists(st.tuples(st.text(max_size=5), data), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=80,
)


def payload_of(batch: bytes) -> bytes:
    return batch_payload(batch, parse_header(batch))


@given(records)
def test_records_without_a_key_are_found(written: list[Record]) -> None:
    expected = [index for index, record in enumerate(written) if record.key is None]
    assert keyless_records(payload_of(build_batch(written)), len(written)) == expected


@given(records, st.data())
def test_damaged_records_are_taken_only_if_compaction_can_read_them(
    written: list[Record], draw: st.DataObject
) -> None:
    payload = bytearray(payload_of(build_batch(written)))
    for _ in range(draw.draw(st.integers(1, 3))):
        payload[draw.draw(st.integers(0, len(payload) - 1))] = draw.draw(st.integers(0, 255))
    cut = draw.draw(st.integers(0, 3))
    damaged = bytes(payload[: len(payload) - cut])
    try:
        keyless = keyless_records(damaged, len(written))
    except CorruptBatch:
        return
    raw = list(scan_records(damaged, len(written)))
    assert keyless == [index for index, record in enumerate(raw) if record.key is None]
    assert [record.offset_delta for record in raw] == list(range(len(raw)))


def test_records_must_fill_the_batch_exactly() -> None:
    payload = payload_of(build_batch([Record(key=b"k"), Record(key=b"l")]))
    for count in (1, 3):
        with pytest.raises(CorruptBatch):
            keyless_records(payload, count)


def test_a_timestamp_of_more_than_64_bits_is_bad() -> None:
    body = b"\x00" + b"\xff" * 10 + b"\x01" + b"\x00\x02k\x02v\x00"
    payload = bytes([len(body) * 2]) + body
    with pytest.raises(CorruptBatch):
        keyless_records(payload, 1)
