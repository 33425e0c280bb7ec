"""Whether a batch follows on the one before it: offset, length and term lie outside the CRC.

So a flipped bit in one of them shows only beside what else is known of the log: its neighbours,
the index, where the segment ends, and which terms Raft's own entries began.
"""

import struct
from typing import NamedTuple, Protocol

from penstock.records.batch import (
    HEADER_SIZE,
    LENGTH_OFFSET_OVERHEAD,
    MAGIC,
    BatchHeader,
    CorruptBatch,
    parse_header,
)
from penstock.storage.batch_reader import BadBatch, Readable
from penstock.storage.own_table import OwnTable

CHUNK_BYTES = 1024 * 1024
# Base offset, length, term and magic byte; then, behind the CRC and the attributes, the distance
# of the last offset.
_FIELDS = struct.Struct(">qiib6xi")
_LENGTH_MIN = HEADER_SIZE - LENGTH_OFFSET_OVERHEAD


class KnownOfLog(Protocol):
    """What a log knows of its batches beside their bytes."""

    own: OwnTable
    # Offsets may be missing only below this one, where compaction or a repair has been.
    sparse_below: int


class KnownPlace(NamedTuple):
    """A batch begins at this position, or a segment ends there, and this offset comes next."""

    position: int
    offset: int


def misfit(
    header: BatchHeader,
    expected: int,
    sparse_below: int,
    *,
    end: int | None = None,
    term: int | None = None,
) -> str:
    """What is wrong with a batch where offset `expected` comes next; empty if nothing.

    The term is that which the last own entry of Raft began, or None if nobody knows it.
    """
    is_gap = header.base_offset > expected and expected >= sparse_below
    if header.base_offset < expected or is_gap:
        return f"the batch has offset {header.base_offset} instead of {expected}"
    if end is not None and header.next_offset > end:
        return f"the batch reaches offset {header.last_offset}, but its segment ends before {end}"
    if term is not None and header.leader_epoch != term and not header.is_own:
        return f"the batch is from term {header.leader_epoch}, but the log is in {term}"
    return ""


def misfit_in(log: KnownOfLog, header: BatchHeader, expected: int, end: int) -> str:
    """As `misfit`, for a batch in a segment of the log that ends at offset `end`."""
    own = log.own
    # Of what retention takes away at this moment, the table knows nothing any more.
    is_known = header.base_offset >= own.base.offset
    term = own.term_of(header.base_offset) if is_known else None
    return misfit(header, expected, log.sparse_below, end=end, term=term)


def check_arrival(log: KnownOfLog, position: int, expected: int, offset: int) -> None:
    """Raises BadBatch if offset `expected` comes next behind the batch at `position`, but `offset`
    is known to: a length that rotted can lead past batches to a place where one ends."""
    if expected > offset or offset > expected >= log.sparse_below:
        raise BadBatch(position, f"offset {offset} follows the batch instead of {expected}")


def check_run(
    file: Readable, log: KnownOfLog, start: KnownPlace, stop: KnownPlace, end: int
) -> None:
    """Checks the batches between two known places of a segment that ends at offset `end`.

    Raises BadBatch at the first that can't be right. Every byte is read on the way, so all of them
    are in the page cache afterwards. A batch that just goes on where the last one ended costs a
    fraction of what parsing its header would.
    """
    position, expected = start
    own = log.own
    chunk, chunk_start, chunk_end = b"", position, position
    # Batches from `expected` to before `until` are of this term.
    term, until = -1, expected
    last = position
    while position < stop.position:
        while position >= chunk_end:
            chunk_start = chunk_end
            chunk = _read(file, chunk_start, min(CHUNK_BYTES, stop.position - chunk_start))
            chunk_end += len(chunk)
        header, at = chunk, position - chunk_start
        if position + HEADER_SIZE > chunk_end:
            header, at = _read(file, position, HEADER_SIZE), 0
        base, length, its_term, magic, delta = _FIELDS.unpack_from(header, at)
        is_plain = base == expected < until and its_term == term and magic == MAGIC
        if not is_plain or delta < 0 or length < _LENGTH_MIN or base + delta >= end:
            _check_one(log, header, at, position, expected, end)
            if base >= own.base.offset:
                term, until = own.term_of(base), own.next_offset(base)
        last = position
        expected = base + delta + 1
        position += LENGTH_OFFSET_OVERHEAD + length
    if position > stop.position:
        raise BadBatch(last, f"the batch goes beyond byte {stop.position}, where another begins")
    check_arrival(log, last, expected, stop.offset)


def _check_one(
    log: KnownOfLog, data: bytes, at: int, position: int, expected: int, end: int
) -> None:
    try:
        header = parse_header(data, at)
    except CorruptBatch as error:
        raise BadBatch(position, str(error)) from None
    detail = misfit_in(log, header, expected, end)
    if detail:
        raise BadBatch(position, detail)


def _read(file: Readable, position: int, length: int) -> bytes:
    data = file.pread(length, position)
    if len(data) < length:
        raise BadBatch(position, f"the file ends before byte {position + length}")
    return data
