"""The two indexes of a segment: kept in step, saved, loaded, and rebuilt when lost or wrong."""

from pathlib import Path
from typing import NamedTuple

from penstock.records.batch import BatchHeader
from penstock.storage.batch_reader import BadBatch, Readable, read_headers
from penstock.storage.file_system import FileSystem
from penstock.storage.index_file import read_index, write_index
from penstock.storage.layout import INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_path
from penstock.storage.offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
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

        Never Raft's own entry: where its offset is looked up, the client's batch is meant.
        """
        if position - self.end_position >= interval and not header.is_own:
            # Readers go by the offsets, so that column grows last.
            self.times.append(timestamp_before)
            self.offsets.append(header.base_offset, position)

    def before(self, position: int) -> "SegmentIndexes":
        """Without what is at or after `position`; new ones, since others may look at these."""
        offsets = self.offsets.before(position)
        return SegmentIndexes(offsets, self.times.first(len(offsets)))

    def extend(self, file: Readable, end: int, interval: int) -> None:
        """Walks the segment from the last entry to `end` and notes what is missing."""
        has_entry = len(self.offsets) > 0
        start = self.offsets.positions[-1] if has_entry else 0
        timestamp = self.times.timestamps[-1] if has_entry else -1
        first = lowest = self.offsets.base_offset
        for position, header in read_headers(file, start, end):
            # No checksum covers a batch's offset, and what it should be, only its neighbours say.
            if not lowest <= header.base_offset <= first + RELATIVE_OFFSET_MAX:
                raise BadBatch(position, f"offset {header.base_offset} does not follow {lowest}")
            lowest = header.next_offset
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
    file_system: FileSystem,
    directory: Path,
    base_offset: int,
    size: int,
    file: Readable,
    interval: int,
) -> SegmentIndexes:
    """Both indexes, taken from disk as far as they are good, the rest from the segment."""
    found = _read_both(file_system, directory, base_offset)
    if found is None:
        rebuilt = SegmentIndexes.empty(base_offset)
        rebuilt.extend(file, size, interval)
        return rebuilt
    indexes, covered = found
    indexes = indexes.before(size)
    if covered < size:
        indexes.extend(file, size, interval)
    return indexes


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
