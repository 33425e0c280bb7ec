"""What a node's data directory holds, who may use it, and in which format it is.

penstock.json          the directory's format and ids, its node, its cluster and that one's first
                       voters, how often it was started
lock                   held while a node runs
hard_states            terms and votes of all Raft groups
peers.json             where other nodes were reached last
metadata/              the log of the cluster's metadata
topics/<topic id>/<partition>/    one log each

Votes count per node and directory. Where terms and votes may be lost, the directory gets another
id before anything else happens: its node comes back as somebody else, who has no vote until the
others give it one, and can't break a promise that it does not remember.
"""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from penstock.model.errors import StartRefused
from penstock.model.ids import BrokerId, DirectoryId, ReplicaId, TopicId
from penstock.records.checksum import crc32c
from penstock.storage.file_system import FileSystem, Lock
from penstock.storage.hard_state_blocks import PAGE_BYTES
from penstock.storage.hard_states import (
    read_hard_states,
    read_readable,
    write_hard_states,
)

logger = logging.getLogger(__name__)

FORMAT = 3
# Before format 3 the identity had no checksum and one copy, and there were no former ids.
FORMAT_OLDEST = 2

_FORMAT_FILE = "penstock.json"
_LOCK_FILE = "lock"
_HARD_STATES = "hard_states"
_PEERS = "peers.json"
_TOPICS = "topics"
_METADATA = "metadata"
_DELETED_SUFFIX = ".deleted"


def new_cluster_id() -> str:
    """A random id in the shape that Kafka's tools show: 22 letters of URL-safe base 64."""
    # Imported here because only the first start of a node needs them.
    from base64 import urlsafe_b64encode
    from uuid import uuid4

    return urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()


def new_directory_id() -> DirectoryId:
    """A random id: a node that comes back with an empty directory has another one."""
    return DirectoryId(new_cluster_id())


class _Identity(NamedTuple):
    """What the format file holds."""

    node: BrokerId
    directory_id: DirectoryId
    # Counts the starts of this node; durable before anybody sees it.
    incarnation: int = 0
    # None until the node belongs to a cluster.
    cluster_id: str | None = None
    # The first voters of the cluster's metadata.
    founders: tuple[ReplicaId, ...] = ()
    # Those that the directory had before terms and votes were lost, the oldest first.
    former_ids: tuple[DirectoryId, ...] = ()

    def write(self, path: Path, file_system: FileSystem) -> None:
        """Twice, on different pages, so that one bad bit or sector does not lose it."""
        facts = {"format": FORMAT, **self._asdict()}
        text = json.dumps({**facts, "checksum": _checksum(facts)}, indent=2).encode() + b"\n"
        copy = text.ljust(len(text) + -len(text) % PAGE_BYTES)
        file_system.write_atomically(path / _FORMAT_FILE, copy * 2)

    def as_somebody_else(self, directory_id: DirectoryId) -> "_Identity":
        former = (*self.former_ids, self.directory_id)
        return self._replace(directory_id=directory_id, former_ids=former)


