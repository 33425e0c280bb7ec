"""Who waits for which lock, in the order in which they came.

A place belongs to an owner, not to one question: who asks again soon after a wait has the same
place. So waits can be short, and a client that is gone loses its place soon.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.replication.alarm_clock import AlarmClock

# For so long a place is kept for somebody who asks again.
PLACE_KEPT_MS: Final = 2_000
WAITERS_PER_LOCK_MAX: Final = 1_000
WAITERS_MAX: Final = 10_000

# Settled when it is its owner's turn; None while the place is only kept.
_Turn = asyncio.Future[None]


class LockLines:
    def __init__(self, clock: Clock, is_free: Callable[[str], bool]) -> None:
        self._clock = clock
        self._is_free = is_free
        self._lines: dict[str, dict[str, _Turn | None]] = {}
        self._count = 0
        self._kept: AlarmClock[tuple[str, str]] = AlarmClock(
            clock, lambda place: self.leave(*place), has_grace=lambda _: False
        )

    def length(self, name: str) -> int:
        return len(self._lines.get(name, ()))

    async def wait(self, name: str, owner: str, deadline: float) -> bool:
        """Whether it is the owner's turn before the deadline, in seconds of the monotonic clock.
        Whoever has its turn has to `leave` or to `wait` again."""
        turn = self._join(name, owner)
        self.next_turn(name)
        if not turn.done():
            left_s = max(0.0, deadline - self._clock.monotonic())
            await asyncio.wait([turn], timeout=left_s)
        if turn.done():
            turn.result()
        return turn.done()

    def _join(self, name: str, owner: str) -> _Turn:
        line = self._lines.get(name, {})
        if owner not in line:
            if self._count >= WAITERS_MAX or len(line) >= WAITERS_PER_LOCK_MAX:
                raise Refused(Reason.THROTTLED, f"Too many wait for the lock {name} already.")
            self._count += 1
        _refuse(line.get(owner), Refused(Reason.LOCK_HELD, f"{owner!r} has asked again since."))
        self._kept.cancel((name, owner))
        turn: _Turn = asyncio.get_running_loop().create_future()
        self._lines[name] = line
        line[owner] = turn
        return turn

    def next_turn(self, name: str) -> None:
        """Wakes the first in the line, if the lock is free."""
        line = self._lines.get(name)
        if line and self._is_free(name):
            first = next(iter(line.values()))
            # If the place is only kept, its owner comes back or loses it.
            if first is not None and not first.done():
                first.set_result(None)

    def keep(self, name: str, owner: str) -> None:
        """The owner waited for long enough, but may come back."""
        line = self._lines.get(name)
        if line is not None and owner in line:
            line[owner] = None
            self._kept.set((name, owner), PLACE_KEPT_MS)

    def leave(self, name: str, owner: str) -> None:
        """The owner has the lock, or does not want it any more."""
        line = self._lines.get(name)
        if line is not None and owner in line:
            del line[owner]
            self._count -= 1
            self._kept.cancel((name, owner))
            if not line:
                del self._lines[name]
        self.next_turn(name)

    def refuse_all(self, refused: Refused) -> None:
        """Nobody waits here any more."""
        lines, self._lines, self._count = self._lines, {}, 0
        self._kept.stop()
        for line in lines.values():
            for turn in line.values():
                _refuse(turn, refused)


def _refuse(turn: _Turn | None, refused: Refused) -> None:
    if turn is not None and not turn.done():
        turn.set_exception(refused)
