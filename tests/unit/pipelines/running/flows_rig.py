"""Flows whose queries are made up, for tests of how a run looks after them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.pipelines.running.flows_run import FlowsRun, FlowSummary
from penstock.pipelines.running.gate import StopGate
from penstock.pipelines.running.guarding import FlowRecord
from penstock.pipelines.running.progress import BatchProgress
from penstock.pipelines.running.run_record import RunBook, new_run
from penstock.pipelines.running.running_flow import INITIALISING, RunningFlow
from penstock.pipelines.running.starting import ReadyFlow
from penstock.pipelines.running.storage import Storage
from penstock.pipelines.running.watching import RunView
from penstock.pipelines.sinks.sink import Epoch, Written
from penstock.pipelines.specification.model import Restart
from tests.unit.pipelines.running.rig import (
    QUERY,
    ListSink,
    flow,
    make_checkpoint,
    pipeline,
    to_console,
    to_topic,
    topic_source,
)

FRAME: Any = None
ATTEMPTS_MAX = 5
AT_ONCE = Restart(attempts=ATTEMPTS_MAX, pause_s=0.0, pause_s_max=0.0)


class FakeProgress:
    def __init__(self, batch: int, durations_ms: Mapping[str, int]) -> None:
        self._batch = batch
        self._durations_ms = durations_ms

    def batchId(self) -> int:  # noqa: N802
        return self._batch

    def json(self) -> str:
        content = {"id": QUERY, "timestamp": "2026-01-01T00:00:00Z", "batchId": self._batch}
        counts = {"numInputRows": 10, "batchDuration": 5, "durationMs": self._durations_ms}
        return json.dumps(content | counts)


class FakeQuery:
    """Ends after `looks` looks at it, with `error` if it has one; it starts until the first."""

    def __init__(
        self, *, looks: int, batches: int = 0, error: str | None = None, idle: bool = False
    ) -> None:
        self.looks = looks
        self.was_stopped = False
        self._has_begun = False
        self._progress = [FakeProgress(n, {"addBatch": 4}) for n in range(batches)]
        if idle:
            self._progress.append(FakeProgress(batches, {"triggerExecution": 4}))
        self._error = error

    @property
    def isActive(self) -> bool:  # noqa: N802
        return self.looks > 0

    @property
    def status(self) -> dict[str, str]:
        self.looks -= 1
        self._has_begun, had_begun = True, self._has_begun
        return {"message": "Waiting for data to arrive" if had_begun else f"{INITIALISING} sources"}

    @property
    def _jsq(self) -> "FakeQuery":
        self.looks -= 1
        return self

    def lastProgress(self) -> FakeProgress | None:  # noqa: N802
        return self._progress[-1] if self._progress else None

    def recentProgress(self) -> list[FakeProgress]:  # noqa: N802
        return self._progress

    def exception(self) -> Exception | None:
        return None if self._error is None else RuntimeError(self._error)

    def stop(self) -> None:
        self.looks, self.was_stopped = 0, True


class Watching:
    def __init__(self, after: Callable[[], None] = lambda: None) -> None:
        self.batches: list[tuple[str, int]] = []
        self.views: list[RunView] = []
        self._after = after

    def phase(self, sentence: str) -> None: ...

    def show(self, view: RunView) -> None:
        self.views.append(view)
        self._after()

    def finished(self, flow: str, batch: BatchProgress) -> None:
        self.batches.append((flow, batch.batch))


class Rig:
    """Three flows, of which `show` reads what `find` writes, and the queries that they get."""

    def __init__(self, folder: Path, queries: dict[str, list[FakeQuery]]) -> None:
        sources = [topic_source("readings", "readings"), topic_source("alerts", "alerts")]
        sinks = {"find": to_topic("alerts"), "raw": to_console(), "show": to_console()}
        inputs = {"find": "readings", "raw": "readings", "show": "alerts"}
        flows = [flow(name, inputs[name], sinks[name]) for name in queries]
        self.storage = Storage(folder)
        self.pipeline = replace(pipeline(folder, sources, flows), restart=AT_ONCE)
        self.queries = queries
        self.gate = StopGate()
        self.watcher = Watching()
        self.starts: list[str] = []

    def run(self, *, once: bool = False) -> tuple[FlowSummary, ...]:
        self.book = RunBook(self.storage, new_run(self.pipeline, once=once))
        run = FlowsRun(
            pipeline=self.pipeline,
            storage=self.storage,
            book=self.book,
            gate=self.gate,
            watcher=self.watcher,
        )
        record = FlowRecord(pipeline="iot", pipeline_id="a", flow="x")
        flows = self.pipeline.flows.values()
        return run.run(
            [ReadyFlow(flow=each, frame=FRAME, sink=ListSink(), record=record) for each in flows]
        )

    def start(self, ready: ReadyFlow, running: RunningFlow, **_: object) -> None:
        name = ready.flow.name
        make_checkpoint(running.folder.checkpoint)
        query: Any = self.queries[name].pop(0)
        self.queries[name].append(query)
        self.starts.append(name)
        running.on_written(Epoch(query=QUERY, batch=0, pipeline="iot", flow=name), Written(rows=4))
        running.started(query)