class DataDirectory:
    """A node's directory, locked from `open` until `close`."""

    def __init__(
        self, path: Path, *, lock: Lock, identity: _Identity, file_system: FileSystem
    ) -> None:
        self.path = path
        self.metadata_directory = path / _METADATA
        self.hard_states_path = path / _HARD_STATES
        self.peers_path = path / _PEERS
        self._topics = path / _TOPICS
        self._lock = lock
        self._identity = identity
        self._file_system = file_system

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        node: BrokerId,
        file_system: FileSystem,
        make_directory_id: Callable[[], DirectoryId] = new_directory_id,
    ) -> "DataDirectory":
        """Makes it if missing and locks it; raises StartRefused with one sentence if it can't."""
        with _refusals(path):
            _make(path, file_system)
            lock = _lock(path, file_system)
            try:
                identity = _start(path, node, file_system, make_directory_id)
                directory = cls(path, lock=lock, identity=identity, file_system=file_system)
                directory._remove_leftovers()
            except BaseException:
                lock.release()
                raise
        return directory

    @classmethod
    def open_stopped(cls, path: Path, *, file_system: FileSystem) -> "DataDirectory":
        """Locks the directory of a node that does not run, for an operator; counts no start."""
        with _refusals(path):
            identity = _read_identity(path, file_system)
            if identity is None:
                raise StartRefused(f"{path} is not the data directory of a Penstock node.")
            lock = _lock(path, file_system)
            return cls(path, lock=lock, identity=identity, file_system=file_system)

    @property
    def directory_id(self) -> DirectoryId:
        return self._identity.directory_id

    @property
    def former_ids(self) -> tuple[DirectoryId, ...]:
        """Under these the node made promises that may be lost."""
        return self._identity.former_ids

    @property
    def incarnation(self) -> int:
        """Counts the starts of this node."""
        return self._identity.incarnation

    @property
    def cluster_id(self) -> str | None:
        """None until the node belongs to a cluster."""
        return self._identity.cluster_id

    @property
    def founders(self) -> tuple[ReplicaId, ...]:
        """The first voters of the cluster's metadata."""
        return self._identity.founders

    def set_cluster(self, cluster_id: str, founders: Sequence[ReplicaId]) -> None:
        """From now on, and durably, the node belongs to this cluster and can join no other."""
        joined = self._identity._replace(cluster_id=cluster_id, founders=tuple(founders))
        assert self.cluster_id is None or self._identity == joined, "a cluster is for life"
        with _refusals(self.path):
            joined.write(self.path, self._file_system)
        self._identity = joined

    def log_directories(self) -> list[Path]:
        """Where a log is: the metadata's and every partition's."""
        found = [self.metadata_directory]
        for topic_id in self.list_topic_directories():
            topic = self._topics / topic_id.hex
            # A topic may be deleted meanwhile.
            with suppress(FileNotFoundError):
                names = (name for name in self._file_system.names(topic) if name.isdigit())
                found += [topic / name for name in sorted(names, key=int)]
        return found

    def topic_directory(self, topic_id: TopicId) -> Path:
        """Each partition's is in it, under its number."""
        return self._topics / topic_id.hex

    def partition_directory(self, topic_id: TopicId, partition: int) -> Path:
        return self.topic_directory(topic_id) / str(partition)

    def list_topic_directories(self) -> list[TopicId]:
        return [
            TopicId(UUID(hex=name))
            for name in self._file_system.names(self._topics)
            if _is_topic_name(name)
        ]

    def sync_topics(self) -> None:
        """Directories of topics stay, no matter who made them: a crash may have come before their
        sync."""
        self._file_system.sync_directory(self._topics)

    def remove_topic(self, topic_id: TopicId) -> None:
        """The topic is gone as soon as its directory has another name; its files follow."""
        path = self._topics / topic_id.hex
        if not self._file_system.exists(path):
            return
        doomed = self._topics / f"{topic_id.hex}{_DELETED_SUFFIX}"
        self._file_system.rename(path, doomed)
        self._file_system.sync_directory(self._topics)
        self._file_system.remove_tree(doomed)

    def remove_partition(self, topic_id: TopicId, partition: int) -> None:
        """As `remove_topic`, for one replica: it moved away. The topic's directory stays."""
        path = self.partition_directory(topic_id, partition)
        if not self._file_system.exists(path):
            return
        doomed = path.with_name(f"{partition}{_DELETED_SUFFIX}")
        self._file_system.rename(path, doomed)
        self._file_system.sync_directory(path.parent)
        self._file_system.remove_tree(doomed)

    def close(self) -> None:
        self._lock.release()

    def _remove_leftovers(self) -> None:
        for name in self._file_system.names(self._topics):
            if name.endswith(_DELETED_SUFFIX):
                self._file_system.remove_tree(self._topics / name)
        for topic_id in self.list_topic_directories():
            topic = self._topics / topic_id.hex
            for name in self._file_system.names(topic):
                if name.endswith(_DELETED_SUFFIX):
                    self._file_system.remove_tree(topic / name)


def _is_topic_name(name: str) -> bool:
    return len(name) == 32 and all(letter in "0123456789abcdef" for letter in name)


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    """Turns what the operating system says into what the operator can act on."""
    try:
        yield
    except BlockingIOError:
        raise StartRefused(
            f"The data directory {path} is in use by another Penstock node that is still running."
        ) from None
    except (NotADirectoryError, FileExistsError):
        raise StartRefused(
            f"The data directory {path} can't be used because it, or a parent of it, "
            "is not a directory."
        ) from None
    except PermissionError:
        raise StartRefused(
            f"The data directory {path} can't be used because this user may not write to it."
        ) from None
    except OSError as error:
        raise StartRefused(
            f"The data directory {path} can't be used: {(error.strerror or str(error)).lower()}."
        ) from None


