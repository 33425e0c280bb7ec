"""Brings a log back after a stop of any kind.

What the checkpoint names was on disk for good, so it is trusted, and what contradicts it is
damage. What is behind the flush mark is checked batch by batch. A write that the crash tore is
cut off: nobody was promised it. Anything else that is bad there may have been acknowledged. If
others hold copies, it is cut off too and the log is in doubt until they have filled it again; the
only copy is cut if nothing valid follows, and stops for its operator if something does.
"""

import contextlib
import errno
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.model.clock import Clock
from penstock.model.errors import StorageDamaged
from penstock.model.topic_config import TopicConfig
from penstock.records.batch import BatchHeader, CorruptBatch
from penstock.storage.bad_tail import Place, Reached, is_torn, lost_end
from penstock.storage.batch_reader import BadBatch, read_batches
from penstock.storage.batch_search import find_valid_batch
from penstock.storage.checkpoint import Checkpoint, read_checkpoint
from penstock.storage.continuity import misfit
from penstock.storage.file_system import (
    TEMPORARY_SUFFIX,
    FileSystem,
    WholeDisk,
    rewrite,
    write_again,
)
from penstock.storage.layout import (
    CHECKPOINT,
    CLEANED_SUFFIX,
    COMPACTION,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    RESET,
    SEGMENT_SUFFIX,
    TIME_INDEX_SUFFIX,
    base_offsets,
    by_suffix,
    segment_path,
)
from penstock.storage.log_state import LogState
from penstock.storage.open_files import OpenFiles
from penstock.storage.own_table import OwnTable, read_own
from penstock.storage.put_aside import copy_aside, move_aside
from penstock.storage.segment import Segment, SegmentFacts

logger = logging.getLogger(__name__)

OnBatch = Callable[[BatchHeader], None]
# Whether others hold copies of a log with this membership, which is encoded.
IsShared = Callable[[bytes], bool]

_DELETED_SEGMENT = SEGMENT_SUFFIX + DELETED_SUFFIX


def recover(
    directory: Path,
    *,
    config: TopicConfig,
    file_system: FileSystem,
    open_files: OpenFiles,
    clock: Clock,
    on_batch: OnBatch,
    is_shared: IsShared,
) -> tuple[LogState, bool]:
    """The log as it may be used once its tail is synced, and whether it has marks of deleted
    segments.

    Raises StorageDamaged, naming file and position, if it may not be used.
    """
    names = _finished(directory, file_system)
    checkpoint = read_checkpoint(file_system, directory)
    bases = by_suffix(names)
    deleted = bases.get(_DELETED_SEGMENT, [])
    checkpoint = _without_deleted(checkpoint, deleted)
    _remove_leftovers(directory, names, bases, checkpoint, file_system)
    found = bases.get(SEGMENT_SUFFIX, [])
    active_size = _check_listed(directory, checkpoint, found, file_system)
    state = LogState(
        directory,
        config=config,
        file_system=file_system,
        open_files=open_files,
        clock=clock,
        checkpoint=checkpoint,
    )
    younger = [base for base in found if base > _last_base(checkpoint)]
    _Recovery(state, checkpoint, on_batch, is_shared).run(active_size, younger)
    return state, bool(deleted)


def sync_tail(state: LogState) -> None:
    """What is served from now on must not be lost by the next crash.

    The file may be one that a process made and was killed before it had synced its name.
    """
    if state.unsynced_tail:
        for segment, mark in state.unsynced_tail:
            write_again(segment.file, mark, segment.size)
        state.file_system.sync_directory(state.directory)
        state.unsynced_tail.clear()


def sync_tails(states: Sequence[LogState], disk: WholeDisk | None) -> list[OSError | None]:
    """Those of many logs, with one sync for all where there is a disk, which must have been opened
    before they were; says of each log whether it failed."""
    unsynced = [state for state in states if state.unsynced_tail]
    if disk is not None and unsynced:
        # If it fails, each is written once more below.
        with contextlib.suppress(OSError):
            _sync_at_once(unsynced, disk)
    return [_failure(state) for state in states]


def _sync_at_once(states: Sequence[LogState], disk: WholeDisk) -> None:
    for state in states:
        for segment, mark in state.unsynced_tail:
            rewrite(segment.file, mark, segment.size)
    disk.sync()
    for state in states:
        state.unsynced_tail.clear()


def _failure(state: LogState) -> OSError | None:
    try:
        sync_tail(state)
    except OSError as error:
        return error
    return None


def _finished(directory: Path, file_system: FileSystem) -> list[str]:
    """The names in the directory, after a reset or a swap that a crash cut short was finished."""
    try:
        names = file_system.names(directory)
    except (FileNotFoundError, NotADirectoryError):
        # The reader of the checkpoint says that it is missing.
        return []
    if RESET in names:
        # Imported here because hardly any start needs it.
        from penstock.storage.log_reset import finish_reset

        finish_reset(directory, file_system)
        names = file_system.names(directory)
    if COMPACTION in names:
        # Imported here because hardly any start needs it.
        from penstock.storage.compaction_swap import finish_swap

        finish_swap(directory, file_system)
        names = file_system.names(directory)
    return names


