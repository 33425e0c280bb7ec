"""Spark's part in the demonstration: the pipeline's process, its tables, and their books."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from penstock.cli.demo.events import Event
from penstock.cli.demo.expectation import Expectation
from penstock.cli.demo.lake import Lake
from penstock.cli.demo.pipeline_ledger import PipelineLedger
from penstock.cli.demo.report import PipelineSummary, pipeline_summary
from penstock.cli.demo.spark_process import Batches, SparkProcess, iot_pipeline

WINDOW_S = 5
# A write that waits for a new leader must not be late for its window.
LATENESS_S = 5
# Alerts are urgent, tables are not: on two cores every batch of the one delays the other.
# Spark begins batches at multiples of their interval, so these rarely begin together.
ALERTS_INTERVAL = "500 milliseconds"
TABLES_INTERVAL = "4 seconds"
REJECTS_INTERVAL = "5 seconds"
LOOK_EVERY_S = 0.5
# The pipeline's own rule for what is unusual; it imports PySpark, which takes a second or more.
RULE = "penstock.pipelines.templates.iot.anomalies"


def import_early() -> None:
    """In a thread, while the nodes start: the screen goes on meanwhile."""
    threading.Thread(target=import_module, args=(RULE,), daemon=True).start()


@contextmanager
def spark_side(bootstrap: str, folder: Path) -> Iterator["SparkSide"]:
    lake = folder / "lake"
    parameters = {
        "brokers": bootstrap,
        "lake": str(lake),
        "window": f"{WINDOW_S} seconds",
        "lateness": f"{LATENESS_S} seconds",
        "interval": TABLES_INTERVAL,
        "alerts_interval": ALERTS_INTERVAL,
        "rejects_interval": REJECTS_INTERVAL,
    }
    with SparkProcess(iot_pipeline(parameters), folder) as process:
        yield SparkSide(process, lake)


class SparkSide:
    """Belongs to the main thread."""

    def __init__(self, process: SparkProcess, lake: Path) -> None:
        self.ledger = PipelineLedger(
            Expectation(
                window_us=WINDOW_S * 1_000_000,
                lateness_us=LATENESS_S * 1_000_000,
                new_history=import_module(RULE).History,
            )
        )
        # When it was warm, by the monotonic clock.
        self.warm_s: float | None = None
        self._process = process
        self._lake = Lake(lake)
        self._batches = Batches(lake / "_pipelines" / "iot")
        self._next_look_s = 0.0

    @property
    def starts(self) -> int:
        return self._process.starts

    @property
    def has_shown_itself(self) -> bool:
        return self.ledger.is_warm and bool(self.ledger.windows)

    @property
    def is_complete(self) -> bool:
        return self.ledger.is_complete()

    def take(self, event: Event) -> None:
        self.ledger.take(event)

    def look(self) -> None:
        """At the process each time, at its tables and its progress twice a second."""
        self._process.check()
        if time.monotonic() < self._next_look_s:
            return
        self._next_look_s = time.monotonic() + LOOK_EVERY_S
        self.ledger.take_archived(self._lake.new_readings())
        self.ledger.take_windows(self._lake.new_windows())
        self.ledger.take_batches(self._batches.finished(), at_us=time.time_ns() // 1000)
        if self.ledger.is_warm and self.warm_s is None:
            self.warm_s = time.monotonic()

    def summary(self, started_s: float) -> PipelineSummary:
        warm_s = self.warm_s if self.warm_s is not None else time.monotonic()
        return pipeline_summary(
            self.ledger, warm_after_s=warm_s - started_s, spark_starts=self.starts
        )
