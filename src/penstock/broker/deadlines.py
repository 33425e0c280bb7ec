"""Deadlines of many short waits, watched by one coarse timer that runs only while somebody waits.

A timer per produce would cost as much as the produce itself, for an event that almost never
happens. So a deadline is met up to a period late, which nobody who waits for a disk can tell.
"""

import asyncio
from typing import Protocol

from penstock.model.clock import Clock

PERIOD_S = 0.25


class Waiter(Protocol):
    # In seconds of the monotonic clock.
    deadline: float

    def expire(self) -> None: ...


class Deadlines:
    """Expires what is still waiting after its deadline."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[Waiter, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, waiter: Waiter) -> None:
        self._waiting[waiter] = None
        if self._timer is None:
            self._start()

    def discard(self, waiter: Waiter) -> None:
        self._waiting.pop(waiter, None)

    def _start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self._check)

    def _check(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        for waiter in [waiter for waiter in self._waiting if waiter.deadline <= now]:
            del self._waiting[waiter]
            waiter.expire()
        if self._waiting and self._timer is None:
            self._start()
