"""How flows are looked after: started one by one, tried again, told of, ended together."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from penstock.pipelines.running import flows_run
from penstock.pipelines.running.failures import NO_PYTHON
from penstock.pipelines.running.flows_run import FlowsRun, FlowSummary
from penstock.pipelines.running.gate import StopGate
from penstock.pipelines.running.guarding import FlowRecord
from penstock.pipelines.running.progress import BatchProgress, ProgressLog
from penstock.pipelines.running.refusals import FlowFailed
from penstock.pipelines.running.run_record import RunBook, RunState, new_run
from penstock.pipelines.running.running_flow import INITIALISING, RunningFlow
from penstock.pipelines.running.starting import ReadyFlow
from penstock.pipelines.running.storage import Storage
from penstock.pipelines.running.watching import FlowState, RunView
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
NOBODY = """[STREAM_FAILED] It broke: Traceback (most recent call last):
  File "cluster_map.py", line 1, in _ask_each
penstock.client.errors.BrokerUnreachable: No broker answers at x:1: connection refused."""


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
    """Ends after `looks` looks at it, with `error` if it has one."""

    def __init__(
        self, *, looks: int, batches: int = 0, error: str | None = None, idle: bool = False
    ) -> None:
        self.looks = looks
        self.was_stopped = False
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
        return {"message": INITIALISING if self.looks > 2 else "Waiting for data to arrive"}

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


@pytest.fixture
def make_rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Rig]:
    monkeypatch.setattr(flows_run, "POLL_S", 0.0)

    def make(**queries: list[FakeQuery]) -> Rig:
        rig = Rig(tmp_path, queries)
        monkeypatch.setattr(flows_run, "start", rig.start)
        return rig

    return make


def test_a_run_to_the_end_goes_in_the_order_of_what_is_handed_over(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(
        find=[FakeQuery(looks=10, batches=2)],
        raw=[FakeQuery(looks=4, batches=1)],
        show=[FakeQuery(looks=2)],
    )
    find, raw, show = rig.run(once=True)
    assert rig.starts == ["find", "raw", "show"]
    assert (find.batches, find.rows_in, find.rows_out) == (2, 20, None)
    assert (raw.batches, raw.rows_in, raw.rows_out) == (1, 10, 4)
    assert show.batches == 0
    assert rig.watcher.batches.count(("find", 1)) == 1
    kept = ProgressLog(rig.storage.flow("find").progress).last(9)
    assert [(each.batch, each.total.rows_in) for each in kept] == [(0, 10), (1, 20)]


def test_a_last_look_that_found_nothing_is_not_counted(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(raw=[FakeQuery(looks=4, batches=2, idle=True)])
    (raw,) = rig.run()
    assert (raw.batches, raw.rows_in) == (2, 20)
    assert [each.batch for each in ProgressLog(rig.storage.flow("raw").progress).last(9)] == [0, 1]


def test_a_flow_whose_python_did_not_start_in_time_is_tried_again(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(raw=[FakeQuery(looks=1, error=NO_PYTHON), FakeQuery(looks=3, batches=1)])
    (raw,) = rig.run()
    assert (rig.starts, raw.batches) == (["raw", "raw"], 1)


def test_that_holds_for_a_flow_that_has_run_for_a_while_too(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(
        raw=[
            *(FakeQuery(looks=3, batches=n, error=NO_PYTHON) for n in range(1, ATTEMPTS_MAX + 2)),
            FakeQuery(looks=3, batches=ATTEMPTS_MAX + 2),
        ]
    )
    (raw,) = rig.run()
    assert raw.batches == len(rig.starts) == ATTEMPTS_MAX + 2


def test_but_not_for_ever(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(raw=[FakeQuery(looks=1, error=NO_PYTHON) for _ in range(9)])
    with pytest.raises(FlowFailed, match=f"The flow raw failed: {NO_PYTHON}"):
        rig.run()
    assert len(rig.starts) == 1 + ATTEMPTS_MAX


def test_a_flow_whose_brokers_went_away_rests_and_the_others_go_on(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(
        raw=[FakeQuery(looks=3, batches=1, error=NOBODY), FakeQuery(looks=3, batches=2)],
        find=[FakeQuery(looks=200)],
    )
    rig.pipeline = replace(rig.pipeline, restart=Restart(pause_s=0.05, pause_s_max=0.05))
    raw, find = rig.run()
    assert (raw.batches, raw.restarts, find.restarts) == (2, 1, 0)
    resting = [view.run.resting for view in rig.watcher.views if view.run.resting]
    reason = "No broker answers at x:1: connection refused."
    assert {(one["raw"].attempt, one["raw"].reason) for one in resting} == {(1, reason)}
    states = [{flow.name: flow.state for flow in view.flows} for view in rig.watcher.views]
    assert {"raw": FlowState.RESTARTING, "find": FlowState.RUNNING} in states


def test_a_flow_that_never_found_brokers_is_not_started_again(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(raw=[FakeQuery(looks=3, error=NOBODY)])
    with pytest.raises(FlowFailed, match="The flow raw failed: No broker answers at x:1"):
        rig.run()
    assert rig.starts == ["raw"]


def test_a_stop_ends_a_flow_that_rests(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(raw=[FakeQuery(looks=3, batches=1, error=NOBODY)])
    rig.pipeline = replace(rig.pipeline, restart=Restart(pause_s=600.0, pause_s_max=600.0))

    def stop_when_it_rests() -> None:
        if rig.watcher.views[-1].flows[0].state is FlowState.RESTARTING:
            rig.storage.stop.touch()

    rig.watcher = Watching(after=stop_when_it_rests)
    (raw,) = rig.run()
    assert (rig.starts, raw.batches, raw.restarts) == (["raw"], 1, 0)


def test_a_failing_flow_ends_the_others(make_rig: Callable[..., Rig]) -> None:
    endless = FakeQuery(looks=10_000)
    rig = make_rig(raw=[FakeQuery(looks=3, error="[BAD] It broke. SQLSTATE: 1")], find=[endless])
    with pytest.raises(FlowFailed, match=r"^The flow raw failed: It broke\.$"):
        rig.run()
    assert endless.was_stopped
    assert rig.gate.is_requested


def test_a_stop_file_ends_all(make_rig: Callable[..., Rig]) -> None:
    endless = FakeQuery(looks=10_000, batches=1)
    rig = make_rig(raw=[endless])
    rig.watcher = Watching(after=rig.storage.stop.touch)
    rig.run()
    assert endless.was_stopped
    assert rig.book.run.state is RunState.STOPPING


def test_a_query_that_does_not_end_does_not_keep_the_run(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = FakeQuery(looks=10_000)

    def stop() -> None:
        raise PySparkException("[TIMEOUT] The stream did not end within 60 s.")

    monkeypatch.setattr(stuck, "stop", stop)
    rig = make_rig(raw=[stuck])
    rig.watcher = Watching(after=rig.gate.request)
    rig.run()
    assert stuck.isActive


def test_an_error_of_ours_leaves_no_query_running(make_rig: Callable[..., Rig]) -> None:
    endless = FakeQuery(looks=10_000)
    rig = make_rig(raw=[endless])

    def fail() -> None:
        raise ZeroDivisionError

    rig.watcher = Watching(after=fail)
    with pytest.raises(ZeroDivisionError):
        rig.run()
    assert endless.was_stopped
