"""How many accepted bytes are not safe yet, over all replicas: the broker's backpressure.

Half of the bound is the mark at which doors stop reading from producers; only at the bound itself
are produces refused. So a flood first slows down, and memory stays bounded even if a door is slow
to react.
"""

import asyncio
from collections.abc import Callable

from penstock.model.limits import Limits


class Pressure:
    """Unflushed bytes in total; doors ask `is_over` and wait with `on_relief`."""

    __slots__ = ("_crowded", "_on_relief", "_pause_at", "_total", "bytes_max", "is_over")

    def __init__(self, limits: Limits) -> None:
        self.bytes_max = limits.unflushed_bytes_max
        self._pause_at = limits.unflushed_bytes_max // 2
        self._total = 0
        self._crowded = 0
        self._on_relief: list[Callable[[], None]] = []
        self.is_over = False

    @property
    def total(self) -> int:
        return self._total

    def has_room(self, size: int) -> bool:
        """A batch that is larger than the bound itself has room when it is alone."""
        return self._total + size <= self.bytes_max or not self._total

    def add(self, size: int) -> None:
        self._total += size
        if self._total > self._pause_at:
            self.is_over = True

    def remove(self, size: int) -> None:
        self._total -= size
        assert self._total >= 0
        if self.is_over:
            self._ease()

    def crowd(self) -> None:
        """One replica alone has more than half of what it may hold."""
        self._crowded += 1
        self.is_over = True

    def uncrowd(self) -> None:
        self._crowded -= 1
        assert self._crowded >= 0
        self._ease()

    def on_relief(self, callback: Callable[[], None]) -> None:
        """Calls back once, when the pressure is gone; at once if there is none."""
        if self.is_over:
            self._on_relief.append(callback)
        else:
            callback()

    def _ease(self) -> None:
        if self._crowded or self._total > self._pause_at:
            return
        self.is_over = False
        waiting, self._on_relief = self._on_relief, []
        # In a turn of its own: a door that goes on reading may append, and anyone who just released
        # bytes is in the middle of its own work.
        for callback in waiting:
            asyncio.get_running_loop().call_soon(callback)
