"""The books of the broker's demonstration: rates, lag, latency, and what is missing."""

from collections import Counter
from dataclasses import dataclass, field

from penstock.cli.demo.events import (
    Acknowledged,
    Alerted,
    Assigned,
    Consumed,
    Event,
    Failed,
    Finished,
)


@dataclass(slots=True)
class Latencies:
    """A histogram in steps of a tenth of a millisecond: its size does not grow with time."""

    counts: Counter[int] = field(default_factory=Counter)

    def add(self, latency_ms: float) -> None:
        self.counts[max(round(latency_ms * 10), 0)] += 1

    def percentile(self, share: float) -> float:
        """The latency that `share` of all readings stay within, in milliseconds."""
        wanted = share * self.counts.total()
        passed = 0
        for tenths in sorted(self.counts):
            passed += self.counts[tenths]
            if passed >= wanted:
                return tenths / 10
        return 0.0


@dataclass(slots=True)
class Ledger:
    """Takes events in, in the order they happened; asserts nothing, reports everything."""

    produced: int = 0
    consumed: Counter[str] = field(default_factory=Counter)
    shares: dict[str, frozenset[int]] = field(default_factory=dict)
    latencies: Latencies = field(default_factory=Latencies)
    lag_max: int = 0
    repeated: int = 0
    # Readings that came before an earlier one of the same sensor, or instead of it.
    out_of_order: int = 0
    sent: dict[str, int] | None = None
    next_number: Counter[str] = field(default_factory=Counter)
    ends: Counter[int] = field(default_factory=Counter)
    positions: Counter[int] = field(default_factory=Counter)

    def take(self, event: Event) -> None:
        match event:
            case Acknowledged():
                self.produced += 1
                self.ends[event.partition] = max(self.ends[event.partition], event.offset + 1)
            case Consumed():
                self._take_reading(event)
            case Assigned():
                self.shares[event.controller] = event.partitions
            case Finished():
                self.sent = event.sent
            case Failed():
                raise event.error
            case Alerted():
                raise AssertionError("without a pipeline nobody sends alerts")

    def lag(self, controller: str | None = None) -> int:
        """Acknowledged readings that the controller, or anyone, has not seen yet."""
        partitions = self.ends if controller is None else self.shares.get(controller, frozenset())
        return sum(max(self.ends[one] - self.positions[one], 0) for one in partitions)

    def note_lag(self) -> None:
        self.lag_max = max(self.lag_max, self.lag())

    def is_complete(self) -> bool:
        """Whether the sensors are done and every reading of theirs has arrived."""
        return self.sent is not None and not self.missing()

    def missing(self) -> dict[str, int]:
        """Readings that were acknowledged but never arrived, by sensor."""
        sent = self.sent or {}
        gaps = {sensor: count - self.next_number[sensor] for sensor, count in sent.items()}
        return {sensor: gap for sensor, gap in gaps.items() if gap}

    def _take_reading(self, event: Consumed) -> None:
        self.consumed[event.controller] += 1
        self.latencies.add(event.latency_ms)
        position = self.positions[event.partition]
        self.positions[event.partition] = max(position, event.offset + 1)
        expected = self.next_number[event.sensor]
        if event.number < expected:
            # A group may deliver again after a rebalance; that is allowed, but said.
            self.repeated += 1
        elif event.number > expected:
            self.out_of_order += 1
        else:
            self.next_number[event.sensor] += 1
