"""Worker threads to which a job is handed over with little ado.

A broker hands thousands of small writes a second to its disk threads. The standard library's pool
makes a future with its lock for each and looks for an idle thread, which costs the event loop more
than the write's own bookkeeping.
"""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple[Callable[..., object], tuple[Any, ...]]


class Threads(Executor):
    def __init__(self, name: str, count: int) -> None:
        # None ends a thread.
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = [
            # None of them keeps a process alive whose disk hangs.
            Thread(target=self._work, name=f"{name}_{number}", daemon=True)
            for number in range(count)
        ]
        self._is_shut_down = False
        for thread in self._threads:
            thread.start()

    def start(self, job: Callable[..., object], /, *arguments: Any) -> None:
        """For a job that does not raise and reports by itself how it ended."""
        if self._is_shut_down:
            raise RuntimeError("these threads have ended")
        self._jobs.put((job, arguments))

    def submit(self, job: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        future: Future[T] = Future()
        self.start(_run, future, job, arguments, named)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """After the jobs that were handed over before."""
        assert not cancel_futures, "every job here is to be carried out"
        if not self._is_shut_down:
            self._is_shut_down = True
            for _ in self._threads:
                self._jobs.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _work(self) -> None:
        while (handed := self._jobs.get()) is not None:
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
