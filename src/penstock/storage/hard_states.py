"""The terms and votes of all of a node's Raft groups, in one file.

A replica that forgets its vote could give a second one in the same term, so a state is durable
before anybody relies on it. All that is pending goes out in one block, with one write and one
sync. `hard_state_blocks` keeps a block from being lost to one bad bit or sector; where more is bad
than that, terms and votes may be lost, and `data_directory` makes the node somebody else.
"""

import errno
import logging
import struct
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from penstock.model.errors import StorageDamaged
from penstock.model.ids import PartitionId, PartitionIndex, TopicId
from penstock.model.limits import MIB
from penstock.storage.file_system import File, FileSystem, SyncFailed, write_again
from penstock.storage.hard_state_blocks import (
    PAGE_BYTES,
    VERSION,
    BadBytes,
    Blocks,
    encode_block,
    read_blocks,
)

logger = logging.getLogger(__name__)

# A file that is larger, and several times what it would be after a rewrite, is rewritten.
REWRITE_BYTES_MIN = 1 * MIB
REWRITE_GROWTH = 4

NO_VOTE = -1

# Kind, topic, partition, term, vote, where the replica is, length of the vote's directory.
_RECORD = struct.Struct(">B16siqiBH")
_STATE = 1
_FORGET_TOPIC = 2
_GONE = 1
_UNSURE = 2
# Stands for a page that the disk does not give back: neither a valid block nor zeros.
_UNREADABLE = b"\xee" * PAGE_BYTES

_States = dict[PartitionId, "StoredHardState"]


class StoredHardState(NamedTuple):
    term: int
    vote_node: int = NO_VOTE
    vote_directory: str = ""
    # The replica moved away: its vote stays, and that its log is missing is not damage.
    is_gone: bool = False
    # Left over where others were lost: the term had come so far at least, and nobody knows whether
    # the replica moved away since.
    is_unsure: bool = False


class FoundHardStates(NamedTuple):
    """What a file says, and what is wrong with it."""

    # Where something is lost, terms may have been higher than these.
    states: _States
    blocks: Blocks

    @property
    def lost(self) -> list[BadBytes]:
        """If there is any, terms and votes may be lost."""
        return self.blocks.lost

    def bounds(self) -> _States:
        """What can be said of the groups if something is lost."""
        return {
            group: StoredHardState(state.term, is_unsure=True)
            for group, state in self.states.items()
        }


class HardStates:
    """One thread at a time puts, forgets and flushes; any thread gets."""

    def __init__(
        self, path: Path, file: File, found: FoundHardStates, *, file_system: FileSystem
    ) -> None:
        self._path = path
        self._file = file
        self._file_system = file_system
        self._states = found.states
        # In the file since the last flush.
        self._size = found.blocks.size
        self._blocks = len(found.blocks.contents)
        # From the begin of a write to its success: the file may end in part of a block, or the
        # one that is open may have lost its name.
        self._must_rewrite = False
        self._pending: _States = {}
        self._pending_forgotten: list[TopicId] = []

    @classmethod
    def open(cls, path: Path, *, file_system: FileSystem) -> "HardStates":
        """What the file says; made if missing. What is bad or torn is put right.

        Raises StorageDamaged if terms and votes may be lost.
        """
        if not file_system.exists(path):
            write_hard_states(path, {}, file_system=file_system)
        found = read_hard_states(path, file_system=file_system)
        if found.lost:
            raise StorageDamaged(str(path), found.lost[0].position, found.lost[0].detail)
        _log_faults(path, found.blocks)
        if found.blocks.saved or found.blocks.version != VERSION:
            write_hard_states(path, found.states, file_system=file_system)
            found = read_hard_states(path, file_system=file_system)
        file = file_system.open(path)
        try:
            if found.blocks.torn is not None:
                file.truncate(found.blocks.size)
            # A process that was killed may have left a vote that it had not synced. From now on
            # others rely on it, so it must not go with the power.
            write_again(file, 0, found.blocks.size)
            file_system.sync_directory(path.parent)
        except BaseException:
            file.close()
            raise
        return cls(path, file, found, file_system=file_system)

    def get(self, group: PartitionId) -> StoredHardState | None:
        """The newest state, pending or not; None if the group was never here."""
        return self._states.get(group)

    def put(self, group: PartitionId, state: StoredHardState) -> None:
        self._states[group] = self._pending[group] = state

    def forget_topic(self, topic_id: TopicId) -> None:
        """The topic is gone for good, and its id is never used again."""
        for states in (self._states, self._pending):
            _forget(states, topic_id)
        self._pending_forgotten.append(topic_id)

    def flush(self) -> None:
        """Returns once everything that was put is on disk: one write, one sync.

        Raises SyncFailed if that is unknown, another OSError if it is not and may be tried again.
        """
        if not self._pending and not self._pending_forgotten:
            return
        records = [_encode_forgotten(topic_id) for topic_id in self._pending_forgotten]
        records += [_encode(group, state) for group, state in self._pending.items()]
        block = encode_block(self._blocks, b"".join(records))
        if not self._rewrite_if_due(len(block)):
            self._append(block)
        self._pending = {}
        self._pending_forgotten = []

    def close(self) -> None:
        self._file.close()

    def _append(self, block: bytes) -> None:
        self._must_rewrite = True
        self._file.pwrite(block, self._size)
        try:
            self._file.sync()
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, str(self._path)) from error
        self._must_rewrite = False
        self._size += len(block)
        self._blocks += 1

    def _rewrite_if_due(self, added: int) -> bool:
        """Whether the file was replaced by one with all states, those that are pending too."""
        if self._size + added < REWRITE_BYTES_MIN and not self._must_rewrite:
            return False
        content = _whole(self._states)
        if self._size + added < REWRITE_GROWTH * len(content) and not self._must_rewrite:
            return False
        self._must_rewrite = True
        self._file_system.write_atomically(self._path, content)
        self._file.close()
        self._file = self._file_system.open(self._path)
        self._size, self._blocks, self._must_rewrite = len(content), 1, False
        return True


