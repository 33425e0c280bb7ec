"""The log as Raft sees it: entries by index, without holes.

A client's batch is one entry, Raft's own entries come from their table, and what compaction
removed is a gap. Only the batches are read from the segments.
"""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.model.errors import StorageDamaged
from penstock.records.batch import BatchHeader, CorruptBatch, crc_matches, parse_header
from penstock.storage.own_table import EntriesCut, OwnEntry, OwnTable
from penstock.storage.segment import Segment
from penstock.storage.segment_list import SegmentList

DATA = 0
GAP = -1


class LogEntry(NamedTuple):
    first_index: int
    # The last index that the entry covers.
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    term: int
    # DATA, GAP, or one of OwnKind.
    kind: int
    # Empty for a gap.
    batch: bytes


class _Budget:
    """How many bytes may still be read; the first entry is always within."""

    __slots__ = ("has_any", "left")

    def __init__(self, bytes_max: int) -> None:
        self.left = bytes_max
        self.has_any = False

    def take(self, size: int) -> bool:
        if self.has_any and size > self.left:
            return False
        self.has_any = True
        self.left -= size
        return True


def read_entries(
    segments: SegmentList, own: OwnTable, low: int, high: int, bytes_max: int
) -> list[LogEntry]:
    """The entries in [low, high), where one begins at `low` (or a gap is) and one ends at `high`.

    At least one, then as many as fit into `bytes_max`.
    """
    found: list[LogEntry] = []
    budget = _Budget(bytes_max)
    while low < high:
        entry = own.at(low)
        if entry is not None:
            new, is_all = _take_own(entry, budget)
        else:
            end = own.offset_after(min(high, own.next_index(low)) - 1)
            stretch = _Stretch(segments, own, own.offset_after(low - 1), end)
            new, is_all = stretch.read(budget)
        found += new
        if not is_all:
            break
        low = found[-1].index + 1
    return found


def _take_own(entry: OwnEntry, budget: _Budget) -> tuple[list[LogEntry], bool]:
    batch = entry.batch()
    if not budget.take(len(batch)):
        return [], False
    return [LogEntry(entry.index, entry.index, entry.term, entry.kind, batch)], True


class _Stretch:
    """Offsets between two own entries: batches and gaps of one term."""

    def __init__(self, segments: SegmentList, own: OwnTable, offset: int, end: int) -> None:
        self._segments = segments
        self._own = own
        # How far the entries below go; a gap from there on is not among them yet.
        self._covered = offset
        self._offset = offset
        self._end = end
        # What must be added to an offset to get its index.
        self._shift = own.index_of(offset) - offset
        self._term = own.term_at(offset + self._shift)
        self._found: list[LogEntry] = []

    def read(self, budget: _Budget) -> tuple[list[LogEntry], bool]:
        """The entries, and whether that is all up to the end."""
        for segment in self._segments.from_offset(self._offset):
            if segment.base_offset >= self._end:
                break
            if not self._read_segment(segment, budget):
                self._add_gap(self._offset)
                return self._found, False
        self._add_gap(self._end)
        return self._found, True

    def _read_segment(self, segment: Segment, budget: _Budget) -> bool:
        """Whether the budget was large enough for all of it."""
        while self._offset < min(self._end, segment.next_offset):
            if budget.has_any and budget.left <= 0:
                return False
            place = segment.range_of(
                self._offset, budget.left, self._end, segment.tail, self._own.next_offset
            )
            if place is None:
                self._check_gap(segment)
                return True
            if not self._read_range(segment, place, budget):
                return False
        return True

    def _read_range(self, segment: Segment, place: tuple[int, int], budget: _Budget) -> bool:
        position, length = place
        # An offset that rotted would look like a gap.
        segment.check(position, position + length)
        data = segment.file.pread(length, position)
        start = 0
        # What is behind the end may be cut off or written again at this moment.
        while start < length and self._offset < self._end:
            header = self._checked(segment, data, start, position)
            if header.is_gap:
                self._offset = min(header.next_offset, self._end)
            elif not budget.take(header.size):
                return False
            else:
                self._add_batch(header, data[start : start + header.size])
            start += header.size
        return True

    def _checked(self, segment: Segment, data: bytes, start: int, position: int) -> BatchHeader:
        """The header of a batch that may be sent to others: what rotted here must not spread."""
        try:
            header = parse_header(data, start)
            if not crc_matches(data, start, header):
                raise CorruptBatch("the checksum does not match")
        except CorruptBatch as error:
            raise StorageDamaged(str(segment.file.path), position + start, str(error)) from None
        return header

    def _add_batch(self, header: BatchHeader, batch: bytes) -> None:
        if header.base_offset < self._offset:
            raise EntriesCut(f"no entry starts at index {self._offset + self._shift}")
        self._add_gap(header.base_offset)
        first, last = header.base_offset + self._shift, header.last_offset + self._shift
        self._found.append(LogEntry(first, last, self._term, DATA, batch))
        self._offset = self._covered = header.next_offset

    def _add_gap(self, end: int) -> None:
        """Everything up to `end` that no entry covers is a gap."""
        if end > self._covered:
            first, last = self._covered + self._shift, end - 1 + self._shift
            self._found.append(LogEntry(first, last, self._term, GAP, b""))
            self._offset = self._covered = end

    def _check_gap(self, segment: Segment) -> None:
        """Nothing was found up to the end: there is nothing, not half an entry."""
        header = next(_headers_at(segment, self._offset), None)
        if header is not None and not header.is_gap and header.base_offset < self._end:
            raise EntriesCut(f"no entry ends before index {self._end + self._shift}")


def _headers_at(segment: Segment, offset: int) -> Iterator[BatchHeader]:
    for _, header in segment.headers(segment.find(offset)):
        if not header.is_own:
            yield header


def entry_start(segments: SegmentList, own: OwnTable, index: int) -> int:
    """The first index of the batch that covers `index`; `index` itself where none does.

    In a gap that is right too, because a gap may be cut anywhere.
    """
    if own.at(index) is not None:
        return index
    offset = own.offset_after(index) - 1
    for segment in segments.from_offset(offset)[:1]:
        header = next(_headers_at(segment, offset), None)
        if header is not None and header.base_offset < offset and not header.is_gap:
            return index - (offset - header.base_offset)
    return index
