"""Which bytes a consumer of a queue gets: whole batches, or a few records of a large one."""

from random import Random

import pytest

from penstock.model.file_ranges import FileRange
from penstock.queues.commands import AcquiredRange
from penstock.queues.reading import UNWANTED_BYTES_MAX, Needed, build, plan, scan_batches
from penstock.records.batch import (
    build_batch,
    decode_records,
    keep_records,
    parse_header,
    seal,
    stamp,
)
from penstock.records.compression import Codec
from penstock.records.record import Record


class Bytes:
    """A file in memory that notes what is read of it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.bytes_read = 0

    def fileno(self) -> int:
        raise AssertionError("nobody sends it")

    def pread(self, length: int, position: int) -> bytes:
        self.bytes_read += length
        return self._data[position : position + length]

    def pin(self) -> None: ...

    def unpin(self) -> None: ...


def batch(first: int, count: int, size: int = 10, codec: Codec = Codec.NONE) -> bytes:
    # Hard to compress, so that a large batch stays large.
    random = Random(first)
    values = [b"%06d" % (first + number) + random.randbytes(size) for number in range(count)]
    records = [Record(timestamp_ms=0, key=None, value=value) for value in values]
    data = bytearray(build_batch(records, codec=codec))
    stamp(data, 0, base_offset=first, term=1)
    return bytes(data)


def gap(first: int, count: int) -> bytes:
    """What compaction leaves of a batch."""
    header = parse_header(batch(first, count))
    return seal(header._replace(record_count=0), b"")


def found(*batches: bytes) -> FileRange:
    data = b"before" + b"".join(batches)
    return FileRange(Bytes(data), 6, len(data) - 6)


def test_no_more_headers_are_read_than_a_poll_needs() -> None:
    large = [batch(number * 100, 100, size=1_000) for number in range(20)]
    whole = found(*large)
    batches = scan_batches(whole, needed=Needed(150, 60))
    assert [each.first for each in batches] == [0, 100, 200], "50 records of the second one count"
    assert whole.file.bytes_read < 20_000  # type: ignore[attr-defined]
    assert len(scan_batches(whole, needed=Needed(0, 10_000))) == 20
    assert (
        len(scan_batches(found(gap(0, 10), batch(10, 5), batch(15, 5)), needed=Needed(0, 5))) == 2
    )


def test_batches_are_found_by_their_headers_alone() -> None:
    whole = found(batch(0, 3, 100_000), gap(3, 2), batch(5, 1))
    batches = scan_batches(whole)
    assert [(each.first, each.last, each.is_data) for each in batches] == [
        (0, 2, True),
        (3, 4, False),
        (5, 5, True),
    ]
    assert isinstance(whole.file, Bytes)
    assert whole.file.bytes_read < 50_000


def test_whole_batches_are_sent_as_they_are() -> None:
    batches = [batch(0, 5), batch(5, 5), batch(10, 5)]
    whole = found(*batches)
    cutting = plan(scan_batches(whole), [AcquiredRange(6, 8, 1), AcquiredRange(10, 10, 2)])
    assert cutting is not None
    assert cutting.built is None
    assert (cutting.position, cutting.length) == (len(batches[0]), len(batches[1] + batches[2]))


def test_nothing_acquired_is_nothing_to_send() -> None:
    assert plan(scan_batches(found(batch(0, 5))), []) is None


def test_batches_that_nobody_wants_are_left_out_if_they_are_large() -> None:
    batches = [batch(0, 1), batch(1, 1, UNWANTED_BYTES_MAX), batch(2, 1)]
    whole = found(*batches)
    acquired = [AcquiredRange(0, 0, 1), AcquiredRange(2, 2, 1)]
    cutting = plan(scan_batches(whole), acquired)
    assert cutting is not None
    assert build(whole, cutting, acquired) == batches[0] + batches[2]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_few_records_of_a_large_batch_keep_their_offsets(codec: Codec) -> None:
    large = batch(100, 5_000, codec=codec)
    whole = found(large)
    acquired = [AcquiredRange(101, 101, 2), AcquiredRange(150, 151, 3)]
    cutting = plan(scan_batches(whole), acquired)
    assert cutting is not None
    data = build(whole, cutting, acquired)
    assert len(data) < 500
    assert [record.offset for record in decode_records(data)] == [101, 150, 151]
    header = parse_header(data)
    assert (header.base_offset, header.last_offset, header.codec) == (100, 5_099, codec)


def test_a_batch_whose_wanted_records_are_gone_is_empty() -> None:
    header = parse_header(batch(0, 100))
    # The records of offsets from 100 on were compacted away.
    payload = batch(0, 100, 1_000)
    thinned = parse_header(payload)._replace(last_offset_delta=199)
    data = seal(thinned, payload[61:])
    whole = found(data)
    acquired = [AcquiredRange(150, 150, 2)]
    cutting = plan(scan_batches(whole), acquired)
    assert cutting is not None
    rebuilt = build(whole, cutting, acquired)
    assert list(decode_records(rebuilt)) == []
    assert header.base_offset == parse_header(rebuilt).base_offset


def test_a_batch_that_can_not_be_decoded_is_sent_as_it_is() -> None:
    good = batch(0, 100, 1_000)
    bad = seal(parse_header(good), good[61:-500])
    whole = found(bad)
    acquired = [AcquiredRange(3, 3, 2)]
    cutting = plan(scan_batches(whole), acquired)
    assert cutting is not None
    assert build(whole, cutting, acquired) == bad


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_picked_records_are_the_same_as_those_that_are_found_by_reading_all(codec: Codec) -> None:
    records = [
        Record(timestamp_ms=7, key=b"k" * (i % 70), value=b"v" * (i * 37 % 9_000))
        for i in range(90)
    ]
    data = build_batch(records, base_offset=50, codec=codec)
    wanted = [(40, 51), (60, 60), (100, 103), (139, 200)]
    kept = keep_records(data, parse_header(data), wanted)
    offsets = [50, 51, 60, 100, 101, 102, 103, 139]
    assert [each.offset for each in decode_records(kept)] == offsets
    assert [each.value for each in decode_records(kept)] == [
        records[at - 50].value for at in offsets
    ]


def test_offsets_that_are_not_where_they_should_be_are_found_by_reading_all() -> None:
    data = build_batch([Record(timestamp_ms=7, value=b"%d" % i) for i in range(3)])
    size = (len(data) - 61) // 3
    payload = data[61:]
    swapped = payload[size : 2 * size] + payload[:size] + payload[2 * size :]
    odd = seal(parse_header(data), swapped)
    kept = keep_records(odd, parse_header(odd), [(1, 1)])
    assert [each.value for each in decode_records(kept)] == [b"1"]
