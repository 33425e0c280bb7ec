"""One partition's log on disk: the face of this package.

It is a Raft log too: a client's batch is one entry and covers as many indices as it has offsets,
and Raft's own entries cover one index and no offset (see own_table.py). Clients never see those.

One thread at a time appends, syncs and checkpoints. `read`, and everything else that only looks,
may run beside it (log_state.py says how), as may compaction and scrubbing, which take the lock only
to change the list of segments. What `append` wrote is visible to readers at once and safe after
`sync`.
"""

from collections.abc import Callable, Sequence
from os.path import join
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from penstock.model.clock import Clock
from penstock.model.ids import LogIndex, Offset, Term
from penstock.model.topic_config import TopicConfig
from penstock.records.batch import BatchHeader
from penstock.records.own_entries import build_gaps
from penstock.storage import recovery
from penstock.storage.appender import Appender
from penstock.storage.checkpoint import NO_DOUBT as NO_DOUBT
from penstock.storage.checkpoint import Doubt as Doubt
from penstock.storage.checkpointer import Checkpointer
from penstock.storage.creation import create_logs
from penstock.storage.epochs import end_offset_for
from penstock.storage.file_system import Bytes, FileSystem, SyncFailed, WholeDisk
from penstock.storage.layout import CHECKPOINT
from penstock.storage.log_entries import LogEntry as LogEntry
from penstock.storage.log_entries import entry_start, read_entries
from penstock.storage.log_ranges import LogRange as LogRange
from penstock.storage.log_ranges import find_range, is_hot, warm
from penstock.storage.log_state import Extent, LogState
from penstock.storage.open_files import FileGone, OpenFiles
from penstock.storage.own_table import EntriesCut as EntriesCut
from penstock.storage.own_table import EntriesGone as EntriesGone
from penstock.storage.own_table import LogBase as LogBase
from penstock.storage.own_table import OwnEntry as OwnEntry
from penstock.storage.own_table import OwnTable
from penstock.storage.retention import expired
from penstock.storage.scrub import Scrubbed as Scrubbed
from penstock.storage.scrub import scrub
from penstock.storage.segment import Segment
from penstock.storage.segment_list import SegmentList
from penstock.storage.time_lookup import TimedOffset, first_at_or_after, latest
from penstock.storage.truncation import find_cut

if TYPE_CHECKING:
    from penstock.storage.compaction import CompactionReport, Compactor

_Found = TypeVar("_Found")

NEW_LOG = LogBase()
BEGIN = Offset(0)
PRODUCER_EXPIRY_MS = 24 * 3600 * 1000


