"""Runs the demonstration without Spark, from an empty directory to its summary."""

import tempfile
import time
from dataclasses import dataclass
from queue import SimpleQueue

from penstock.cli.demo.events import Event
from penstock.cli.demo.ledger import Ledger
from penstock.cli.demo.screen import Screen, screen
from penstock.cli.demo.workers import (
    CONTROLLERS,
    GROUP,
    consumed,
    controllers_at_work,
    reported,
    sensors_at_work,
)
from penstock.cli.failures import CommandFailed
from penstock.client.admin import Admin
from penstock.client.child_broker import ChildBroker

TOPIC = "readings"
PARTITIONS = 6
JOIN_S_MAX = 60.0
DRAIN_S_MAX = 60.0
REFRESH_S = 0.1
SENDING_S_MIN = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    # How long the sensors sent.
    seconds: float
    produced: int
    consumed: dict[str, int]
    repeated: int
    lag_max: int
    latency_p50_ms: float
    latency_p99_ms: float
    missing: int
    out_of_order: int
    # What the group still had to read after its consumers had committed and left.
    lag_at_end: int

    @property
    def passed(self) -> bool:
        is_whole = self.missing == 0 and self.out_of_order == 0 and self.lag_at_end == 0
        return is_whole and self.produced > 0


def run_demo(*, seconds: float, rate: int, sensors: int, quiet: bool) -> Summary:
    """Start a broker, let it work for `seconds`, and check what came out of it."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
        with ChildBroker(directory) as broker, screen(seconds, quiet=quiet) as shown:
            admin = Admin(broker.bootstrap)
            admin.topics.create(TOPIC, partitions=PARTITIONS)
            demo = _Demo(broker.bootstrap, started, shown)
            demo.work(seconds=seconds, rate=rate, sensors=sensors)
            lag_at_end = admin.groups.describe(GROUP).lag
        return _summary(demo.ledger, demo.sending_s, lag_at_end)


class _Demo:
    """The main thread's part: it starts the others, takes their events and keeps the books."""

    def __init__(self, bootstrap: str, started: float, shown: Screen | None) -> None:
        self.ledger = Ledger()
        self.sending_s = 0.0
        self._bootstrap = bootstrap
        self._started = started
        self._shown = shown
        self._events: SimpleQueue[Event] = SimpleQueue()

    def work(self, *, seconds: float, rate: int, sensors: int) -> None:
        events = self._events
        with controllers_at_work(self._bootstrap, TOPIC, events=events, understand=consumed):
            self._await_members()
            with sensors_at_work(
                self._bootstrap, TOPIC, count=sensors, rate=rate, events=events
            ) as source:
                began = time.monotonic()
                # At least a moment of work, however long the start took.
                self._watch(max(self._started + seconds, began + SENDING_S_MIN))
                source.stop()
                self.sending_s = time.monotonic() - began
                self._drain()

    def _await_members(self) -> None:
        """Both controllers must hold partitions before there is anything to read."""
        deadline = time.monotonic() + JOIN_S_MAX
        while not self._shares_are_whole():
            if time.monotonic() > deadline:
                raise CommandFailed(f"The controllers did not join within {JOIN_S_MAX:g} s.")
            self._step()

    def _shares_are_whole(self) -> bool:
        shares = self.ledger.shares.values()
        held = sum(len(share) for share in shares)
        return len(shares) == len(CONTROLLERS) and held == PARTITIONS and all(shares)

    def _watch(self, until: float) -> None:
        while time.monotonic() < until:
            self._step()

    def _drain(self) -> None:
        """Let the controllers catch up; what is missing after that is missing for good."""
        deadline = time.monotonic() + DRAIN_S_MAX
        while not self.ledger.is_complete() and time.monotonic() < deadline:
            self._step()

    def _step(self) -> None:
        """Take what happened in the last tenth of a second and show it."""
        time.sleep(REFRESH_S)
        for event in reported(self._events):
            self.ledger.take(event)
        self.ledger.note_lag()
        if self._shown is not None:
            self._shown.show(self.ledger, time.monotonic() - self._started)


def _summary(ledger: Ledger, seconds: float, lag_at_end: int) -> Summary:
    return Summary(
        seconds=round(seconds, 1),
        produced=ledger.produced,
        consumed={name: ledger.consumed[name] for name in CONTROLLERS},
        repeated=ledger.repeated,
        lag_max=ledger.lag_max,
        latency_p50_ms=ledger.latencies.percentile(0.5),
        latency_p99_ms=ledger.latencies.percentile(0.99),
        missing=sum(ledger.missing().values()),
        out_of_order=ledger.out_of_order,
        lag_at_end=lag_at_end,
    )
