"""The terms and votes of all of a node's Raft groups, in one file.

A replica that forgets its vote could give a second one in the same term, so a state is durable
before anybody relies on it. All that is pending goes out in one block, with one sync. A block that
a crash tore is the last one, because the next is only written after the sync; a bad block with a
valid one behind it is damage.
"""

import contextlib
import struct
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from penstock.model.errors import StorageDamaged
from penstock.model.ids import PartitionId, PartitionIndex, TopicId
from penstock.model.limits import MIB
from penstock.records.checksum import crc32c
from penstock.storage.file_system import File, FileSystem, SyncFailed

# A file that is larger, and several times what it would be anew, is rewritten.
REWRITE_BYTES_MIN = 1 * MIB
REWRITE_GROWTH = 4
BLOCK_BYTES_MAX = 64 * MIB

NO_VOTE = -1

_MAGIC = b"PNHS\x00\x01"
# The length of a block's content, and its checksum.
_BLOCK = struct.Struct(">II")
# Kind, topic, partition, term, vote, whether the replica is gone, length of the vote's directory.
_RECORD = struct.Struct(">B16siqi?H")
_STATE = 1
_FORGET_TOPIC = 2


class StoredHardState(NamedTuple):
    term: int
    vote_node: int = NO_VOTE
    vote_directory: str = ""
    # The replica moved away: its vote stays, and that its log is missing is no damage.
    is_gone: bool = False


class HardStates:
    """One thread at a time puts, forgets and flushes; any thread gets."""

    def __init__(self, path: Path, file: File, *, file_system: FileSystem) -> None:
        self._path = path
        self._file = file
        self._file_system = file_system
        self._states: dict[PartitionId, StoredHardState] = {}
        # In the file since the last flush.
        self._size = len(_MAGIC)
        self._has_torn_end = False
        # From the begin of a rewrite to its success: the open file may have lost its name.
        self._is_replaced = False
        self._pending: dict[PartitionId, StoredHardState] = {}
        self._pending_forgotten: list[TopicId] = []

    @classmethod
    def open(cls, path: Path, *, file_system: FileSystem) -> "HardStates":
        """What the file says; made if missing. A torn end is cut; StorageDamaged for damage."""
        if not file_system.exists(path):
            create_hard_states(path, file_system=file_system)
        file = file_system.open(path)
        states = cls(path, file, file_system=file_system)
        try:
            states._load(file_system.read(path))
            # A process that was killed may have left a vote that it had not synced. Whoever hears
            # of it from now on relies on it, so it must not go with the power.
            file.sync()
            file_system.sync_directory(path.parent)
        except BaseException:
            file.close()
            raise
        return states

    def get(self, group: PartitionId) -> StoredHardState | None:
        """The newest state, pending or not; None if the group was never here."""
        return self._states.get(group)

    def put(self, group: PartitionId, state: StoredHardState) -> None:
        self._states[group] = self._pending[group] = state

    def forget_topic(self, topic_id: TopicId) -> None:
        """The topic is gone for good, and its id is never used again."""
        for states in (self._states, self._pending):
            for group in [group for group in states if group.topic_id == topic_id]:
                del states[group]
        self._pending_forgotten.append(topic_id)

    def flush(self) -> None:
        """Returns once everything that was put is on disk: one write, one sync.

        Raises SyncFailed if that is unknown, another OSError if it is not and may be tried again.
        """
        if not self._pending and not self._pending_forgotten:
            return
        records = [_encode_forgotten(topic_id) for topic_id in self._pending_forgotten]
        records += [_encode(group, state) for group, state in self._pending.items()]
        block = _wrap(b"".join(records))
        if not self._rewrite_if_due(len(block)):
            self._append(block)
        self._pending = {}
        self._pending_forgotten = []

    def close(self) -> None:
        self._file.close()

    def _append(self, block: bytes) -> None:
        if self._has_torn_end:
            self._file.truncate(self._size)
        self._has_torn_end = True
        self._file.pwrite(block, self._size)
        try:
            self._file.sync()
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, str(self._path)) from error
        self._has_torn_end = False
        self._size += len(block)

    def _rewrite_if_due(self, added: int) -> bool:
        """Whether the file was written anew, with all that is pending."""
        if self._size + added < REWRITE_BYTES_MIN and not self._is_replaced:
            return False
        content = _whole(self._states)
        if self._size + added < REWRITE_GROWTH * len(content) and not self._is_replaced:
            return False
        self._is_replaced = True
        self._file_system.write_atomically(self._path, content)
        self._file.close()
        self._file = self._file_system.open(self._path)
        self._size, self._has_torn_end, self._is_replaced = len(content), False, False
        return True

    def _load(self, data: bytes) -> None:
        if data[: len(_MAGIC)] != _MAGIC:
            raise StorageDamaged(str(self._path), 0, "the file does not begin with its mark")
        position = len(_MAGIC)
        while position < len(data):
            content = _unwrap(data, position)
            if content is None:
                self._judge_end(data, position)
                break
            try:
                self._apply(content)
            except (struct.error, ValueError) as error:
                detail = f"the content makes no sense: {error}"
                raise StorageDamaged(str(self._path), position, detail) from None
            position += _BLOCK.size + len(content)
        self._size = position

    def _judge_end(self, data: bytes, position: int) -> None:
        """Cuts what a crash tore; raises StorageDamaged if a valid block follows."""
        for later in range(position + 1, len(data) - _BLOCK.size):
            if _unwrap(data, later) is not None:
                detail = f"the block is bad, and a valid one follows at byte {later}"
                raise StorageDamaged(str(self._path), position, detail)
        self._file.truncate(position)

    def _apply(self, content: bytes) -> None:
        position = 0
        while position < len(content):
            kind, topic, partition, term, vote, is_gone, length = _RECORD.unpack_from(
                content, position
            )
            position += _RECORD.size
            directory = content[position : position + length].decode()
            position += length
            topic_id = TopicId(UUID(bytes=topic))
            if kind == _FORGET_TOPIC:
                self._states = {
                    group: state
                    for group, state in self._states.items()
                    if group.topic_id != topic_id
                }
                continue
            if kind != _STATE:
                raise ValueError(f"there is no record of kind {kind}")
            group = PartitionId(topic_id, PartitionIndex(partition))
            self._states[group] = StoredHardState(term, vote, directory, is_gone)


