"""Runs one pure state machine on one replica.

A decision sees all earlier ones: records are applied to the state when they are appended, and the
answer leaves only after they are committed, together with everything that the decision saw. When a
write fails, the state is rebuilt from what is committed. A snapshot bounds the replay.

Timers, pending joins and other waiters belong to the owner of the host and are never replicated;
`on_rebuilt` tells the owner to drop them.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused, StorageDamaged
from penstock.model.ids import Offset
from penstock.records.batch import CorruptBatch, build_batch
from penstock.records.record import Record
from penstock.replication.commit import report_bug
from penstock.replication.replay import decode_committed
from penstock.replication.replica import Replica
from penstock.storage.file_system import FileSystem
from penstock.storage.snapshot import Snapshot, read_snapshot, write_snapshot

logger = logging.getLogger(__name__)

# Records between two snapshots: replaying this many takes well under a second.
SNAPSHOT_RECORDS = 20_000
REPLAY_BYTES = 1024 * 1024

R = TypeVar("R")
T = TypeVar("T")
_Contra = TypeVar("_Contra", contravariant=True)


class StateMachine(Protocol[_Contra]):
    """A state whose only mutator is `apply`, as a function of the records before it."""

    def apply(self, record: _Contra, /) -> None: ...

    def snapshot(self) -> bytes: ...

    def restore(self, data: bytes, /) -> None: ...


class RecordCodec(Protocol[R]):
    """How a machine's records lie in the log, keyed so that compaction can drop the old ones."""

    def encode(self, record: R, /) -> tuple[bytes | None, bytes | None]:
        """Key and value; no value is a tombstone."""
        ...

    def decode(self, key: bytes | None, value: bytes | None, /) -> R: ...


S = TypeVar("S", bound=StateMachine)  # type: ignore[type-arg]  # a bound can't name R


