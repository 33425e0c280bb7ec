"""Group commit of one log: batches that pile up while the disk works are written together.

At most one job of a log runs at a time, in a worker thread: it appends all batches that are queued,
syncs them as the flush policy says, tells the event loop, and then runs the chores that need the
log to themselves (retention, deletion, checkpoints). So a chore never races the appender, and the
state that a checkpoint stores is the one at the end of exactly the batches of its job.

Two failures are kept apart. A write that fails (a full disk) leaves the log as it was: everything
queued is refused and the next append tries again. A sync that fails leaves the page cache
unknowable, since a retried sync may succeed without the data ever reaching the disk: the log is
broken and must not be trusted before it was read again.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Protocol, TypeVar

from penstock.model.errors import Refused
from penstock.model.ids import Offset
from penstock.replication.batch_buffers import LARGE_BYTES_MIN, Batch, BatchBuffers
from penstock.replication.commit import Commit
from penstock.storage.file_system import SyncFailed
from penstock.storage.log import Log

logger = logging.getLogger(__name__)

T = TypeVar("T")


class WriterOwner(Protocol):
    """What the writer tells its replica, always on the event loop."""

    def producers_snapshot(self) -> bytes:
        """The producers' state at the end of all that was queued."""
        ...

    def written(self, end: Offset, size: int) -> None:
        """All before `end` is as safe as the flush policy asks for; it was `size` bytes."""
        ...

    def write_failed(self, error: OSError) -> Refused:
        """Nothing after the last `written` is in the log; returns what to tell those who wait."""
        ...

    def log_broken(self, error: Exception) -> Refused:
        """The log can't be trusted any more; returns what to tell those who wait."""
        ...


class Checkpointer:
    """Writes the log's checkpoint inside a job, with the state that belongs to the job's end."""

    __slots__ = ("_end", "_log", "_state")

    def __init__(self, log: Log, state: bytes, end: Offset) -> None:
        self._log = log
        self._state = state
        self._end = end

    def __call__(self) -> None:
        """The log syncs first, so that everything before the flush mark is on disk."""
        self._log.checkpoint(state=self._state, state_offset=self._end, flushed_offset=self._end)


Chore = Callable[[Checkpointer], object]


class _Job:
    __slots__ = ("batches", "checkpointer", "chores", "commit", "end", "size", "syncs")

    def __init__(self, batches: list[Batch], size: int, commit: Commit | None, end: Offset) -> None:
        self.batches = batches
        self.size = size
        self.commit = commit
        self.end = end
        self.syncs = True
        self.chores: list[tuple[Chore, asyncio.Future[Any]]] = []
        self.checkpointer: Checkpointer | None = None


