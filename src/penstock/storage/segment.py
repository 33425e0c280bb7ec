"""One append-only file of batches, and what is known about it without reading it."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from penstock.model.errors import StorageDamaged
from penstock.records.batch import LENGTH_OFFSET_OVERHEAD, BatchHeader
from penstock.storage.batch_reader import BadBatch, read_batches, read_headers
from penstock.storage.continuity import KnownOfLog, KnownPlace, check_arrival, check_run, misfit_in
from penstock.storage.offset_index import OffsetIndex
from penstock.storage.open_files import CachedFile, OpenFiles
from penstock.storage.segment_indexes import (
    SegmentIndexes,
    load_indexes,
    load_offset_index,
    save_indexes,
)

# Batches at the end whose positions are all known: readers who keep up need no disk access.
_RECENT_MAX = 1024
_RECENT_KEPT = 512

NO_TIMESTAMP = -1


class Tail(NamedTuple):
    """Where a segment ends; one value, so that a reader never sees half of a change."""

    next_offset: int
    size: int


class SegmentFacts(NamedTuple):
    """What a checkpoint keeps of a segment."""

    base_offset: int
    next_offset: int
    size: int = 0
    max_timestamp: int = NO_TIMESTAMP
    # The base offset of the first batch that has the latest timestamp.
    max_timestamp_offset: int = -1
    # Of the first batch; its distance to later ones says when to roll.
    first_timestamp: int = NO_TIMESTAMP
    created_ms: int = 0


class Segment:
    """One thread appends; any thread reads what `tail` has published."""

    __slots__ = (
        "_index_interval",
        "_indexes",
        "_log",
        "_open_files",
        "_recent",
        "base_offset",
        "created_ms",
        "file",
        "first_timestamp",
        "is_on_disk",
        "max_timestamp",
        "max_timestamp_offset",
        "sound_from",
        "tail",
    )

    def __init__(
        self,
        file: CachedFile,
        facts: SegmentFacts,
        *,
        log: KnownOfLog,
        open_files: OpenFiles,
        index_interval: int,
        indexes: SegmentIndexes | None,
        is_on_disk: bool = True,
    ) -> None:
        self.file = file
        self.base_offset = facts.base_offset
        self.tail = Tail(facts.next_offset, facts.size)
        self.max_timestamp = facts.max_timestamp
        self.max_timestamp_offset = facts.max_timestamp_offset
        self.first_timestamp = facts.first_timestamp
        self.created_ms = facts.created_ms
        # A new segment gets its file with its first batch.
        self.is_on_disk = is_on_disk
        # Every byte from here on was written by this process, or checked when it started.
        self.sound_from = facts.size
        self._log = log
        self._open_files = open_files
        self._index_interval = index_interval
        # None: the indexes are on disk, and the cache holds the one that readers need.
        self._indexes = indexes
        self._recent: dict[int, int] = {}

    @property
    def next_offset(self) -> int:
        return self.tail.next_offset

    @property
    def size(self) -> int:
        return self.tail.size

    @property
    def has_offsets(self) -> bool:
        """Whether a client's record was ever in it: Raft's own entries take no offsets."""
        return self.tail.next_offset > self.base_offset

    @property
    def facts(self) -> SegmentFacts:
        return SegmentFacts(
            base_offset=self.base_offset,
            next_offset=self.tail.next_offset,
            size=self.tail.size,
            max_timestamp=self.max_timestamp,
            max_timestamp_offset=self.max_timestamp_offset,
            first_timestamp=self.first_timestamp,
            created_ms=self.created_ms,
        )

    # What the writer does

    def prepare(self) -> SegmentIndexes:
        """Brings the indexes into memory, so that no later step of an append can fail on disk."""
        indexes = self._indexes
        return self._keep(self.indexes(), self.tail) if indexes is None else indexes

    def _keep(self, indexes: SegmentIndexes, tail: Tail) -> SegmentIndexes:
        """Holds them in memory, unless somebody was faster or the segment changed since `tail`."""
        with self._open_files.indexes.lock:
            if self._indexes is None and self.tail is tail:
                self._indexes = indexes
            return self._indexes or indexes

    def add(self, header: BatchHeader) -> None:
        self.add_all((header,))

    def add_all(self, headers: Sequence[BatchHeader]) -> None:
        """Batches were written at the end: now readers may see them."""
        indexes, recent = self.prepare(), self._recent
        position = self.tail.size
        if self.first_timestamp < 0:
            # Raft's own entries have no time, and a term's first one may come with records.
            times = (header.max_timestamp for header in headers if header.max_timestamp >= 0)
            self.first_timestamp = next(times, NO_TIMESTAMP)
        due = indexes.end_position + self._index_interval
        for header in headers:
            offset, timestamp = header.base_offset, header.max_timestamp
            if position >= due:
                indexes.note(header, position, self.max_timestamp, self._index_interval)
                due = indexes.end_position + self._index_interval
            if header.last_offset_delta >= 0 and not header.is_gap:
                recent[offset] = position
            if timestamp > self.max_timestamp and header.record_count > 0:
                self.max_timestamp = timestamp
                self.max_timestamp_offset = offset
            position += header.batch_length + LENGTH_OFFSET_OVERHEAD
        if len(recent) > _RECENT_MAX:
            self._recent = dict(islice(recent.items(), len(recent) - _RECENT_KEPT, None))
        self.tail = Tail(headers[-1].next_offset, position)

    def cut(self, position: int, next_offset: int) -> None:
        """Forgets what is from `position` on; the file itself is the caller's affair."""
        indexes = self.indexes().before(position)
        facts = self.facts_before(position, next_offset)
        with self._open_files.indexes.lock:
            self.tail = Tail(next_offset, position)
            self.sound_from = min(self.sound_from, position)
            self._recent = {}
            self._indexes = indexes
        self.max_timestamp = facts.max_timestamp
        self.max_timestamp_offset = facts.max_timestamp_offset
        self.first_timestamp = facts.first_timestamp

    def facts_before(self, position: int, next_offset: int) -> SegmentFacts:
        """What the facts would be if the segment ended at `position`."""
        max_timestamp, max_offset = self.max_timestamp, self.max_timestamp_offset
        if max_offset >= next_offset:
            max_timestamp, max_offset = NO_TIMESTAMP, -1
            for _, header in self.headers(0, position):
                if header.record_count > 0 and header.max_timestamp > max_timestamp:
                    max_timestamp, max_offset = header.max_timestamp, header.base_offset
        has_offsets = next_offset > self.base_offset
        return self.facts._replace(
            next_offset=next_offset,
            size=position,
            max_timestamp=max_timestamp,
            max_timestamp_offset=max_offset,
            first_timestamp=self.first_timestamp if has_offsets else NO_TIMESTAMP,
        )

    def save_indexes(self, *, is_active: bool) -> None:
        """Writes the indexes if they are in memory; a closed segment then gives its memory back."""
        if self._indexes is None:
            return
        if len(self._indexes.offsets) > 0:
            directory = self.file.path.parent
            save_indexes(self._open_files.file_system, directory, self._indexes, self.tail.size)
        if not is_active:
            self._open_files.indexes.put(self, self._indexes.offsets)
            self._indexes = None

    def retire(self) -> None:
        """The segment leaves its log; anyone who holds its bytes may finish with them."""
        self.file.retire()
        self._open_files.indexes.drop(self)

    # What readers do

    def range_of(
        self, offset: int, bytes_max: int, end: int, tail: Tail, next_own: Callable[[int], int]
    ) -> tuple[int, int] | None:
        """Position and length of whole batches: from the one that holds `offset`, none past `end`.

        At least one batch, even if it is larger than `bytes_max`; None if there is none. No own
        entry of Raft is among them: `next_own` gives the offset of the next behind an offset. The
        first is never a gap: some clients ask again and again where all that they get is empty.
        """
        if offset >= tail.next_offset:
            return None
        start = self._find(offset, tail.size)
        own = next_own(offset)
        if own <= end:
            limit = self._limit_at_own(own, start, bytes_max, end, tail, next_own)
        else:
            limit = self._limit(end, tail)
        if limit <= start:
            return None
        if limit - start > bytes_max:
            limit = self._cut_to(start, bytes_max, limit)
        return start, limit - start

    def _limit(self, end: int, tail: Tail) -> int:
        if end >= tail.next_offset:
            return tail.size
        # An own entry behind `end` may lie before the next client's batch.
        return self._find(end, tail.size, is_for_reading=False)

    def _limit_at_own(
        self,
        own: int,
        start: int,
        bytes_max: int,
        end: int,
        tail: Tail,
        next_own: Callable[[int], int],
    ) -> int:
        """Where the first own entry behind `start` is, or an earlier end that is far enough."""
        while own <= min(end, tail.next_offset):
            limit = self._before_own(own, start + bytes_max, tail.size)
            if limit > start:
                return limit
            # It is before `start`, in a gap that begins with the offset that was asked for.
            own = next_own(own)
        return self._limit(end, tail)

    def _before_own(self, own: int, enough: int, size: int) -> int:
        found = self.offset_index().floor(own - 1)[1]
        if found > enough:
            return found
        for position, header in self.headers(found, size):
            if header.base_offset >= own:
                return position
        return size

    def find(self, offset: int) -> int:
        """The position of the first batch that reaches `offset` or begins after it.

        Never that of Raft's own entry or of a gap.
        """
        return self._find(offset, self.tail.size)

    def _find(self, offset: int, size: int, *, is_for_reading: bool = True) -> int:
        recent = self._recent.get(offset)
        if recent is not None:
            return recent
        found_offset, found = self.offset_index().floor(offset)
        if found_offset == offset:
            return found
        for position, header in self.headers(found, size):
            is_empty = header.is_own or header.is_gap
            if header.last_offset >= offset and not (is_for_reading and is_empty):
                return position
        return size

    def _cut_to(self, start: int, bytes_max: int, limit: int) -> int:
        """The end of the last batch that fits; an indexed boundary will do, it costs no reading."""
        boundary = self.offset_index().boundary_at_or_before(start + bytes_max)
        if boundary > start:
            return boundary
        end = start
        for position, header in self.headers(start, limit):
            if end > start and position + header.size > start + bytes_max:
                break
            end = position + header.size
            if end - start >= bytes_max:
                break
        return end

    # Every walk over batches checks that each follows on the one before it, from the last place
    # that the index knows: what rotted must mislead nobody, whatever it is that they look for.

    def headers(
        self, position: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch; raises StorageDamaged where none can be right."""
        place = self._place_before(position)
        for at, header in self._following(place, self.tail.size if end is None else end):
            if at >= position:
                yield at, header

    def _following(self, place: KnownPlace, end: int) -> Iterator[tuple[int, BatchHeader]]:
        tail, at, expected = self.tail, *place
        try:
            for at, header in read_headers(self.file, place.position, end):
                expected = self._check(at, header, expected)
                yield at, header
            if end == tail.size:
                check_arrival(self._log, at, expected, tail.next_offset)
        except BadBatch as bad:
            raise self._damage(bad) from None

    def batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Like `headers`, with each batch's bytes, and its CRC checked."""
        tail = self.tail
        at, expected = place = self._place_before(position)
        try:
            for at, header, batch in read_batches(self.file, place.position, tail.size):
                expected = self._check(at, header, expected)
                if at >= position:
                    yield at, header, batch
            check_arrival(self._log, at, expected, tail.next_offset)
        except BadBatch as bad:
            raise self._damage(bad) from None

    def _check(self, position: int, header: BatchHeader, expected: int) -> int:
        """The offset that comes next; raises BadBatch."""
        detail = misfit_in(self._log, header, expected, self.tail.next_offset)
        if detail:
            raise BadBatch(position, detail)
        return header.next_offset

    def _damage(self, bad: BadBatch) -> StorageDamaged:
        return StorageDamaged(str(self.file.path), bad.position, bad.detail)

    def _place_before(self, position: int) -> KnownPlace:
        """The last place that is known, not after `position`."""
        found = self.offset_index().place_before(position) if position > 0 else None
        return KnownPlace(0, self.base_offset) if found is None else KnownPlace(*found)

    def check(self, position: int, end: int) -> None:
        """Raises StorageDamaged if a batch in these bytes can't be right; reads all of them.

        Its neighbours up to the next places that are known are looked at too: they tell.
        """
        tail = self.tail
        found = self.offset_index().place_from(end)
        stop = KnownPlace(tail.size, tail.next_offset)
        if found is not None and found[0] < tail.size:
            stop = KnownPlace(*found)
        start = self._place_before(position)
        try:
            check_run(self.file, self._log, start, stop, tail.next_offset)
        except BadBatch as bad:
            raise self._damage(bad) from None

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        return self.file.pread(header.size, position)

    @property
    def is_indexed(self) -> bool:
        """Whether offsets can be found without reading an index from disk, or building one."""
        return self._indexes is not None or self in self._open_files.indexes

    def offset_index(self) -> OffsetIndex:
        indexes = self._indexes
        if indexes is not None:
            return indexes.offsets
        cached = self._open_files.indexes.get(self)
        if cached is not None:
            return cached
        return self._load_offset_index()

    def _load_offset_index(self) -> OffsetIndex:
        file_system, directory = self._open_files.file_system, self.file.path.parent
        tail, cache = self.tail, self._open_files.indexes
        index = load_offset_index(file_system, directory, self.base_offset, tail.size)
        if index is None:
            # Lost or wrong: rebuilt, and kept in memory until the next checkpoint saves it.
            return self._keep(self.indexes(), tail).offsets
        cache.put(self, index)
        if self.tail is not tail:
            # A cut may have come between.
            cache.drop(self)
        return index

    def indexes(self) -> SegmentIndexes:
        """Both indexes; those of a closed segment are read from disk for this caller alone."""
        indexes = self._indexes
        if indexes is not None:
            return indexes
        size = self.tail.size
        indexes, covered = load_indexes(
            self._open_files.file_system, self.file.path.parent, self.base_offset, size
        )
        if covered < size:
            indexes.extend(self._following(indexes.end_place, size), self._index_interval)
        return indexes