def _last_base(checkpoint: Checkpoint) -> int:
    return checkpoint.segments[-1].base_offset


def _without_deleted(checkpoint: Checkpoint, deleted: list[int]) -> Checkpoint:
    """Segments that were marked as deleted when there was no room for a new checkpoint."""
    kept = [facts for facts in checkpoint.segments if facts.base_offset not in deleted]
    if len(kept) == len(checkpoint.segments):
        return checkpoint
    assert kept, "the active segment is never deleted"
    own = OwnTable(checkpoint.base, checkpoint.own).moved_to(kept[0].base_offset)
    return checkpoint._replace(
        segments=tuple(kept),
        start_offset=max(checkpoint.start_offset, kept[0].base_offset),
        base=own.base,
        own=own.entries,
    )


def _remove_leftovers(
    directory: Path,
    names: list[str],
    bases: dict[str, list[int]],
    checkpoint: Checkpoint,
    file_system: FileSystem,
) -> None:
    """What a crash left of writes, compactions and deletions that were under way.

    Marks of deleted segments stay until a checkpoint no longer lists them (see `Log.open`).
    """
    for name in names:
        if name.endswith((TEMPORARY_SUFFIX, CLEANED_SUFFIX)):
            file_system.remove(directory / name)
    first = checkpoint.segments[0].base_offset
    for suffix in (SEGMENT_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        for base in bases.get(suffix, ()):
            if base < first:
                file_system.remove(segment_path(directory, base, suffix))


def remove_deleted_marks(directory: Path, file_system: FileSystem) -> None:
    for base in base_offsets(file_system.names(directory), _DELETED_SEGMENT):
        file_system.remove(segment_path(directory, base, _DELETED_SEGMENT))


def _check_listed(
    directory: Path, checkpoint: Checkpoint, found: list[int], file_system: FileSystem
) -> int:
    """Each segment of the checkpoint is there, and as long as it should be; returns how long the
    last one is."""
    on_disk = set(found)
    listed = {facts.base_offset for facts in checkpoint.segments}
    last = _last_base(checkpoint)
    size = 0
    for facts in checkpoint.segments:
        path = segment_path(directory, facts.base_offset)
        if facts.base_offset not in on_disk:
            if facts.size > 0:
                raise StorageDamaged(str(path), 0, "the segment is missing")
            size = 0
            continue
        size = file_system.size(path)
        if size < facts.size or (size > facts.size and facts.base_offset != last):
            position = min(size, facts.size)
            detail = f"the segment has {size} bytes instead of {facts.size}"
            raise StorageDamaged(str(path), position, detail)
    first = checkpoint.segments[0].base_offset
    for base in found:
        path = segment_path(directory, base)
        if first < base < last and base not in listed and file_system.size(path) > 0:
            raise StorageDamaged(str(path), 0, "the checkpoint does not name this segment")
    return size


class _Recovery:
    """Walks what the owner's state has not seen, then what the checkpoint has not seen."""

    def __init__(
        self, state: LogState, checkpoint: Checkpoint, on_batch: OnBatch, is_shared: IsShared
    ) -> None:
        self._state = state
        self._checkpoint = checkpoint
        self._on_batch = on_batch
        self._is_shared = is_shared

    def run(self, active_size: int, younger: list[int]) -> None:
        """`active_size`: of the file of the checkpoint's last segment."""
        self._replay()
        sizes = {base: self._file_size(base) for base in younger}
        self._drop_empty(sizes)
        later = sorted(sizes)
        is_whole = self._check_tail(self._state.segments.active, active_size, later)
        while is_whole and later:
            base = later.pop(0)
            is_whole = self._add_segment(base, sizes[base], later)
        # A lost index of the active segment is rebuilt here, not under the first reader.
        self._state.segments.active.prepare()
        self._state.publish_extent()

    def _file_size(self, base: int) -> int:
        return self._state.file_system.size(segment_path(self._state.directory, base))

    def _drop_empty(self, sizes: dict[int, int]) -> None:
        """Segments that were made just before the crash and hold nothing."""
        for base in [base for base, size in sizes.items() if size == 0]:
            self._state.file_system.remove(segment_path(self._state.directory, base))
            del sizes[base]

    def _replay(self) -> None:
        """Shows the owner the batches between its state and the flush mark: headers alone."""
        offset = self._state.state_offset
        for segment in self._state.segments.from_offset(offset):
            if segment.next_offset <= offset or segment.size == 0:
                continue
            for _, header in segment.headers(segment.find(offset)):
                if not header.is_own:
                    self._on_batch(header)

    def _add_segment(self, base: int, size: int, later: Sequence[int]) -> bool:
        """A segment that is younger than the checkpoint; says whether those after it may follow."""
        state = self._state
        path = segment_path(state.directory, base)
        expected = state.segments.active.next_offset
        if base != expected:
            detail = (
                f"the segment starts at offset {base}, but the one before it ends at {expected}"
            )
            damage = StorageDamaged(str(path), 0, detail)
            self._stop_the_only_copy(damage)
            self._lose(damage, expected, None, [base, *later])
            return False
        segment = state.known_segment(SegmentFacts(base, base, created_ms=state.clock.now_ms()))
        segment.is_on_disk = True
        is_whole = self._check_tail(segment, size, later)
        state.segments = state.segments.plus([segment])
        state.has_rolled = True
        return is_whole

    def _check_tail(self, segment: Segment, end: int, later: Sequence[int]) -> bool:
        """Takes over the batches behind the flush mark, and cuts what is bad; says whether
        later segments may follow."""
        mark = segment.size
        if end <= mark:
            return True
        segment.is_on_disk = True
        is_whole = True
        try:
            for position, header, batch in read_batches(segment.file, segment.size, end):
                self._take(segment, position, header, batch)
        except BadBatch as bad:
            is_whole = False
            self._cut(segment, bad, end, later)
        self._state.unsynced_tail.append((segment, mark))
        return is_whole

    def _take(
        self, segment: Segment, position: int, header: BatchHeader, batch: memoryview
    ) -> None:
        state = self._state
        expected = segment.next_offset
        detail = misfit(header, expected, state.sparse_below, term=state.own.last_term)
        if detail:
            raise BadBatch(position, detail)
        if header.is_own:
            self._take_own(position, header, batch)
        else:
            self._on_batch(header)
        segment.add(header)
        state.unsaved_bytes += header.size
        state.unsaved_batches += 1

    def _take_own(self, position: int, header: BatchHeader, batch: memoryview) -> None:
        try:
            entry = read_own(batch, header)
        except CorruptBatch as error:
            raise BadBatch(position, str(error)) from None
        detail = self._state.own.misfit(entry)
        if detail:
            raise BadBatch(position, detail)
        self._state.own = self._state.own.plus(entry)

    # What is bad

    def _cut(self, segment: Segment, bad: BadBatch, end: int, later: Sequence[int]) -> None:
        """Ends the log before a bad batch, or raises StorageDamaged where an operator decides."""
        place = Place(segment.file, bad.position, end)
        offset = segment.next_offset
        # A later segment is made only after the one before it is on disk.
        if not later and is_torn(place, offset):
            logger.warning(
                "%s: cut off %d bytes at byte %d, from offset %d on, that a crash left half "
                "written: %s",
                segment.file.path,
                end - bad.position,
                bad.position,
                offset,
                bad.detail,
            )
        else:
            valid = find_valid_batch(segment.file, bad.position + 1, end, offset)
            detail = bad.detail
            if later:
                detail += ", and later segments follow"
            elif valid is not None:
                detail += f", and a valid batch follows at byte {valid}"
            damage = StorageDamaged(str(segment.file.path), bad.position, detail)
            if later or valid is not None:
                self._stop_the_only_copy(damage)
            self._lose(damage, offset, place, later)
        segment.file.truncate(bad.position)

    def _stop_the_only_copy(self, damage: StorageDamaged) -> None:
        """Nobody else can bring back what would be cut off, and part of it can still be read."""
        if not self._is_shared(self._state.own.memberships()[-1][1]):
            raise damage

    def _lose(
        self, damage: StorageDamaged, offset: int, place: Place | None, later: Sequence[int]
    ) -> None:
        """Notes durably where the log ended, then puts the bad place and what follows aside."""
        state = self._state
        files = [state.file_system.open(segment_path(state.directory, base)) for base in later]
        try:
            places = [Place(file, 0, file.size()) for file in files]
            size = sum(each.end - each.start for each in places)
            if place is not None:
                places.insert(0, place)
                size += place.end - place.start
            self._doubt(offset, places, starts_bad=place is not None)
        finally:
            for file in files:
                file.close()
        logger.error(
            "%s; cut off %d bytes from there, which held entries from offset %d up to %s. They "
            "may have been acknowledged, so this copy does not vote or lead until other replicas "
            "have sent them to it again",
            damage,
            size,
            offset,
            state.doubt.lost,
        )
        if place is not None:
            self._keep(Path(damage.path), place)
        # From the end, so that a crash leaves no hole.
        for base in reversed(later):
            move_aside(segment_path(state.directory, base), state.file_system)
        state.file_system.sync_directory(state.directory)

    def _doubt(self, offset: int, places: Sequence[Place], *, starts_bad: bool) -> None:
        state = self._state
        reached = Reached(offset, state.own.last_index(offset), state.own.last_term)
        found = lost_end(reached, places, starts_bad=starts_bad)
        doubt = state.doubt._replace(lost=max(found, state.doubt.lost))
        if doubt != self._checkpoint.doubt:
            checkpoint = self._checkpoint._replace(doubt=doubt)
            state.file_system.write_atomically(state.directory / CHECKPOINT, checkpoint.encode())
        state.doubt = doubt

    def _keep(self, path: Path, place: Place) -> None:
        """A copy of what goes, for the operator; a full disk must not keep the log from opening."""
        try:
            copy_aside(path, place.start, place.end, self._state.file_system)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            logger.warning("%s: there is no space to keep a copy of what was cut off", path)
