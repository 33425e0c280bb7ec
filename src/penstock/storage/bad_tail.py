"""Judges the bad end of a log: a write that a crash tore, or bytes that rotted.

A torn write was never synced, so nobody was promised what it held. Its marks are those of etcd:
the file ends within the batch, or a sector of the batch was never written and reads as zeros.
Everything else that is bad may have been acknowledged, and then it matters where the log ended.
"""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.model.ids import UNKNOWN_END, LogEnd
from penstock.model.limits import MIB
from penstock.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    BatchHeader,
    CorruptBatch,
    peek_header,
)
from penstock.records.checksum import crc32c
from penstock.records.own_entries import peek_own
from penstock.storage.batch_reader import BadBatch, Readable, read_batches
from penstock.storage.batch_search import find_valid_batch
from penstock.storage.own_table import read_own

SECTOR_BYTES = 512
# The length of a batch, which is never zero, is within its first bytes.
_NEVER_ZEROS_BYTES = 12
# Records often end in a few zeros, hardly in this many. One is enough where a flipped bit would
# have been found.
_END_ZEROS_BYTES_MIN = 32
# Larger batches are not searched for one flipped bit: that takes half a microsecond a byte, and a
# power cut may leave a torn batch in each of a thousand logs.
_SEARCHED_BYTES_MAX = 64 * 1024
_READ_BYTES = 1 * MIB
# CRC-32C's polynomial, its bits in the order in which the checksum has them.
_POLYNOMIAL = 0x82F63B78


class Place(NamedTuple):
    """Bytes of a file that follow on the good part of a log."""

    file: Readable
    start: int
    end: int


def is_torn(place: Place, offset: int) -> bool:
    """Whether the bad batch at the start of `place`, where `offset` comes next, was torn."""
    file, start, end = place
    if end - start < HEADER_SIZE:
        return True
    header = peek_header(file.pread(HEADER_SIZE, start))
    valid = find_valid_batch(file, start + 1, end, offset)
    stop = end if valid is None else valid
    is_short = start + header.size > end
    if HEADER_SIZE <= header.size <= stop - start:
        stop = start + header.size
    is_unwritten = _has_unwritten_sector(Place(file, start, stop), offset)
    if not is_unwritten and (not is_short or valid is not None):
        return False
    # Sectors of zeros may be what a client sent, and a length that rotted looks like a short file.
    batch = file.pread(min(stop - start, _SEARCHED_BYTES_MAX + 1), start)
    if _as_written(batch, searches=is_unwritten) is None:
        return True
    # The checksum says nothing of the offset, which may be all that was in the unwritten sector.
    wrong_bits = (header.base_offset ^ offset).bit_count()
    return is_unwritten and header.base_offset < offset and wrong_bits > 1


