"""The books of the demonstration with Spark: what was sent, and what came of it in the lake."""

from collections import Counter, deque
from collections.abc import Iterable
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
from penstock.cli.demo.expectation import Alert, Expectation, Window, WindowKey
from penstock.cli.demo.ledger import Latencies

ALERTS_SHOWN = 6


@dataclass(slots=True)
class Arrivals:
    """Which readings the table holds, however many: `number` counts each sensor's from 0."""

    rows: int = 0
    repeated: int = 0
    next_number: Counter[str] = field(default_factory=Counter)
    # Readings that came before one that is lower; few, as a commit holds whole ranges of offsets.
    ahead: dict[str, set[int]] = field(default_factory=dict)

    def take(self, sensor: str, number: int) -> None:
        self.rows += 1
        waiting = self.ahead.setdefault(sensor, set())
        if number < self.next_number[sensor] or number in waiting:
            self.repeated += 1
            return
        waiting.add(number)
        while self.next_number[sensor] in waiting:
            waiting.remove(self.next_number[sensor])
            self.next_number[sensor] += 1

    def missing(self, sent: dict[str, int]) -> int:
        held = {name: self.next_number[name] + len(self.ahead.get(name, ())) for name in sent}
        return sum(count - held[name] for name, count in sent.items())


@dataclass(slots=True)
class PipelineLedger:
    """Takes events and rows in; asserts nothing, reports everything."""

    expectation: Expectation
    produced: int = 0
    sent: dict[str, int] | None = None
    shares: dict[str, frozenset[int]] = field(default_factory=dict)
    archive: Arrivals = field(default_factory=Arrivals)
    windows: dict[WindowKey, Window] = field(default_factory=dict)
    windows_repeated: int = 0
    alerts: Counter[Alert] = field(default_factory=Counter)
    alerts_by_controller: Counter[str] = field(default_factory=Counter)
    latest_alerts: deque[Alerted] = field(default_factory=lambda: deque(maxlen=ALERTS_SHOWN))
    latencies: Latencies = field(default_factory=Latencies)

    def take(self, event: Event) -> None:
        match event:
            case Acknowledged():
                self.produced += 1
                self.expectation.take(event.reading)
            case Alerted():
                self._take_alert(event)
            case Assigned():
                self.shares[event.controller] = event.partitions
            case Finished():
                self.sent = event.sent
            case Failed():
                raise event.error
            case Consumed():
                raise AssertionError("with a pipeline nobody reads readings but Spark")

    def take_archived(self, rows: Iterable[tuple[str, int]]) -> None:
        for sensor, number in rows:
            self.archive.take(sensor, number)

    def take_windows(self, rows: Iterable[Window]) -> None:
        for window in rows:
            key = (window.begins_us, window.sensor)
            self.windows_repeated += key in self.windows
            self.windows[key] = window

    def missing(self) -> int:
        """Readings that were acknowledged and are not in the table."""
        return self.archive.missing(self.sent or {})

    def wrong_windows(self) -> list[WindowKey]:
        """Windows of the one side that the other has not, or has otherwise."""
        expected = self.expectation.closed_windows()
        return [
            key
            for key in sorted(expected.keys() | self.windows.keys())
            if not (key in expected and key in self.windows)
            or not expected[key].is_like(self.windows[key])
        ]

    def wrong_alerts(self) -> set[Alert]:
        """Alerts that no controller got, or that nobody expected."""
        return self.expectation.alerts ^ self.alerts.keys()

    def is_complete(self) -> bool:
        if self.sent is None or self.missing():
            return False
        return not self.wrong_alerts() and not self.wrong_windows()

    def latest_windows(self) -> list[Window]:
        """Of each sensor the last one that is done."""
        latest: dict[str, Window] = {}
        for (_, sensor), window in sorted(self.windows.items()):
            latest[sensor] = window
        return [latest[sensor] for sensor in sorted(latest)]

    def _take_alert(self, event: Alerted) -> None:
        self.alerts[event.sensor, event.number] += 1
        self.alerts_by_controller[event.controller] += 1
        self.latest_alerts.append(event)
        self.latencies.add(event.latency_ms)
