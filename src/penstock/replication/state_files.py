"""A state machine brought back: from its snapshot, and from the committed records behind it."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from penstock.model.errors import StorageDamaged
from penstock.model.ids import Offset
from penstock.storage.file_system import FileSystem
from penstock.storage.snapshot import Snapshot, read_snapshot, write_snapshot

logger = logging.getLogger(__name__)

# Records between two snapshots: replaying this many takes well under a second.
SNAPSHOT_RECORDS = 20_000
REPLAY_BYTES = 1024 * 1024

R = TypeVar("R")
_Contra = TypeVar("_Contra", contravariant=True)


class StateMachine(Protocol[_Contra]):
    """A state whose only mutator is `apply`, as a function of the records before it."""

    def apply(self, record: _Contra, /) -> None: ...

    def snapshot(self) -> Callable[[], bytes]:
        """The state as it is now; any thread may make bytes of it while the state goes on."""
        ...

    def restore(self, data: bytes, /) -> None: ...


class RecordCodec(Protocol[R]):
    """How a machine's records lie in the log, keyed so that compaction can drop the old ones."""

    def encode(self, record: R, /) -> tuple[bytes | None, bytes | None]:
        """Key and value; no value is a tombstone."""
        ...

    def decode(self, key: bytes | None, value: bytes | None, /) -> R: ...


S = TypeVar("S", bound=StateMachine)  # type: ignore[type-arg]  # a bound can't name R


class StateFile(Generic[S]):
    """The snapshot of one state machine. Everything here blocks, so for worker threads only."""

    def __init__(self, path: Path, make_state: Callable[[], S], file_system: FileSystem) -> None:
        self._path = path
        self._make_state = make_state
        self._file_system = file_system

    def restore(self, start: Offset, end: Offset) -> tuple[S, Offset]:
        """The state of the snapshot, and where the replay goes on from there.

        A snapshot only saves time: one that is damaged, of another format, or not of this log's
        prefix is removed. Not merely ignored: once the log has grown past its offset with other
        records, it would look valid again.
        """
        try:
            snapshot = read_snapshot(self._file_system, self._path)
            if snapshot is None:
                return self._make_state(), start
            if start <= snapshot.offset <= end:
                state = self._make_state()
                state.restore(snapshot.data)
                return state, snapshot.offset
            reason = f"{self._path} covers offset {snapshot.offset}, not in the log"
        except StorageDamaged as damage:
            reason = str(damage)
        except (ValueError, LookupError) as error:
            reason = f"{self._path} can't be restored: {error!r}"
        logger.warning("%s; replaying the whole log instead", reason)
        self._file_system.remove(self._path)
        return self._make_state(), start

    def write(self, encode: Callable[[], bytes], offset: Offset) -> None:
        """What `StateMachine.snapshot` gave when the state had applied all below the offset."""
        write_snapshot(self._file_system, self._path, Snapshot(encode(), offset))

    def remove(self) -> None:
        """For anyone who can't keep it up to date: stale, it would bring deleted keys back."""
        if self._file_system.exists(self._path):
            self._file_system.remove(self._path)