class Writer:
    """The queue of one log and the job that empties it."""

    __slots__ = (
        "_buffers",
        "_chores",
        "_commit",
        "_end",
        "_executor",
        "_is_running",
        "_is_scheduled",
        "_job",
        "_log",
        "_loop",
        "_owner",
        "_queue",
        "_queue_size",
        "_syncs_next",
        "_when_idle",
        "syncs_before_ack",
    )

    def __init__(
        self,
        log: Log,
        owner: WriterOwner,
        *,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        buffers: BatchBuffers,
        syncs_before_ack: bool,
    ) -> None:
        self._log = log
        self._owner = owner
        self._loop = loop
        self._executor = executor
        self._buffers = buffers
        self.syncs_before_ack = syncs_before_ack
        self._queue: list[Batch] = []
        self._queue_size = 0
        self._end = log.end_offset
        self._commit: Commit | None = None
        self._job: _Job | None = None
        self._chores: list[tuple[Chore, asyncio.Future[Any]]] = []
        self._is_scheduled = False
        self._is_running = False
        self._syncs_next = False
        self._when_idle: list[asyncio.Future[None]] = []

    def put(self, batch: Batch, end: Offset) -> Commit:
        """Queues a stamped batch that ends before `end`; the commit settles with its write."""
        self._queue.append(batch)
        self._queue_size += len(batch)
        self._end = end
        commit = self._commit
        if commit is None:
            commit = self._commit = Commit()
            self._schedule()
        return commit

    def commit_of(self, last_offset: int) -> Commit | None:
        """What an append that holds `last_offset` waits for; None when it is written."""
        job = self._job
        if job is not None and job.commit is not None and last_offset < job.end:
            return job.commit
        return self._commit

    @property
    def last_commit(self) -> Commit | None:
        """What the newest append waits for; None when all is written."""
        if self._commit is not None:
            return self._commit
        return self._job.commit if self._job is not None else None

    def sync_soon(self) -> None:
        """Lets the next job sync, for logs whose appends are acknowledged before that."""
        self._syncs_next = True
        self._schedule()

    async def exclusively(self, chore: Callable[[Checkpointer], T]) -> T:
        """Runs a chore in a worker thread while nothing else writes to the log."""
        done: asyncio.Future[T] = self._loop.create_future()
        self._chores.append((chore, done))
        self._schedule()
        return await done

    async def idle(self) -> None:
        """Waits until nothing is queued and no job runs."""
        while self._is_running or self._is_scheduled:
            done: asyncio.Future[None] = self._loop.create_future()
            self._when_idle.append(done)
            await done

    # On the loop

    def _schedule(self) -> None:
        """With the next turn of the loop: what one read of a socket brings shares a job."""
        if not self._is_scheduled and not self._is_running:
            self._is_scheduled = True
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._is_scheduled = False
        if not self._has_work():
            self._became_idle()
            return
        job = self._next_job()
        self._job = job
        self._is_running = True
        self._executor.submit(self._run, job)

    def _has_work(self) -> bool:
        return bool(self._queue or self._chores or self._syncs_next)

    def _next_job(self) -> _Job:
        job = _Job(self._queue, self._queue_size, self._commit, self._end)
        job.syncs = self.syncs_before_ack or self._syncs_next
        self._syncs_next = False
        job.chores = self._chores
        if job.chores or self._log.checkpoint_due():
            job.checkpointer = Checkpointer(self._log, self._owner.producers_snapshot(), job.end)
        self._queue, self._queue_size, self._commit, self._chores = [], 0, None, []
        return job

    def _wrote(self, job: _Job) -> None:
        commit, job.commit = job.commit, None
        if commit is not None:
            self._owner.written(job.end, job.size)
            commit.settle(None)
            if job.size >= LARGE_BYTES_MIN:
                self._buffers.give_back(job.batches)

    def _finished(self, job: _Job) -> None:
        self._wrote(job)
        self._job = None
        self._is_running = False
        if self._has_work():
            self._schedule()
        else:
            self._became_idle()

    def _finished_chores(self, job: _Job, outcomes: list[tuple[object, Exception | None]]) -> None:
        for (_, done), (result, error) in zip(job.chores, outcomes, strict=True):
            if done.done():
                continue
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)
        self._finished(job)

    def _write_failed(self, job: _Job, error: OSError) -> None:
        """What was queued behind the failed write carries offsets that no longer follow on."""
        commits = self._drop_queue(job)
        self._end = self._log.end_offset
        self._chores = [*job.chores, *self._chores]
        self._refuse(commits, self._owner.write_failed(error))
        self._finished(job)

    def _broke(self, job: _Job, error: Exception) -> None:
        commits = self._drop_queue(job)
        refused = self._owner.log_broken(error)
        for _, done in (*job.chores, *self._chores):
            if not done.done():
                done.set_exception(refused)
        self._chores = []
        self._refuse(commits, refused)
        self._finished(job)

    def _drop_queue(self, job: _Job) -> list[Commit]:
        """Forgets what is not written, before anyone hears of it and may append anew."""
        commits = [commit for commit in (job.commit, self._commit) if commit is not None]
        job.commit = self._commit = None
        self._queue, self._queue_size = [], 0
        return commits

    def _refuse(self, commits: list[Commit], refused: Refused) -> None:
        for commit in commits:
            commit.settle(refused)

    def _became_idle(self) -> None:
        waiting, self._when_idle = self._when_idle, []
        for done in waiting:
            if not done.done():
                done.set_result(None)

    # In the worker thread

    def _run(self, job: _Job) -> None:
        tell = self._loop.call_soon_threadsafe
        try:
            if job.batches:
                try:
                    self._log.append(job.batches)
                except SyncFailed:
                    raise
                except OSError as error:
                    tell(self._write_failed, job, error)
                    return
            if job.syncs:
                self._log.sync()
            if job.checkpointer is None:
                tell(self._finished, job)
                return
            tell(self._wrote, job)
            tell(self._finished_chores, job, self._run_chores(job, job.checkpointer))
        except Exception as error:
            # A failed sync, damage, or a bug of ours: in each case the log is not to be trusted.
            tell(self._broke, job, error)

    def _run_chores(
        self, job: _Job, checkpointer: Checkpointer
    ) -> list[tuple[object, Exception | None]]:
        if self._log.checkpoint_due():
            self._checkpoint(checkpointer)
        outcomes: list[tuple[object, Exception | None]] = []
        for chore, _ in job.chores:
            try:
                outcomes.append((chore(checkpointer), None))
            except SyncFailed:
                raise
            except OSError as error:
                outcomes.append((None, error))
        return outcomes

    def _checkpoint(self, checkpointer: Checkpointer) -> None:
        """A checkpoint that can't be written is due again with the next job; nothing is lost."""
        try:
            checkpointer()
        except SyncFailed:
            raise
        except OSError as error:
            logger.warning("no checkpoint of %s: %s", self._log.directory, error)