def write_hard_states(path: Path, states: _States, *, file_system: FileSystem) -> None:
    """A file with these and no others, durable when this returns."""
    file_system.write_atomically(path, _whole(states))


def read_hard_states(path: Path, *, file_system: FileSystem) -> FoundHardStates:
    """Changes nothing. A file that is missing has lost everything."""
    if not file_system.exists(path):
        missing = BadBytes(0, 0, "the file is missing")
        return FoundHardStates({}, Blocks([], 0, [], None, [missing]))
    blocks = read_blocks(read_readable(path, file_system=file_system))
    states: _States = {}
    for content in blocks.contents:
        try:
            _apply(content, states)
        except (struct.error, ValueError) as error:
            blocks.lost.append(BadBytes(0, len(content), f"a block makes no sense: {error}"))
    return FoundHardStates(states, blocks)


def read_readable(path: Path, *, file_system: FileSystem) -> bytes:
    """The file; what the disk does not give back of it is filled with what makes no sense."""
    try:
        return file_system.read(path)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    # A bad sector makes its page unreadable, not the whole file.
    file = file_system.open(path)
    try:
        return b"".join(
            _read_page(file, position, path) for position in range(0, file.size(), PAGE_BYTES)
        )
    finally:
        file.close()


def _read_page(file: File, position: int, path: Path) -> bytes:
    try:
        return file.pread(PAGE_BYTES, position)
    except OSError as error:
        logger.warning("%s can't be read at byte %d: %s", path, position, error)
        return _UNREADABLE


def _log_faults(path: Path, blocks: Blocks) -> None:
    for fault in blocks.saved:
        logger.warning("%s is rewritten: %s", path, fault)
    if blocks.torn is not None:
        logger.warning("the end of %s is cut: %s", path, blocks.torn)


def _apply(content: bytes, states: _States) -> None:
    position = 0
    # A node has far fewer topics and directories than groups, and to make an id takes long.
    ids: dict[bytes, TopicId] = {}
    while position < len(content):
        kind, topic, partition, term, vote, where, length = _RECORD.unpack_from(content, position)
        position += _RECORD.size
        directory = content[position : position + length].decode()
        position += length
        topic_id = ids.get(topic) or ids.setdefault(topic, TopicId(UUID(bytes=topic)))
        if kind == _FORGET_TOPIC:
            _forget(states, topic_id)
        elif kind == _STATE:
            group = PartitionId(topic_id, PartitionIndex(partition))
            is_gone, is_unsure = bool(where & _GONE), bool(where & _UNSURE)
            states[group] = StoredHardState(term, vote, directory, is_gone, is_unsure)
        else:
            raise ValueError(f"there is no record of kind {kind}")


def _forget(states: _States, topic_id: TopicId) -> None:
    for group in [group for group in states if group.topic_id == topic_id]:
        del states[group]


def _encode(group: PartitionId, state: StoredHardState) -> bytes:
    directory = state.vote_directory.encode()
    head = _RECORD.pack(
        _STATE,
        group.topic_id.bytes,
        group.partition,
        state.term,
        state.vote_node,
        state.is_gone * _GONE | state.is_unsure * _UNSURE,
        len(directory),
    )
    return head + directory


def _encode_forgotten(topic_id: TopicId) -> bytes:
    return _RECORD.pack(_FORGET_TOPIC, topic_id.bytes, 0, 0, NO_VOTE, 0, 0)


def _whole(states: _States) -> bytes:
    return encode_block(0, b"".join(_encode(group, state) for group, state in states.items()))