class Host(Generic[S, R]):
    """One state machine, the replica that makes it durable, the snapshot that keeps it short."""

    def __init__(
        self,
        *,
        replica: Replica,
        make_state: Callable[[], S],
        codec: RecordCodec[R],
        snapshot_path: Path,
        file_system: FileSystem,
        clock: Clock,
        executor: Executor,
        snapshot_records: int = SNAPSHOT_RECORDS,
    ) -> None:
        self.replica = replica
        self.state = make_state()
        self._make_state = make_state
        self._codec = codec
        self._snapshot_path = snapshot_path
        self._file_system = file_system
        self._clock = clock
        self._executor = executor
        self._snapshot_records = snapshot_records
        self._on_rebuilt: list[Callable[[], None]] = []
        self._loading: asyncio.Task[None] | None = None
        self._is_ready = False
        # Counts rebuilds, so that a waiter of an earlier state can't touch the present one.
        self._build = 0
        self._records_since_snapshot = 0
        self._snapshot_offset = Offset(0)
        self._snapshotting: asyncio.Task[bool] | None = None

    @property
    def is_ready(self) -> bool:
        """False while the state is being loaded or rebuilt: `state` is not to be trusted then."""
        return self._is_ready

    def on_rebuilt(self, callback: Callable[[], None]) -> None:
        self._on_rebuilt.append(callback)

    async def load(self) -> None:
        """Snapshot and replay of the committed log; raises Refused when it can't be read."""
        self.replica.before_compaction = self.write_snapshot
        await self._rebuild()

    def submit(self, records: Sequence[R]) -> asyncio.Future[None]:
        """Applies the records now; the future resolves once they and all before are committed."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._is_ready:
            detail = f"{self.replica.partition} is loading"
            done.set_exception(Refused(Reason.COORDINATOR_LOAD_IN_PROGRESS, detail))
            return done
        try:
            self._append(records)
        except Refused as refused:
            done.set_exception(refused)
            return done
        build = self._build
        self.replica.committed().then(lambda error: self._settle(done, error, build))
        return done

    async def decide(self, decision: Callable[[S], tuple[Sequence[R], T]]) -> T:
        """The decision runs on the state as it is now; its answer comes once all of it is safe."""
        while not self._is_ready:
            await self._wait_until_ready()
        records, answer = decision(self.state)
        await self.submit(records)
        return answer

    async def close(self) -> None:
        """Writes a last snapshot, so that the next start replays nothing."""
        if self._loading is not None:
            await asyncio.gather(self._loading, return_exceptions=True)
        if self._is_ready:
            await self.write_snapshot()
        self._is_ready = False

    async def write_snapshot(self) -> bool:
        """Whether a snapshot now covers all that was committed when this was called.

        Compaction asks for it first: it may drop tombstones, and a replay that starts from an older
        snapshot would then never see that the key was deleted.
        """
        while self._snapshotting is not None:
            await asyncio.wait([self._snapshotting])
        if not self._is_ready:
            return False
        if self.replica.log_end_offset != self._snapshot_offset:
            return await self._start_snapshot()
        return True

    def _append(self, records: Sequence[R]) -> None:
        """Appends first and applies then, so that a refused append leaves no trace."""
        if not records:
            return
        now_ms = self._clock.now_ms()
        encoded = (self._codec.encode(record) for record in records)
        batch = build_batch(
            [
                Record(offset=index, timestamp_ms=now_ms, key=key, value=value, headers=())
                for index, (key, value) in enumerate(encoded)
            ]
        )
        self.replica.append_own(batch)
        for record in records:
            self.state.apply(record)
        self._records_since_snapshot += len(records)
        if self._records_since_snapshot >= self._snapshot_records and self._snapshotting is None:
            self._start_snapshot()

    def _settle(self, done: asyncio.Future[None], error: Refused | None, build: int) -> None:
        if error is None:
            if not done.done():
                done.set_result(None)
            return
        if build == self._build and self._is_ready:
            self._start_rebuild()
        if not done.done():
            done.set_exception(error)

    # Rebuilding

    def _start_rebuild(self) -> None:
        self._is_ready = False
        self._loading = asyncio.get_running_loop().create_task(self._rebuild_after_failure())

    async def _rebuild_after_failure(self) -> None:
        try:
            await self._rebuild()
        except Refused as refused:
            # Not lost: the next decision tries again and answers with what it then meets.
            logger.warning("%s can't be rebuilt: %s", self.replica.partition, refused)
            return
        for callback in self._on_rebuilt:
            try:
                callback()
            except Exception as bug:
                report_bug("a callback after a rebuild failed", bug)

    async def _wait_until_ready(self) -> None:
        if self._loading is None or self._loading.done():
            self._start_rebuild()
        assert self._loading is not None
        # Shielded: a caller that gives up must not stop the rebuild that others wait for.
        await asyncio.shield(self._loading)
        if not self._is_ready:
            self.replica.check_running()
            detail = f"{self.replica.partition} can't be read back"
            raise Refused(Reason.STORAGE_ERROR, detail)

    async def _rebuild(self) -> None:
        self._is_ready = False
        self._build += 1
        loop = asyncio.get_running_loop()
        try:
            state, offset = await loop.run_in_executor(self._executor, self._restore)
            replayed = await self._replay(state, offset)
        except (OSError, CorruptBatch) as error:
            detail = f"{self.replica.partition} can't be read back: {error}"
            raise Refused(Reason.STORAGE_ERROR, detail) from error
        self._snapshot_offset = offset
        self._records_since_snapshot = replayed
        self.state = state
        self._is_ready = True

    def _restore(self) -> tuple[S, Offset]:
        """In a worker thread: the state of the snapshot, and where the replay goes on from there.

        A snapshot only saves time: one that is damaged, of another format, or not of this log's
        prefix is removed. Not merely ignored: once the log has grown past its offset with other
        records, it would look valid again.
        """
        start, end = self.replica.log_start_offset, self.replica.high_watermark
        try:
            snapshot = read_snapshot(self._file_system, self._snapshot_path)
            if snapshot is None:
                return self._make_state(), start
            if start <= snapshot.offset <= end:
                state = self._make_state()
                state.restore(snapshot.data)
                return state, snapshot.offset
            reason = f"{self._snapshot_path} covers offset {snapshot.offset}, not in the log"
        except StorageDamaged as damage:
            reason = str(damage)
        except (ValueError, LookupError) as error:
            reason = f"{self._snapshot_path} can't be restored: {error!r}"
        logger.warning("%s; replaying the whole log instead", reason)
        self._file_system.remove(self._snapshot_path)
        return self._make_state(), start

    async def _replay(self, state: S, offset: Offset) -> int:
        loop = asyncio.get_running_loop()
        count = 0
        while offset < self.replica.high_watermark:
            found = self.replica.read(offset, REPLAY_BYTES)
            if found is None:
                break
            try:
                applied, offset = await loop.run_in_executor(
                    self._executor, self._apply_all, state, found.read, offset
                )
            finally:
                found.release()
            count += applied
        return count

    def _apply_all(self, state: S, read: Callable[[], bytes], offset: Offset) -> tuple[int, Offset]:
        """In a worker thread, on a state that nobody else sees yet."""
        records, next_offset = decode_committed(read(), offset)
        for record in records:
            state.apply(self._codec.decode(record.key, record.value))
        return len(records), next_offset

    # Snapshots

    def _start_snapshot(self) -> asyncio.Task[bool]:
        """Taken now, at the log's end; written only when all of it turned out to be committed."""
        self._records_since_snapshot = 0
        snapshot = Snapshot(offset=self.replica.log_end_offset, data=self.state.snapshot())
        loop = asyncio.get_running_loop()
        self._snapshotting = loop.create_task(self._write_committed(snapshot))
        self._snapshotting.add_done_callback(self._snapshot_ended)
        return self._snapshotting

    async def _write_committed(self, snapshot: Snapshot) -> bool:
        loop = asyncio.get_running_loop()
        try:
            await self.replica.committed()
            await loop.run_in_executor(
                self._executor, write_snapshot, self._file_system, self._snapshot_path, snapshot
            )
        except (Refused, OSError) as error:
            logger.warning("no snapshot of %s: %s", self.replica.partition, error)
            return False
        self._snapshot_offset = Offset(snapshot.offset)
        return True

    def _snapshot_ended(self, _: asyncio.Task[bool]) -> None:
        self._snapshotting = None
