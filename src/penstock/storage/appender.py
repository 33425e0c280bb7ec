"""The only part that writes to a log's end: appends, syncs, rolls and cuts."""

import contextlib
from collections.abc import Sequence

from penstock.records.batch import BatchHeader, parse_header
from penstock.storage.file_system import Bytes, File, SyncFailed
from penstock.storage.layout import INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_path
from penstock.storage.log_state import LogState
from penstock.storage.offset_index import RELATIVE_OFFSET_MAX
from penstock.storage.own_table import OwnTable, read_own
from penstock.storage.segment import Segment


class _Write:
    """Batches that go to one segment, from `position` on."""

    __slots__ = ("closing", "first_timestamp", "headers", "parts", "position", "segment", "size")

    def __init__(
        self,
        segment: Segment,
        position: int,
        first_timestamp: int,
        closing: Segment | None = None,
    ) -> None:
        self.segment = segment
        self.position = position
        self.first_timestamp = first_timestamp
        # The segment that ends here; it must be durable before its successor comes to be.
        self.closing = closing
        self.size = 0
        self.headers: list[BatchHeader] = []
        self.parts: list[Bytes] = []

    def add(self, header: BatchHeader, part: Bytes) -> None:
        if self.first_timestamp < 0:
            self.first_timestamp = header.max_timestamp
        self.headers.append(header)
        self.parts.append(part)
        self.size += len(part)


def _with_own(own: OwnTable, batch: Bytes, header: BatchHeader) -> OwnTable:
    assert header.is_own, "a term begins with an entry of its own"
    entry = read_own(batch, header)
    detail = own.misfit(entry)
    assert not detail, detail
    return own.plus(entry)


