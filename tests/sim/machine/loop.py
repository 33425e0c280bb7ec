"""An asyncio event loop in simulated time: one per process, all driven by one world.

Callbacks run in the order that asyncio promises; which process runs when is left to the seed.
"""

import asyncio
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context
from functools import partial
from math import inf, nextafter
from typing import Any

from tests.sim.machine.world import World

# What a process needs at most to get to work, in seconds.
WAKE_S_MAX = 0.0002
HANDLES_PER_TURN_MAX = 1000


def _nothing() -> None:
    """What is left of a callback that was cancelled."""


class _Handle(asyncio.Handle):
    """As asyncio's, without a context: nothing that is simulated has variables of one."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._callback = callback
        self._args = args
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = _nothing, ()


class _TimerHandle(asyncio.TimerHandle):
    """One that is cancelled is passed over when it is due."""

    __slots__ = ()

    def __init__(self, when: float, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = _nothing, ()


class LoopExecutor(Executor, ABC):
    """One that can tell a future of the loop itself, without one for threads in between."""

    @abstractmethod
    def answer(self, future: asyncio.Future[Any], job: Callable[[], Any]) -> None: ...


class SimulatedLoop(asyncio.AbstractEventLoop):
    def __init__(self, world: World, *, rate: float = 1.0) -> None:
        self._world = world
        # How fast the clock of this machine runs.
        self._rate = rate
        self._ready: deque[asyncio.Handle] = deque()
        self._has_turn = False
        self._paused_until = 0.0
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.is_dead = False
        self.default_executor: LoopExecutor | None = None

    # Time

    def time(self) -> float:
        return self._world.now * self._rate

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args)
        if not self.is_dead:
            self._ready.append(handle)
            if not self._has_turn:
                self._schedule_turn()
        return handle

    # Jobs run between callbacks here, never beside them.
    call_soon_threadsafe = call_soon

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = _TimerHandle(when, callback, args)
        moment = when / self._rate
        # Never early, not even by a rounding error: who looks at the clock would wait again, for a
        # time in which nothing happens.
        while moment * self._rate < when:
            moment = nextafter(moment, inf)
        self._world.at(moment, self._due, handle)
        return handle

    def _due(self, handle: asyncio.TimerHandle) -> None:
        if handle._cancelled or self.is_dead:
            return
        if self._begins_turn():
            self._work(handle._callback, handle._args)
        else:
            self._ready.append(handle)

    # Turns. What wakes a process comes at a moment that is random already, so it gets to work then.
    # Only what is asked for from elsewhere waits a moment.

    def deliver(self, callback: Callable[..., object], *args: Any) -> None:
        """Something arrived; must not be called by a process."""
        if self.is_dead:
            return
        if self._begins_turn():
            self._work(callback, args)
        else:
            self._ready.append(_Handle(callback, args))

    def _begins_turn(self) -> bool:
        """Whether it gets to work now. Else a turn will come."""
        if self._has_turn:
            return False
        self._has_turn = True
        if self._world.now < self._paused_until:
            self._world.at(self._paused_until, self._turn)
            return False
        return True

    def act_on(self, action: Callable[..., object], *args: Any) -> None:
        """Does something outside of the loop; the loop gets to what comes of it at once."""
        if self._has_turn:
            action(*args)
            return
        self._has_turn = True
        try:
            action(*args)
        finally:
            self._has_turn = False
        if self._ready:
            self._has_turn = True
            self._turn()

    def _schedule_turn(self) -> None:
        self._has_turn = True
        world = self._world
        world.at(world.now + world.random.random() * WAKE_S_MAX, self._turn)

    def _turn(self) -> None:
        if self._world.now < self._paused_until:
            self._world.at(self._paused_until, self._turn)
        elif self._ready:
            handle = self._ready.popleft()
            self._work(handle._callback, handle._args)
        else:
            # It is dead.
            self._has_turn = False

    def _work(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Does this, and then what is ready: also what becomes so meanwhile, since nobody else
        would notice the difference."""
        if self._world.loop is not self:
            self._world.enter_loop(self)
        ready, left = self._ready, HANDLES_PER_TURN_MAX
        try:
            while True:
                try:
                    callback(*args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._report(callback, error)
                left -= 1
                # Nothing is ready once the process is dead.
                if not ready or not left:
                    break
                handle = ready.popleft()
                callback, args = handle._callback, handle._args
        finally:
            self._has_turn = False
        if ready:
            self._schedule_turn()

    def _report(self, callback: Callable[..., object], error: BaseException) -> None:
        message = f"Exception in callback {callback}"
        self.call_exception_handler({"message": message, "exception": error})

    def pause(self, duration: float) -> None:
        """The process stands still; what is due meanwhile waits in line."""
        self._paused_until = max(self._paused_until, self._world.now + duration)

    @property
    def is_paused(self) -> bool:
        return self._world.now < self._paused_until

    def stands_still_until(self) -> float:
        return self._paused_until

    def die(self) -> None:
        """At once: nothing that waits runs any more."""
        self.is_dead = True
        self._ready.clear()

    def bury(self) -> None:
        """Frees what the dead process held; must not be called from inside of it."""
        self._world.leave_loop()
        for task in self._tasks:
            # Asyncio would complain that nobody waits for it.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            try:
                task.get_coro().close()  # type: ignore[union-attr]
            except BaseException:
                # Its clean-up needs a disk or a loop that are gone, as after a real death.
                continue
        self._tasks.clear()

    # What asyncio needs to build on

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coroutine: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=self, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, function: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        chosen = executor or self.default_executor
        assert isinstance(chosen, LoopExecutor)
        future = self.create_future()
        chosen.answer(future, partial(function, *args))
        return future

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_dead

    def is_closed(self) -> bool:
        return self.is_dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An error that nobody handled is a bug of the process, unless the process is gone."""
        if self.is_dead:
            return
        error = context.get("exception")
        lines = traceback.format_exception(error) if error is not None else []
        self._world.failures.append(f"{context.get('message')}\n{''.join(lines)}")
