"""Finds out where the batches of a fetched buffer begin and end, by their headers alone."""

import struct
from typing import NamedTuple

from penstock.records.batch import (
    HEADER_SIZE,
    LENGTH_OFFSET_OVERHEAD,
    MAGIC,
)
from penstock.records.errors import CorruptBatch

# Offset, length, leader epoch, magic byte, CRC, attributes, last offset delta.
_START = struct.Struct(">qiibIhi")
# What every format has: an offset, a length, a CRC or epoch, and the magic byte.
_PREFIX = struct.Struct(">qiib")
_LENGTH_MIN = HEADER_SIZE - LENGTH_OFFSET_OVERHEAD
_MESSAGE_LENGTH_MIN = 14


class Scan(NamedTuple):
    """The whole batches that matter lie from `begin` up to `end`."""

    begin: int
    end: int
    # The first offset behind them, or the position as it was if there are none.
    next_offset: int
    # How long the first batch is, if the buffer ends before it does; otherwise 0.
    bytes_needed: int


def scan(records: memoryview, position: int, stop: int) -> Scan:
    """Leaves out what is before `position`, from `stop` on, and a batch that is cut short."""
    size = len(records)
    at = begin = 0
    next_offset = position
    while at + _PREFIX.size <= size:
        base, length, last = _batch(records, at, size)
        end = at + LENGTH_OFFSET_OVERHEAD + length
        if base >= stop:
            # Nothing that is left before it can matter: offsets grow.
            return Scan(begin, at, max(next_offset, stop), 0)
        if end > size:
            break
        if last < position and begin == at:
            begin = end
        elif last < next_offset:
            raise CorruptBatch(f"offset {last} follows offset {next_offset - 1}")
        else:
            next_offset = last + 1
        at = end
        if next_offset >= stop:
            return Scan(begin, at, next_offset, 0)
    return Scan(begin, at, next_offset, _needed(records, at) if at == begin else 0)


def _batch(records: memoryview, at: int, size: int) -> tuple[int, int, int]:
    """The first offset of the batch, its length, and its last offset as far as that is there."""
    base, length, _, magic = _PREFIX.unpack_from(records, at)
    if magic < MAGIC:
        # A message of an old format: a compressed one carries the last offset of those inside,
        # and where they begin can't be seen from here.
        if length < _MESSAGE_LENGTH_MIN or base < 0 or magic < 0:
            raise CorruptBatch(f"offset {base} and length {length} do not belong to a message")
        return 0, length, base
    if magic > MAGIC or length < _LENGTH_MIN or base < 0:
        raise CorruptBatch(
            f"offset {base}, length {length}, format {magic} do not belong to a batch"
        )
    if at + _START.size > size:
        return base, length, base
    delta = _START.unpack_from(records, at)[6]
    if delta < 0:
        raise CorruptBatch(f"the batch at offset {base} ends before it starts")
    return base, length, base + delta


def _needed(records: memoryview, at: int) -> int:
    if len(records) - at < _PREFIX.size:
        return 0
    length: int = _PREFIX.unpack_from(records, at)[1]
    return LENGTH_OFFSET_OVERHEAD + length
