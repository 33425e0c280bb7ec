"""Group commit of one log: what piles up while the disk works is written together.

At most one job of a log runs at a time, in a worker thread: it carries out all writes that are
queued, in their order, syncs them as the flush policy says, tells the event loop, and then runs the
chores that need the log to themselves (retention, deletion, checkpoints). So a chore never races
the appender.

Two failures are kept apart. A write that fails (a full disk) leaves the log as it was: it stays at
the head of the queue and is tried again after a while, because Raft may have promised the entry
elsewhere already. A sync that fails leaves the page cache unknowable, since a retried sync may
succeed without the data ever reaching the disk: the log is broken and must not be trusted before it
was read again.

A job that does not end in time counts as a write that failed, until it ends.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from penstock.model.errors import Refused
from penstock.model.ids import LogIndex, Offset
from penstock.replication.batch_buffers import Batch
from penstock.replication.write_side import DiskHangs, WriteSide
from penstock.storage.file_system import SyncFailed
from penstock.storage.log import Log, LogBase

logger = logging.getLogger(__name__)

T = TypeVar("T")

# How long a write that failed, as on a full disk, waits before it is tried again: at first, and at
# most, after it failed many times.
RETRY_AFTER_S_MIN = 0.05
RETRY_AFTER_S_MAX = 1.0


class LogWrite(NamedTuple):
    """One write of Raft: first what replaces the log, then what is cut off, then what is added."""

    number: int
    # A snapshot that replaces everything: where the log begins then, and the owner's state there.
    reset: tuple[LogBase, bytes] | None
    # Where the batches begin, if the log may hold something else from there on; else None.
    cut_index: int | None
    batches: Sequence[Batch]
    # Raft's own entries are safe before they count, whatever the topic's flush policy risks.
    must_sync: bool


class WriterOwner(Protocol):
    """What the writer tells its replica, always on the event loop."""

    def checkpoint_state(self) -> tuple[Callable[[], bytes], Offset]:
        """The producers' state as of an offset that will never be truncated, and that offset.

        The state becomes bytes in the worker thread, if it is needed: there may be much of it.
        """
        ...

    def before_reset(self) -> None:
        """In the worker thread: a snapshot is about to replace the log."""
        ...

    def written(self, number: int) -> None:
        """All writes up to this one are as safe as the flush policy asks for."""
        ...

    def write_failed(self, error: OSError) -> None:
        """Nothing after the last `written` is known to be in the log; it will be tried again, or
        the disk hangs and may be done with it yet."""
        ...

    def log_broken(self, error: Exception) -> Refused:
        """The log can't be trusted any more; returns what to tell those who wait."""
        ...


class Checkpointer:
    """Writes the log's checkpoint inside a job, with the state of when the job began."""

    __slots__ = ("_log", "_state", "_state_offset")

    def __init__(self, log: Log, state: Callable[[], bytes], state_offset: Offset) -> None:
        self._log = log
        self._state = state
        self._state_offset = state_offset

    def __call__(self) -> None:
        """The log syncs first, so that everything before the flush mark is on disk."""
        self._log.checkpoint(
            state=self._state(),
            state_offset=self._state_offset,
            flushed_offset=self._log.end_offset,
        )


Chore = Callable[[Checkpointer], object]
_Outcomes = list[tuple[object, Exception | None]]


class _Job:
    __slots__ = (
        "began_at",
        "broken",
        "checkpointer",
        "chores",
        "done",
        "ended_at",
        "failure",
        "is_late",
        "is_reported",
        "queued_at",
        "since",
        "syncs",
        "writes",
    )

    def __init__(self, writes: list[LogWrite], since: int) -> None:
        self.writes = writes
        # When it was handed over or last heard of, in ticks, and whether that is too long ago.
        self.since = since
        self.is_late = False
        # By the monotonic clock, where times are noted.
        self.queued_at = self.began_at = self.ended_at = 0.0
        # How many of them are carried out.
        self.done = 0
        self.failure: OSError | None = None
        # Why the log is not to be trusted any more: a failed sync, damage, or a bug of ours.
        self.broken: Exception | None = None
        self.is_reported = False
        self.syncs = True
        self.chores: list[tuple[Chore, asyncio.Future[Any]]] = []
        self.checkpointer: Checkpointer | None = None


