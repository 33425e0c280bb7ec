"""How long a record waits after a member gave it back: twice as long with every attempt.

Chance is the caller's, and what comes of it is stored as a time: who leads the queue next follows
the same one.
"""

from collections.abc import Callable
from dataclasses import dataclass

RandomBelow = Callable[[int], int]
# Beyond any number of attempts that a group can allow.
_DOUBLINGS_MAX = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Off unless the first wait is set."""

    first_ms: int = 0
    max_ms: int = 60_000
    jitter_percent: int = 20

    def delay_ms(self, attempts: int, random_below: RandomBelow) -> int:
        """Of a record that was tried so often; 0 if it can be tried again at once."""
        if not self.first_ms:
            return 0
        exact_ms = min(self.max_ms, self.first_ms << min(max(0, attempts - 1), _DOUBLINGS_MAX))
        jitter_ms = exact_ms * self.jitter_percent // 100
        return max(1, exact_ms - jitter_ms + random_below(2 * jitter_ms + 1))


NO_BACKOFF = Backoff()


class Waits:
    """When what one request gives back is tried again. Records that were tried as often wait as
    long: they stay one range, however many they are."""

    __slots__ = ("_backoff", "_by_attempts", "_now_ms", "_random_below")

    def __init__(self, backoff: Backoff, now_ms: int, random_below: RandomBelow) -> None:
        self._backoff = backoff
        self._now_ms = now_ms
        self._random_below = random_below
        self._by_attempts: dict[int, int] = {}

    def due_after(self, attempts: int) -> int:
        """By the wall clock, or 0 for now."""
        due_ms = self._by_attempts.get(attempts)
        if due_ms is None:
            delay_ms = self._backoff.delay_ms(attempts, self._random_below)
            due_ms = self._by_attempts[attempts] = self._now_ms + delay_ms if delay_ms else 0
        return due_ms
