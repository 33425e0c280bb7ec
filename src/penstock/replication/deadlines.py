"""Deadlines by key, made for moving them often: a heartbeat costs one look into a dictionary.

A heap holds at most a few entries per key. Moving a deadline later does not touch the heap: the
entry that comes up too early is put back with the deadline that is true by then, many of them at
once, so that nobody wakes up for each. Those of cancelled deadlines are swept out when they are
most of the heap.
"""

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")

# A heap that is shorter is never swept.
SWEPT_LENGTH_MIN = 1_000
# How many outdated entries a look at the heap puts right: work of some ten microseconds.
PUT_RIGHT_MAX = 32


class _Deadline(Generic[K]):
    __slots__ = ("armed", "at", "key")

    def __init__(self, key: K, at: float) -> None:
        self.key = key
        # None once it is cancelled or over.
        self.at: float | None = at
        # The earliest entry in the heap; others are stale.
        self.armed = at


class Deadlines(Generic[K]):
    """Times are seconds of one monotonic clock, which the caller owns."""

    __slots__ = ("_by_key", "_count", "_heap")

    def __init__(self) -> None:
        self._by_key: dict[K, _Deadline[K]] = {}
        self._heap: list[tuple[float, int, _Deadline[K]]] = []
        # Makes entries of equal time comparable without comparing keys.
        self._count = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def set(self, key: K, at: float) -> None:
        deadline = self._by_key.get(key)
        if deadline is None:
            deadline = self._by_key[key] = _Deadline(key, at)
            self._push(deadline, at)
        else:
            deadline.at = at
            if at < deadline.armed:
                self._push(deadline, at)

    def cancel(self, key: K) -> None:
        deadline = self._by_key.pop(key, None)
        if deadline is not None:
            deadline.at = None

    def get(self, key: K) -> float | None:
        deadline = self._by_key.get(key)
        return None if deadline is None else deadline.at

    def next_at(self) -> float | None:
        """When to look next; it may then turn out that nothing is due yet."""
        heap = self._heap
        for _ in range(PUT_RIGHT_MAX):
            if not heap or heap[0][0] == heap[0][2].at:
                break
            self._pop()
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> K | None:
        """Forgets and returns the key whose deadline came first, or None when nothing is due.

        One at a time, since what follows from one deadline may move the next.
        """
        heap = self._heap
        while heap and heap[0][0] <= now:
            deadline = self._pop()
            if deadline is not None:
                deadline.at = None
                del self._by_key[deadline.key]
                return deadline.key
        return None

    def _pop(self) -> _Deadline[K] | None:
        """Removes the first entry; its deadline, or None if that is another time by now."""
        entry_at, _, deadline = heapq.heappop(self._heap)
        if deadline.at == entry_at:
            return deadline
        if deadline.at is not None and deadline.armed == entry_at:
            self._push(deadline, deadline.at)
        return None

    def _push(self, deadline: _Deadline[K], at: float) -> None:
        deadline.armed = at
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, deadline))
        if len(self._heap) > SWEPT_LENGTH_MIN + 4 * len(self._by_key):
            self._sweep()

    def _sweep(self) -> None:
        """Cancelled deadlines that are far away would stay for long."""
        self._heap[:] = []
        for deadline in self._by_key.values():
            assert deadline.at is not None
            deadline.armed = deadline.at
            self._count += 1
            self._heap.append((deadline.at, self._count, deadline))
        heapq.heapify(self._heap)
