"""Simulated time, and the order of everything that happens in it."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random

Action = Callable[[], None]


class Event:
    """Something that is due at a moment; cancelled by forgetting what to do."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action

    def cancel(self) -> None:
        self.action = None


class World:
    """Everything that is random in a run comes from `random`, so a seed is a run."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.steps = 0
        # What no process should have let happen: an error that nobody took care of.
        self.failures: list[str] = []
        self._events: list[tuple[float, int, Event]] = []
        self._order = count()

    def after(self, delay: float, action: Action) -> Event:
        return self.at(self.now + delay, action)

    def at(self, moment: float, action: Action) -> Event:
        event = Event(action)
        heappush(self._events, (max(moment, self.now), next(self._order), event))
        return event

    def run_for(self, duration: float) -> None:
        self.run_until(lambda: False, duration)

    def run_until(self, condition: Callable[[], bool], duration: float) -> bool:
        """Lets things happen until `condition` holds or the time is over; says which."""
        end = self.now + duration
        events = self._events
        while not condition():
            if not events or events[0][0] > end:
                self.now = end
                return False
            self.now, _, event = heappop(events)
            action = event.action
            if action is not None:
                self.steps += 1
                action()
                if self.failures:
                    raise AssertionError("\n".join(self.failures))
        return True
