"""Worker threads to which a job is handed over with little ado.

A broker hands thousands of small writes a second to its disk threads. The standard library's pool
makes a future with its lock for each and looks for an idle thread, which costs the event loop more
than the write's own bookkeeping. Its queue wakes a second thread for each job, which finds nothing
and sleeps again. Here each idle thread waits for a lock of its own. The one that became idle last
is woken: its caches are the warmest.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple[Callable[..., object], tuple[Any, ...]]


class Threads(Executor):
    def __init__(self, name: str, count: int) -> None:
        # None ends a thread.
        self._jobs: deque[_Job | None] = deque()
        # The bells of idle threads: a thread that is woken leaves this list first.
        self._idle: list[Lock] = []
        self._threads = [
            # None of them keeps a process alive whose disk hangs.
            Thread(target=self._work, name=f"{name}_{number}", daemon=True)
            for number in range(count)
        ]
        # Whether a thread was woken that has not looked for a job yet; it will wake the next one if
        # there is more. Threads that all wake at once fight for the interpreter.
        self._is_waking = False
        self._is_shut_down = False
        for thread in self._threads:
            thread.start()

    def start(self, job: Callable[..., object], /, *arguments: Any) -> None:
        """For a job that does not raise and reports by itself how it ended."""
        if self._is_shut_down:
            raise RuntimeError("these threads have ended")
        self._jobs.append((job, arguments))
        if not self._is_waking:
            self._wake_one()

    def submit(self, job: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        future: Future[T] = Future()
        self.start(_run, future, job, arguments, named)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """After the jobs that were handed over before."""
        assert not cancel_futures, "every job here is to be carried out"
        if not self._is_shut_down:
            self._is_shut_down = True
            self._jobs.extend([None] * len(self._threads))
            if not self._is_waking:
                self._wake_one()
        if wait:
            for thread in self._threads:
                thread.join()

    def _wake_one(self) -> None:
        try:
            bell = self._idle.pop()
        except IndexError:
            # All are busy, and each looks for a job before it rests.
            return
        self._is_waking = True
        bell.release()

    def _get(self, bell: Lock) -> _Job | None:
        """The next job. `bell` is this thread's own, and held by it."""
        while True:
            try:
                job = self._jobs.popleft()
            except IndexError:
                self._idle.append(bell)
            else:
                if self._jobs and not self._is_waking:
                    self._wake_one()
                return job
            if self._jobs and self._is_still_idle(bell):
                # It came before anybody could know that this thread is idle.
                continue
            bell.acquire()
            self._is_waking = False

    def _is_still_idle(self, bell: Lock) -> bool:
        """Takes this thread off the list, unless it is being woken."""
        try:
            self._idle.remove(bell)
        except ValueError:
            return False
        return True

    def _work(self) -> None:
        bell = Lock()
        bell.acquire()
        while (handed := self._get(bell)) is not None:
            job, arguments = handed
            job(*arguments)
            # Or the last job's arguments would live until the next one comes.
            del handed, job, arguments


def _run(
    future: Future[T], job: Callable[..., T], arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = job(*arguments, **named)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
