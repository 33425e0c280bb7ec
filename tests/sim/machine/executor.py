"""Worker threads of a simulated process: jobs take time, and one runs between two callbacks."""

import asyncio
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from tests.sim.machine.loop import LoopExecutor, SimulatedLoop
from tests.sim.machine.world import World
from tests.unit.storage.fault_file_system import PowerLoss

T = TypeVar("T")


Job = Callable[[], Any]


class _Unwatched(Future[T]):
    """Of a job whose end nobody waits for: anyone who did would hold the only thread there is."""

    def __init__(self, world: World) -> None:
        """Without the lock that waiting needs, which takes longer to make than all the rest."""
        self._world = world

    def set_running_or_notify_cancel(self) -> bool:
        return True

    def set_result(self, result: T) -> None:
        """Nobody asks for it."""

    def set_exception(self, exception: BaseException | None) -> None:
        """Nobody would ever hear of it."""
        lines = traceback.format_exception(exception)
        self._world.failures.append(f"a job failed\n{''.join(lines)}")

    def cancel(self) -> bool:
        return False


class Answer:
    """A future of a loop, told from a thread: it hears of the end when its loop gets to it."""

    def __init__(self, loop: SimulatedLoop, future: asyncio.Future[Any]) -> None:
        self._loop = loop
        self._future = future

    def set_running_or_notify_cancel(self) -> bool:
        return not self._future.cancelled()

    def set_result(self, result: Any) -> None:
        self._loop.call_soon_threadsafe(self._settle, self._future.set_result, result)

    def set_exception(self, error: BaseException) -> None:
        self._loop.call_soon_threadsafe(self._settle, self._future.set_exception, error)

    def cancel(self) -> None:
        self._loop.call_soon_threadsafe(self._future.cancel)

    def _settle(self, settle: Callable[[Any], None], outcome: Any) -> None:
        if not self._future.cancelled():
            settle(outcome)


class SimulatedExecutor(LoopExecutor):
    """`duration` gives how long a job keeps its thread; its effects appear at the end of it.

    Before `hangs_until` no job ends, however long ago it began. Nor has it effects before, unless
    `answers_late`: then the disk does what it is asked for in time, and only says so late.
    """

    def __init__(
        self,
        world: World,
        loop: SimulatedLoop,
        threads: int,
        duration: Callable[[], float],
        hangs_until: Callable[[], float],
        answers_late: Callable[[], bool],
    ) -> None:
        self._world = world
        self._loop = loop
        self._idle_threads = threads
        self._duration = duration
        self._hangs_until = hangs_until
        self._answers_late = answers_late
        self._queue: deque[tuple[Future[Any] | Answer, Job]] = deque()

    def submit(self, function: Callable[..., T], /, *args: Any, **named: Any) -> Future[T]:
        future: Future[T] = _Unwatched(self._world)
        self._add(future, partial(function, *args, **named))
        return future

    def answer(self, future: asyncio.Future[Any], job: Job) -> None:
        self._add(Answer(self._loop, future), job)

    def _add(self, future: Future[Any] | Answer, job: Job) -> None:
        self._queue.append((future, job))
        self._start_some()

    def _start_some(self) -> None:
        world, queue = self._world, self._queue
        while queue and self._idle_threads and not self._loop.is_dead:
            self._idle_threads -= 1
            world.after(self._duration(), self._end, *queue.popleft())

    def _end(self, future: Future[Any] | Answer, job: Job) -> None:
        if self._loop.is_dead:
            return
        hangs_until = self._hangs_until()
        stands_still_until = max(self._loop.stands_still_until(), hangs_until)
        if self._world.now < stands_still_until:
            if stands_still_until == hangs_until and self._answers_late():
                self._world.at(hangs_until, self._answer_late, self._run_silently(future, job))
            else:
                self._world.at(stands_still_until, self._end, future, job)
            return
        self._loop.act_on(self._run, future, job)
        self._free_thread()

    def _run_silently(self, future: Future[Any] | Answer, job: Job) -> list[Job]:
        """Gives what the job wanted its loop to hear, which hears nothing yet."""
        loop, told = self._loop, list[Job]()

        def tell(callback: Callable[..., object], *args: Any) -> None:
            told.append(partial(callback, *args))

        loop.call_soon_threadsafe = tell  # type: ignore[method-assign,assignment]
        try:
            self._run(future, job)
        finally:
            del loop.call_soon_threadsafe
        return told

    def _answer_late(self, told: list[Job]) -> None:
        for callback in told:
            self._loop.deliver(callback)
        self._free_thread()

    def _free_thread(self) -> None:
        self._idle_threads += 1
        if self._queue:
            self._start_some()

    def _run(self, future: Future[Any] | Answer, job: Job) -> None:
        if not future.set_running_or_notify_cancel():
            return
        self._world.leave_loop()
        try:
            result = job()
        except PowerLoss:
            return
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """What is queued runs at once: anyone who waits for it holds the loop meanwhile."""
        while self._queue:
            future, job = self._queue.popleft()
            if cancel_futures:
                future.cancel()
            else:
                self._run(future, job)
