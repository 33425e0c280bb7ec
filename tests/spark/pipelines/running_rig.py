"""A small pipeline over a topic, rows for it, and what its tables hold, for tests of the runner."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq

from penstock.pipelines.lakes.opening import open_table
from penstock.pipelines.running.gate import StopGate
from penstock.pipelines.running.progress import BatchProgress
from penstock.pipelines.running.watching import RunView
from penstock.pipelines.specification.model import LakeFormat, Pipeline
from penstock.pipelines.specification.reading import read_pipeline

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
# For flows that start one after the other, each with Python processes of its own.
GATHERING_TIMEOUT_S = 240.0
# Every tenth reading can't be decoded, every tenth is too hot.
UNDECODABLE_EVERY = HOT_EVERY = 10

SPECIFICATION = """\
pipeline: iot
parameters:
  brokers: {}
  topic: {}
  width: 10 seconds
settings: {spark.sql.shuffle.partitions: 1}
sources:
  readings:
    topic: ${topic}
    brokers: ${brokers}
    options: {maxOffsetsPerTrigger: 50}
    decode: {format: json, schema: "number BIGINT, temperature DOUBLE, at TIMESTAMP"}
    watermark: {column: at, delay: 1 second}
    rules:
      plausible: {condition: temperature < 80, action: route}
steps:
  averages:
    sql: |
      SELECT window.start AS start, avg(temperature) AS average
      FROM readings GROUP BY window(at, '${width}')
flows:
  raw: {from: readings, to: {parquet: lake/raw}}
"""
AVERAGES = "  averages: {from: averages, to: {parquet: lake/averages}}\n"


def write_specification(folder: Path, *flows: str) -> Path:
    path = folder / "iot.yaml"
    path.write_text(SPECIFICATION + "".join(flows))
    return path


def read(path: Path, brokers: str, topic: str, **parameters: str) -> Pipeline:
    given = {"brokers": brokers, "topic": topic, **parameters}
    return read_pipeline(path, given, environment={})


def readings(first: int, count: int) -> list[bytes]:
    """Numbered readings, ten for each second."""
    return [_reading(number) for number in range(first, first + count)]


def _reading(number: int) -> bytes:
    if number % UNDECODABLE_EVERY == 1:
        return b"{not json"
    is_hot = number % HOT_EVERY == 2
    at = BEGIN + timedelta(milliseconds=100 * number)
    return json.dumps(
        {"number": number, "temperature": 99.0 if is_hot else 20.0, "at": at.isoformat()}
    ).encode()


def good_numbers(count: int) -> list[int]:
    """Of the first readings those that end in the table."""
    return [number for number in range(count) if number % 10 not in (1, 2)]


def numbers_in(table: Path) -> list[int]:
    """The readings that the table holds, doubled ones twice."""
    paths = open_table(LakeFormat.PARQUET, str(table)).paths()
    return sorted(number for path in paths for number in pq.read_table(path)["number"].to_pylist())


class Recorder:
    """A watcher that keeps the batches, and does something after each."""

    def __init__(self, after: Callable[[str, BatchProgress], None] | None = None) -> None:
        self.batches: list[tuple[str, BatchProgress]] = []
        self.views: list[RunView] = []
        self._after = after

    def phase(self, sentence: str) -> None: ...

    def show(self, view: RunView) -> None:
        self.views.append(view)

    def finished(self, flow: str, batch: BatchProgress) -> None:
        self.batches.append((flow, batch))
        if self._after is not None:
            self._after(flow, batch)


class GatheringGate(StopGate):
    """Lets no flow write its batch of that number in the run before all flows are at theirs.

    What a watcher does comes at some time after the batch of which it was told, and by then a flow
    may have ended. What is done by `then` comes while each flow has a batch that Spark has to note.
    """

    def __init__(self, flows: int, number: int, then: Callable[["GatheringGate"], None]) -> None:
        super().__init__()
        self._all = threading.Barrier(flows, lambda: then(self), GATHERING_TIMEOUT_S)
        self._number = number
        self._entered: Counter[str] = Counter()

    @contextmanager
    def batch(self, flow: str, batch: int) -> Iterator[None]:
        with super().batch(flow, batch):
            is_awaited = self._entered[flow] == self._number
            self._entered[flow] += 1
            if is_awaited:
                self._all.wait()
                self.gathered(flow)
            yield

    def gathered(self, flow: str) -> None:
        """Inside of the batch, which may be held here."""
