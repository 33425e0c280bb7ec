"""Plain counters and histograms: an increment is an attribute add.

One event loop counts, so there are no locks, and nothing is global: each part gets what it
counts with passed in. What the numbers are called stands in `families.py`.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final, Generic, TypeVar

# In seconds; a value counts in the first bucket whose bound it does not exceed.
LATENCY_BOUNDS: Final = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
)

L = TypeVar("L", bound=Hashable)
T = TypeVar("T")


class Histogram:
    """How many values were in which bucket, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS) -> None:
        self.bounds = bounds
        # The last bucket has no bound.
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """A value that came so many times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def sample(self) -> list[float]:
        """The counts of the buckets, each on its own, and the sum behind them."""
        return [*self.counts, self.total]


class Requests:
    """What one API of one door was asked: each answer has its time, and errors have a code."""

    __slots__ = ("errors", "seconds")

    def __init__(self) -> None:
        self.seconds = Histogram()
        self.errors: dict[str, int] = {}

    def failed(self, code: str) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1


class Traffic:
    """What came into the partitions of a topic that this node led, and what readers got."""

    __slots__ = ("bytes_in", "bytes_out", "records_in", "records_out")

    def __init__(self) -> None:
        self.records_in = self.bytes_in = self.records_out = self.bytes_out = 0


class Deliveries:
    """What the queues of a group on a topic handed out."""

    __slots__ = ("dead", "records", "repeated")

    def __init__(self) -> None:
        # Attempts to deliver a record; those after its first; records that were given up.
        self.records = self.repeated = self.dead = 0


class Bounded(Generic[L, T]):
    """One instrument for each label, for so many labels; all others share one.

    A label keeps what it got first: if it moved from the shared one to one of its own, the shared
    count would go back, which a reader takes for a restart.
    """

    __slots__ = ("_left_out", "_make", "_max", "_others_label", "_own", "others")

    def __init__(self, make: Callable[[], T], labels_max: int, others_label: L) -> None:
        self._make = make
        self._max = labels_max
        self._others_label = others_label
        self._own: dict[L, T] = {}
        self._left_out: set[L] = set()
        self.others = make()

    def of(self, label: L) -> T:
        found = self._own.get(label)
        if found is not None:
            return found
        if label in self._left_out or len(self._own) >= self._max:
            self._left_out.add(label)
            return self.others
        found = self._own[label] = self._make()
        return found

    @property
    def left_out(self) -> int:
        """How many labels share one instrument."""
        return len(self._left_out)

    def labels(self) -> list[L]:
        """All that were asked for, the left out ones too."""
        return [*self._own, *self._left_out]

    def forget(self, label: L) -> None:
        """What it stands for is gone."""
        self._own.pop(label, None)
        self._left_out.discard(label)

    def __iter__(self) -> Iterator[tuple[L, T]]:
        """With what the others share, if there are any."""
        yield from list(self._own.items())
        if self._left_out:
            yield self._others_label, self.others
