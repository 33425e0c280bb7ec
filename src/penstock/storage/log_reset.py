"""Puts an empty log in the place of the old one, so that a crash leaves one of them, never a mix.

One small file decides: while it is missing, the old log is there; once it is there, the old log's
files go, now or by recovery, as often as it takes.
"""

import contextlib
from pathlib import Path

from penstock.storage.appender import Appender
from penstock.storage.checkpoint import Checkpoint
from penstock.storage.checkpointer import Checkpointer
from penstock.storage.checksummed import unwrap, wrap
from penstock.storage.file_system import FileSystem, SyncFailed
from penstock.storage.layout import (
    CHECKPOINT,
    CLEANED_SUFFIX,
    COMPACTION,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    RESET,
    SEGMENT_SUFFIX,
    TIME_INDEX_SUFFIX,
)
from penstock.storage.log_state import LogState
from penstock.storage.own_table import LogBase
from penstock.storage.segment import SegmentFacts

_MAGIC = b"PNRS"
_VERSION = 1
_GOES = (SEGMENT_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, CLEANED_SUFFIX, DELETED_SUFFIX)


def reset_log(
    state: LogState, appender: Appender, checkpointer: Checkpointer, base: LogBase, content: bytes
) -> None:
    """Raises OSError with the log as it was, or SyncFailed if a start has to finish it."""
    with state.lock:
        state.finish_swap()
        checkpoint = Checkpoint(
            start_offset=base.offset,
            base=base,
            segments=(SegmentFacts(base.offset, base.offset, created_ms=state.clock.now_ms()),),
            cleaned_offset=base.offset,
            sparse_below=base.offset,
            state=content,
            state_offset=base.offset,
            doubt=state.doubt,
        )
        decide_reset(state.directory, state.file_system, checkpoint)
        appender.start_over()
        checkpointer.start_over()
        with state.cutting():
            old = state.segments
            state.restore(checkpoint)
            for segment in old:
                segment.retire()
        try:
            finish_reset(state.directory, state.file_system)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, str(state.directory)) from error


def decide_reset(directory: Path, file_system: FileSystem, checkpoint: Checkpoint) -> None:
    """From here on the log is the empty one that `checkpoint` describes."""
    content = wrap(_MAGIC, _VERSION, checkpoint.encode())
    file_system.write_atomically(directory / RESET, content)


def finish_reset(directory: Path, file_system: FileSystem) -> None:
    """Every step may be repeated; the deciding file goes last."""
    path = directory / RESET
    checkpoint = unwrap(path, _MAGIC, _VERSION, file_system.read(path))
    with contextlib.suppress(FileNotFoundError):
        file_system.remove(directory / COMPACTION)
    for name in file_system.names(directory):
        if name.endswith(_GOES):
            file_system.remove(directory / name)
    # This syncs the directory, so the removals last before the deciding file goes.
    file_system.write_atomically(directory / CHECKPOINT, checkpoint)
    file_system.remove(path)
    file_system.sync_directory(directory)