class Writer:
    """The queue of one log and the job that empties it."""

    __slots__ = (
        "_broken",
        "_chores",
        "_is_scheduled",
        "_log",
        "_loop",
        "_owner",
        "_queue",
        "_queued_at",
        "_retry",
        "_retry_after_s",
        "_running",
        "_side",
        "_syncs_next",
        "_when_idle",
        "failure",
        "is_patient",
        "syncs_before_ack",
    )

    def __init__(
        self,
        log: Log,
        owner: WriterOwner,
        *,
        loop: asyncio.AbstractEventLoop,
        side: WriteSide,
        syncs_before_ack: bool,
    ) -> None:
        self._log = log
        self._owner = owner
        self._loop = loop
        self._side = side
        self.syncs_before_ack = syncs_before_ack
        self._queue: list[LogWrite] = []
        self._queued_at = 0.0
        self._chores: list[tuple[Chore, asyncio.Future[Any]]] = []
        self._is_scheduled = False
        self._running: _Job | None = None
        # What to tell those who want to write, once the log can't be trusted.
        self._broken: Refused | None = None
        self._syncs_next = False
        # From a write that failed, or hangs, until one succeeds.
        self.failure: OSError | None = None
        # Anyone who closes the log waits for the disk as long as it takes.
        self.is_patient = False
        # Set while a failed write waits to be tried again.
        self._retry: asyncio.TimerHandle | None = None
        self._retry_after_s = RETRY_AFTER_S_MIN
        self._when_idle: list[asyncio.Future[None]] = []

    def put(self, write: LogWrite) -> None:
        """Queues a write; the owner hears of it by `written`."""
        if not self._queue and self._side.times is not None:
            self._queued_at = self._side.times.now()
        self._queue.append(write)
        if self._running is None and self._retry is None and self._broken is None:
            self._start()

    def sync_soon(self) -> None:
        """Lets the next job sync, for logs whose appends are acknowledged before that."""
        self._syncs_next = True
        self._schedule()

    async def exclusively(self, chore: Callable[[Checkpointer], T]) -> T:
        """Runs a chore in a worker thread while nothing else writes to the log.

        Raises Refused once the log is broken: a chore would write down what memory takes for true.
        Raises DiskHangs if the disk does; what was begun may still come about.
        """
        if self._broken is not None:
            raise self._broken
        if self._running is not None and self._running.is_late:
            raise self._side.error()
        done: asyncio.Future[T] = self._loop.create_future()
        self._chores.append((chore, done))
        self._schedule()
        return await done

    async def idle(self) -> None:
        """Waits until nothing is queued and no job runs; what fails is not tried again."""
        self._end_retries()
        while self._running is not None or self._is_scheduled:
            done: asyncio.Future[None] = self._loop.create_future()
            self._when_idle.append(done)
            await done
            self._end_retries()

    @property
    def since(self) -> int:
        return self._side.now if self._running is None else self._running.since

    def check_deadline(self) -> None:
        """With every tick while a job runs: those who wait for one that hangs hear so."""
        job = self._running
        if job is None or job.is_late or self.is_patient or not self._side.is_over(job.since):
            return
        job.is_late = True
        error = self._side.error()
        for _, done in (*job.chores, *self._chores):
            if not done.done():
                done.set_exception(error)
        if self.failure is None:
            self.failure = error
            self._owner.write_failed(error)

    # On the loop

    def _schedule(self) -> None:
        """With the next turn of the loop: what one read of a socket brings shares a job."""
        if not self._is_scheduled and self._running is None:
            self._is_scheduled = True
            self._loop.call_soon(self._start_scheduled)

    def _start_scheduled(self) -> None:
        self._is_scheduled = False
        if self._running is None:
            self._start()

    def _start(self) -> None:
        if not self._has_work():
            self._became_idle()
            return
        job = self._running = self._next_job()
        self._side.watch(self)
        self._side.start_write(self, job)

    def _has_work(self) -> bool:
        if self._broken is not None:
            return False
        if self._retry is None:
            return bool(self._queue or self._chores or self._syncs_next)
        # The owner's state is that of a snapshot which is not in the log yet: no chore fits it.
        if any(write.reset is not None for write in self._queue):
            return False
        return bool(self._chores or self._syncs_next)

    def _next_job(self) -> _Job:
        writes: list[LogWrite] = []
        if self._retry is None:
            writes, self._queue = self._queue, writes
        job = _Job(writes, self._side.now)
        job.queued_at = self._queued_at
        job.syncs = (
            self.syncs_before_ack or self._syncs_next or any(write.must_sync for write in writes)
        )
        self._syncs_next = False
        job.chores, self._chores = self._chores, []
        if job.chores or self._log.checkpoint_due():
            job.checkpointer = Checkpointer(self._log, *self._owner.checkpoint_state())
        return job

    def _wrote(self, job: _Job) -> None:
        self._heard_of(job)
        if job.writes and not job.is_reported and job.failure is None:
            job.is_reported = True
            if self._side.times is not None:
                self._side.times.note(job.queued_at, job.began_at, job.ended_at)
            self.failure, self._retry_after_s = None, RETRY_AFTER_S_MIN
            self._owner.written(job.writes[-1].number)

    def _heard_of(self, job: _Job) -> None:
        """The disk answers: what is left of the job has all its time again."""
        job.since = self._side.now
        if job.is_late:
            job.is_late = False
            logger.warning("the disk answers again: %s", self._log.directory)
            if isinstance(self.failure, DiskHangs):
                self.failure = None

    def _finished(self, job: _Job) -> None:
        self._wrote(job)
        if job.failure is not None:
            self._try_again_later(job, job.failure)
        self._end_job()
        # What piled up meanwhile need not wait for the next turn of the loop.
        if self._queue or self._chores or self._syncs_next or self._when_idle:
            self._start()

    def _finished_chores(self, job: _Job, outcomes: _Outcomes) -> None:
        for (_, done), (result, error) in zip(job.chores, outcomes, strict=True):
            if done.done():
                continue
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)
        self._finished(job)

    def _try_again_later(self, job: _Job, error: OSError) -> None:
        self.failure = error
        self._queue = [*job.writes[job.done :], *self._queue]
        self._retry = self._loop.call_later(self._retry_after_s, self._try_again)
        self._retry_after_s = min(2 * self._retry_after_s, RETRY_AFTER_S_MAX)
        self._owner.write_failed(error)

    def _try_again(self) -> None:
        self._retry = None
        self._schedule()

    def _end_retries(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
            self._queue = []

    def _broke(self, job: _Job, error: Exception) -> None:
        self._queue = []
        self._broken = self._owner.log_broken(error)
        for _, done in (*job.chores, *self._chores):
            if not done.done():
                done.set_exception(self._broken)
        self._chores = []
        self._end_job()
        self._became_idle()

    def _end_job(self) -> None:
        self._running = None
        self._side.unwatch(self)

    def _became_idle(self) -> None:
        waiting, self._when_idle = self._when_idle, []
        for done in waiting:
            if not done.done():
                done.set_result(None)

    # In the worker thread

    def write(self, job: _Job) -> None:
        """The first part of a job: what comes before the sync."""
        times = self._side.times
        if times is not None:
            job.began_at = times.now()
        try:
            self._carry_out(job)
        except Exception as error:
            job.broken = error

    def end(self, job: _Job, *, is_disk_synced: bool = False) -> None:
        """The second part; the whole disk may have been synced since the first."""
        report = self._side.report
        try:
            if job.broken is not None:
                raise job.broken
            if job.syncs and (job.writes or not job.chores):
                if is_disk_synced:
                    self._log.note_synced()
                else:
                    self._log.sync()
            if self._side.times is not None:
                job.ended_at = self._side.times.now()
            if job.checkpointer is None:
                report(self._finished, job)
                return
            report(self._wrote, job)
            report(self._finished_chores, job, self._run_chores(job, job.checkpointer))
        except Exception as error:
            report(self._broke, job, error)

    def _carry_out(self, job: _Job) -> None:
        """Batches of neighbouring writes go to the log together, unless something is between."""
        try:
            together: list[Batch] = []
            for position, write in enumerate(job.writes):
                if write.reset is not None or write.cut_index is not None:
                    self._append(together)
                    together = []
                    job.done = position
                    self._prepare(write)
                together += write.batches
            self._append(together)
            job.done = len(job.writes)
        except SyncFailed:
            raise
        except OSError as error:
            job.failure = error

    def _append(self, batches: list[Batch]) -> None:
        if batches:
            self._log.append(batches)

    def _prepare(self, write: LogWrite) -> None:
        if write.reset is not None:
            base, state = write.reset
            self._owner.before_reset()
            self._log.reset(base, state=state)
        if write.cut_index is not None and write.cut_index <= self._log.last_index:
            self._log.truncate_to_index(LogIndex(write.cut_index))

    def _run_chores(self, job: _Job, checkpointer: Checkpointer) -> _Outcomes:
        if job.failure is not None and any(write.reset for write in job.writes[job.done :]):
            # The state that the job's checkpoint would hold belongs to a log that is not there.
            return [(None, job.failure) for _ in job.chores]
        if self._log.checkpoint_due():
            self._checkpoint(checkpointer)
        outcomes: _Outcomes = []
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
