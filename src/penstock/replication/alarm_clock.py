"""Calls when a deadline is over, one at a time, from one timer of the event loop.

A process that stood still finds many deadlines over at once, while what would have moved them may
lie unread in its sockets: then those of others' promises get a little longer, to be heard of first.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.model.clock import Clock
from penstock.replication.deadlines import Deadlines

# A timer this late means that the whole process stood still, so that requests may lie unread.
# What ended meanwhile gets the grace to be heard of before it counts as over.
STALL_S = 0.5
GRACE_AFTER_STALL_S = 2.0

K = TypeVar("K")


def _always(_: object) -> bool:
    return True


class AlarmClock(Generic[K]):
    def __init__(
        self,
        clock: Clock,
        on_time: Callable[[K], None],
        *,
        has_grace: Callable[[K], bool] = _always,
    ) -> None:
        self._clock = clock
        self._on_time = on_time
        self._has_grace = has_grace
        self._deadlines: Deadlines[K] = Deadlines()
        self._wake_up: asyncio.TimerHandle | None = None
        self._wake_up_at = 0.0

    def set(self, key: K, delay_ms: int) -> None:
        self.set_at(key, self._clock.monotonic() + delay_ms / 1000)

    def set_at(self, key: K, at: float) -> None:
        """In seconds of the monotonic clock."""
        self._deadlines.set(key, at)
        if self._wake_up is None or at < self._wake_up_at:
            self._schedule()

    def is_set(self, key: K) -> bool:
        return self.at(key) is not None

    def at(self, key: K) -> float | None:
        """In seconds of the monotonic clock."""
        return self._deadlines.get(key)

    def cancel(self, key: K) -> None:
        self._deadlines.cancel(key)

    def stop(self) -> None:
        """Forgets all of them."""
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        self._deadlines = Deadlines()

    def _schedule(self) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        at = self._deadlines.next_at()
        if at is not None:
            delay_s = max(at - self._clock.monotonic(), 0)
            self._wake_up = asyncio.get_running_loop().call_later(delay_s, self._ring)
            self._wake_up_at = at

    def _ring(self) -> None:
        self._wake_up = None
        now = self._clock.monotonic()
        has_stalled = now - self._wake_up_at > STALL_S
        while (key := self._deadlines.pop_due(now)) is not None:
            if has_stalled and self._has_grace(key):
                self._deadlines.set(key, now + GRACE_AFTER_STALL_S)
            else:
                self._on_time(key)
        self._schedule()
