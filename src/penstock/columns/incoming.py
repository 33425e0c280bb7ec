"""Walks over the bytes of a fetch, batch by batch, and lets those pass that hold wanted records.

Every batch comes through here, and some producers send very small ones. So fields are looked at
in place, and what is rare has a function of its own.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.columns.old_messages import CREATE_TIME, LOG_APPEND_TIME, upgrade_next
from penstock.columns.transactions import AbortedTransactions
from penstock.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_OFFSET_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    parse_header,
)
from penstock.records.checksum import crc32c
from penstock.records.errors import CorruptBatch

_OFFSET_MAX = 2**63 - 1
_ATTRIBUTES_TO_RECORDS = HEADER_SIZE - ATTRIBUTES_POSITION


class Incoming(NamedTuple):
    header: BatchHeader
    # Where its records lie: in what was fetched, or in a batch that was made of older messages.
    begin: int
    end: int
    timestamp_type: int
    upgraded: memoryview | None = None


class Walk:
    """Goes over the answers of one partition, for records at offsets in [start, stop)."""

    def __init__(self, *, start: int, stop: int) -> None:
        # The first offset that has not been seen yet: gaps and control batches count as seen.
        self.next_offset = start
        # That of the batch that is being looked at, to name it if it is bad.
        self.offset = start
        self._start = start
        self._stop = stop

    def wanted(self, view: memoryview, aborted: Sequence[tuple[int, int]]) -> Iterator[Incoming]:
        """Each batch with wanted records, in order; it is whole, and its checksum is right."""
        transactions = AbortedTransactions(aborted) if aborted else None
        self.offset = self.next_offset
        for batch in _batches(view):
            header = batch.header
            base_offset = self.offset = header[0]
            next_offset = base_offset + header[6] + 1
            # Markers of transactions count even where nothing else is wanted.
            is_hidden = transactions is not None and transactions.hide(header, _whole(batch, view))
            if next_offset > self._start and base_offset < self._stop:
                _check(batch, view)
                is_empty = header[12] == 0 and batch.begin == batch.end
                if not (is_hidden or is_empty or header[5] & CONTROL_BIT):
                    yield batch
            if next_offset > self.next_offset:
                self.next_offset = min(next_offset, self._stop)


def _batches(view: memoryview) -> Iterator[Incoming]:
    position, size = 0, len(view)
    while position < size:
        magic_position = position + MAGIC_POSITION
        if magic_position < size and view[magic_position] < MAGIC:
            batch, taken = _upgraded(view[position:])
            yield batch
            position += taken
            continue
        header = parse_header(view, position)
        begin = position + HEADER_SIZE
        position += LENGTH_OFFSET_OVERHEAD + header[1]
        if position > size:
            raise CorruptBatch(f"the batch takes {header.size} bytes, more than are left")
        is_append_time = header[5] & LOG_APPEND_TIME_BIT
        yield Incoming(header, begin, position, LOG_APPEND_TIME if is_append_time else CREATE_TIME)


def _upgraded(view: memoryview) -> tuple[Incoming, int]:
    message = upgrade_next(view)
    header = message.header
    batch = Incoming(header, HEADER_SIZE, header.size, message.timestamp_type, message.batch)
    return batch, message.size


def _whole(batch: Incoming, view: memoryview) -> memoryview:
    return batch.upgraded or view[batch.begin - HEADER_SIZE : batch.end]


def _check(batch: Incoming, view: memoryview) -> None:
    header = batch.header
    # What was upgraded had a checksum of another kind, which is checked already.
    if batch.upgraded is None:
        covered = view[batch.begin - _ATTRIBUTES_TO_RECORDS : batch.end]
        if crc32c(covered) != header[4]:
            raise CorruptBatch("the checksum does not match")
    if header[0] > _OFFSET_MAX - header[6]:
        raise CorruptBatch(f"offset {header.last_offset} is too large")
