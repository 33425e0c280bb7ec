"""Time as the broker sees it: passed in, so that tests and the simulator own it."""

from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch: for timestamps that users see."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back: for timeouts and intervals."""
        ...
