"""The scan of a fetched buffer finds exactly the whole batches of a range, and never runs away."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.wire.batch_scan import Scan, scan
from penstock.records.errors import CorruptBatch
from tests.unit.client.wire.fake_broker import batch

THREE = [
    batch(b"a", b"b", base_offset=10),
    batch(b"c", base_offset=15),
    batch(b"d", b"e", base_offset=16),
]
ENDS = [len(THREE[0]), len(THREE[0] + THREE[1]), len(b"".join(THREE))]


def scanned(records: bytes, position: int, stop: int) -> Scan:
    return scan(memoryview(records), position, stop)


@pytest.mark.parametrize(
    ("position", "stop", "expected"),
    [
        (10, 100, Scan(0, ENDS[2], 18, 0)),
        (11, 100, Scan(0, ENDS[2], 18, 0)),
        # What lies before the position is left out, whole batches at a time.
        (12, 100, Scan(ENDS[0], ENDS[2], 18, 0)),
        (16, 100, Scan(ENDS[1], ENDS[2], 18, 0)),
        # A batch that reaches past the end of the range is the last one.
        (10, 17, Scan(0, ENDS[2], 18, 0)),
        (10, 16, Scan(0, ENDS[1], 16, 0)),
        (10, 11, Scan(0, ENDS[0], 12, 0)),
        # The range ends in a gap: nothing before it is missing.
        (10, 13, Scan(0, ENDS[0], 13, 0)),
        (12, 14, Scan(ENDS[0], ENDS[0], 14, 0)),
        (5, 8, Scan(0, 0, 8, 0)),
    ],
)
def test_the_batches_of_a_range(position: int, stop: int, expected: Scan) -> None:
    assert scanned(b"".join(THREE), position, stop) == expected


@pytest.mark.parametrize("cut", range(1, len(THREE[2])))
def test_a_batch_that_is_cut_short_is_left_out(cut: int) -> None:
    records = b"".join(THREE)[:-cut]
    assert scanned(records, 10, 100) == Scan(0, ENDS[1], 16, 0)


def test_a_first_batch_that_is_cut_short_says_how_long_it_is() -> None:
    assert scanned(THREE[0][:50], 10, 100) == Scan(0, 0, 10, len(THREE[0]))
    assert scanned(THREE[0][:20], 10, 100) == Scan(0, 0, 10, len(THREE[0]))
    assert scanned(THREE[0][:10], 10, 100) == Scan(0, 0, 10, 0)


def test_messages_of_the_old_formats_are_passed_on() -> None:
    message = bytes(4) + b"\1" + bytes(17)
    records = b"".join(
        offset.to_bytes(8, "big") + len(message).to_bytes(4, "big") + message for offset in (3, 9)
    )
    assert scanned(records, 2, 100) == Scan(0, len(records), 10, 0)
    # A compressed one may hold earlier records, wherever its own offset lies.
    assert scanned(records, 2, 8) == Scan(0, len(records), 10, 0)


def test_offsets_that_go_back_are_refused() -> None:
    with pytest.raises(CorruptBatch, match="offset 15 follows offset 17"):
        scanned(THREE[2] + THREE[1], 16, 100)


@pytest.mark.parametrize(
    ("at", "value"), [(8, b"\xff\xff\xff\xff"), (8, b"\0\0\0\1"), (16, b"\3"), (0, b"\xff")]
)
def test_impossible_headers_are_refused(at: int, value: bytes) -> None:
    damaged = bytearray(THREE[0])
    damaged[at : at + len(value)] = value
    with pytest.raises(CorruptBatch):
        scanned(bytes(damaged), 10, 100)


@given(st.binary(max_size=300), st.integers(0, 50), st.integers(0, 50))
def test_any_bytes_give_a_range_or_are_refused(records: bytes, position: int, length: int) -> None:
    try:
        found = scanned(records, position, position + length)
    except CorruptBatch:
        return
    assert 0 <= found.begin <= found.end <= len(records)
    assert found.next_offset >= position