class Appender:
    __slots__ = ("_dirty", "_has_new_names", "_state", "_uncut", "_was_dirty")

    def __init__(self, state: LogState) -> None:
        self._state = state
        # Written since the last sync; pinned, because a sync must go through the descriptor that
        # the write went through to be told of a failed write-back.
        self._dirty: dict[Segment, File] = {}
        self._has_new_names = False
        # Whether something was unsynced already when the last append began.
        self._was_dirty = False
        # Failed writes that could not be cut back at once; nothing is written or cut before they
        # are.
        self._uncut: list[_Write] = []

    @property
    def is_dirty(self) -> bool:
        return bool(self._dirty) or self._has_new_names

    def append(self, batches: Sequence[Bytes]) -> None:
        """Raises OSError with the log as it was, on disk and in memory."""
        with self._state.lock:
            self.cut_back()
            self._was_dirty = bool(self._dirty) or self._has_new_names
            writes, own = self._plan(batches)
            self._state.segments.active.prepare()
            try:
                for write in writes:
                    self._write(write)
            except OSError:
                self._uncut = writes
                # The next append tries again if the disk refuses even this.
                with contextlib.suppress(OSError):
                    self.cut_back()
                raise
            self._publish(writes, own)

    def sync(self) -> None:
        """Returns once everything that was appended is on disk; raises SyncFailed if it is not."""
        with self._state.lock:
            try:
                self._sync_all()
            except OSError as error:
                raise SyncFailed(error.errno, error.strerror, str(self._state.directory)) from error
            self._forget_all()

    def note_synced(self) -> None:
        """The whole disk was opened before the last append and synced after it. It tells only of
        what it failed to write since it was opened: what is older needs a sync of its own."""
        with self._state.lock:
            if self._was_dirty:
                self.sync()
            self._has_new_names = False
            self._forget_all()

    def _sync_all(self) -> None:
        for file in self._dirty.values():
            file.sync()
        if self._has_new_names:
            self._state.file_system.sync_directory(self._state.directory)
            self._has_new_names = False

    def _forget_all(self) -> None:
        for segment in tuple(self._dirty):
            self.forget(segment)

    def forget(self, segment: Segment) -> None:
        """The segment needs no sync, or none any more."""
        if segment in self._dirty:
            del self._dirty[segment]
            segment.file.unpin()

    def roll(self) -> None:
        """Closes the active segment; the next batch begins a new one."""
        with self._state.lock:
            state = self._state
            # Without an offset in it, the next segment would have the same name.
            if not state.segments.active.has_offsets:
                return
            self.sync()
            state.segments = state.segments.plus([state.new_segment(state.end_offset)])
            state.has_rolled = True

    def truncate_to(self, segment: Segment, position: int, end_offset: int, own: OwnTable) -> None:
        """Cuts the log: `segment` ends at `position`, and those after it go.

        What remains is published already. An OSError leaves it cut in memory and uncut on disk.
        """
        state = self._state
        with state.lock:
            gone = [later for later in state.segments if later.base_offset > segment.base_offset]
            state.segments = state.segments.without(gone)
            # From the end, each for good before the next, so that a crash leaves no hole.
            for later in reversed(gone):
                self.remove(later)
                state.file_system.sync_directory(state.directory)
            segment.cut(position, end_offset)
            if segment.is_on_disk:
                self._mark_dirty(segment).truncate(position)
                # They would lie about what is written in the place of what goes.
                self._remove_indexes(segment)
                self._has_new_names = True
                # Or a crash could show the old bytes behind the new ones that come now.
                self.sync()
            # A reader that saw the old tail must not take the new table for it (see log_state.py).
            state.segments = state.segments.without(())
            state.own = own

    def remove(self, segment: Segment) -> None:
        """Takes the segment's files off the disk; its log must not list it any more."""
        self.forget(segment)
        segment.retire()
        if segment.is_on_disk:
            self._state.file_system.remove(segment.file.path)
        self._remove_indexes(segment)

    def _remove_indexes(self, segment: Segment) -> None:
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            with contextlib.suppress(FileNotFoundError):
                self._state.file_system.remove(
                    segment_path(self._state.directory, segment.base_offset, suffix)
                )

    def start_over(self) -> None:
        """All segments are gone, and with them whatever was left to do."""
        self.close()
        self._uncut = []
        self._has_new_names = False

    def close(self) -> None:
        self._forget_all()

    def _plan(self, batches: Sequence[Bytes]) -> tuple[list[_Write], OwnTable]:
        """What to write where, and Raft's own entries as they will be then."""
        active = self._state.segments.active
        write = _Write(active, active.size, active.first_timestamp)
        writes = [write]
        # Not the extent's end: while a gap is cut in two, that is ahead of the segments.
        expected = active.next_offset
        own = self._state.own
        term = own.last_term
        for batch in batches:
            header = parse_header(batch)
            size, next_offset = len(batch), header.next_offset
            assert header.base_offset == expected, "batches must be stamped and contiguous"
            assert header.size == size, "a batch must be exactly its bytes"
            if header.leader_epoch != term or header.last_offset_delta < 0:
                own = _with_own(own, batch, header)
                term = own.last_term
            if self._is_full_for(write, header.max_timestamp, size, expected, next_offset):
                write = _Write(
                    self._state.new_segment(expected), 0, header.max_timestamp, write.segment
                )
                writes.append(write)
            write.add(header, batch)
            expected = next_offset
        # The active segment may have no room for even the first.
        return [write for write in writes if write.parts], own

    def _is_full_for(
        self, write: _Write, timestamp: int, size: int, expected: int, next_offset: int
    ) -> bool:
        """Whether a batch of this time and size, and of these offsets, needs the next segment."""
        filled, base_offset = write.position + write.size, write.segment.base_offset
        # Without an offset in it, the next segment would have the same name.
        if filled == 0 or expected == base_offset:
            return False
        config = self._state.config
        age_ms = timestamp - write.first_timestamp
        return (
            filled + size > config.segment_bytes
            or next_offset - base_offset > RELATIVE_OFFSET_MAX
            or (write.first_timestamp >= 0 and age_ms > config.segment_age_ms_max)
        )

    def _write(self, write: _Write) -> None:
        if write.closing is not None:
            # Recovery takes a later segment as proof that the earlier ones are whole.
            self.sync()
        if not write.segment.is_on_disk:
            write.segment.file.create()
            self._has_new_names = True
        self._mark_dirty(write.segment).pwritev(write.parts, write.position)

    def _mark_dirty(self, segment: Segment) -> File:
        """Gives the file to write to, which stays open until it is synced."""
        file = self._dirty.get(segment)
        if file is None:
            file = self._dirty[segment] = segment.file.pin()
        return file

    def cut_back(self) -> None:
        """Undoes writes that failed half-way, last one first."""
        if not self._uncut:
            return
        for write in reversed(self._uncut):
            if write.segment.is_on_disk:
                write.segment.file.truncate(write.position)
            else:
                self._discard_new(write.segment)
        # Or a power cut could leave sectors of what failed among those of what comes now: nobody
        # could tell that from rot.
        self.sync()
        self._uncut = []

    def _discard_new(self, segment: Segment) -> None:
        self.forget(segment)
        segment.file.release()
        with contextlib.suppress(FileNotFoundError):
            self._state.file_system.remove(segment.file.path)
        # A crash must not bring it back behind a segment that was cut.
        self._state.file_system.sync_directory(self._state.directory)

    def _publish(self, writes: list[_Write], own: OwnTable) -> None:
        state = self._state
        state.own = own
        for write in writes:
            self._publish_one(write)
        new = [write.segment for write in writes if write.closing is not None]
        if new:
            state.segments = state.segments.plus(new)
            state.has_rolled = True
        state.publish_extent()

    def _publish_one(self, write: _Write) -> None:
        state = self._state
        if write.position == 0:
            write.segment.created_ms = state.clock.now_ms()
        write.segment.is_on_disk = True
        write.segment.add_all(write.headers)
        state.unsaved_bytes += write.size
        state.unsaved_batches += len(write.headers)
