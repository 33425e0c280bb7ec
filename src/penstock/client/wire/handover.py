"""Passes values from one thread to another, only this many at a time."""

import threading
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Handover(Generic[T]):
    """The giver waits while `ahead_max` values lie here; the taker waits while there are none."""

    def __init__(self, ahead_max: int) -> None:
        assert ahead_max > 0
        self._ahead_max = ahead_max
        self._values: deque[T] = deque()
        self._changed = threading.Condition()
        self._is_over = False
        self._failure: BaseException | None = None

    def give(self, value: T) -> bool:
        """False if nobody takes anything any more."""
        with self._changed:
            while len(self._values) >= self._ahead_max and not self._is_over:
                self._changed.wait()
            if self._is_over:
                return False
            self._values.append(value)
            self._changed.notify_all()
            return True

    def finish(self, failure: BaseException | None = None) -> None:
        """From the giver: nothing else comes; a failure is reported after all that came before."""
        with self._changed:
            self._is_over = True
            self._failure = self._failure or failure
            self._changed.notify_all()

    def abandon(self) -> None:
        """From the taker: nothing else is wanted."""
        with self._changed:
            self._is_over = True
            self._values.clear()
            self._changed.notify_all()

    def take_all(self) -> Iterator[T]:
        while True:
            with self._changed:
                while not self._values and not self._is_over:
                    self._changed.wait()
                if self._values:
                    value = self._values.popleft()
                    self._changed.notify_all()
                elif self._failure is not None:
                    raise self._failure
                else:
                    return
            yield value
            # Anyone who still needs it holds it; from here it must not be kept alive.
            del value
