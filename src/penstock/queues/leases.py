"""When the leases of one queue end, by the monotonic clock.

What was leased together ends together, so there is one deadline for it, however it is acknowledged
piece by piece. A lease that was renewed meanwhile is left alone when the old deadline comes.
"""

import heapq
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from penstock.queues.commands import Range
from penstock.queues.ranges import cut

# Deadlines that no longer end anything are dropped once there are this many more than leases.
STALE_MAX = 1_000


class LeaseDeadlines:
    __slots__ = ("_count", "_heap", "_kept_count", "_renewed")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Sequence[Range]]] = []
        # Makes entries of equal time comparable without comparing ranges.
        self._count = 0
        # How many were left when stale ones were last dropped.
        self._kept_count = 0
        # Until when, by offset, of leases that were renewed: few or none.
        self._renewed: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, leases: Sequence[Range], at: float) -> None:
        if leases:
            self._count += 1
            heapq.heappush(self._heap, (at, self._count, leases))

    def renew(self, leases: Sequence[Range], at: float) -> None:
        for lease in leases:
            for offset in range(lease.first, lease.last + 1):
                self._renewed[offset] = at
        self.add(leases, at)

    def hold(self, leases: Iterable[Range]) -> None:
        """They are given and not stored yet: no deadline of an earlier lease ends them. Their own
        time begins with `renew`."""
        for lease in leases:
            self._renewed.update(dict.fromkeys(range(lease.first, lease.last + 1), math.inf))

    def next_at(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> list[Range]:
        """Leases as they were given whose time is over, unless something became of them since."""
        due: list[Range] = []
        while self._heap and self._heap[0][0] <= now:
            leases = heapq.heappop(self._heap)[2]
            due += leases if not self._renewed else self._without_renewed(leases, now)
        return due

    def clear(self) -> None:
        """Nothing is leased any more."""
        self._heap.clear()
        self._renewed.clear()
        self._kept_count = 0

    def drop_stale(self, leased: Iterable[Range], leased_count: int) -> None:
        """Forgets leases that have ended before their time, and deadlines that a renewal has
        replaced, if they are many. Each look at all of them comes after as many new ones."""
        if len(self._heap) <= max(STALE_MAX + 2 * leased_count, 2 * self._kept_count):
            return
        left = sorted(leased)
        lasts = [lease.last for lease in left]
        renewed = self._renewed

        def still_leased(leases: Sequence[Range]) -> Iterator[int]:
            for lease in leases:
                for index in range(bisect_left(lasts, lease.first), len(left)):
                    if left[index].first > lease.last:
                        break
                    found = cut(left[index], lease.first, lease.last)
                    yield from range(found.first, found.last + 1)

        self._heap = [
            (at, count, leases)
            for at, count, leases in self._heap
            if any(renewed.get(offset, at) == at for offset in still_leased(leases))
        ]
        heapq.heapify(self._heap)
        self._kept_count = len(self._heap)
        kept = (offset for lease in left for offset in range(lease.first, lease.last + 1))
        self._renewed = {offset: renewed[offset] for offset in kept if offset in renewed}

    def _without_renewed(self, leases: Iterable[Range], now: float) -> Iterator[Range]:
        for lease in leases:
            first = lease.first
            for offset in range(lease.first, lease.last + 1):
                until = self._renewed.get(offset)
                if until is None or until <= now:
                    self._renewed.pop(offset, None)
                    continue
                if first < offset:
                    yield lease._replace(first=first, last=offset - 1)
                first = offset + 1
            if first <= lease.last:
                yield lease._replace(first=first)
