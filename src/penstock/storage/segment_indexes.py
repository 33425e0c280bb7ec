"""The two indexes of a segment: kept in step, saved, loaded, and rebuilt when lost or wrong."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from penstock.records.batch import BatchHeader
from penstock.storage.continuity import KnownPlace
from penstock.storage.file_system import FileSystem
from penstock.storage.index_file import read_index, write_index
from penstock.storage.layout import INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_path
from penstock.storage.offset_index import OffsetIndex
from penstock.storage.time_index import TimeIndex

_ENTRY_WIDTH = 8


class SegmentIndexes(NamedTuple):
    offsets: OffsetIndex
    times: TimeIndex

    @classmethod
    def empty(cls, base_offset: int) -> "SegmentIndexes":
        return cls(OffsetIndex(base_offset), TimeIndex(base_offset))

    @property
    def end_position(self) -> int:
        """Where the last batch that is remembered is."""
        positions = self.offsets.positions
        return positions[-1] if positions else 0

    def note(
        self, header: BatchHeader, position: int, timestamp_before: int, interval: int
    ) -> None:
        """A batch is at `position`; remembered only if enough bytes lie before it.

        Never Raft's own entry or a gap: who looks its offset up wants the batch behind it.
        """
        is_empty = header.is_own or header.is_gap
        if position - self.end_position >= interval and not is_empty:
            # Readers go by the offsets, so that column grows last.
            self.times.append(timestamp_before)
            self.offsets.append(header.base_offset, position)

    def before(self, position: int) -> "SegmentIndexes":
        """Without what is at or after `position`; new ones, since others may look at these."""
        offsets = self.offsets.before(position)
        return SegmentIndexes(offsets, self.times.first(len(offsets)))

    @property
    def end_place(self) -> KnownPlace:
        """Where the last batch that is remembered is, or the begin."""
        found = self.offsets.place_before(self.end_position)
        return KnownPlace(0, self.offsets.base_offset) if found is None else KnownPlace(*found)

    def extend(self, following: Iterable[tuple[int, BatchHeader]], interval: int) -> None:
        """Notes what is missing: the batches from `end_place` on, each checked with the one
        before it, or the index would lead to what rotted."""
        timestamp = self.times.timestamps[-1] if len(self.offsets) > 0 else -1
        for position, header in following:
            self.note(header, position, timestamp, interval)
            timestamp = max(timestamp, header.max_timestamp)


def save_indexes(
    file_system: FileSystem, directory: Path, indexes: SegmentIndexes, covered: int
) -> None:
    base_offset = indexes.offsets.base_offset
    for suffix, content in (
        (INDEX_SUFFIX, indexes.offsets.content(covered)),
        (TIME_INDEX_SUFFIX, indexes.times.content(covered)),
    ):
        write_index(file_system, segment_path(directory, base_offset, suffix), content)


def load_offset_index(
    file_system: FileSystem, directory: Path, base_offset: int, size: int
) -> OffsetIndex | None:
    """None unless the index on disk covers the segment exactly."""
    path = segment_path(directory, base_offset, INDEX_SUFFIX)
    content = read_index(file_system, path, base_offset, _ENTRY_WIDTH)
    if content is None or content.covered != size:
        return None
    return OffsetIndex.from_content(content)


def load_indexes(
    file_system: FileSystem, directory: Path, base_offset: int, size: int
) -> tuple[SegmentIndexes, int]:
    """Both indexes, as far as those on disk are good, and how much of the segment they cover."""
    found = _read_both(file_system, directory, base_offset)
    if found is None:
        return SegmentIndexes.empty(base_offset), 0
    indexes, covered = found
    return indexes.before(size), covered


def _read_both(
    file_system: FileSystem, directory: Path, base_offset: int
) -> tuple[SegmentIndexes, int] | None:
    offsets_path = segment_path(directory, base_offset, INDEX_SUFFIX)
    times_path = segment_path(directory, base_offset, TIME_INDEX_SUFFIX)
    offsets = read_index(file_system, offsets_path, base_offset, _ENTRY_WIDTH)
    times = read_index(file_system, times_path, base_offset, _ENTRY_WIDTH)
    if offsets is None or times is None:
        return None
    if offsets.entries != times.entries or offsets.covered != times.covered:
        return None
    indexes = SegmentIndexes(OffsetIndex.from_content(offsets), TimeIndex.from_content(times))
    return indexes, offsets.covered
