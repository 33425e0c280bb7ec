"""Takes the leased records out of what a broker sent, and finds leased offsets without a record."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock.protocol.kafka.messages.share_fetch import AcquiredRecords
from penstock.records.batch import crc_matches, decode_records, parse_header
from penstock.records.errors import CorruptBatch
from penstock.records.record import Record


class Leased(NamedTuple):
    # With the attempt that each is.
    records: list[tuple[Record, int]]
    # First and last offsets that are leased and hold nothing, as compaction leaves them.
    gaps: list[tuple[int, int]]


def leased_records(data: memoryview | None, acquired: Iterable[AcquiredRecords]) -> Leased:
    """Raises CorruptBatch where the data makes no sense."""
    ranges = sorted(
        (one.first_offset, one.last_offset, one.delivery_count)
        for one in acquired
        if one.first_offset <= one.last_offset
    )
    records: list[tuple[Record, int]] = []
    gaps: list[tuple[int, int]] = []
    position = 0
    # The first offset of the current range that is not accounted for.
    expected = ranges[0][0] if ranges else 0
    for record in _records(data):
        while position < len(ranges) and record.offset > ranges[position][1]:
            expected = _close(ranges, position, expected, gaps)
            position += 1
        if position == len(ranges):
            break
        if record.offset < ranges[position][0]:
            continue
        if record.offset < expected:
            raise CorruptBatch(f"offset {record.offset} follows offset {expected - 1}")
        if record.offset > expected:
            gaps.append((expected, record.offset - 1))
        records.append((record, ranges[position][2]))
        expected = record.offset + 1
    while position < len(ranges):
        expected = _close(ranges, position, expected, gaps)
        position += 1
    return Leased(records, gaps)


def _close(
    ranges: list[tuple[int, int, int]], position: int, expected: int, gaps: list[tuple[int, int]]
) -> int:
    """What is left of a range holds nothing; returns where the next one begins."""
    if expected <= ranges[position][1]:
        gaps.append((expected, ranges[position][1]))
    return ranges[position + 1][0] if position + 1 < len(ranges) else expected


def _records(data: memoryview | None) -> Iterator[Record]:
    position, size = 0, len(data) if data is not None else 0
    while data is not None and position < size:
        header = parse_header(data, position)
        end = position + header.size
        if end > size:
            raise CorruptBatch(f"the batch takes {header.size} bytes, {size - position} are left")
        if not crc_matches(data, position, header):
            raise CorruptBatch("the checksum does not match")
        if not header.is_control:
            yield from decode_records(data[position:end])
        position = end
