"""Worker threads of a simulated process: jobs take time, and one runs between two callbacks."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from tests.sim.machine.loop import SimulatedLoop
from tests.sim.machine.world import World
from tests.unit.storage.fault_file_system import PowerLoss

T = TypeVar("T")


class SimulatedExecutor(Executor):
    """`duration` gives how long a job keeps its thread; its effects appear at some moment of it."""

    def __init__(
        self, world: World, loop: SimulatedLoop, threads: int, duration: Callable[[], float]
    ) -> None:
        self._world = world
        self._loop = loop
        self._idle_threads = threads
        self._duration = duration
        self._queue: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, function: Callable[..., T], /, *args: Any, **named: Any) -> Future[T]:
        future: Future[T] = Future()
        self._queue.append((future, lambda: function(*args, **named)))
        self._start_some()
        return future

    def _start_some(self) -> None:
        while self._queue and self._idle_threads and not self._loop.is_dead:
            self._idle_threads -= 1
            future, job = self._queue.popleft()
            duration = self._duration()
            moment = self._world.random.random() * duration
            self._world.after(moment, lambda f=future, j=job: self._run(f, j))  # type: ignore[misc]
            self._world.after(duration, self._free_thread)

    def _free_thread(self) -> None:
        self._idle_threads += 1
        self._start_some()

    def _run(self, future: Future[Any], job: Callable[[], Any]) -> None:
        if self._loop.is_dead:
            return
        if self._loop.is_paused:
            self._world.at(self._loop.stands_still_until(), lambda: self._run(future, job))
            return
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = job()
        except PowerLoss:
            return
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """What is queued runs at once: whoever waits for it holds the loop meanwhile."""
        while self._queue:
            future, job = self._queue.popleft()
            if cancel_futures:
                future.cancel()
            else:
                self._run(future, job)
