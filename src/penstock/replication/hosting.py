"""Runs one pure state machine on one replica, while that replica leads its group.

A decision sees all earlier ones: records are applied to the state when they are appended, and the
answer leaves only after they are committed, together with everything that the decision saw. When
leadership is lost the state goes with it; the next leader loads it from what is committed: from
a snapshot and the records behind it, or, where a feed keeps a committed copy anyway, from that.

Timers, pending joins and other waiters belong to the owner of the host and are never replicated;
`on_lost` tells the owner to drop them, `on_ready` that it may start again.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused, StorageDamaged
from penstock.model.ids import Offset
from penstock.records.batch import CorruptBatch, build_batch
from penstock.records.record import Headers, Record
from penstock.replication.admission import BATCH_BYTES_MAX, too_large
from penstock.replication.commit import Commit, report_bug
from penstock.replication.feed import Feed
from penstock.replication.replay import decode_committed
from penstock.replication.replica import Replica
from penstock.replication.state_files import REPLAY_BYTES, SNAPSHOT_RECORDS, S, StateFile
from penstock.replication.state_files import RecordCodec as RecordCodec
from penstock.replication.state_files import StateMachine as StateMachine
from penstock.replication.watches import Watch
from penstock.storage.file_system import FileSystem

logger = logging.getLogger(__name__)

# How long a load that failed waits before it is tried again.
RETRY_AFTER_S = 1.0

R = TypeVar("R")
T = TypeVar("T")


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
        feed: Feed[S, R] | None = None,
    ) -> None:
        self.replica = replica
        self.state = make_state()
        self._make_state = make_state
        self._codec = codec
        self._file = StateFile(snapshot_path, make_state, file_system)
        self._clock = clock
        self._executor = executor
        self._snapshot_records = snapshot_records
        self._feed = feed
        self._on_ready: list[Callable[[], None]] = []
        self._on_lost: list[Callable[[], None]] = []
        self._watch: Watch | None = None
        self._loading: asyncio.Task[None] | None = None
        self._is_ready = False
        self._is_closed = False
        # Counts loads and losses, so that a waiter of an earlier state can't touch the present one.
        self._build = 0
        self._records_since_snapshot = 0
        self._snapshot_offset = Offset(0)
        self._snapshotting: asyncio.Task[bool] | None = None

    @property
    def is_ready(self) -> bool:
        """False while another node leads, and while the state is loaded: then `state` is void."""
        return self._is_ready

    def on_ready(self, callback: Callable[[], None]) -> None:
        """The state is loaded, and this node decides from now on."""
        self._on_ready.append(callback)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """What was ready is void; it may become ready again later."""
        self._on_lost.append(callback)

    def start(self) -> None:
        """Follows the replica's leadership from now on."""
        if self._watch is None:
            if self._feed is None:
                self.replica.before_compaction = self.write_snapshot
            self._watch = self.replica.on_leadership(self._follow)
            self._follow()

    async def load(self) -> None:
        """Starts, and waits until it is ready; raises Refused if it is not this node's turn."""
        self.start()
        while not self._is_ready:
            await self._wait_until_ready()

    def submit(self, records: Sequence[R], headers: Headers = ()) -> asyncio.Future[None]:
        """Applies the records now; the future resolves once they and all before are committed.

        Each of them carries the `headers` in the log, where a feed can find them.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            commit = self.put(records, headers)
        except Refused as refused:
            done.set_exception(refused)
            return done
        commit.then(partial(_settle, done))
        return done

    def put(self, records: Sequence[R], headers: Headers = ()) -> Commit:
        """The same without a future; raises Refused if nothing was done."""
        if not self._is_ready:
            self._refuse_unready()
        self._append(records, headers)
        commit = self.replica.committed()
        commit.then(partial(self._check, self._build))
        return commit

    async def decide(self, decision: Callable[[S], tuple[Sequence[R], T]]) -> T:
        """The decision runs on the state as it is now; its answer comes once all of it is safe."""
        while not self._is_ready:
            await self._wait_until_ready()
        records, answer = decision(self.state)
        await self.submit(records)
        return answer

    async def read(self, look: Callable[[S], T]) -> T:
        """What `look` finds in a state that was the newest of all, and is committed.

        A leader that was replaced and does not know it yet would look at an old one: so a majority
        has to confirm that this one leads, and after the look.
        """
        while True:
            build, found = await self.decide(lambda state: ((), (self._build, look(state))))
            await self.replica.confirm()
            # Confirmed in the term in which it looked, not in a later one.
            if build == self._build:
                return found

    async def close(self) -> None:
        """Writes a last snapshot, so that the next load replays nothing.

        What is not committed by now may never be: a group whose other members are gone must not
        hold up the end of this node.
        """
        self._is_closed = True
        if self._watch is not None:
            self._watch.cancel()
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        is_committed = self.replica.high_watermark == self.replica.log_end_offset
        if self._is_ready and self._feed is None and is_committed:
            await self.write_snapshot()
        self._is_ready = False

    def _append(self, records: Sequence[R], headers: Headers) -> None:
        """Appends first and applies then, so that a refused append leaves no trace."""
        if not records:
            return
        now_ms = self._clock.now_ms()
        encoded = (self._codec.encode(record) for record in records)
        batch = build_batch(
            [
                Record(offset=index, timestamp_ms=now_ms, key=key, value=value, headers=headers)
                for index, (key, value) in enumerate(encoded)
            ]
        )
        if len(batch) > BATCH_BYTES_MAX:
            raise too_large(len(batch), BATCH_BYTES_MAX)
        self.replica.append_own(batch)
        for record in records:
            self.state.apply(record)
        self._records_since_snapshot += len(records)
        if self._records_since_snapshot >= self._snapshot_records and self._may_snapshot():
            self._start_snapshot()

    def _check(self, build: int, error: Refused | None) -> None:
        """Before anybody else hears of it."""
        if error is not None and build == self._build and self._is_ready:
            # The state knows what may never be committed.
            self._unload()
            self._follow()

    # Following leadership

    def _follow(self) -> None:
        if self.replica.is_settled:
            if not self._is_ready and not self._is_loading and not self._is_closed:
                loop = asyncio.get_running_loop()
                self._loading = loop.create_task(self._load_as_leader())
        elif self._is_ready:
            self._unload()

    @property
    def _is_loading(self) -> bool:
        return self._loading is not None and not self._loading.done()

    def _unload(self) -> None:
        self._is_ready = False
        self._build += 1
        self._call(self._on_lost)

    async def _load_as_leader(self) -> None:
        """Until it is loaded or the leadership is lost; a disk that fails is asked again."""
        while self.replica.is_settled and not self._is_ready and not self._is_closed:
            term = self.replica.term
            try:
                state, offset, replayed = await self._load()
            except Refused as refused:
                logger.warning("%s can't be loaded: %s", self.replica.partition, refused)
                await asyncio.sleep(RETRY_AFTER_S)
                continue
            # Whatever another leader committed meanwhile is missing from what was loaded.
            if self.replica.is_settled and self.replica.term == term:
                self._take_over(state, offset, replayed)

    def _take_over(self, state: S, offset: Offset, replayed: int) -> None:
        self._build += 1
        self.state = state
        self._snapshot_offset, self._records_since_snapshot = offset, replayed
        self._is_ready = True
        self._call(self._on_ready)

    def _call(self, callbacks: Sequence[Callable[[], None]]) -> None:
        for callback in callbacks:
            try:
                callback()
            except Exception as bug:
                report_bug("a callback of a host failed", bug)

    def _refuse_unready(self) -> None:
        self.replica.check_writable()
        detail = f"{self.replica.partition} is loading"
        raise Refused(Reason.COORDINATOR_LOAD_IN_PROGRESS, detail)

    async def _wait_until_ready(self) -> None:
        self.replica.check_writable()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not done.done():
                done.set_result(None)

        watch = self.replica.on_leadership(wake)
        waits: list[asyncio.Future[None]] = [done]
        if self._loading is not None and not self._loading.done():
            waits.append(self._loading)
        try:
            # Not cancelled with us: others wait for the same load.
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()

    # Loading

    async def _load(self) -> tuple[S, Offset, int]:
        if self._feed is not None:
            return await self._clone(self._feed)
        loop = asyncio.get_running_loop()
        replica = self.replica
        try:
            state, offset = await loop.run_in_executor(
                self._executor,
                self._file.restore,
                replica.log_start_offset,
                replica.high_watermark,
            )
            return state, offset, await self._replay(state, offset)
        except StorageDamaged as damage:
            raise replica.unreadable(damage) from damage
        except (OSError, CorruptBatch) as error:
            detail = f"{replica.partition} can't be read back: {error}"
            raise Refused(Reason.STORAGE_ERROR, detail) from error

    async def _clone(self, feed: Feed[S, R]) -> tuple[S, Offset, int]:
        while feed.applied < self.replica.log_end_offset:
            await self.replica.committed()
            await feed.wait_for(self.replica.high_watermark)
            # Without leadership the log's end is another leader's, and nothing here waits for it.
            self.replica.check_leader()
        # At once, and not in a worker: a slow disk must not hold up a new controller.
        state = self._make_state()
        state.restore(feed.state.snapshot()())
        return state, feed.applied, 0

    async def _replay(self, state: S, offset: Offset) -> int:
        """Up to the log's end: nobody but this host appends, and it does not before it is ready."""
        loop = asyncio.get_running_loop()
        count = 0
        while offset < self.replica.log_end_offset:
            found = self.replica.read_committed(offset, REPLAY_BYTES)
            if found is None:
                await self.replica.committed()
                self.replica.check_leader()
                continue
            try:
                read = partial(self.replica.content, found)
                applied, offset = await loop.run_in_executor(
                    self._executor, self._apply_all, state, read, offset
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

    async def write_snapshot(self) -> bool:
        """Whether no snapshot is older than what was committed when this was called.

        Compaction asks for it first: it may drop tombstones, and a replay that starts from an older
        snapshot would then never see that the key was deleted. Where the state is not hosted now,
        nobody can bring the snapshot up to date, so it goes.
        """
        while self._snapshotting is not None:
            await asyncio.wait([self._snapshotting])
        if self._is_loading:
            return False
        if not self._is_ready:
            return await self._remove_snapshot()
        if self.replica.log_end_offset != self._snapshot_offset:
            return await self._start_snapshot()
        return True

    async def _remove_snapshot(self) -> bool:
        try:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._executor, self._file.remove)
        except OSError as error:
            logger.warning("a stale snapshot of %s stays: %s", self.replica.partition, error)
            return False
        return not self._is_loading

    def _may_snapshot(self) -> bool:
        return self._snapshotting is None and self._feed is None

    def _start_snapshot(self) -> asyncio.Task[bool]:
        """Taken now, at the log's end; written only when all of it turned out to be committed."""
        self._records_since_snapshot = 0
        # Asked for now: by the time the task begins, another leader may have replaced what the
        # state holds, and then nothing of it is under way any more.
        committed = self.replica.committed()
        end = self.replica.log_end_offset
        writing = self._write_committed(committed, self.state.snapshot(), end)
        task = asyncio.get_running_loop().create_task(writing)
        self._snapshotting = task
        task.add_done_callback(self._snapshot_ended)
        return task

    async def _write_committed(
        self, committed: Commit, encode: Callable[[], bytes], offset: Offset
    ) -> bool:
        loop = asyncio.get_running_loop()
        try:
            await committed
            await loop.run_in_executor(self._executor, self._file.write, encode, offset)
        except (Refused, OSError) as error:
            logger.warning("no snapshot of %s: %s", self.replica.partition, error)
            return False
        self._snapshot_offset = offset
        return True

    def _snapshot_ended(self, _: asyncio.Task[bool]) -> None:
        self._snapshotting = None


def _settle(done: asyncio.Future[None], error: Refused | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
