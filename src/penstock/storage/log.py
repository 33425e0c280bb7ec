"""One partition's log on disk: the face of this package.

One thread at a time appends, syncs and checkpoints. `read`, and everything else that only looks,
may run beside it, as may compaction and scrubbing, which take the lock only to change the list of
segments. What `append` wrote is visible to readers at once and safe after `sync`.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.model.clock import Clock
from penstock.model.file_ranges import FileRange
from penstock.model.ids import Offset, Term
from penstock.model.topic_config import TopicConfig
from penstock.records.batch import BatchHeader
from penstock.storage.appender import Appender
from penstock.storage.checkpoint import Checkpoint
from penstock.storage.checkpointer import Checkpointer
from penstock.storage.continuity import ANY_TERM
from penstock.storage.file_system import Bytes, FileSystem
from penstock.storage.layout import CHECKPOINT
from penstock.storage.log_state import LogState
from penstock.storage.open_files import FileGone, OpenFiles
from penstock.storage.recovery import (
    check_unused,
    has_deleted_marks,
    recover,
    remove_deleted_marks,
)
from penstock.storage.retention import expired
from penstock.storage.scrub import scrub
from penstock.storage.segment import Segment
from penstock.storage.segment_list import SegmentList
from penstock.storage.time_lookup import TimedOffset, first_at_or_after, latest

if TYPE_CHECKING:
    from penstock.storage.compaction import CompactionReport, Compactor

_WARM_BYTES = 1024 * 1024
PRODUCER_EXPIRY_MS = 24 * 3600 * 1000


class Log:
    __slots__ = ("_appender", "_checkpointer", "_state")

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._appender = Appender(state)
        self._checkpointer = Checkpointer(state, self._appender)

    @staticmethod
    def exists(directory: Path, *, file_system: FileSystem) -> bool:
        """Whether a log was made here and its making was finished; says nothing of its health."""
        return file_system.exists(directory / CHECKPOINT)

    @classmethod
    def create(
        cls,
        directory: Path,
        *,
        config: TopicConfig,
        file_system: FileSystem,
        open_files: OpenFiles,
        clock: Clock,
    ) -> "Log":
        """An empty log; its directory and checkpoint are on disk when this returns."""
        parents = file_system.make_directory(directory)
        if not parents:
            check_unused(directory, file_system)
        state = LogState(
            directory,
            config=config,
            file_system=file_system,
            open_files=open_files,
            clock=clock,
            checkpoint=Checkpoint(),
        )
        file_system.write_atomically(directory / CHECKPOINT, state.to_checkpoint().encode())
        # It may have been made, but not synced, by an attempt that a crash cut short.
        for parent in parents or directory.parents[:2]:
            file_system.sync_directory(parent)
        return cls(state)

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        config: TopicConfig,
        file_system: FileSystem,
        open_files: OpenFiles,
        clock: Clock,
        on_batch: Callable[[BatchHeader], None],
        term_max: int = ANY_TERM,
    ) -> "Log":
        """The log as it was; `on_batch` sees every batch from the checkpoint's state on.

        A torn end is cut off; damage raises StorageDamaged with its file and position. No batch
        can be from a later term than the node's own, `term_max`.
        """
        log = cls(
            recover(
                directory,
                config=config,
                file_system=file_system,
                open_files=open_files,
                clock=clock,
                on_batch=on_batch,
                term_max=term_max,
            )
        )
        if has_deleted_marks(directory, file_system):
            log._checkpointer.save()
            remove_deleted_marks(directory, file_system)
        return log

    # What the log is

    @property
    def directory(self) -> Path:
        return self._state.directory

    @property
    def config(self) -> TopicConfig:
        return self._state.config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._state.config = config

    @property
    def start_offset(self) -> Offset:
        return Offset(self._state.start_offset)

    @property
    def end_offset(self) -> Offset:
        return Offset(self._state.end_offset)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._state.segments)

    @property
    def epochs(self) -> list[tuple[Term, Offset]]:
        return [(Term(term), Offset(start)) for term, start in self._state.epochs.entries]

    @property
    def state(self) -> bytes:
        """The owner's state from the last checkpoint; it covers all before `state_offset`."""
        return self._state.state

    @property
    def state_offset(self) -> Offset:
        return Offset(self._state.state_offset)

    def end_offset_for_epoch(self, term: int) -> tuple[Term, Offset]:
        return self._state.epochs.end_offset_for(term, self._state.end_offset)

    # Writing

    def append(self, batches: Sequence[Bytes]) -> None:
        """Writes stamped, contiguous batches; raises OSError with the log as it was."""
        self._appender.append(batches)

    def sync(self) -> None:
        """Returns once everything that was appended is on disk."""
        self._appender.sync()

    def checkpoint_due(self) -> bool:
        return self._checkpointer.is_due

    def checkpoint(self, *, state: bytes, state_offset: Offset, flushed_offset: Offset) -> None:
        """Syncs, then notes durably what is safe, and the owner's state up to `state_offset`."""
        with self._state.lock:
            assert state_offset <= self._state.end_offset
            assert flushed_offset <= self._state.end_offset
            self._state.state = state
            self._state.state_offset = state_offset
            self._checkpointer.save()

    def roll_if_due(self, now_ms: int) -> bool:
        """Closes an active segment that is older than `segment_ms`, so that it can be cleaned."""
        with self._state.lock:
            active = self._state.segments.active
            if active.size == 0 or now_ms - active.created_ms < self._state.config.segment_ms:
                return False
            self._appender.roll()
            return True

    def upkeep_due(self, now_ms: int, end: Offset) -> bool:
        """Whether `roll_if_due` or `apply_retention` would do something; cheap, for any thread."""
        state = self._state
        segments = state.segments
        active = segments.active
        if active.size > 0 and now_ms - active.created_ms >= state.config.segment_ms:
            return True
        return bool(expired(list(segments), state.config, now_ms=now_ms, end_offset=end))

    def compaction_due(self, now_ms: int, end: Offset) -> bool:
        """Whether `compact` would do something; cheap, for any thread."""
        if not self._state.config.cleanup_compact:
            return False
        return self._compactor(lambda: False, PRODUCER_EXPIRY_MS).is_due(now_ms, end)

    def truncate_to(self, offset: Offset) -> None:
        """Cuts off everything from `offset` on; a batch that holds it goes as a whole."""
        state = self._state
        with state.lock:
            assert state.start_offset <= offset
            if offset >= state.end_offset:
                return
            segment = state.segments.from_offset(offset)[0]
            position = segment.find(offset)
            end_offset = self._boundary(segment, position, offset)
            state.cleaned_offset = min(state.cleaned_offset, end_offset)
            if state.state_offset > end_offset:
                # The owner's state knows batches that go; it is rebuilt from the log.
                state.state, state.state_offset = b"", state.start_offset
            self._checkpointer.save_cut(segment, position, end_offset)
            self._appender.truncate_to(segment, position, end_offset)

    def _boundary(self, segment: Segment, position: int, offset: int) -> int:
        if position >= segment.size:
            return offset
        _, header = next(segment.headers(position))
        return min(offset, header.base_offset)

    # Reading

    def read(self, offset: Offset, bytes_max: int, end: Offset) -> FileRange | None:
        """Whole batches of one segment from the one that holds `offset`, none past `end`.

        At least one batch, even if it is larger than `bytes_max`; None if there is none.
        """
        while True:
            segments = self._state.segments
            try:
                return self._read(segments, offset, bytes_max, end)
            except FileGone:
                self._check_replaced(segments)

    def _check_replaced(self, segments: SegmentList) -> None:
        """A segment was removed or replaced after we took the list: fine if there is a new one."""
        if self._state.segments is segments:
            raise FileGone(f"the log {self.directory} is closed")

    def _read(
        self, segments: SegmentList, offset: int, bytes_max: int, end: int
    ) -> FileRange | None:
        for segment in segments.from_offset(offset):
            if segment.base_offset >= end:
                return None
            found = segment.range_of(offset, bytes_max, end)
            if found is not None:
                return FileRange(segment.file, *found)
        return None

    def is_indexed(self, offset: Offset) -> bool:
        """Whether `read` will find the offset without reading or building an index first."""
        found = self._state.segments.from_offset(offset)
        return not found or found[0].is_indexed

    def load_index(self, offset: Offset) -> None:
        """What `read` would do first if need be; a lost index of a large segment takes seconds."""
        for segment in self._state.segments.from_offset(offset)[:1]:
            # A segment that is gone by now is looked up again by `read`.
            with contextlib.suppress(FileGone):
                segment.offset_index()

    def is_hot(self, file_range: FileRange) -> bool:
        """Whether the bytes were written so lately that they need no disk access."""
        return file_range.file is self._state.segments.active.file

    def warm(self, file_range: FileRange) -> None:
        """Brings the bytes into the page cache, so that sending them does not wait for the disk."""
        end = file_range.position + file_range.length
        for position in range(file_range.position, end, _WARM_BYTES):
            file_range.file.pread(min(_WARM_BYTES, end - position), position)

    def headers(self, start: Offset, end: Offset) -> Iterator[BatchHeader]:
        """The header of each batch that holds an offset in [start, end)."""
        offset: int = start
        while True:
            segments = self._state.segments
            try:
                for header in self._headers(segments, offset, end):
                    offset = header.next_offset
                    yield header
                return
            except FileGone:
                self._check_replaced(segments)

    def _headers(self, segments: SegmentList, start: int, end: int) -> Iterator[BatchHeader]:
        for segment in segments.from_offset(start):
            if segment.base_offset >= end:
                return
            if segment.next_offset <= start or segment.size == 0:
                continue
            for _, header in segment.headers(segment.find(start)):
                if header.base_offset >= end:
                    return
                yield header

    def offset_for_timestamp(self, timestamp_ms: int, end: Offset) -> TimedOffset | None:
        """The first record below `end` that is not earlier: its offset, timestamp and term."""
        while True:
            segments = self._state.segments
            try:
                return first_at_or_after(segments, timestamp_ms, self._state.start_offset, end)
            except FileGone:
                self._check_replaced(segments)

    def offset_of_max_timestamp(self, end: Offset) -> TimedOffset | None:
        """The first of the records below `end` that have the latest timestamp."""
        while True:
            segments = self._state.segments
            try:
                return latest(segments, self._state.start_offset, end)
            except FileGone:
                self._check_replaced(segments)

    # Upkeep

    def delete_before(self, offset: Offset) -> None:
        """The log begins at `offset`, durably; segments that lie wholly before it go."""
        state = self._state
        with state.lock:
            assert offset <= state.end_offset
            if offset <= state.start_offset:
                return
            if offset == state.end_offset:
                self._appender.roll()
            state.start_offset = offset
            state.epochs.delete_before(offset)
            gone = [segment for segment in state.segments.closed if segment.next_offset <= offset]
            self._checkpointer.remove_segments(gone)

    def apply_retention(self, now_ms: int, end: Offset) -> Offset:
        """Removes segments that are too old or too much; returns where the log begins now."""
        state = self._state
        with state.lock:
            gone = expired(list(state.segments), state.config, now_ms=now_ms, end_offset=end)
            if gone:
                self.delete_before(Offset(gone[-1].next_offset))
            return Offset(state.start_offset)

    def compact(
        self,
        now_ms: int,
        end: Offset,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        producer_expiry_ms: int = PRODUCER_EXPIRY_MS,
    ) -> "CompactionReport":
        """One pass over closed segments below `end`; may run beside the writer."""
        return self._compactor(should_stop, producer_expiry_ms).run(now_ms, end)

    def _compactor(self, should_stop: Callable[[], bool], producer_expiry_ms: int) -> "Compactor":
        # Imported here to keep it out of the way of the start.
        from penstock.storage.compaction import Compactor

        return Compactor(
            self._state,
            self._appender,
            should_stop=should_stop,
            producer_expiry_ms=producer_expiry_ms,
        )

    def scrub(self, should_stop: Callable[[], bool], start: Offset | None = None) -> Offset:
        """Checks every batch from `start` on; returns how far it came before it had to stop.

        Raises StorageDamaged at a bad batch. May run beside the writer.
        """
        return Offset(scrub(self._state, should_stop, start or 0))

    def close(self) -> None:
        """Lets go of all descriptors; what was not synced is left to the operating system."""
        with self._state.lock:
            self._appender.close()
            for segment in self._state.segments:
                segment.retire()

    def delete(self) -> None:
        """Removes the log from disk; bytes that are on their way to readers still arrive."""
        state = self._state
        with state.lock:
            self._appender.close()
            for segment in state.segments:
                segment.retire()
            # Its topic may have been removed as a whole before.
            if state.file_system.exists(state.directory):
                state.file_system.remove_tree(state.directory)
