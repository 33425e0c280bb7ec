"""Reads a log back and checks every batch: bits rot where nobody looks.

The kernel keeps what is read only once apart from what is used again, so a slow scrub does not take
the page cache from anybody, and it is not told to drop the pages: readers may need them too.
"""

from collections.abc import Callable
from typing import NamedTuple

from penstock.model.errors import StorageDamaged
from penstock.records.batch import BatchHeader, CorruptBatch
from penstock.storage.log_state import LogState
from penstock.storage.open_files import FileGone
from penstock.storage.own_table import read_own
from penstock.storage.segment import Segment


class Scrubbed(NamedTuple):
    # How far a scrub came, where the log ended when it began, and how much it has checked.
    offset: int
    end_offset: int
    size: int


def scrub(
    state: LogState, should_stop: Callable[[], bool], start: int, bytes_max: int | None
) -> Scrubbed:
    """Checks all batches from `start` to the end, or a slice of them.

    It comes to where the log ended when it began, or less far if it was asked to stop or this many
    bytes are checked; at least one client's batch is, so that the next slice, which begins there,
    gets further. Raises StorageDamaged at the first bad batch.
    """
    return _Scrub(state, should_stop, start, bytes_max).run()


class _Scrub:
    def __init__(
        self, state: LogState, should_stop: Callable[[], bool], start: int, bytes_max: int | None
    ) -> None:
        self._state = state
        self._should_stop = should_stop
        self._start = start
        self._bytes_max = bytes_max
        self._size = 0

    def _is_full_at(self, offset: int) -> bool:
        if self._bytes_max is None or offset <= self._start:
            return False
        return self._size >= self._bytes_max

    def run(self) -> Scrubbed:
        cuts = self._state.cuts
        end = self._state.end_offset
        offset = self._start
        for segment in self._state.segments.from_offset(offset):
            if segment.base_offset > end or segment.size == 0:
                continue
            # If the log ends here, there may still be own entries, for which no slice would come.
            if offset < end and self._is_full_at(offset):
                return Scrubbed(offset, end, self._size)
            try:
                offset, is_stopped = self._check_segment(segment, max(offset, segment.base_offset))
                if is_stopped:
                    return Scrubbed(offset, end, self._size)
            except FileGone:
                # Compaction or retention took it away meanwhile; what came instead is new.
                continue
            except StorageDamaged:
                # If entries were cut off under our eyes, this segment is left to the next scrub.
                if not self._state.was_cut_since(cuts):
                    raise
        return Scrubbed(end, end, self._size)

    def _check_segment(self, segment: Segment, start: int) -> tuple[int, bool]:
        """The offset that it came to, and whether it had to stop there."""
        end = segment.next_offset
        is_whole = start == segment.base_offset
        expected: int | None = segment.base_offset if is_whole else None
        # The first batches may be Raft's own entries, which `find` passes over.
        for position, header, batch in segment.batches(0 if is_whole else segment.find(start)):
            if expected is None:
                # Where the last slice stopped; or less, if entries were cut off since and others
                # are in their place.
                expected = min(start, header.base_offset)
            # Not before an own entry or a gap, which a slice that begins there would pass over.
            is_empty = header.is_own or header.is_gap
            if self._should_stop() or (not is_empty and self._is_full_at(expected)):
                return expected, True
            detail = _own_fault(self._state, header, batch) if header.is_own else ""
            if detail:
                raise StorageDamaged(str(segment.file.path), position, detail)
            expected = header.next_offset
            self._size += header.size
        return max(end, expected or 0), False


def _own_fault(state: LogState, header: BatchHeader, batch: memoryview) -> str:
    """What is wrong with Raft's own entry; that each batch follows on the last is checked where
    batches are read."""
    # Once, since retention may replace it between two looks.
    own = state.own
    if header.base_offset < own.base.offset:
        # Retention took the segment meanwhile, and what the table knew of it.
        return ""
    try:
        entry = read_own(batch, header)
    except CorruptBatch as error:
        return str(error)
    if own.at(entry.index) != entry:
        return f"Raft's own entry with index {entry.index} is not what was written"
    return ""
