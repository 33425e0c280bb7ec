"""Finds records by their timestamps."""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.model.errors import StorageDamaged
from penstock.model.ids import Offset, Term
from penstock.records.batch import BatchHeader, CorruptBatch, crc_matches, decode_records
from penstock.records.record import Record
from penstock.storage.segment import Segment
from penstock.storage.segment_list import SegmentList


class TimedOffset(NamedTuple):
    offset: Offset
    timestamp_ms: int
    term: Term


def first_at_or_after(
    segments: SegmentList, timestamp_ms: int, start: int, end: int
) -> TimedOffset | None:
    """The first record in [start, end) that is not earlier than the timestamp."""
    for segment in segments:
        if segment.base_offset >= end:
            break
        if segment.max_timestamp < timestamp_ms:
            continue
        for position, header in _from_time(segment, timestamp_ms):
            if header.base_offset >= end:
                break
            if header.last_offset < start or header.max_timestamp < timestamp_ms:
                continue
            if header.record_count == 0:
                continue
            for record in _records(segment, position, header):
                if start <= record.offset < end and record.timestamp_ms >= timestamp_ms:
                    return _found(record, header)
    return None


def latest(segments: SegmentList, start: int, end: int) -> TimedOffset | None:
    """The first of the records in [start, end) that have the latest timestamp."""
    best: tuple[int, Segment, int, BatchHeader] | None = None
    for segment in segments:
        if segment.base_offset >= end:
            break
        if best is not None and segment.max_timestamp <= best[0]:
            continue
        for position, header in _batches_to_compare(segment, start, end):
            timestamp_ms = header.max_timestamp
            if header.base_offset < start:
                # Its latest record may be one of those that were deleted.
                left = _latest_in_batch(segment, position, header, start, end)
                if left is None:
                    continue
                timestamp_ms = left.timestamp_ms
            if best is None or timestamp_ms > best[0]:
                best = timestamp_ms, segment, position, header
    if best is None:
        return None
    _, segment, position, header = best
    return _latest_in_batch(segment, position, header, start, end)


def _batches_to_compare(
    segment: Segment, start: int, end: int
) -> Iterator[tuple[int, BatchHeader]]:
    """The segment's latest batch if it is in the range, else all that are."""
    # That of a batch which is just being written is known before the batch is there.
    offset, next_offset = segment.max_timestamp_offset, segment.next_offset
    if next_offset <= end and start <= offset < next_offset:
        position = segment.find(offset)
        yield next(segment.headers(position))
        return
    for position, header in segment.headers(segment.find(start)):
        if header.base_offset >= end:
            return
        if header.record_count > 0:
            yield position, header


def _latest_in_batch(
    segment: Segment, position: int, header: BatchHeader, start: int, end: int
) -> TimedOffset | None:
    best: Record | None = None
    for record in _records(segment, position, header):
        is_inside = start <= record.offset < end
        if is_inside and (best is None or record.timestamp_ms > best.timestamp_ms):
            best = record
    return None if best is None else _found(best, header)


def _from_time(segment: Segment, timestamp_ms: int) -> Iterator[tuple[int, BatchHeader]]:
    offsets, times = segment.indexes()
    # While an entry is added, its time is there before its position is.
    entry = min(times.entry_before(timestamp_ms), len(offsets) - 1)
    return segment.headers(offsets.positions[entry] if entry >= 0 else 0)


def _records(segment: Segment, position: int, header: BatchHeader) -> list[Record]:
    batch = segment.read_batch(position, header)
    try:
        return list(decode_records(batch))
    except CorruptBatch as error:
        if not crc_matches(batch, 0, header):
            raise StorageDamaged(str(segment.file.path), position, str(error)) from None
        # The disk kept what a producer sent, and that was not records: nothing is damaged, and the
        # batch as a whole is all that has a time.
        offset, timestamp_ms = header.base_offset, header.max_timestamp
        return [Record(offset=offset, timestamp_ms=timestamp_ms, key=None, value=None, headers=())]


def _found(record: Record, header: BatchHeader) -> TimedOffset:
    return TimedOffset(Offset(record.offset), record.timestamp_ms, Term(header.leader_epoch))
