"""The upkeep of one log: what needs the log to itself, what runs beside appends, and the end.

Chores run between two writes (`Writer.exclusively`); compaction and scrubbing take long and run
beside them. What goes wrong becomes a refusal here; damage, and a sync that failed, also stop the
replica.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from penstock.model.errors import Reason, Refused, StorageDamaged
from penstock.model.ids import Offset
from penstock.replication.writer import Checkpointer, Writer
from penstock.storage.file_system import SyncFailed
from penstock.storage.log import Log

logger = logging.getLogger(__name__)

T = TypeVar("T")


class LogKeeper:
    """Keeps one log in order until it is closed."""

    __slots__ = (
        "_background",
        "_executor",
        "_is_ending",
        "_log",
        "_on_damage",
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
        on_damage: Callable[[Exception], None],
    ) -> None:
        self._log = log
        self._writer = writer
        self._executor = executor
        self._background = background
        self._on_damage = on_damage
        self._is_ending = False
        self._tasks: set[asyncio.Task[object]] = set()

    async def delete_before(self, offset: Offset) -> None:
        """The new start is durable before a file goes, so that a crash brings nothing back."""
        if offset > self._log.start_offset:
            await self._exclusively(lambda _: self._log.delete_before(offset))

    async def tidy(self, now_ms: int, end: Offset) -> None:
        """Closes a segment whose time has come, and lets go of those too old or too much."""
        log = self._log
        if not log.upkeep_due(now_ms, end):
            return

        def chore(checkpoint: Checkpointer) -> None:
            log.roll_if_due(now_ms)
            log.apply_retention(now_ms, end)
            if log.checkpoint_due():
                checkpoint()

        await self._exclusively(chore)

    def is_compaction_due(self, now_ms: int, end: Offset) -> bool:
        return self._log.compaction_due(now_ms, end)

    async def compact(self, now_ms: int, end: Offset, producer_expiry_ms: int) -> None:
        """In passes of bounded memory, until all is clean or a pass gets no further."""

        def work() -> None:
            cleaned = -1
            while not self._is_ending:
                report = self._log.compact(
                    now_ms,
                    end,
                    should_stop=lambda: self._is_ending,
                    producer_expiry_ms=producer_expiry_ms,
                )
                if report.is_done or report.cleaned_offset <= cleaned:
                    return
                cleaned = report.cleaned_offset

        await self._to_the_end(self._background, work)

    async def scrub(self, should_stop: Callable[[], bool]) -> None:
        """Reads back what must be whole; raises Refused where it is not.

        In one of the threads for writes, of which it takes no more than one: a large log would hold
        up the retention and compaction of all others if it were read in the background's.
        """
        await self._to_the_end(
            self._executor, lambda: self._log.scrub(lambda: should_stop() or self._is_ending)
        )

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
            if with_checkpoint and self._log.state_offset != self._log.end_offset:
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

    async def _to_the_end(self, executor: Executor, work: Callable[[], object]) -> None:
        """Shielded, and waited for when closing: the thread goes on even if its caller does not."""
        running = asyncio.get_running_loop().create_task(self._in_thread(executor, work))
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)
        await asyncio.shield(running)

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
