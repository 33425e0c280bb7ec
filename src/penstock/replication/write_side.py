"""The write side of a node: what all its logs hand to the disk, and how they hear of it.

Jobs run in worker threads. What they report comes back to the event loop in one call for all that
are done by then, so that a node with many busy partitions is woken once and not once for each. A
journal of the whole node would stand here: it would take the jobs of a turn and sync once.

A disk that hangs without an error has failed all the same. A job counts from when it was handed
over, so one that waits for a thread among others that hang is as late as they are.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final, Protocol

from penstock.replication.exchange import TICK_SECONDS

DISK_TIMEOUT_S: Final = 3.0


class DiskHangs(OSError):
    """The disk has not answered in time; it may do so yet."""


class HandsJobs(Protocol):
    def check_deadline(self) -> object: ...


class WriteSide:
    """Shared by all that hands jobs to the disk of one node.

    Time is counted in ticks: a process that was paused must not conclude from the time it missed
    that its disk was silent.
    """

    __slots__ = (
        "_is_due",
        "_loop",
        "_reports",
        "_start",
        "_ticks_max",
        "_timeout_s",
        "_waiting",
        "now",
    )

    def __init__(self, executor: Executor, timeout_s: float = DISK_TIMEOUT_S) -> None:
        self._loop = asyncio.get_running_loop()
        # Where the threads can do without, no future is made that nobody would look at.
        self._start: Callable[..., object] = getattr(executor, "start", executor.submit)
        self._reports: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        # Whether the loop has been asked to take the reports and has not begun.
        self._is_due = False
        self.now = 0
        self._timeout_s = timeout_s
        self._ticks_max = math.ceil(timeout_s / TICK_SECONDS)
        # Those with a job under way, in the order of their jobs: of thousands of logs, hardly any.
        self._waiting: dict[HandsJobs, None] = {}

    def start(self, work: Callable[..., None], *arguments: Any) -> None:
        """Runs it in a worker thread; it must not raise, and reports how it ended."""
        self._start(work, *arguments)

    def report(self, callback: Callable[..., None], *arguments: Any) -> None:
        """From a worker thread: calls back on the event loop, in the order of the reports."""
        self._reports.append((callback, arguments))
        # Two threads may both find that it is not due: then the second call finds nothing to do.
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon_threadsafe(self._take_reports)

    def _take_reports(self) -> None:
        # First of all: what is reported from now on may come too late for this call.
        self._is_due = False
        reports = self._reports
        try:
            while reports:
                callback, arguments = reports.popleft()
                callback(*arguments)
        finally:
            # Left over by one that raised: a bug in one log must not silence the others.
            if reports:
                self._loop.call_soon(self._take_reports)

    def watch(self, handed: HandsJobs) -> None:
        """A job of it is under way, so it is asked with every tick whether that is late."""
        self._waiting[handed] = None

    def unwatch(self, handed: HandsJobs) -> None:
        self._waiting.pop(handed, None)

    def tick(self) -> None:
        self.now += 1
        for handed in list(self._waiting):
            handed.check_deadline()

    def is_over(self, since: int) -> bool:
        """For what was handed over when `now` was `since`; a shorter stall is never over."""
        return self.now - since > self._ticks_max

    def error(self) -> DiskHangs:
        return DiskHangs(f"the disk has not answered for {self._timeout_s:g} s")
