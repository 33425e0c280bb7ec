"""Where a log is cut so that it ends before an index."""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.records.batch import BatchHeader
from penstock.storage.log_state import LogState
from penstock.storage.own_table import read_own
from penstock.storage.segment import Segment


class Cut(NamedTuple):
    segment: Segment
    position: int
    # The offset where the log ends then; less than was asked for only where a gap begins there.
    end_offset: int


def find_cut(state: LogState, index: int) -> Cut:
    """Before everything from `index` on. Raft's own entries of one offset are told by theirs."""
    end_offset = state.own.offset_after(index - 1)
    for segment, position, header in _batches_from(state, end_offset):
        if header.is_own:
            if header.base_offset < end_offset:
                continue
            if read_own(segment.read_batch(position, header), header).index >= index:
                return Cut(segment, position, end_offset)
        elif header.next_offset > end_offset:
            assert header.is_gap or header.base_offset >= end_offset, "only a gap may be cut in two"
            return Cut(segment, position, min(end_offset, header.base_offset))
    active = state.segments.active
    return Cut(active, active.size, end_offset)


def _batches_from(state: LogState, offset: int) -> Iterator[tuple[Segment, int, BatchHeader]]:
    """From the last batch before `offset` on: own entries may lie at the end of its segment."""
    segments = state.segments.from_offset(max(0, offset - 1))
    for segment in segments:
        start = segment.offset_index().floor(offset - 1)[1] if segment is segments[0] else 0
        for position, header in segment.headers(start):
            yield segment, position, header