def _as_written(batch: bytes, *, searches: bool = True) -> bytes | None:
    """The batch from its attributes on as its checksum says that it was, if at most one bit is
    another now: bits rot one by one. None if more is wrong, or it was not searched for."""
    if len(batch) > _SEARCHED_BYTES_MAX:
        return None
    difference = crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]) ^ peek_header(batch).crc
    if difference & (difference - 1) == 0:
        # Nothing there is wrong, or a bit of the checksum itself.
        return batch
    if not searches:
        return None
    # What the checksum changes by when the last bit flips, the one before it, and so on.
    change = _POLYNOMIAL
    for distance in range(8 * (len(batch) - ATTRIBUTES_POSITION)):
        if change == difference:
            corrected = bytearray(batch)
            corrected[-1 - distance // 8] ^= 0x80 >> distance % 8
            return bytes(corrected)
        change = (change >> 1) ^ (_POLYNOMIAL if change & 1 else 0)
    return None


def _has_unwritten_sector(place: Place, offset: int) -> bool:
    """Whether a sector of the batch is all zeros where a batch is not."""
    file, start, end = place
    is_searched = end - start <= _SEARCHED_BYTES_MAX
    position = start
    while position < end:
        length = min(_READ_BYTES - position % SECTOR_BYTES, end - position)
        data = file.pread(length, position)
        for low in range(-(position % SECTOR_BYTES), len(data), SECTOR_BYTES):
            chunk = data[max(low, 0) : low + SECTOR_BYTES]
            if any(chunk):
                continue
            if len(chunk) == SECTOR_BYTES or _is_telling(
                chunk, position + max(low, 0), start, offset, is_searched=is_searched
            ):
                return True
        position += length
    return False


def _is_telling(zeros: bytes, position: int, start: int, offset: int, *, is_searched: bool) -> bool:
    """Whether part of a sector would not be all zeros if it had been written."""
    if position > start:
        return is_searched or len(zeros) >= _END_ZEROS_BYTES_MIN
    return len(zeros) >= _NEVER_ZEROS_BYTES or any(offset.to_bytes(8, "big")[: len(zeros)])


class Reached(NamedTuple):
    """How far the good part of a log reaches."""

    offset: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    term: int


def lost_end(reached: Reached, places: Iterable[Place], *, starts_bad: bool = True) -> LogEnd:
    """Where a log ended that is bad behind `reached`, as far as the rest of its bytes tells.

    `starts_bad`: whether a bad batch begins the first place, or something is missing before it. One
    fault is assumed per hole. Where even so nothing is certain, no end is known.
    """
    for place in places:
        position = place.start
        if not starts_bad:
            reached, position = _along(reached, place)
        starts_bad = False
        while position < place.end:
            valid = find_valid_batch(place.file, position + 1, place.end, reached.offset)
            hole = place._replace(start=position, end=place.end if valid is None else valid)
            found = _across(reached, hole, _header_at(place, valid))
            if found is None:
                return UNKNOWN_END
            reached = found
            if valid is None:
                break
            reached, position = _along(reached, place._replace(start=valid))
    return LogEnd(reached.term, reached.index)


def _header_at(place: Place, position: int | None) -> BatchHeader | None:
    return None if position is None else peek_header(place.file.pread(HEADER_SIZE, position))


def _along(reached: Reached, place: Place) -> tuple[Reached, int]:
    """Over valid batches up to the next hole, and where that is."""
    position = place.start
    try:
        for position, header, batch in read_batches(*place):
            if header.base_offset < reached.offset:
                return reached, position
            reached = _after(reached, header, batch)
    except BadBatch as bad:
        return reached, bad.position
    except CorruptBatch:
        return reached, position
    return reached, place.end


def _after(reached: Reached, header: BatchHeader, batch: memoryview) -> Reached:
    if header.is_own:
        entry = read_own(batch, header)
        return Reached(header.base_offset, entry.index, entry.term)
    index = reached.index + header.next_offset - reached.offset
    # A term begins with an entry of Raft's own; without it, it was in what is missing.
    index += header.leader_epoch > reached.term
    return Reached(header.next_offset, index, max(reached.term, header.leader_epoch))


def _across(reached: Reached, hole: Place, following: BatchHeader | None) -> Reached | None:
    """Where the log is behind a hole, which is one batch; None if nobody can tell."""
    if following is not None:
        records = following.base_offset - reached.offset
        # An entry of Raft's own holds no record, and every term begins with one.
        own = records == 0 or following.leader_epoch > reached.term
        term = max(reached.term, following.leader_epoch)
        return Reached(following.base_offset, reached.index + records + own, term)
    if is_torn(hole, reached.offset):
        return reached
    batch = hole.file.pread(hole.end - hole.start, hole.start)
    written = _as_written(batch)
    header = peek_header(batch if written is None else written)
    if written is None and header.size != len(batch):
        return None
    if header.is_own:
        return _behind_own(reached, written or batch, header, is_right=written is not None)
    records = header.last_offset_delta + 1
    if records <= 0 or (written is None and header.record_count != records):
        return None
    return Reached(reached.offset + records, reached.index + records, reached.term)


def _behind_own(
    reached: Reached, batch: bytes, header: BatchHeader, *, is_right: bool
) -> Reached | None:
    """Its index and term lie in its content; the term is in the header too."""
    try:
        index, term = peek_own(batch)
    except CorruptBatch:
        return None
    is_likely = index == reached.index + 1 and term == header.leader_epoch >= reached.term
    return Reached(reached.offset, index, term) if is_right or is_likely else None
