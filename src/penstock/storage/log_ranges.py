"""Ranges of a log's bytes for readers: found without reading them, and checked before they go out
if this process neither wrote nor checked them.

No checksum covers where a batch lies in the log, so a consumer could not tell that it rotted.
"""

from penstock.model.errors import StorageDamaged
from penstock.model.file_ranges import FileRange
from penstock.storage.log_state import LogState
from penstock.storage.open_files import FileGone
from penstock.storage.segment import Segment
from penstock.storage.segment_list import SegmentList


class LogRange(FileRange):
    __slots__ = ("segment",)

    segment: Segment


def find_range(
    state: LogState, segments: SegmentList, offset: int, bytes_max: int, end: int
) -> LogRange | None:
    """As `Log.read` promises it, if `segments` are not replaced meanwhile."""
    for segment in segments.from_offset(offset):
        if segment.base_offset >= end:
            return None
        # First the tail, then the table: so it knows of all own entries in the segment.
        tail = segment.tail
        next_own = state.own.next_offset
        found = segment.range_of(offset, bytes_max, end, tail, next_own)
        if found is not None:
            log_range = LogRange(segment.file, *found, is_cut=next_own(offset) < end)
            log_range.segment = segment
            return log_range
    return None


def offset_after(found: LogRange, end: int) -> int:
    """The offset behind a range of records below `end`, as far as it is known without reading: of
    one that was cut between two entries of the index, that of the entry before."""
    stop = found.position + found.length
    tail = found.segment.tail
    if stop >= tail.size:
        return min(end, tail.next_offset)
    place = found.segment.offset_index().place_before(stop)
    if place is not None and (place[0] == stop or place[0] > found.position):
        return min(end, place[1])
    return end


def is_hot(state: LogState, found: LogRange) -> bool:
    """Whether this process wrote or checked the bytes, and so lately that they are in memory."""
    segment = found.segment
    return segment is state.segments.active and found.position >= segment.sound_from


def warm(state: LogState, found: LogRange) -> None:
    """Brings the bytes into the page cache; raises StorageDamaged if a batch can't be right.

    The bytes themselves are never cut while a reader has them, but those behind them may be.
    """
    segment, is_checked = found.segment, False
    while not is_checked:
        cuts = state.cuts
        try:
            segment.check(found.position, found.position + found.length)
            is_checked = True
        except StorageDamaged as damage:
            if segment not in state.segments:
                # Retention or compaction took it away, and its index with it.
                raise FileGone(f"{damage.path} is not part of the log any more") from damage
            if not state.was_cut_since(cuts):
                raise
