"""Reads a log back and checks every batch: bits rot where nobody looks."""

from collections.abc import Callable

from penstock.model.errors import StorageDamaged
from penstock.storage.continuity import misfit
from penstock.storage.log_state import LogState
from penstock.storage.open_files import FileGone
from penstock.storage.segment import Segment


def scrub(state: LogState, should_stop: Callable[[], bool], start: int) -> int:
    """Checks all batches from `start` to the end; returns the offset that it came to.

    That is where the log ended when the scrub began, or less if it was asked to stop. Raises
    StorageDamaged at the first bad batch.
    """
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
        except StorageDamaged as damage:
            # The tail may have been cut under our eyes.
            if damage.position < segment.size:
                raise
    return end


def _scrub_segment(
    state: LogState, segment: Segment, start: int, should_stop: Callable[[], bool]
) -> tuple[int, bool]:
    """The offset that it came to, and whether it was asked to stop there."""
    end = segment.next_offset
    expected: int | None = segment.base_offset if start == segment.base_offset else None
    for position, header, _ in segment.batches(segment.find(start)):
        follows = header.base_offset if expected is None else expected
        if should_stop():
            return follows, True
        detail = misfit(header, follows, state.sparse_below, end=segment.next_offset)
        if detail:
            raise StorageDamaged(str(segment.file.path), position, detail)
        expected = header.next_offset
    return max(end, expected or 0), False