def create_hard_states(path: Path, *, file_system: FileSystem) -> None:
    """An empty file, durable when this returns."""
    file_system.write_atomically(path, _MAGIC)


def _encode(group: PartitionId, state: StoredHardState) -> bytes:
    directory = state.vote_directory.encode()
    head = _RECORD.pack(
        _STATE,
        group.topic_id.bytes,
        group.partition,
        state.term,
        state.vote_node,
        state.is_gone,
        len(directory),
    )
    return head + directory


def _encode_forgotten(topic_id: TopicId) -> bytes:
    return _RECORD.pack(_FORGET_TOPIC, topic_id.bytes, 0, 0, NO_VOTE, False, 0)


def _whole(states: dict[PartitionId, StoredHardState]) -> bytes:
    content = b"".join(_encode(group, state) for group, state in states.items())
    return _MAGIC + _wrap(content) if content else _MAGIC


def _wrap(content: bytes) -> bytes:
    assert len(content) <= BLOCK_BYTES_MAX
    return _BLOCK.pack(len(content), crc32c(content)) + content


def _unwrap(data: bytes, position: int) -> bytes | None:
    """The content of the block at `position`; None if there is no valid one."""
    with contextlib.suppress(struct.error):
        length, checksum = _BLOCK.unpack_from(data, position)
        start = position + _BLOCK.size
        # An empty block is never written, and zeros would look like one.
        if 0 < length <= min(BLOCK_BYTES_MAX, len(data) - start):
            content = data[start : start + length]
            return content if crc32c(content) == checksum else None
    return None
