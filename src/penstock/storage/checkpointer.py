"""Writes a log's checkpoint, and removes segments in the order that a crash can't spoil."""

import errno
from collections.abc import Sequence

from penstock.model.limits import MIB
from penstock.storage.appender import Appender
from penstock.storage.checkpoint import Checkpoint
from penstock.storage.file_system import SyncFailed
from penstock.storage.layout import CHECKPOINT, DELETED_SUFFIX
from penstock.storage.log_state import LogState
from penstock.storage.own_table import OwnTable
from penstock.storage.segment import Segment

# What recovery may have to read again: this many bytes, or this many batches if they are small.
UNSAVED_BYTES_MAX = 64 * MIB
UNSAVED_BATCHES_MAX = 50_000


class Checkpointer:
    __slots__ = ("_appender", "_saved", "_state")

    def __init__(self, state: LogState, appender: Appender) -> None:
        self._state = state
        self._appender = appender
        self._saved: Checkpoint | None = None

    @property
    def is_due(self) -> bool:
        state = self._state
        return (
            state.has_rolled
            or state.unsaved_bytes >= UNSAVED_BYTES_MAX
            or state.unsaved_batches >= UNSAVED_BATCHES_MAX
        )

    def start_over(self) -> None:
        """Somebody else writes the checkpoint."""
        self._saved = None

    def save(self) -> None:
        """Everything that the checkpoint names is made durable first, so its end is the mark."""
        state = self._state
        with state.lock:
            state.finish_swap()
            self._appender.sync()
            active = state.segments.active
            for segment in state.segments:
                segment.save_indexes(is_active=segment is active)
            self._write(state.to_checkpoint())
            state.unsaved_bytes = state.unsaved_batches = 0
            state.has_rolled = False

    def _write(self, checkpoint: Checkpoint) -> None:
        # A log that did not change since needs no write: a node closes thousands at once.
        if checkpoint != self._saved:
            path = self._state.directory / CHECKPOINT
            # If this fails, it may be there all the same.
            self._saved = None
            self._state.note_maybe_flushed(checkpoint)
            self._state.file_system.write_atomically(path, checkpoint.encode())
            self._saved = checkpoint
        self._state.note_flushed(checkpoint)

    def save_cut(self, segment: Segment, position: int, end_offset: int, own: OwnTable) -> None:
        """Before a log is cut at `position` of `segment`: the checkpoint may not name what goes.

        Until the cut is done, what it will cut looks like what was written since the checkpoint.
        """
        state = self._state
        with state.lock:
            if own.last_index(end_offset) >= state.flushed_index:
                return
            state.finish_swap()
            checkpoint = state.to_checkpoint()
            base = segment.base_offset
            kept = [facts for facts in checkpoint.segments if facts.base_offset < base]
            last = segment.facts_before(position, end_offset)
            self._write(checkpoint._replace(segments=(*kept, last), own=own.entries))

    def remove_segments(self, gone: Sequence[Segment]) -> None:
        """Takes segments off the front of the log and off the disk.

        The checkpoint that no longer lists them comes first: a listed file that is missing would
        look like damage.
        """
        state = self._state
        with state.lock:
            state.segments = state.segments.without(gone)
            try:
                self.save()
            except OSError as error:
                if error.errno != errno.ENOSPC or isinstance(error, SyncFailed):
                    raise
                if not self._make_room(gone):
                    raise
                self.save()
            for segment in gone:
                self._appender.remove(segment)

    def _make_room(self, gone: Sequence[Segment]) -> bool:
        """On a full disk there is no room for the checkpoint that would let segments go.

        So they are marked as deleted by their names, which takes no room, and emptied. Only those
        that the old checkpoint knows in full: what Raft's own entries in them say is in there too.
        """
        state = self._state
        known = [
            segment
            for segment in gone
            if segment.is_on_disk and segment.base_offset < state.flushed_base
        ]
        for segment in known:
            path = segment.file.path
            if not path.name.endswith(DELETED_SUFFIX):
                segment.file.move(path.with_name(path.name + DELETED_SUFFIX))
        state.file_system.sync_directory(state.directory)
        for segment in known:
            self._appender.forget(segment)
            segment.file.truncate(0)
        return bool(known)