class Log:
    __slots__ = ("_appender", "_checkpointer", "_compaction_due_at", "_compaction_look", "_state")

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._appender = Appender(state)
        self._checkpointer = Checkpointer(state, self._appender)
        # What was found when it was last looked whether a compaction is due, and when one will be.
        self._compaction_look: tuple[object, object, int, int] = (None, None, -1, -1)
        self._compaction_due_at: int | None = None

    @staticmethod
    def exists(directory: Path, *, file_system: FileSystem) -> bool:
        """Whether a log was made here and its making was finished; says nothing of its health."""
        return file_system.exists(join(directory, CHECKPOINT))

    @staticmethod
    def sync_names(directory: Path, *, file_system: FileSystem) -> None:
        """For a log that is there but may not stay: a crash or a failed sync ended its making."""
        for each in (directory, directory.parent):
            file_system.sync_directory(each)

    @classmethod
    def create(
        cls,
        wanted: Sequence[tuple[Path, LogBase]],
        *,
        config: TopicConfig,
        file_system: FileSystem,
        open_files: OpenFiles,
        clock: Clock,
        disk: WholeDisk | None = None,
    ) -> list["Log"]:
        """Empty logs in these directories, on disk when this returns; with a disk they share its
        syncs. The directories above must be synced before any of the logs counts."""
        states = create_logs(
            wanted,
            config=config,
            file_system=file_system,
            open_files=open_files,
            clock=clock,
            disk=disk,
        )
        return [cls(state) for state in states]

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
        is_shared: Callable[[bytes], bool] = lambda _: False,
        syncs_tail: bool = True,
    ) -> "Log":
        """The log as it was; `on_batch` sees every batch from the checkpoint's state on.

        One who opens many may sync their tails in one go, before any of them is used.
        A torn end is cut off; damage raises StorageDamaged with its file and position, unless it
        is behind the flush mark and others can fill in what is cut: `is_shared` says so of the
        newest membership (encoded). Then `doubt` says what is missing.
        """
        state, has_deleted_marks = recovery.recover(
            directory,
            config=config,
            file_system=file_system,
            open_files=open_files,
            clock=clock,
            on_batch=on_batch,
            is_shared=is_shared,
        )
        log = cls(state)
        if syncs_tail or has_deleted_marks:
            recovery.sync_tail(state)
        if has_deleted_marks:
            log._checkpointer.save()
            recovery.remove_deleted_marks(directory, file_system)
        return log

    @staticmethod
    def sync_tails(logs: Sequence["Log"], disk: WholeDisk | None) -> list[OSError | None]:
        """Those of logs that were opened without; None for each log that may be used now."""
        return recovery.sync_tails([log._state for log in logs], disk)

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
        """Terms in order, each with its first offset (OffsetForLeaderEpoch, KIP-101)."""
        found = self._state.extent.own.epochs(self._state.start_offset)
        return [(Term(term), Offset(start)) for term, start in found]

    @property
    def state(self) -> bytes:
        """The owner's state as last given to `checkpoint`; it covers all before `state_offset`."""
        return self._state.state

    @property
    def state_offset(self) -> Offset:
        return Offset(self._state.state_offset)

    @property
    def saved_offset(self) -> Offset:
        """Before it, the checkpoint on disk covers all records and the owner's state."""
        return Offset(self._state.saved_offset)

    def end_offset_for_epoch(self, term: int) -> tuple[Term, Offset]:
        extent = self._state.extent
        epochs = extent.own.epochs(self._state.start_offset)
        return end_offset_for(epochs, term, extent.end_offset)

    @property
    def doubt(self) -> Doubt:
        """What it may lack of what this replica acknowledged."""
        return self._state.doubt

    # What Raft sees

    @property
    def base(self) -> LogBase:
        """What is before the first entry that is kept."""
        return self._state.extent.own.base

    @property
    def first_index(self) -> LogIndex:
        """Of the first entry that is kept; one more than `last_index` when there is none.

        Whole segments go, so its offset may be lower than `start_offset`.
        """
        return LogIndex(self.base.index + 1)

    @property
    def last_index(self) -> LogIndex:
        return LogIndex(self._state.last_index)

    @property
    def last_term(self) -> Term:
        return Term(self._state.extent.own.last_term)

    @property
    def own_entries(self) -> Sequence[OwnEntry]:
        return self._state.extent.own.entries

    # These four raise EntriesGone for what is before the log, and EntriesCut for what is
    # behind it: one who asks from another thread can't know where it ends at this moment.

    def term_at(self, index: LogIndex) -> Term:
        """For every index from `first_index - 1` to the last."""
        extent = self._state.extent
        extent.check_reaches(index)
        return Term(extent.own.term_at(index))

    def offset_after(self, index: LogIndex) -> Offset:
        """The offset of the next record after everything up to and with `index`."""
        extent = self._state.extent
        extent.check_reaches(index)
        return Offset(extent.own.offset_after(index))

    def index_before(self, offset: Offset) -> LogIndex:
        """The smallest index after which `offset` is the next; at least that before the log."""
        extent = self._state.extent
        if offset > extent.end_offset:
            raise EntriesCut(f"offset {offset} is after the log's end, {extent.end_offset}")
        return LogIndex(extent.own.index_before(offset))

    def memberships(self) -> list[tuple[int, bytes]]:
        """That before the log, then all in it: index and encoded membership."""
        return self._state.extent.own.memberships()

    def entries(self, low: LogIndex, high: LogIndex, bytes_max: int) -> list[LogEntry]:
        """The entries in [low, high) without holes; at least one, then as many as fit.

        A gap that `low` falls into is cut; a client's batch is never asked for from its middle.
        Raises EntriesGone if `low` is before the log; EntriesCut if `high` is behind it, or
        the log has no such entries any more.
        """
        if low >= high:
            raise EntriesCut(f"no entry starts at {low} and ends before {high}")

        def look(segments: SegmentList, own: OwnTable) -> list[LogEntry]:
            return read_entries(segments, own, low, high, bytes_max)

        return self._looking_between(low, high - 1, look)

    def entry_start(self, index: LogIndex) -> LogIndex:
        """The first index of the batch that covers `index`; in a gap `index`: it may be cut."""
        return self._looking_between(
            index, index, lambda segments, own: LogIndex(entry_start(segments, own, index))
        )

    def _looking_between(
        self, first: int, last: int, look: Callable[[SegmentList, OwnTable], _Found]
    ) -> _Found:
        """What `look` finds if all from `first` to `last` is in the log."""

        def checked(segments: SegmentList, extent: Extent) -> _Found:
            extent.own.check_kept(first)
            extent.check_reaches(last)
            found = look(segments, extent.own)
            # What retention removed meanwhile looks like a gap, and is none.
            self._state.own.check_kept(first)
            return found

        return self._looking(checked)

    # Writing

    def append(self, batches: Sequence[Bytes]) -> None:
        """Writes stamped, contiguous batches; raises OSError with the log as it was.

        Clients' batches, gaps, and Raft's own entries; a term begins with its NEW_TERM entry.
        """
        self._appender.append(batches)

    def sync(self) -> None:
        """Returns once everything that was appended is on disk."""
        self._appender.sync()

    def note_synced(self) -> None:
        """The whole disk was opened before the last append and synced after it."""
        self._appender.note_synced()

    def checkpoint_due(self) -> bool:
        return self._checkpointer.is_due

    def checkpoint(self, *, state: bytes, state_offset: Offset, flushed_offset: Offset) -> None:
        """Syncs, then notes durably what is safe, and the owner's state up to `state_offset`.

        The state covers only what is committed: a cut never goes below it.
        """
        with self._state.lock:
            assert state_offset <= self._state.end_offset
            assert flushed_offset <= self._state.end_offset
            self._state.state = state
            self._state.state_offset = state_offset
            self._checkpointer.save()

    def roll_if_due(self, now_ms: int) -> bool:
        """Closes an active segment that is old enough, so that it can be cleaned."""
        with self._state.lock:
            active = self._state.segments.active
            if not self._is_roll_due(active, now_ms):
                return False
            self._appender.roll()
            return True

    def _is_roll_due(self, active: Segment, now_ms: int) -> bool:
        age_ms = now_ms - active.created_ms
        return active.has_offsets and age_ms >= self._state.config.segment_age_ms_max

    def is_roll_due(self, now_ms: int) -> bool:
        """Whether `roll_if_due` would do something; cheap, for any thread."""
        return self._is_roll_due(self._state.segments.active, now_ms)

    def upkeep_due(self, now_ms: int, end: Offset) -> bool:
        """Whether `roll_if_due` or `apply_retention` would do something; cheap, for any thread."""
        if self.is_roll_due(now_ms):
            return True
        return self.retention_offset(now_ms, end) > self._state.start_offset

    def compaction_due(self, now_ms: int, end: Offset) -> bool:
        """Whether `compact` would do something; for the event loop, which asks often.

        Segments are looked at only if something changed since the last time.
        """
        state = self._state
        segments, config = state.segments, state.config
        if not config.cleanup_compact:
            return False
        known = self._compaction_look
        reach = min(end, segments.active.base_offset)
        look = (segments, config, state.cleaned_offset, reach)
        if known[0] is not segments or known[1] is not config or known[2:] != look[2:]:
            compactor = self._compactor(lambda: False, PRODUCER_EXPIRY_MS)
            self._compaction_due_at = compactor.due_at(reach)
            self._compaction_look = look
        due_at = self._compaction_due_at
        return due_at is not None and due_at <= now_ms

    def truncate_to_index(self, index: LogIndex) -> None:
        """Cuts off all entries from `index` on; a gap that holds it is shortened.

        Raises OSError with the log as it was, or SyncFailed if it is half cut: a start finds all
        that was not cut yet, and only a start may, since in memory the cut is done.
        """
        state = self._state
        with state.lock:
            if index > state.last_index:
                return
            assert index > state.own.base.index
            end_offset = state.own.offset_after(index - 1)
            assert state.start_offset <= end_offset
            assert state.state_offset <= end_offset, "what is committed is never cut"
            self._appender.cut_back()
            cut = find_cut(state, index)
            own = state.own.before(index)
            state.cleaned_offset = min(state.cleaned_offset, cut.end_offset)
            self._checkpointer.save_cut(*cut, own)
            try:
                with state.cutting():
                    state.publish_cut(own, end_offset)
                    self._appender.truncate_to(*cut, own)
                    if cut.end_offset < end_offset:
                        self._append_gap(cut.end_offset, end_offset)
            except OSError as error:
                raise SyncFailed(error.errno, error.strerror, str(state.directory)) from error

    def _append_gap(self, offset: int, end: int) -> None:
        term = self._state.own.last_term
        self._appender.append(build_gaps(offset=offset, span=end - offset, term=term))

    def reset(self, base: LogBase, *, state: bytes) -> None:
        """The log is empty and begins at `base`, durably; a crash leaves it so, or as it was.

        `state` is the owner's, as of `base.offset`. Raises SyncFailed if that was decided but
        could not be done: then it is done when the log is opened next.
        """
        # Imported here to keep it out of the way of the start.
        from penstock.storage.log_reset import reset_log

        reset_log(self._state, self._appender, self._checkpointer, base, state)

    def set_doubt(self, doubt: Doubt) -> None:
        """Notes durably what the log may lack, or that it lacks nothing any more."""
        with self._state.lock:
            self._state.doubt = doubt
            self._checkpointer.save()

    # Reading

    def read(self, offset: Offset, bytes_max: int, end: Offset) -> LogRange | None:
        """Whole batches of one segment from the one that holds `offset`, none past `end`.

        At least one batch, even if it is larger than `bytes_max`; None if there is none. Raft's
        own entries are never among them. What is before `end` must be committed: the caller
        reads the bytes later, and nobody may have cut them by then.
        """
        if offset >= end:
            return None
        while True:
            segments, cuts = self._state.segments, self._state.cuts
            try:
                found = find_range(self._state, segments, offset, bytes_max, end)
            except Exception as error:
                self._check_changed(error, segments, cuts)
                continue
            if self._state.segments is segments:
                return found
            # A cut may have removed an own entry from the table while we looked for its place.
            if found is not None:
                found.release()

    def _looking(self, look: Callable[[SegmentList, Extent], _Found]) -> _Found:
        """What `look` finds in the log as it was at one moment: again if it changed meanwhile."""
        state = self._state
        while True:
            cuts, extent, segments = state.cuts, state.extent, state.segments
            try:
                found = look(segments, extent)
            except Exception as error:
                self._check_changed(error, segments, cuts)
                continue
            if state.cuts == cuts:
                return found

    def _check_changed(self, error: Exception, segments: SegmentList, cuts: int) -> None:
        """Raises what was met, unless the log was changed under our eyes.

        Beside a cut anything may be met: bytes of two batches, or an index of what is gone.
        """
        if isinstance(error, FileGone):
            # A segment was removed or replaced after we took the list: fine if there is a new one.
            if self._state.segments is segments:
                raise FileGone(f"the log {self.directory} is closed") from None
        elif isinstance(error, EntriesGone | EntriesCut):
            # The extent says whether it is there, and nobody has to wait for that.
            if self._state.cuts == cuts:
                raise error
        elif not self._state.was_cut_since(cuts):
            raise error

    def is_indexed(self, offset: Offset) -> bool:
        """Whether `read` will find the offset without reading or building an index first."""
        found = self._state.segments.from_offset(offset)
        return not found or found[0].is_indexed

    def load_index(self, offset: Offset) -> None:
        """What `read` would do first if need be; a lost index of a large segment takes seconds."""

        def load(segments: SegmentList, _: Extent) -> None:
            for segment in segments.from_offset(offset)[:1]:
                segment.offset_index()

        self._looking(load)

    def is_hot(self, found: LogRange) -> bool:
        """Whether the bytes may be sent at once: they need neither a disk access nor a check."""
        return is_hot(self._state, found)

    def warm(self, found: LogRange) -> None:
        """Makes the bytes fit to be sent: they come into the page cache, so that nobody waits for
        the disk, and each batch is checked to be in its place. Raises StorageDamaged."""
        warm(self._state, found)

    def offset_for_timestamp(self, timestamp_ms: int, end: Offset) -> TimedOffset | None:
        """The first record below `end` that is not earlier: its offset, timestamp and term."""
        start = self._state.start_offset
        return self._looking(
            lambda segments, _: first_at_or_after(segments, timestamp_ms, start, end)
        )

    def offset_of_max_timestamp(self, end: Offset) -> TimedOffset | None:
        """The first of the records below `end` that have the latest timestamp."""
        return self._looking(lambda segments, _: latest(segments, self._state.start_offset, end))

    # Upkeep

    def delete_before(self, offset: Offset) -> None:
        """The log begins at `offset`, durably; segments that lie wholly before it go.

        Everything before `offset` must be committed.
        """
        state = self._state
        with state.lock:
            assert offset <= state.end_offset
            if offset <= state.start_offset:
                return
            if offset == state.end_offset:
                self._appender.roll()
            state.start_offset = offset
            gone = [segment for segment in state.segments.closed if segment.next_offset <= offset]
            if gone:
                kept = state.segments.without(gone).first
                state.own = state.own.moved_to(min(offset, kept.base_offset))
                state.publish_extent()
            self._checkpointer.remove_segments(gone)

    def apply_retention(self, now_ms: int, end: Offset) -> Offset:
        """Removes segments that are too old or too much; returns where the log begins now."""
        state = self._state
        with state.lock:
            self.delete_before(self.retention_offset(now_ms, end))
            return Offset(state.start_offset)

    def retention_offset(self, now_ms: int, end: Offset) -> Offset:
        """Where the log would begin if its retention were applied; cheap, for any thread."""
        state = self._state
        gone = expired(list(state.segments), state.config, now_ms=now_ms, end_offset=end)
        return Offset(max([state.start_offset, *(segment.next_offset for segment in gone[-1:])]))

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

    def scrub(
        self, should_stop: Callable[[], bool], start: Offset = BEGIN, bytes_max: int | None = None
    ) -> Scrubbed:
        """Checks every batch from `start` on; says how far it came before it had to stop.

        `bytes_max` bounds it, but for its last batch. Raises StorageDamaged at a bad batch. May run
        beside the writer.
        """
        return scrub(self._state, should_stop, start, bytes_max)

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
            self.close()
            # Its topic may have been removed as a whole before.
            if state.file_system.exists(state.directory):
                state.file_system.remove_tree(state.directory)
