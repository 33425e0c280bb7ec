"""The last things that happened to somebody, for anyone who looks at a run that failed."""

from collections import deque

EVENTS_MAX = 30


class EventRing:
    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        self._events: deque[tuple[float, str]] = deque(maxlen=events_max)

    def note(self, now: float, event: str) -> None:
        self._events.append((now, event))

    def lines(self) -> list[str]:
        """The oldest first."""
        return [f"{now:9.4f} s: {event}" for now, event in self._events]