def _make(path: Path, file_system: FileSystem) -> None:
    for directory in (path, path / _TOPICS, path / _METADATA):
        for parent in file_system.make_directory(directory):
            file_system.sync_directory(parent)


def _lock(path: Path, file_system: FileSystem) -> Lock:
    return file_system.lock(path / _LOCK_FILE)


def _start(
    path: Path,
    node: BrokerId,
    file_system: FileSystem,
    make_directory_id: Callable[[], DirectoryId],
) -> _Identity:
    """The directory's identity, with this start counted and written down."""
    identity = _read_identity(path, file_system)
    if identity is None:
        _refuse_foreign_content(path, file_system)
        # Before the identity, so that its absence later is a loss and not a crash.
        write_hard_states(path / _HARD_STATES, {}, file_system=file_system)
        identity = _Identity(node, make_directory_id())
    if identity.node != node:
        raise StartRefused(
            f"The data directory {path} belongs to node {identity.node}, not to node {node}."
        )
    found = read_hard_states(path / _HARD_STATES, file_system=file_system)
    if found.lost:
        identity = identity.as_somebody_else(make_directory_id())
        for lost in found.lost:
            logger.error("terms and votes may be lost: %s: %s", path / _HARD_STATES, lost)
        logger.error(
            "node %d comes back under a new identity, so that it can't vote twice: its directory "
            "had the id %s and now has the id %s",
            node,
            identity.former_ids[-1],
            identity.directory_id,
        )
    identity = identity._replace(incarnation=identity.incarnation + 1)
    identity.write(path, file_system)
    if found.lost:
        # Only now: a crash before this finds the loss again and takes yet another id. What is
        # left says at least how far terms had come.
        write_hard_states(path / _HARD_STATES, found.bounds(), file_system=file_system)
    return identity


def _refuse_foreign_content(path: Path, file_system: FileSystem) -> None:
    # Starting afresh over data would give its partitions a new cluster and old terms.
    if file_system.names(path / _TOPICS) or file_system.names(path / _METADATA):
        raise StartRefused(
            f"The data directory {path} holds data but its file {_FORMAT_FILE} is missing; "
            "restore that file or use another directory."
        )


def _read_identity(path: Path, file_system: FileSystem) -> _Identity | None:
    file = path / _FORMAT_FILE
    if not file_system.exists(file):
        return None
    data = read_readable(file, file_system=file_system)
    half = len(data) // 2
    copies = [_read_json(copy) for copy in (data[:half], data[half:])]
    whole = [facts for facts in copies if _is_whole(facts)]
    try:
        if whole:
            if len(whole) < len(copies):
                logger.warning("one copy in %s is bad, the other one is good", file)
            return _parse_identity(whole[0])
        facts = _read_json(data) or copies[0]
        _check_format(path, int(facts["format"]))
        return _parse_identity(facts)
    except (ValueError, KeyError, TypeError):
        raise StartRefused(
            f"The file {file} is damaged, so the data directory can't be trusted."
        ) from None


def _read_json(data: bytes) -> dict[str, Any]:
    """Empty if the bytes are none of ours."""
    try:
        facts = json.loads(data)
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def _is_whole(facts: dict[str, Any]) -> bool:
    content = {name: fact for name, fact in facts.items() if name != "checksum"}
    return facts.get("format") == FORMAT and facts.get("checksum") == _checksum(content)


def _checksum(facts: dict[str, Any]) -> int:
    return crc32c(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode())


def _check_format(path: Path, number: int) -> None:
    if number > FORMAT:
        raise StartRefused(
            f"The data directory {path} has format {number}, which is newer than format {FORMAT} "
            "that this version of Penstock knows."
        )
    if number < FORMAT_OLDEST:
        raise StartRefused(
            f"The data directory {path} has format {number}, which a preview of Penstock wrote "
            f"and which can't be converted to format {FORMAT}; use another directory."
        )
    if number == FORMAT:
        raise ValueError("no copy is good")


def _parse_identity(facts: dict[str, Any]) -> _Identity:
    cluster_id = facts["cluster_id"]
    return _Identity(
        node=BrokerId(int(facts["node"])),
        directory_id=DirectoryId(str(facts["directory_id"])),
        incarnation=int(facts["incarnation"]),
        cluster_id=None if cluster_id is None else str(cluster_id),
        founders=tuple(
            ReplicaId(BrokerId(int(node)), DirectoryId(str(directory)))
            for node, directory in facts["founders"]
        ),
        former_ids=tuple(DirectoryId(str(each)) for each in facts.get("former_ids", ())),
    )
