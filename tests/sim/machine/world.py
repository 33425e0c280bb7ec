"""Simulated time, and the order of everything that happens in it."""

from asyncio import AbstractEventLoop
from asyncio.events import _set_running_loop
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

Action = Callable[..., object]


class World:
    """Everything that is random in a run comes from `random`, so a seed is a run."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.steps = 0
        # What no process should have let happen: an error that nobody took care of.
        self.failures: list[str] = []
        # What is due at the same moment happens in the order in which it was asked for.
        self._events: list[tuple[float, int, Action, tuple[Any, ...]]] = []
        self._asked = 0
        self.loop: AbstractEventLoop | None = None

    def after(self, delay: float, action: Action, *args: Any) -> None:
        self.at(self.now + delay, action, *args)

    def at(self, moment: float, action: Action, *args: Any) -> None:
        self._asked = order = self._asked + 1
        now = self.now
        heappush(self._events, (moment if moment > now else now, order, action, args))

    def run_for(self, duration: float) -> None:
        self.run_until(None, duration)

    def run_until(self, condition: Callable[[], bool] | None, duration: float) -> bool:
        """Lets things happen until `condition` holds or the time is over; says which."""
        end = self.now + duration
        events, failures, steps = self._events, self.failures, 0
        try:
            while condition is None or not condition():
                if not events or events[0][0] > end:
                    self.now = end
                    return False
                self.now, _, action, args = heappop(events)
                steps += 1
                action(*args)
                if failures:
                    self.check()
        finally:
            self.steps += steps
            self.leave_loop()
        return True

    def check(self) -> None:
        if self.failures:
            raise AssertionError("\n".join(self.failures))

    # Which process has its turn; asyncio is told only when that changes, for that takes long.

    def enter_loop(self, loop: AbstractEventLoop) -> None:
        if self.loop is not loop:
            self.loop = loop
            _set_running_loop(loop)

    def leave_loop(self) -> None:
        """For what happens outside of every loop, and must not find one."""
        if self.loop is not None:
            self.loop = None
            _set_running_loop(None)
