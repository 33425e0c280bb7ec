"""Makes new logs: for each a directory with its first checkpoint and an empty segment.

A log is there once its checkpoint has its name, which it gets when its content is on disk. What a
crash leaves of one that was not finished is taken over by the next attempt.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from penstock.model.clock import Clock
from penstock.model.errors import StorageDamaged
from penstock.model.topic_config import TopicConfig
from penstock.storage.checkpoint import Checkpoint
from penstock.storage.file_system import TEMPORARY_SUFFIX, FileSystem, WholeDisk
from penstock.storage.layout import CHECKPOINT, base_offsets, segment_path
from penstock.storage.log_state import LogState
from penstock.storage.open_files import OpenFiles
from penstock.storage.own_table import LogBase


def create_logs(
    wanted: Sequence[tuple[Path, LogBase]],
    *,
    config: TopicConfig,
    file_system: FileSystem,
    open_files: OpenFiles,
    clock: Clock,
    disk: WholeDisk | None,
) -> list[LogState]:
    """See `Log.create`. After an OSError some of them may be there."""
    states = []
    for directory, base in wanted:
        if not file_system.make_directory(directory):
            _check_unused(directory, file_system)
        checkpoint = Checkpoint(start_offset=base.offset, state_offset=base.offset, base=base)
        states.append(
            LogState(
                directory,
                config=config,
                file_system=file_system,
                open_files=open_files,
                clock=clock,
                checkpoint=checkpoint,
            )
        )
    if disk is not None:
        _write(states, disk)
    else:
        for state in states:
            _write([state], None)
    return states


def _write(states: Sequence[LogState], disk: WholeDisk | None) -> None:
    """A checkpoint is on disk before its name, and the name before the return."""
    try:
        for state in states:
            _write_content(state, syncs=disk is None)
        if disk is not None:
            disk.sync()
        for state in states:
            _give_name(state)
    except OSError:
        for state in states:
            with contextlib.suppress(OSError):
                state.file_system.remove(_temporary(state))
        raise
    if disk is not None:
        disk.sync()
        return
    for state in states:
        state.file_system.sync_directory(state.directory)


def _write_content(state: LogState, *, syncs: bool) -> None:
    file = state.file_system.create(_temporary(state))
    try:
        file.pwrite(state.to_checkpoint().encode(), 0)
        if syncs:
            file.sync()
    finally:
        file.close()


def _give_name(state: LogState) -> None:
    state.file_system.rename(_temporary(state), state.directory / CHECKPOINT)
    # The first write would have to sync the directory too if it made the segment.
    segment = state.segments.active
    segment.file.create()
    segment.is_on_disk = True


def _temporary(state: LogState) -> Path:
    return state.directory / (CHECKPOINT + TEMPORARY_SUFFIX)


def _check_unused(directory: Path, file_system: FileSystem) -> None:
    """There may be leftovers of a half-made log, but no segment that holds anything."""
    for base in base_offsets(file_system.names(directory)):
        path = segment_path(directory, base)
        if file_system.size(path) > 0:
            raise StorageDamaged(str(path), 0, "the segment's checkpoint is missing")
