"""Reads a log back and checks every batch: bits rot where nobody looks."""

from collections.abc import Callable

from penstock.model.errors import StorageDamaged
from penstock.records.batch import BatchHeader, CorruptBatch
from penstock.storage.continuity import misfit
from penstock.storage.log_state import LogState
from penstock.storage.open_files import FileGone
from penstock.storage.own_table import read_own
from penstock.storage.segment import Segment


def scrub(state: LogState, should_stop: Callable[[], bool], start: int) -> int:
    """Checks all batches from `start` to the end; returns the offset that it came to.

    That is where the log ended when the scrub began, or less if it was asked to stop. Raises
    StorageDamaged at the first bad batch.
    """
    cuts = state.cuts
    end = state.end_offset
    offset = start
    for segment in state.segments.from_offset(start):
        if segment.base_offset >= end or segment.size == 0:
            continue
        try:
            offset, is_stopped = _scrub_segment(
                state, segment, max(offset, segment.base_offset), should_stop
            )
            if is_stopped:
                return offset
        except FileGone:
            # Compaction or retention took it away meanwhile; what came instead is new.
            continue
        except StorageDamaged:
            # If entries were cut off under our eyes, this segment is left to the next scrub.
            if not state.was_cut_since(cuts):
                raise
    return end


def _scrub_segment(
    state: LogState, segment: Segment, start: int, should_stop: Callable[[], bool]
) -> tuple[int, bool]:
    """The offset that it came to, and whether it was asked to stop there."""
    end = segment.next_offset
    expected: int | None = segment.base_offset if start == segment.base_offset else None
    # The first batches may be Raft's own entries, which `find` passes over.
    place = 0 if start == segment.base_offset else segment.find(start)
    for position, header, batch in segment.batches(place):
        follows = header.base_offset if expected is None else expected
        if should_stop():
            return follows, True
        detail = _fault(state, segment, header, batch, follows)
        if detail:
            raise StorageDamaged(str(segment.file.path), position, detail)
        expected = header.next_offset
    return max(end, expected or 0), False


def _fault(
    state: LogState, segment: Segment, header: BatchHeader, batch: memoryview, follows: int
) -> str:
    own = state.own
    end = segment.next_offset
    if header.base_offset < own.base.offset:
        # Retention took the segment meanwhile, and what the table knew of it.
        return misfit(header, follows, state.sparse_below, end=end)
    if header.is_own:
        try:
            entry = read_own(batch, header)
        except CorruptBatch as error:
            return str(error)
        if own.at(entry.index) != entry:
            return f"Raft's own entry with index {entry.index} is not what was written"
    term = own.term_of(header.base_offset)
    return misfit(header, follows, state.sparse_below, end=end, term=term)
