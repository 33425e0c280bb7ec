"""The books of the pipeline: what came of the readings in the lake, and which alerts were heard.

The time from sensor to controller counts from the moment on which Spark is warm. A reading from
before has waited for Spark to start, which says nothing about how fast alerts are.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.cli.demo.events import Acknowledged, Alerted, Event, Finished
from penstock.cli.demo.expectation import Alert, Expectation, Window, WindowKey
from penstock.cli.demo.ledger import Arrivals, Latencies

ALERTS_KEPT = 40
# The first batch of a flow compiles code, starts Python and reads all that waited; the next ones
# read what came meanwhile. A flow is warm when a batch takes no longer than this, and at the latest
# after that many batches: a machine that is too slow for it should not wait endlessly.
WARM_BATCH_MS_MAX = 3_000
WARM_BATCHES_MIN = 2
WARM_BATCHES_MAX = 8


@dataclass(slots=True)
class PipelineLedger:
    """Takes events and rows in; asserts nothing, reports everything."""

    expectation: Expectation
    sent: dict[str, int] | None = None
    archive: Arrivals = field(default_factory=Arrivals)
    windows: dict[WindowKey, Window] = field(default_factory=dict)
    windows_repeated: int = 0
    alerts: Counter[Alert] = field(default_factory=Counter)
    alerts_by_controller: Counter[str] = field(default_factory=Counter)
    latest_alerts: deque[Alerted] = field(default_factory=lambda: deque(maxlen=ALERTS_KEPT))
    # Finished micro-batches of each flow, and how long the last one took.
    batches: dict[str, int] = field(default_factory=dict)
    batch_ms: dict[str, int] = field(default_factory=dict)
    warm_us: int | None = None
    latencies: Latencies = field(default_factory=Latencies)
    # Alerts on readings from before Spark was warm.
    left_out: int = 0

    def take(self, event: Event) -> None:
        match event:
            case Acknowledged():
                self.expectation.take(event.reading, delay_us=event.at_us - event.reading.at_us)
            case Alerted():
                self._take_alert(event)
            case Finished():
                self.sent = event.sent

    def take_archived(self, rows: Iterable[tuple[str, int]]) -> None:
        for sensor, number in rows:
            self.archive.take(sensor, number)

    def take_windows(self, rows: Iterable[Window]) -> None:
        for window in rows:
            key = (window.begins_us, window.sensor)
            self.windows_repeated += key in self.windows
            self.windows[key] = window

    def take_batches(self, batches: Mapping[str, tuple[int, int]], *, at_us: int) -> None:
        """By flow: how many micro-batches have ended, and the milliseconds that the last took."""
        self.batches = {flow: count for flow, (count, _) in batches.items()}
        self.batch_ms = {flow: duration_ms for flow, (_, duration_ms) in batches.items()}
        if batches and self.warm_flows == len(batches) and self.warm_us is None:
            self.warm_us = at_us

    @property
    def warm_flows(self) -> int:
        return sum(
            count >= WARM_BATCHES_MAX
            or (count >= WARM_BATCHES_MIN and self.batch_ms[flow] <= WARM_BATCH_MS_MAX)
            for flow, count in self.batches.items()
        )

    @property
    def is_warm(self) -> bool:
        return self.warm_us is not None

    def missing(self) -> int:
        """Readings that were acknowledged and are not in the table."""
        return self.archive.missing(self.sent or {})

    def wrong_windows(self) -> list[WindowKey]:
        """Windows that are only on one side, or differ; those with late readings are left out."""
        expected = self.expectation.closed_windows()
        return [
            key
            for key in sorted((expected.keys() | self.windows.keys()) - self.expectation.late)
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
        if self.warm_us is None or event.at_us < self.warm_us:
            self.left_out += 1
        else:
            self.latencies.add(event.latency_ms)
