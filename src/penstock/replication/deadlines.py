"""Deadlines by key, made for moving them often: a heartbeat costs one dictionary write.

A heap holds at most a few entries per key. Moving a deadline later does not touch the heap: the
entry that comes up too early is put back with the deadline that is true by then. Those of cancelled
deadlines are swept out when they are most of the heap.
"""

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")

# A heap that is shorter is never swept.
SWEPT_LENGTH_MIN = 1_000


class Deadlines(Generic[K]):
    """Times are seconds of one monotonic clock, which the caller owns."""

    __slots__ = ("_armed", "_at", "_count", "_heap")

    def __init__(self) -> None:
        self._at: dict[K, float] = {}
        # The earliest heap entry of each key; others of that key are stale.
        self._armed: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        # Makes entries of equal time comparable without comparing keys.
        self._count = 0

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: K, at: float) -> None:
        self._at[key] = at
        armed = self._armed.get(key)
        if armed is None or at < armed:
            self._push(key, at)

    def cancel(self, key: K) -> None:
        self._at.pop(key, None)

    def get(self, key: K) -> float | None:
        return self._at.get(key)

    def next_at(self) -> float | None:
        """When to look next; it may then turn out that nothing is due yet."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> K | None:
        """Forgets and returns the key whose deadline came first, or None when nothing is due.

        One at a time, since what follows from one deadline may move the next.
        """
        while self._heap and self._heap[0][0] <= now:
            entry_at, _, key = heapq.heappop(self._heap)
            if self._armed.get(key) != entry_at:
                continue
            del self._armed[key]
            at = self._at.get(key)
            if at is None:
                continue
            if at > entry_at:
                self._push(key, at)
                continue
            del self._at[key]
            return key
        return None

    def _push(self, key: K, at: float) -> None:
        if len(self._heap) > SWEPT_LENGTH_MIN + 4 * len(self._at):
            self._sweep()
        self._armed[key] = at
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, key))

    def _sweep(self) -> None:
        """Cancelled deadlines that are far away would stay for long."""
        self._heap = []
        self._armed = {}
        for key, at in list(self._at.items()):
            self._armed[key] = at
            self._count += 1
            self._heap.append((at, self._count, key))
        heapq.heapify(self._heap)
