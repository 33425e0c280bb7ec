"""Calls when a deadline is over, one at a time, from one timer of the event loop.

A process that stood still finds many deadlines over at once, while what would have moved them may
lie unread in its sockets: then sessions get a little longer, to be heard of first.
"""

import asyncio
from collections.abc import Callable

from penstock.groups.deadlines import Deadlines
from penstock.groups.effects import Timer
from penstock.model.clock import Clock
from penstock.model.ids import GroupId, MemberId

# A timer this late means that the whole process stood still, so that heartbeats may lie unread.
# Sessions that ended meanwhile get the grace to be heard of before they count as over.
STALL_S = 0.5
GRACE_AFTER_STALL_S = 2.0

TimerKey = tuple[GroupId, Timer, MemberId]


class AlarmClock:
    def __init__(self, clock: Clock, on_time: Callable[[TimerKey], None]) -> None:
        self._clock = clock
        self._on_time = on_time
        self._deadlines: Deadlines[TimerKey] = Deadlines()
        self._wake_up: asyncio.TimerHandle | None = None
        self._wake_up_at = 0.0

    def set(self, key: TimerKey, delay_ms: int) -> None:
        at = self._clock.monotonic() + delay_ms / 1000
        self._deadlines.set(key, at)
        if self._wake_up is None or at < self._wake_up_at:
            self._schedule()

    def cancel(self, key: TimerKey) -> None:
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
            if has_stalled and key[1] is Timer.SESSION:
                self._deadlines.set(key, now + GRACE_AFTER_STALL_S)
            else:
                self._on_time(key)
        self._schedule()
