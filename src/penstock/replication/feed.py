"""The committed copy of a state machine, kept up to date on every node that has a replica.

Nothing is decided here: records are applied when they are committed, in the order of the log, and
listeners are notified of them after that.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from penstock.model.errors import Reason, Refused, StorageDamaged
from penstock.model.ids import Offset
from penstock.records.batch import CorruptBatch
from penstock.records.record import Record
from penstock.replication.commit import report_bug
from penstock.replication.replay import decode_committed
from penstock.replication.replica import Replica
from penstock.replication.state_files import (
    REPLAY_BYTES,
    SNAPSHOT_RECORDS,
    RecordCodec,
    S,
    StateFile,
)
from penstock.replication.watches import Watch
from penstock.storage.file_system import FileSystem

logger = logging.getLogger(__name__)

# How long a read that failed waits before it is tried again, if nothing new comes before.
RETRY_AFTER_S = 1.0

R = TypeVar("R")


class Feed(Generic[S, R]):
    """One state, the replica whose committed records make it, the snapshot that keeps it short."""

    def __init__(
        self,
        *,
        replica: Replica,
        make_state: Callable[[], S],
        codec: RecordCodec[R],
        snapshot_path: Path,
        file_system: FileSystem,
        executor: Executor,
        snapshot_records: int = SNAPSHOT_RECORDS,
    ) -> None:
        self.replica = replica
        self.state = make_state()
        # The next offset to apply: everything before it is in the state.
        self.applied = Offset(0)
        self._codec = codec
        self._file = StateFile(snapshot_path, make_state, file_system)
        self._executor = executor
        self._snapshot_records = snapshot_records
        self._records_since_snapshot = 0
        self._snapshot_offset = Offset(0)
        self._snapshotting: asyncio.Task[bool] | None = None
        self._on_applied: list[Callable[[Sequence[R], Offset], None]] = []
        self._waiting: list[tuple[Offset, asyncio.Future[None]]] = []
        self._watch: Watch | None = None
        self._pumping: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None

    def on_applied(self, callback: Callable[[Sequence[R], Offset], None]) -> None:
        """Calls back after records were applied, with `applied` as it is then."""
        self._on_applied.append(callback)

    async def load(self) -> None:
        """What is known to be committed here; from then on the state follows by itself.

        Raises Refused when the log can't be read.
        """
        replica = self.replica
        replica.before_compaction = self.write_snapshot
        await self._restore()
        while self.applied < replica.high_watermark:
            if not await self._advance():
                break
        self._watch = replica.on_advance(self._follow)
        self._follow()

    async def wait_for(self, offset: Offset) -> None:
        """Returns once everything before `offset` is applied here; raises Refused if that will
        not be, because the replica stopped."""
        if self.applied < offset:
            self.replica.check_running()
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((offset, done))
            await done

    async def record_at(self, offset: Offset) -> Record | None:
        """What was committed there, as the log holds it, before `applied`; None if it is gone from
        the log, because a snapshot replaced it or it was compacted."""
        if not self.replica.log_start_offset <= offset < self.replica.high_watermark:
            return None
        # One batch is enough.
        found = await self._read(offset, 1)
        records = found[0] if found is not None else []
        return next((record for record in records if record.offset == offset), None)

    async def close(self) -> None:
        """Writes a last snapshot, so that the next start replays nothing."""
        if self._watch is not None:
            self._watch.cancel()
        if self._pumping is not None:
            await asyncio.gather(self._pumping, return_exceptions=True)
        if self._retry is not None:
            self._retry.cancel()
        if self._watch is not None and self.applied == self.replica.high_watermark:
            # What is committed from now on nobody applies, so there is nothing to wait for.
            await self._cover_applied()
        self._refuse_waiting(Refused(Reason.NOT_LEADER_OR_FOLLOWER, "the broker is shutting down"))

    # Following

    def _follow(self) -> None:
        try:
            self.replica.check_running()
        except Refused as refused:
            self._refuse_waiting(refused)
            return
        if self._pumping is None and self.applied < self.replica.high_watermark:
            self._pumping = asyncio.get_running_loop().create_task(self._pump())

    async def _pump(self) -> None:
        try:
            while self.applied < self.replica.high_watermark and await self._advance():
                pass
        except Refused as refused:
            # The replica is stopped, or its disk fails for now.
            logger.warning("%s can't be followed: %s", self.replica.partition, refused)
            self._follow_later()
        except Exception as bug:
            # The copy is not what the log says: it must not be served as if it were.
            self.replica.stop(bug)
        finally:
            self._pumping = None

    def _follow_later(self) -> None:
        """There may be no next record for a long time, and somebody may wait for this one."""
        if self._retry is not None:
            self._retry.cancel()
        self._retry = asyncio.get_running_loop().call_later(RETRY_AFTER_S, self._follow)

    async def _advance(self) -> bool:
        """Applies what one read brings; says whether there was anything."""
        if self.applied < self.replica.log_start_offset:
            # A snapshot of the leader replaced the log: what came before it is not known here.
            await self._restore()
        found = await self._read(self.applied, REPLAY_BYTES)
        if found is None:
            return False
        records, offset = found
        self._apply([self._codec.decode(record.key, record.value) for record in records], offset)
        return True

    async def _read(self, offset: Offset, bytes_max: int) -> tuple[list[Record], Offset] | None:
        found = self.replica.read_committed(offset, bytes_max)
        if found is None:
            return None
        loop = asyncio.get_running_loop()
        try:
            read = partial(self.replica.content, found)
            return await loop.run_in_executor(self._executor, _decode, read, offset)
        except StorageDamaged as damage:
            raise self.replica.unreadable(damage) from damage
        except (OSError, CorruptBatch) as error:
            raise self._unreadable(error) from error
        finally:
            found.release()

    def _apply(self, records: Sequence[R], offset: Offset) -> None:
        for record in records:
            self.state.apply(record)
        self.applied = offset
        self._records_since_snapshot += len(records)
        for callback in self._on_applied:
            try:
                callback(records, offset)
            except Exception as bug:
                report_bug("a listener of a feed failed", bug)
        self._wake()
        if self._records_since_snapshot >= self._snapshot_records and self._snapshotting is None:
            self._start_snapshot()

    def _wake(self) -> None:
        waiting = []
        for offset, done in self._waiting:
            if self.applied < offset:
                waiting.append((offset, done))
            elif not done.done():
                done.set_result(None)
        self._waiting = waiting

    def _refuse_waiting(self, refused: Refused) -> None:
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            if not done.done():
                done.set_exception(refused)

    async def _restore(self) -> None:
        replica = self.replica
        replica.check_running()
        loop = asyncio.get_running_loop()
        try:
            self.state, self.applied = await loop.run_in_executor(
                self._executor,
                self._file.restore,
                replica.log_start_offset,
                replica.high_watermark,
            )
        except OSError as error:
            raise self._unreadable(error) from error
        self._snapshot_offset = self.applied
        self._wake()

    def _unreadable(self, error: Exception) -> Refused:
        detail = f"{self.replica.partition} can't be read back: {error}"
        return Refused(Reason.STORAGE_ERROR, detail)

    # Snapshots

    async def write_snapshot(self) -> bool:
        """Whether a snapshot now covers all that was applied when this was called.

        Compaction asks for it first: it may drop tombstones, and a replay that starts from an older
        snapshot would then never see that the key was deleted.
        """
        try:
            # What compaction may drop must be applied first.
            await self.wait_for(self.replica.high_watermark)
        except Refused:
            return False
        return await self._cover_applied()

    async def _cover_applied(self) -> bool:
        """One at a time: of two the older one could be the last to reach the file."""
        while self._snapshotting is not None:
            await asyncio.wait([self._snapshotting])
        if self.applied != self._snapshot_offset:
            return await self._start_snapshot()
        return True

    def _start_snapshot(self) -> asyncio.Task[bool]:
        self._records_since_snapshot = 0
        writing = self._write(self.state.snapshot(), self.applied)
        task = asyncio.get_running_loop().create_task(writing)
        self._snapshotting = task
        task.add_done_callback(self._snapshot_ended)
        return task

    async def _write(self, encode: Callable[[], bytes], offset: Offset) -> bool:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._executor, self._file.write, encode, offset)
        except OSError as error:
            logger.warning("no snapshot of %s: %s", self.replica.partition, error)
            return False
        self._snapshot_offset = offset
        return True

    def _snapshot_ended(self, _: asyncio.Task[bool]) -> None:
        self._snapshotting = None


def _decode(read: Callable[[], bytes], offset: Offset) -> tuple[list[Record], Offset]:
    """In a worker thread."""
    return decode_committed(read(), offset)
