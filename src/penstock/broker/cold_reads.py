"""Reads that may wait for the disk, in worker threads, a few at a time.

Writes use the same threads: readers of old data must not take all of them, or a group of consumers
that catches up would hold back every producer.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor

READS_MAX = 2


class ColdReads:
    """Runs work in order of arrival, never more than `READS_MAX` at once."""

    def __init__(self, executor: Executor) -> None:
        # How many there were so far.
        self.count = 0
        self._executor = executor
        self._waiting: deque[tuple[Callable[[], None], Callable[[], None]]] = deque()
        self._running = 0

    def run(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        """`work` runs in a thread and must not raise; `then` runs on the loop afterwards."""
        self.count += 1
        self._waiting.append((work, then))
        self._start()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def done(self, work: Callable[[], None], then: Callable[[], None] = lambda: None) -> None:
        """Runs work that may raise, and waits for it. `then` runs in any case, also if nobody
        waits any more."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failures: list[Exception] = []

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                failures.append(error)

        def ended() -> None:
            then()
            if not done.done():
                done.set_result(None)

        self.run(guarded, ended)
        await done
        if failures:
            raise failures[0]

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and self._running < READS_MAX:
            work, then = self._waiting.popleft()
            self._running += 1
            running = loop.run_in_executor(self._executor, work)
            running.add_done_callback(lambda done, then=then: self._ended(done, then))  # type: ignore[misc]

    def _ended(self, done: asyncio.Future[None], then: Callable[[], None]) -> None:
        self._running -= 1
        self._start()
        then()
        done.result()
