"""Polls that found too little in a queue, and are woken one at a time when there is news."""

from collections.abc import Callable
from typing import Protocol


class Waiter(Protocol):
    """A poll that found too little; it is asked to look again, and then says whether it stays."""

    def wake(self) -> None: ...


class Waiters:
    """Wakes the one that waits longest: what it leaves wakes the next one."""

    __slots__ = ("_by_waiter", "_has_news", "_news")

    def __init__(self, has_news: Callable[[], bool]) -> None:
        self._has_news = has_news
        # With the number of the news that each of them knows.
        self._by_waiter: dict[Waiter, int] = {}
        self._news = 0

    def __len__(self) -> int:
        return len(self._by_waiter)

    def add(self, waiter: Waiter) -> None:
        """The waiter looks now, and hears of what is new from now on. What it did not want when it
        looked before is for the next one."""
        self._by_waiter.pop(waiter, None)
        self._by_waiter[waiter] = self._news
        self._wake_next()

    def leave(self, waiter: Waiter) -> None:
        """It looked, or it gave up: what it left is for the next one."""
        self._by_waiter.pop(waiter, None)
        self._wake_next()

    def tell_news(self) -> None:
        self._news += 1
        self._wake_next()

    def wake_all(self) -> None:
        waiters, self._by_waiter = self._by_waiter, {}
        for waiter in waiters:
            waiter.wake()

    def _wake_next(self) -> None:
        if not self._by_waiter or not self._has_news():
            return
        waiter, known = next(iter(self._by_waiter.items()))
        if known < self._news:
            del self._by_waiter[waiter]
            waiter.wake()
