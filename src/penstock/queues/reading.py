"""What a poll reads of the log: which batches there are, and the bytes that a consumer gets.

A consumer gets batches as they lie in the log. Of a large batch of which it was given only a few
records it gets those alone, in a batch that was built again.
"""

from bisect import bisect_right
from collections.abc import Container, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from penstock.model.file_ranges import FileRange
from penstock.model.ids import COPIERS_FROM
from penstock.model.limits import KIB
from penstock.queues.commands import AcquiredRange
from penstock.records.batch import HEADER_SIZE, CorruptBatch, keep_records, parse_header

_first: Final = attrgetter("first")
# Read at a time to find the headers of small batches. Of large ones, each header is read alone.
_SCAN_BYTES: Final = 16 * KIB
# A batch this large is built again if at most one in so many of its records is wanted.
REBUILT_BYTES_MIN: Final = 16 * KIB
REBUILT_PART_MAX: Final = 4
# So many bytes of batches that nobody wants may lie between those that are wanted.
UNWANTED_BYTES_MAX: Final = 16 * KIB


class LogBatch(NamedTuple):
    first: int
    last: int
    # From the begin of the range that was read.
    position: int
    size: int
    record_count: int
    # Whether it holds records for consumers of the queue: none of control, and not only a gap.
    is_data: bool


class Needed(NamedTuple):
    """When enough of a range is known: once it has so many records from this offset on."""

    first: int
    records: int


def scan_batches(
    found: FileRange, own_copiers: Container[int] = (), needed: Needed | None = None
) -> list[LogBatch]:
    """The batches of a range, by their headers, or the first of them that are enough. May wait for
    the disk if the range is cold.

    Copies that were made for other queues are not for this one, which has `own_copiers`.
    """
    batches: list[LogBatch] = []
    chunk, chunk_at, at, chunk_size = b"", 0, 0, _SCAN_BYTES
    left = None if needed is None else needed.records
    while at < len(found):
        if at + HEADER_SIZE > chunk_at + len(chunk):
            chunk = found.file.pread(min(chunk_size, len(found) - at), found.position + at)
            chunk_at = at
        header = parse_header(chunk, at - chunk_at)
        is_data = not header.is_control and header.record_count > 0
        if header.producer_id >= COPIERS_FROM:
            is_data = is_data and header.producer_id in own_copiers
        batches.append(
            LogBatch(
                header.base_offset,
                header.last_offset,
                at,
                header.size,
                header.record_count,
                is_data,
            )
        )
        at += header.size
        chunk_size = HEADER_SIZE if header.size >= _SCAN_BYTES else _SCAN_BYTES
        if needed is not None and left is not None and is_data:
            left -= max(0, header.last_offset - max(header.base_offset, needed.first) + 1)
            if left <= 0:
                break
    return batches


class Cutting(NamedTuple):
    """Which bytes of a range go to the consumer."""

    # The part of the range as it is; or, where it has to be built, the batches in it.
    position: int
    length: int
    built: Sequence[LogBatch] | None


def plan(batches: Sequence[LogBatch], acquired: Sequence[AcquiredRange]) -> Cutting | None:
    """None if nothing was acquired."""
    wanted = [(batch, count) for batch in batches if (count := _count_in(batch, acquired))]
    if not wanted:
        return None
    first, last = wanted[0][0], wanted[-1][0]
    length = last.position + last.size - first.position
    size = sum(batch.size for batch, _ in wanted)
    has_few = any(_is_rebuilt(batch, count) for batch, count in wanted)
    if not has_few and length - size <= UNWANTED_BYTES_MAX:
        return Cutting(first.position, length, None)
    return Cutting(first.position, length, [batch for batch, _ in wanted])


def build(found: FileRange, cutting: Cutting, acquired: Sequence[AcquiredRange]) -> bytes:
    """The bytes of a plan that has batches to build. For worker threads: it reads and decodes."""
    assert cutting.built is not None
    pieces = []
    for batch in cutting.built:
        data = found.file.pread(batch.size, found.position + batch.position)
        count = _count_in(batch, acquired)
        pieces.append(_rebuilt(data, acquired) if _is_rebuilt(batch, count) else data)
    return b"".join(pieces)


def _is_rebuilt(batch: LogBatch, count: int) -> bool:
    return batch.size >= REBUILT_BYTES_MIN and count * REBUILT_PART_MAX <= batch.record_count


def _rebuilt(data: bytes, acquired: Sequence[AcquiredRange]) -> bytes:
    header = parse_header(data)
    begin = max(0, bisect_right(acquired, header.base_offset, key=_first) - 1)
    end = bisect_right(acquired, header.last_offset, key=_first)
    try:
        return keep_records(data, header, [(first, last) for first, last, _ in acquired[begin:end]])
    except CorruptBatch:
        # The producer's bytes go on as they are: the consumer finds out what is wrong with them.
        return data


def _count_in(batch: LogBatch, acquired: Sequence[AcquiredRange]) -> int:
    """How many of the batch's offsets were acquired; the ranges are in order."""
    if not batch.is_data:
        return 0
    count = 0
    index = max(0, bisect_right(acquired, batch.first, key=_first) - 1)
    while index < len(acquired) and acquired[index].first <= batch.last:
        overlap = min(acquired[index].last, batch.last) - max(acquired[index].first, batch.first)
        count += max(0, overlap + 1)
        index += 1
    return count
