"""An asyncio event loop in simulated time: one per process, all driven by one world.

Callbacks run in the order that asyncio promises; which process runs when is left to the seed.
"""

import asyncio
import traceback
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context
from typing import Any

from tests.sim.machine.world import World

# What a process needs at most to get to work, in seconds.
WAKE_S_MAX = 0.0002
HANDLES_PER_TURN_MAX = 1000


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
        self.default_executor: Executor | None = None

    # Time

    def time(self) -> float:
        return self._world.now * self._rate

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
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
        handle = asyncio.TimerHandle(when, callback, args, self, context)

        def due() -> None:
            if not handle.cancelled() and not self.is_dead:
                self._ready.append(handle)
                if not self._has_turn:
                    self._schedule_turn()

        self._world.at(when / self._rate, due)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Asyncio's own bookkeeping; a cancelled timer is passed over when it is due."""

    # Turns

    def _schedule_turn(self) -> None:
        self._has_turn = True
        self._world.after(self._world.random.random() * WAKE_S_MAX, self._turn)

    def _turn(self) -> None:
        self._has_turn = False
        if self._world.now < self._paused_until:
            self._has_turn = True
            self._world.at(self._paused_until, self._turn)
            return
        ready, left = self._ready, HANDLES_PER_TURN_MAX
        _set_running_loop(self)
        # What becomes ready meanwhile runs too: nobody else would notice the difference.
        self._has_turn = True
        try:
            while ready and left and not self.is_dead:
                left -= 1
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            _set_running_loop(None)
            self._has_turn = False
        if ready:
            self._schedule_turn()

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
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, function: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        chosen = executor or self.default_executor
        assert chosen is not None
        return asyncio.wrap_future(chosen.submit(function, *args), loop=self)

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
