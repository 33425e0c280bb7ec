"""What a node's data directory holds, who may use it, and in which format it is.

penstock.json          the directory's format, its node, its cluster, how often it was started
lock                   held while a node runs
metadata/              the log of the cluster's metadata
topics/<topic id>/<partition>/    one log each
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.model.errors import StartRefused
from penstock.model.ids import BrokerId, TopicId
from penstock.storage.file_system import FileSystem, Lock

FORMAT = 1

_FORMAT_FILE = "penstock.json"
_LOCK_FILE = "lock"
_TOPICS = "topics"
_METADATA = "metadata"
_DELETED_SUFFIX = ".deleted"


def new_cluster_id() -> str:
    """A random id in the shape that Kafka's tools show: 22 letters of URL-safe base 64."""
    # Imported here because only the first start of a node needs them.
    from base64 import urlsafe_b64encode
    from uuid import uuid4

    return urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()


class DataDirectory:
    """A node's directory, locked from `open` until `close`."""

    def __init__(
        self,
        path: Path,
        *,
        lock: Lock,
        cluster_id: str,
        incarnation: int,
        file_system: FileSystem,
    ) -> None:
        self.path = path
        self.cluster_id = cluster_id
        # Counts the starts of this node; durable before anybody sees it.
        self.incarnation = incarnation
        self.metadata_directory = path / _METADATA
        self._topics = path / _TOPICS
        self._lock = lock
        self._file_system = file_system

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        node: BrokerId,
        file_system: FileSystem,
        make_cluster_id: Callable[[], str] = new_cluster_id,
    ) -> "DataDirectory":
        """Makes it if missing and locks it; raises StartRefused with one sentence if it can't."""
        with _refusals(path):
            _make(path, file_system)
            lock = _lock(path, file_system)
            try:
                identity = _start(path, node, file_system, make_cluster_id)
                directory = cls(
                    path,
                    lock=lock,
                    cluster_id=identity["cluster_id"],
                    incarnation=identity["incarnation"],
                    file_system=file_system,
                )
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
            return cls(
                path,
                lock=_lock(path, file_system),
                cluster_id=identity["cluster_id"],
                incarnation=identity["incarnation"],
                file_system=file_system,
            )

    def log_directories(self) -> list[Path]:
        """Where a log lies: the metadata's and every partition's."""
        found = [self.metadata_directory]
        for topic_id in self.list_topic_directories():
            topic = self._topics / topic_id.hex
            names = (name for name in self._file_system.names(topic) if name.isdigit())
            found += [topic / name for name in sorted(names, key=int)]
        return found

    def partition_directory(self, topic_id: TopicId, partition: int) -> Path:
        return self._topics / topic_id.hex / str(partition)

    def list_topic_directories(self) -> list[TopicId]:
        return [
            TopicId(UUID(hex=name))
            for name in self._file_system.names(self._topics)
            if _is_topic_name(name)
        ]

    def remove_topic(self, topic_id: TopicId) -> None:
        """The topic is gone as soon as its directory has another name; its files follow."""
        path = self._topics / topic_id.hex
        if not self._file_system.exists(path):
            return
        doomed = self._topics / f"{topic_id.hex}{_DELETED_SUFFIX}"
        self._file_system.rename(path, doomed)
        self._file_system.sync_directory(self._topics)
        self._file_system.remove_tree(doomed)

    def close(self) -> None:
        self._lock.release()

    def _remove_leftovers(self) -> None:
        for name in self._file_system.names(self._topics):
            if name.endswith(_DELETED_SUFFIX):
                self._file_system.remove_tree(self._topics / name)


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
    path: Path, node: BrokerId, file_system: FileSystem, make_cluster_id: Callable[[], str]
) -> dict[str, Any]:
    """The directory's identity, with this start counted and written down."""
    identity = _read_identity(path, file_system)
    if identity is None:
        _refuse_foreign_content(path, file_system)
        identity = {"node": node, "cluster_id": make_cluster_id(), "incarnation": 0}
    if identity["node"] != node:
        raise StartRefused(
            f"The data directory {path} belongs to node {identity['node']}, not to node {node}."
        )
    identity = {"format": FORMAT, **identity, "incarnation": identity["incarnation"] + 1}
    data = json.dumps(identity, indent=2).encode() + b"\n"
    file_system.write_atomically(path / _FORMAT_FILE, data)
    return identity


def _refuse_foreign_content(path: Path, file_system: FileSystem) -> None:
    # Starting afresh over data would give its partitions a new cluster and old terms.
    if file_system.names(path / _TOPICS) or file_system.names(path / _METADATA):
        raise StartRefused(
            f"The data directory {path} holds data but its file {_FORMAT_FILE} is missing; "
            "restore that file or use another directory."
        )


def _read_identity(path: Path, file_system: FileSystem) -> dict[str, Any] | None:
    file = path / _FORMAT_FILE
    if not file_system.exists(file):
        return None
    try:
        identity = json.loads(file_system.read(file))
        number = int(identity["format"])
        kept = {
            "node": int(identity["node"]),
            "cluster_id": str(identity["cluster_id"]),
            "incarnation": int(identity["incarnation"]),
        }
    except (ValueError, KeyError, TypeError):
        raise StartRefused(
            f"The file {file} is damaged, so the data directory can't be trusted."
        ) from None
    if number > FORMAT:
        raise StartRefused(
            f"The data directory {path} has format {number}, which is newer than format {FORMAT} "
            "that this version of Penstock knows."
        )
    return kept
