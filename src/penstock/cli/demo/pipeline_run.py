"""Runs the demonstration with Spark: the IoT pipeline from an empty directory to its summary."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from queue import SimpleQueue

from penstock.cli.demo.events import Event
from penstock.cli.demo.expectation import Expectation, Window
from penstock.cli.demo.lake import Lake
from penstock.cli.demo.pipeline_ledger import PipelineLedger
from penstock.cli.demo.pipeline_process import PipelineProcess
from penstock.cli.demo.pipeline_screen import PipelineScreen, pipeline_screen
from penstock.cli.demo.workers import (
    CONTROLLERS,
    alerted,
    controllers_at_work,
    reported,
    sensors_at_work,
)
from penstock.cli.failures import CommandFailed
from penstock.client.admin import Admin
from penstock.client.child_broker import ChildBroker

# Topics and their partitions, by the names that the pipeline has for them.
TOPICS = {"readings": 4, "alerts": 2, "readings-dead": 1}
WINDOW_S = 5
LATENESS_S = 2
INTERVAL_S = 1
REFRESH_S = 0.1
LOOK_AT_LAKE_S = 1.0
# How long Spark may take until its first window is in the table, and how long that is then shown.
FIRST_WINDOW_S_MAX = 240.0
SHOWN_S_MIN = 3.0
DRAIN_S_MAX = 240.0
REMOVE_S_MAX = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSummary:
    # How long the sensors sent.
    seconds: float
    produced: int
    # Rows of the table of readings.
    archived: int
    missing: int
    repeated: int
    windows: int
    windows_wrong: int
    alerts_expected: int
    alerts_wrong: int
    # Deliveries of alerts by controller; a topic may hold one twice after a task was tried again.
    alerts: dict[str, int]
    latency_p50_ms: float
    latency_p99_ms: float
    latest: tuple[Window, ...]

    @property
    def passed(self) -> bool:
        faults = (self.missing, self.repeated, self.windows_wrong, self.alerts_wrong)
        return not any(faults) and self.produced > 0 and self.windows > 0


def run_pipeline_demo(*, seconds: float, rate: int, sensors: int, quiet: bool) -> PipelineSummary:
    """Start a broker and the pipeline, let them work, and check what is in the lake."""
    with temporary_folder() as folder, ExitStack() as running:
        broker = running.enter_context(ChildBroker(folder / "broker"))
        admin = Admin(broker.bootstrap)
        for topic, partitions in TOPICS.items():
            admin.topics.create(topic, partitions=partitions)
        lake = folder / "lake"
        pipeline = running.enter_context(_pipeline(broker.bootstrap, lake, folder))
        shown = running.enter_context(pipeline_screen(quiet=quiet))
        demo = _PipelineDemo(broker.bootstrap, pipeline, Lake(lake), shown)
        demo.work(seconds=seconds, rate=rate, sensors=sensors)
    return _summary(demo.ledger, demo.sending_s)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Removed again, also where a Spark that was cut short still writes for a moment."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        yield folder
    finally:
        deadline = time.monotonic() + REMOVE_S_MAX
        while folder.exists() and time.monotonic() < deadline:
            shutil.rmtree(folder, ignore_errors=True)
            time.sleep(REFRESH_S)


def _pipeline(bootstrap: str, lake: Path, folder: Path) -> PipelineProcess:
    file = Path(str(files("penstock.pipelines") / "templates" / "iot" / "iot.yaml"))
    parameters = {
        "brokers": bootstrap,
        "lake": str(lake),
        "window": f"{WINDOW_S} seconds",
        "lateness": f"{LATENESS_S} seconds",
        "interval": f"{INTERVAL_S} seconds",
    }
    return PipelineProcess(file, parameters, folder)


class _PipelineDemo:
    """The main thread's part: it starts the others, takes their events and looks at the lake."""

    def __init__(
        self, bootstrap: str, pipeline: PipelineProcess, lake: Lake, shown: PipelineScreen | None
    ) -> None:
        from penstock.pipelines.templates.iot.anomalies import History

        self.ledger = PipelineLedger(
            Expectation(
                window_us=WINDOW_S * 1_000_000,
                lateness_us=LATENESS_S * 1_000_000,
                new_history=History,
            )
        )
        self.sending_s = 0.0
        self._bootstrap = bootstrap
        self._pipeline = pipeline
        self._lake = lake
        self._shown = shown
        self._started = time.monotonic()
        self._next_look = 0.0
        self._events: SimpleQueue[Event] = SimpleQueue()

    def work(self, *, seconds: float, rate: int, sensors: int) -> None:
        address, events = self._bootstrap, self._events
        with (
            controllers_at_work(address, "alerts", events=events, understand=alerted),
            sensors_at_work(address, "readings", count=sensors, rate=rate, events=events) as source,
        ):
            began = time.monotonic()
            self._watch(until=began + seconds)
            source.stop()
            self.sending_s = time.monotonic() - began
            self._drain()

    def _watch(self, until: float) -> None:
        """For the time that was asked for, and until the first windows have been seen."""
        give_up = time.monotonic() + FIRST_WINDOW_S_MAX
        while not self.ledger.windows:
            if time.monotonic() > give_up:
                raise CommandFailed(f"No window came in {FIRST_WINDOW_S_MAX:g} s.")
            self._step()
        until = max(until, time.monotonic() + SHOWN_S_MIN)
        while time.monotonic() < until:
            self._step()

    def _drain(self) -> None:
        """Let the pipeline catch up; what is missing after that is missing for good."""
        deadline = time.monotonic() + DRAIN_S_MAX
        while not self.ledger.is_complete() and time.monotonic() < deadline:
            self._step()

    def _step(self) -> None:
        """Take what happened in the last tenth of a second and show it."""
        time.sleep(REFRESH_S)
        self._pipeline.check()
        for event in reported(self._events):
            self.ledger.take(event)
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + LOOK_AT_LAKE_S
            self.ledger.take_archived(self._lake.new_readings())
            self.ledger.take_windows(self._lake.new_windows())
        if self._shown is not None:
            self._shown.show(self.ledger, now - self._started)


def _summary(ledger: PipelineLedger, seconds: float) -> PipelineSummary:
    return PipelineSummary(
        seconds=round(seconds, 1),
        produced=ledger.produced,
        archived=ledger.archive.rows,
        missing=ledger.missing(),
        repeated=ledger.archive.repeated,
        windows=len(ledger.windows),
        windows_wrong=len(ledger.wrong_windows()) + ledger.windows_repeated,
        alerts_expected=len(ledger.expectation.alerts),
        alerts_wrong=len(ledger.wrong_alerts()),
        alerts={name: ledger.alerts_by_controller[name] for name in CONTROLLERS},
        latency_p50_ms=ledger.latencies.percentile(0.5),
        latency_p99_ms=ledger.latencies.percentile(0.99),
        latest=tuple(ledger.latest_windows()),
    )
