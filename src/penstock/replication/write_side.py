"""The write side of a node: what all its logs hand to the disk, and how they hear of it.

Jobs run in worker threads. What they report comes back to the event loop in one call for all that
are done by then, so that a node with many busy partitions is woken once and not once for each.

Where many logs write in answer to the same reports, as thousands do that were elected together,
they share jobs, and each job syncs the whole disk instead of its logs one by one. A journal of the
whole node would stand here: it would take the jobs of a turn and sync once.

A disk that hangs without an error has failed all the same. A job counts from when it was handed
over, so one that waits for a thread among others that hang is as late as they are.
"""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from threading import Lock
from typing import Any, Final, Protocol

from penstock.observe.node_counters import WriteTimes
from penstock.replication.commit import report_bug
from penstock.replication.exchange import TICK_SECONDS
from penstock.storage.file_system import WholeDisk

DISK_TIMEOUT_S: Final = 3.0
# From this many logs on that write in the same turn, they share jobs, of at most so many logs each.
# A sync of the whole disk waits for what other programs wrote to it, so a few logs sync themselves.
TOGETHER_MIN = 64
TOGETHER_MAX = 512

# The disk that so many files are on, or None where it is not worth it or not possible to sync it.
FindDisk = Callable[[int], WholeDisk | None]


class DiskHangs(OSError):
    """The disk has not answered in time; it may do so yet."""


class HandsJobs(Protocol):
    @property
    def since(self) -> int:
        """When its job was handed over or last heard of, in ticks."""
        ...

    def check_deadline(self) -> object: ...


class WritesLog(Protocol):
    """Its jobs have two parts, in worker threads; neither raises, and the second one reports."""

    def write(self, job: Any, /) -> None: ...

    def end(self, job: Any, /, *, is_disk_synced: bool = False) -> None:
        """Syncs, unless the whole disk was synced since `write`."""
        ...


_Started = tuple[WritesLog, Any]


class WriteSide:
    """Shared by all that hands jobs to the disk of one node.

    Time is counted in ticks: a process that was paused must not conclude from the time it missed
    that its disk was silent.
    """

    __slots__ = (
        "_afterwards",
        "_find_disk",
        "_is_due",
        "_loop",
        "_reports",
        "_start",
        "_started",
        "_ticks_max",
        "_timeout_s",
        "_waiting",
        "_writing",
        "now",
        "times",
    )

    def __init__(
        self,
        executor: Executor,
        timeout_s: float = DISK_TIMEOUT_S,
        find_disk: FindDisk = lambda files: None,
        times: WriteTimes | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        # Where the threads can do without, no future is made that nobody would look at.
        self._start: Callable[..., object] = getattr(executor, "start", executor.submit)
        self._reports: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        # Whether the loop has been asked to take the reports and has not begun.
        self._is_due = False
        self._find_disk = find_disk
        # While reports are taken: the writes that were started since, which may share jobs, and
        # what is to be done at the end.
        self._started: list[_Started] | None = None
        self._afterwards: list[Callable[[], None]] | None = None
        # Threads that write at the same time spend much of it on handing the interpreter to each
        # other. Syncs still wait together.
        self._writing = Lock()
        # Where it is noted how long writes take; None where that is not.
        self.times = times
        self.now = 0
        self._timeout_s = timeout_s
        self._ticks_max = math.ceil(timeout_s / TICK_SECONDS)
        # Those with a job under way, in the order of their jobs: of thousands of logs, hardly any.
        self._waiting: dict[HandsJobs, None] = {}

    def start(self, work: Callable[..., None], *arguments: Any) -> None:
        """Runs it in a worker thread; it must not raise, and reports how it ended."""
        self._start(work, *arguments)

    def start_write(self, log: WritesLog, job: Any) -> None:
        """Runs both parts of a job of this log in a worker thread."""
        if self._started is None:
            self._start(_run, log, job)
        else:
            self._started.append((log, job))

    def report(self, callback: Callable[..., None], *arguments: Any) -> None:
        """From a worker thread: calls back on the event loop, in the order of the reports."""
        self._reports.append((callback, arguments))
        # Two threads may both find that it is not due: then the second call finds nothing to do.
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon_threadsafe(self._take_reports)

    def soon(self, callback: Callable[[], None]) -> None:
        """Calls back once all reports that are here are taken, or with the next turn of the loop if
        none are being taken. So the answers to all of them leave together, and before the loop
        reads and serves what came meanwhile."""
        if self._afterwards is None:
            self._loop.call_soon(callback)
        else:
            self._afterwards.append(callback)

    def _take_reports(self) -> None:
        # First of all: what is reported from now on may come too late for this call.
        self._is_due = False
        reports = self._reports
        started = self._started = []
        afterwards = self._afterwards = []
        try:
            while reports:
                callback, arguments = reports.popleft()
                callback(*arguments)
        finally:
            self._started = self._afterwards = None
            self._hand_over(started)
            # Left over by one that raised: a bug in one log must not silence the others.
            if reports:
                self._loop.call_soon(self._take_reports)
            for callback in afterwards:
                try:
                    callback()
                except Exception as bug:
                    report_bug("what follows a report of the disk failed", bug)

    def _hand_over(self, started: Sequence[_Started]) -> None:
        if len(started) < TOGETHER_MIN:
            for log, job in started:
                self._start(_run, log, job)
            return
        for first in range(0, len(started), TOGETHER_MAX):
            self._start(self._run_together, started[first : first + TOGETHER_MAX])

    def _run_together(self, started: Sequence[_Started]) -> None:
        """In a worker thread."""
        disk = None
        with contextlib.suppress(OSError):
            # Before anything is written: it tells of failures only since then.
            disk = self._find_disk(len(started))
        with self._writing:
            for log, job in started:
                log.write(job)
        is_disk_synced = disk is not None and _is_synced(disk)
        for log, job in started:
            log.end(job, is_disk_synced=is_disk_synced)

    def watch(self, handed: HandsJobs) -> None:
        """A job of it is under way, so it is asked with every tick whether that is late."""
        self._waiting[handed] = None

    def unwatch(self, handed: HandsJobs) -> None:
        self._waiting.pop(handed, None)

    def tick(self) -> None:
        self.now += 1
        for handed in list(self._waiting):
            handed.check_deadline()

    def waiting_s(self) -> float:
        """How long the oldest job that is under way has been."""
        since = (handed.since for handed in self._waiting)
        return (self.now - min(since, default=self.now)) * TICK_SECONDS

    def is_over(self, since: int) -> bool:
        """For what was handed over when `now` was `since`; a shorter stall is never over."""
        return self.now - since > self._ticks_max

    def error(self) -> DiskHangs:
        return DiskHangs(f"the disk has not answered for {self._timeout_s:g} s")


def _is_synced(disk: WholeDisk) -> bool:
    """If not, each log syncs itself, and hears of what is lost of its own files."""
    try:
        disk.sync()
    except OSError:
        return False
    finally:
        disk.close()
    return True


def _run(log: WritesLog, job: Any) -> None:
    """In a worker thread."""
    log.write(job)
    log.end(job)
