"""The books of the readings: rates, lag, latency, what is missing or doubled, and the failover."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from penstock.cli.demo.events import (
    Acknowledged,
    Alerted,
    Assigned,
    ClusterSeen,
    Consumed,
    Event,
    Failed,
    Finished,
)
from penstock.cli.demo.failover import Failover


@dataclass(slots=True)
class Latencies:
    """A histogram in steps of a tenth of a millisecond: its size does not grow with time."""

    counts: Counter[int] = field(default_factory=Counter)

    def add(self, latency_ms: float) -> None:
        self.counts[max(round(latency_ms * 10), 0)] += 1

    def percentile(self, share: float) -> float:
        """The latency that `share` of all stay within, in milliseconds."""
        wanted = share * self.counts.total()
        passed = 0
        for tenths in sorted(self.counts):
            passed += self.counts[tenths]
            if passed >= wanted:
                return tenths / 10
        return 0.0


@dataclass(slots=True)
class Arrivals:
    """Which readings have come, in any order: `number` counts each sensor's from 0."""

    rows: int = 0
    doubled: int = 0
    next_number: Counter[str] = field(default_factory=Counter)
    # Readings that came before one that is lower; few, as those of a sensor share a partition.
    ahead: dict[str, set[int]] = field(default_factory=dict)

    def take(self, sensor: str, number: int) -> None:
        self.rows += 1
        waiting = self.ahead.setdefault(sensor, set())
        if number < self.next_number[sensor] or number in waiting:
            self.doubled += 1
            return
        waiting.add(number)
        while self.next_number[sensor] in waiting:
            waiting.remove(self.next_number[sensor])
            self.next_number[sensor] += 1

    def missing(self, sent: dict[str, int]) -> int:
        held = {name: self.next_number[name] + len(self.ahead.get(name, ())) for name in sent}
        return sum(count - held[name] for name, count in sent.items())

    def skipped(self) -> int:
        """Readings that have not come although a later one of their sensor has."""
        return sum(
            max(waiting) + 1 - self.next_number[sensor] - len(waiting)
            for sensor, waiting in self.ahead.items()
            if waiting
        )


@dataclass(slots=True)
class Ledger:
    """Takes events in, in the order they happened; asserts nothing, reports everything."""

    produced: int = 0
    consumed: Counter[str] = field(default_factory=Counter)
    shares: dict[str, frozenset[int]] = field(default_factory=dict)
    # From the sensor to the broker's acknowledgement, and to the controller; the latter only of
    # readings that did not wait for the controllers to join.
    acknowledgements: Latencies = field(default_factory=Latencies)
    deliveries: Latencies = field(default_factory=Latencies)
    joined_us: int | None = None
    lag_max: int = 0
    arrivals: Arrivals = field(default_factory=Arrivals)
    # The group may deliver a record again after a rebalance. That is allowed, and said.
    redelivered: int = 0
    # Readings that came after a later one of the same sensor.
    out_of_order: int = 0
    sent: dict[str, int] | None = None
    ends: Counter[int] = field(default_factory=Counter)
    positions: Counter[int] = field(default_factory=Counter)
    leaders: dict[int, int] = field(default_factory=dict)
    under_replicated: int = 0
    seen_s: float = 0.0
    failover: Failover = field(default_factory=Failover)
    _highest: dict[str, int] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        match event:
            case Acknowledged():
                self._take_acknowledgement(event)
            case Consumed():
                self._take_reading(event)
            case Assigned():
                self.shares[event.controller] = event.partitions
            case ClusterSeen():
                self.leaders, self.under_replicated = event.leaders, event.under_replicated
                self.seen_s = event.at_s
            case Finished():
                self.sent = event.sent
            case Failed():
                raise event.error
            case Alerted():
                """For the pipeline's books."""

    def lag(self, controller: str | None = None) -> int:
        """Acknowledged readings that the controller, or anyone, has not seen yet."""
        partitions = self.ends if controller is None else self.shares.get(controller, frozenset())
        return sum(max(self.ends[one] - self.positions[one], 0) for one in partitions)

    def note_lag(self) -> None:
        self.lag_max = max(self.lag_max, self.lag())

    def is_shared_by(self, controllers: Collection[str], partitions: int) -> bool:
        """Whether each of them has a share, and all partitions are taken."""
        shares = [self.shares.get(name, frozenset()) for name in controllers]
        return all(shares) and len(frozenset().union(*shares)) == partitions

    def is_in_sync_since(self, time_s: float) -> bool:
        """Whether the cluster was asked after that, and all copies were up to date."""
        return self.seen_s > time_s and not self.under_replicated

    def is_complete(self) -> bool:
        """Whether the sensors are done and every reading of theirs has arrived."""
        return self.sent is not None and not self.missing()

    def missing(self) -> int:
        """Acknowledged readings that never arrived; only known when the sensors are done."""
        return self.arrivals.missing(self.sent or {})

    def _take_acknowledgement(self, event: Acknowledged) -> None:
        self.produced += 1
        self.ends[event.partition] = max(self.ends[event.partition], event.offset + 1)
        self.acknowledgements.add((event.at_us - event.reading.at_us) / 1000)
        self.failover.acknowledged(event)

    def _take_reading(self, event: Consumed) -> None:
        self.consumed[event.controller] += 1
        if event.offset < self.positions[event.partition]:
            self.redelivered += 1
            return
        self.positions[event.partition] = event.offset + 1
        if self.joined_us is not None and event.sent_us >= self.joined_us:
            self.deliveries.add(event.latency_ms)
        self.arrivals.take(event.sensor, event.number)
        highest = self._highest.get(event.sensor, -1)
        self.out_of_order += event.number < highest
        self._highest[event.sensor] = max(highest, event.number)
