"""The upkeep of one log: what needs the log to itself, what runs beside appends, and the end.

Chores run between two writes (`Writer.exclusively`); compaction and scrubbing take long and run
beside them. What goes wrong becomes a refusal here; damage, and a sync that failed, also stop the
replica.
"""

import asyncio
import contextlib
import errno
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from penstock.model.errors import Reason, Refused, StorageDamaged
from penstock.model.ids import Offset
from penstock.replication.writer import Checkpointer, Writer
from penstock.storage.file_system import FileSystem, SyncFailed
from penstock.storage.log import Doubt, Log, Scrubbed

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Beside a log whose state machine is hosted: what the state was at an offset.
STATE_SNAPSHOT = "state.snapshot"
# A file beside a log that was made for a replica that came back and does not have everything again.
# The terms and votes say so too, but may be lost.
RETURNING = "returning"


class LogKeeper:
    """Keeps one log in order until it is closed."""

    __slots__ = (
        "_background",
        "_executor",
        "_file_system",
        "_is_ending",
        "_log",
        "_on_damage",
        "_on_start",
        "_tasks",
        "_writer",
    )

    def __init__(
        self,
        log: Log,
        writer: Writer,
        *,
        executor: Executor,
        background: Executor,
        file_system: FileSystem,
        on_damage: Callable[[Exception], None],
        on_start: Callable[[], None],
    ) -> None:
        self._log = log
        self._writer = writer
        self._executor = executor
        self._background = background
        self._file_system = file_system
        self._on_damage = on_damage
        # The log begins further on.
        self._on_start = on_start
        self._is_ending = False
        self._tasks: set[asyncio.Task[Any]] = set()

    async def delete_before(self, offset: Offset) -> None:
        """The new start is durable before a file goes, so that a crash brings nothing back."""

        def chore(checkpoint: Checkpointer) -> None:
            if offset > self._log.start_offset:
                # What producers did in batches that go is known from the checkpoint alone then.
                # On a full disk it comes with the deletion, which makes room for it.
                _try_on_full_disk(checkpoint)
                self._log.delete_before(offset)

        if offset > self._log.start_offset:
            await self._exclusively(chore)
            self._on_start()

    def delete_soon(self, offset: Offset) -> None:
        """As `delete_before`, without anyone waiting; `tidy` tries again what fails."""
        self._track(self._grudgingly(self.delete_before(offset)))

    def set_doubt_soon(self, doubt: Doubt) -> None:
        """Notes what the log may lack, or that it lacks nothing any more."""
        self._track(self._grudgingly(self._exclusively(lambda _: self._log.set_doubt(doubt))))

    def set_returned_soon(self) -> None:
        """Notes that a replica that came back has everything again."""

        def chore(_: Checkpointer) -> None:
            mark = self._log.directory / RETURNING
            if self._file_system.exists(mark):
                self._file_system.remove(mark)
                self._file_system.sync_directory(self._log.directory)

        self._track(self._grudgingly(self._exclusively(chore)))

    async def _grudgingly(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Refused as refused:
            logger.warning("%s: %s", self._log.directory, refused)

    async def tidy(self, now_ms: int, start: Offset) -> None:
        """Closes a segment whose time has come, and lets go of what is before `start`."""
        log = self._log
        await self.delete_before(start)
        # Retention is decided by the group's leader, so only rolling is asked for here.
        if not log.upkeep_due(now_ms, log.start_offset):
            return

        def chore(checkpoint: Checkpointer) -> None:
            log.roll_if_due(now_ms)
            if log.checkpoint_due():
                checkpoint()

        await self._exclusively(chore)

    def remove_state_snapshot(self) -> None:
        """In a worker thread: the snapshot of a state machine is not of this log any more."""
        with contextlib.suppress(FileNotFoundError):
            self._file_system.remove(self._log.directory / STATE_SNAPSHOT)

    def is_compaction_due(self, now_ms: int, end: Offset) -> bool:
        return self._log.compaction_due(now_ms, end)

    def is_roll_due(self, now_ms: int) -> bool:
        return self._log.is_roll_due(now_ms)

    async def compact(self, now_ms: int, end: Offset, producer_expiry_ms: int) -> bool:
        """In passes of bounded memory, until all is clean (True) or a pass gets no further."""

        def work() -> bool:
            cleaned = -1
            while not self._is_ending:
                report = self._log.compact(
                    now_ms,
                    end,
                    should_stop=lambda: self._is_ending,
                    producer_expiry_ms=producer_expiry_ms,
                )
                if report.is_done or report.cleaned_offset <= cleaned:
                    return report.is_done
                cleaned = report.cleaned_offset
            return False

        return await self._to_the_end(self._background, work)

    async def scrub(
        self, should_stop: Callable[[], bool], start: Offset, bytes_max: int
    ) -> Scrubbed:
        """Reads a slice of the log back, as `Log.scrub` does; raises Refused where it is bad.

        In one of the threads for writes, of which it takes no more than one: in the background's, a
        slice would wait for the compaction of a large log.
        """

        def work() -> Scrubbed:
            return self._log.scrub(lambda: should_stop() or self._is_ending, start, bytes_max)

        return await self._to_the_end(self._executor, work)

    async def look_up(self, work: Callable[[], T]) -> T:
        """A short read in a worker thread."""
        return await self._in_thread(self._executor, work)

    def end(self) -> None:
        """Lets long work know that it should come to its end."""
        self._is_ending = True

    async def close(self, *, with_checkpoint: bool) -> None:
        """Waits for all work on the log, then lets go of its files."""
        self.end()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._writer.idle()
        try:
            if with_checkpoint and self._log.saved_offset != self._log.end_offset:
                await self._exclusively(lambda checkpoint: checkpoint())
            await self._in_thread(self._executor, self._log.close)
        except Refused as refused:
            # The data itself is safe; only the next start has more to read.
            logger.warning("%s was not closed cleanly: %s", self._log.directory, refused)

    async def _exclusively(self, chore: Callable[[Checkpointer], object]) -> None:
        try:
            await self._writer.exclusively(chore)
        except OSError as error:
            detail = f"{self._log.directory} can't be written: {error}"
            raise Refused(Reason.STORAGE_ERROR, detail) from error

    async def _to_the_end(self, executor: Executor, work: Callable[[], T]) -> T:
        """Shielded, and waited for when closing: the thread goes on even if its caller does not."""
        return await asyncio.shield(self._track(self._in_thread(executor, work)))

    def _track(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        running = asyncio.get_running_loop().create_task(work)
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)
        return running

    async def _in_thread(self, executor: Executor, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, work)
        except (OSError, StorageDamaged) as error:
            raise self.unreadable(error) from error

    def unreadable(self, error: OSError | StorageDamaged) -> Refused:
        """A read that failed may succeed later; damage and a failed sync are for good."""
        if isinstance(error, (StorageDamaged, SyncFailed)):
            self._on_damage(error)
        return Refused(Reason.STORAGE_ERROR, f"{self._log.directory} can't be read: {error}")


def _try_on_full_disk(checkpoint: Checkpointer) -> None:
    try:
        checkpoint()
    except SyncFailed:
        raise
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
