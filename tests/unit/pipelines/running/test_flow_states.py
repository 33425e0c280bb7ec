"""`run` and `status` say the same of a flow, in each state that it can be in."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Self

import pytest

from penstock.cli.pipeline.screen_cells import cells
from penstock.pipelines.running import flows_run
from penstock.pipelines.running.failures import NO_PYTHON
from penstock.pipelines.running.flow_states import FlowState, flow_state
from penstock.pipelines.running.flows_run import FlowSummary
from penstock.pipelines.running.looking import look
from penstock.pipelines.running.refusals import FlowFailed
from penstock.pipelines.running.run_record import Phase, Run, RunState, sole_run
from penstock.pipelines.running.watching import RunView
from penstock.pipelines.specification.model import Restart
from tests.unit.pipelines.running.flows_rig import FakeQuery, Rig, Watching

MakeRig = Callable[..., Rig]
NOW_MS = 1_000_000
RUN = Run(pipeline="iot", file="iot.yaml", pid=1, host="h", started_ms=1, state=RunState.RUNNING)


@pytest.fixture(autouse=True)
def one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the two looks no second begins."""
    monkeypatch.setattr("penstock.cli.pipeline.screen_cells.now_ms", lambda: NOW_MS)


class Agreeing:
    """Runs flows, looks at each moment from outside as well, and keeps the states."""

    def __init__(self, rig: Rig, meanwhile: Callable[[RunView], None] = lambda view: None) -> None:
        self.seen: dict[str, list[FlowState]] = {}
        self._rig = rig
        self._meanwhile = meanwhile
        rig.watcher = Watching(after=self._compare)

    def run(self, *, once: bool = False) -> tuple[FlowSummary, ...]:
        with sole_run(self._rig.storage):
            done = self._rig.run(once=once)
            self._rig.book.ended()
        self._at_end()
        return done

    def fail(self) -> None:
        with sole_run(self._rig.storage):
            with pytest.raises(FlowFailed) as failed:
                self._rig.run()
            self._rig.book.ended(str(failed.value), failed_flow=failed.value.flow)
        self._at_end()

    def _compare(self) -> None:
        view = self._rig.watcher.views[-1]
        self._same(view, look(self._rig.storage))
        self._meanwhile(view)

    def _at_end(self) -> None:
        """What was shown last is what is found when the process has ended."""
        self._same(self._rig.watcher.views[-1], look(self._rig.storage))

    def _same(self, view: RunView, looked: RunView) -> None:
        assert [cells(flow) for flow in looked.flows] == [cells(flow) for flow in view.flows]
        assert looked.flows == view.flows
        for flow in view.flows:
            seen = self.seen.setdefault(flow.name, [])
            if seen[-1:] != [flow.state]:
                seen.append(flow.state)


def test_a_run_to_the_end(make_rig: MakeRig) -> None:
    rig = make_rig(find=[FakeQuery(looks=10, batches=2)], show=[FakeQuery(looks=9, batches=1)])
    agreeing = Agreeing(rig)
    agreeing.run(once=True)
    working = [FlowState.STARTING, FlowState.RUNNING, FlowState.ENDED]
    assert agreeing.seen == {"find": working, "show": [FlowState.WAITING, *working]}


def test_a_flow_that_has_nothing_to_do_and_is_stopped(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows_run, "IDLE_AFTER_S", 0.0)
    rig = make_rig(raw=[FakeQuery(looks=10_000)])

    def stop(view: RunView) -> None:
        if view.flows[0].state is FlowState.IDLE:
            rig.gate.request()

    agreeing = Agreeing(rig, stop)
    agreeing.run()
    assert agreeing.seen["raw"] == [FlowState.STARTING, FlowState.IDLE, FlowState.STOPPED]


def test_a_flow_whose_batch_is_under_way_is_not_idle(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 0.0
    monkeypatch.setattr(flows_run, "time", SimpleNamespace(monotonic=lambda: seconds, sleep=pause))
    rig = make_rig(raw=[FakeQuery(looks=40, batches=1)])
    batch = rig.gate.batch("raw", 0)

    def go_on(view: RunView) -> None:
        nonlocal seconds
        seconds += flows_run.IDLE_AFTER_S
        looks = len(rig.watcher.views)
        if looks == 20:
            batch.__enter__()
        elif looks == 30:
            batch.__exit__(None, None, None)

    agreeing = Agreeing(rig, go_on)
    agreeing.run()
    states = [FlowState.IDLE, FlowState.RUNNING, FlowState.IDLE, FlowState.ENDED]
    assert agreeing.seen["raw"][-4:] == states


def pause(seconds: float) -> None: ...


def test_a_flow_that_restarts_and_one_that_fails(make_rig: MakeRig) -> None:
    rig = make_rig(
        raw=[FakeQuery(looks=9, batches=1, error=NO_PYTHON), FakeQuery(looks=9, error="It broke.")],
        find=[FakeQuery(looks=10_000)],
    )
    rig.pipeline = replace(rig.pipeline, restart=Restart(pause_s=0.02, pause_s_max=0.02))
    agreeing = Agreeing(rig)
    agreeing.fail()
    assert agreeing.seen["raw"] == [
        FlowState.STARTING,
        FlowState.RUNNING,
        FlowState.RESTARTING,
        FlowState.STARTING,
        FlowState.RUNNING,
        FlowState.FAILED,
    ]
    assert agreeing.seen["find"][-1] is FlowState.STOPPED
    assert rig.watcher.views[-1].flows[0].failure == "It broke."


def test_a_flow_waits_for_its_own_brokers_only(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows_run, "BrokerWatch", AwayFromTheStart)
    rig = make_rig(raw=[FakeQuery(looks=20)], find=[FakeQuery(looks=20)])
    new_run = "tests.unit.pipelines.running.flows_rig.new_run"
    monkeypatch.setattr(
        new_run,
        lambda pipeline, *, once: replace(
            RUN,
            flows=("raw", "find"),
            sinks={"raw": "console", "find": "topic alerts"},
            brokers={"raw": ["x:1"], "find": ["y:2"]},
        ),
    )
    agreeing = Agreeing(rig)
    agreeing.run()
    assert agreeing.seen["raw"] == [FlowState.NO_BROKER, FlowState.ENDED]
    assert FlowState.NO_BROKER not in agreeing.seen["find"]


class AwayFromTheStart:
    """In place of the thread that looks for brokers: x:1 does not answer."""

    silent: Mapping[str, str] = {"x:1": "No broker answers at x:1: connection refused."}

    def __init__(self, addresses: list[str]) -> None:
        assert addresses == ["x:1", "y:2"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


def test_a_batch_that_is_under_way_is_waited_for(make_rig: MakeRig) -> None:
    rig = make_rig(raw=[FakeQuery(looks=10_000, batches=1)])
    batch = rig.gate.batch("raw", 0)
    batch.__enter__()

    def end_the_batch(view: RunView) -> None:
        rig.gate.request()
        is_waiting = view.flows[0].state is FlowState.STOPPING
        if is_waiting and rig.gate.under_way("raw") is not None:
            batch.__exit__(None, None, None)
            (rig.storage.flow("raw").checkpoint / "commits" / "0").touch()

    agreeing = Agreeing(rig, end_the_batch)
    agreeing.run()
    assert agreeing.seen["raw"][-2:] == [FlowState.STOPPING, FlowState.STOPPED]


def test_a_process_that_is_gone_leaves_killed_flows(make_rig: MakeRig) -> None:
    rig = make_rig(raw=[FakeQuery(looks=9)])
    agreeing = Agreeing(rig)
    with sole_run(rig.storage):
        rig.run()
        rig.book.flows(phases={"raw": Phase.RUNNING}, failures={}, resting={}, silent={})
        assert look(rig.storage).flows[0].state is FlowState.RUNNING
    assert look(rig.storage).flows[0].state is FlowState.KILLED
    assert agreeing.seen["raw"][-1] is FlowState.ENDED


def test_what_counts_most_comes_first() -> None:
    noted = replace(RUN, flows=("raw",), phases={"raw": Phase.IDLE}, brokers={"raw": ["x:1"]})
    away = replace(noted, silent={"x:1": "No broker answers at x:1."})
    assert flow_state(noted, "raw") is FlowState.IDLE
    assert flow_state(away, "raw") is FlowState.NO_BROKER
    assert flow_state(replace(away, state=RunState.STOPPING), "raw") is FlowState.NO_BROKER
    over = replace(away, state=RunState.FAILED, error="Spark's process has died.")
    assert flow_state(over, "raw") is FlowState.STOPPED
    assert flow_state(replace(over, failed_flow="raw"), "raw") is FlowState.FAILED
    assert flow_state(RUN, "raw") is FlowState.STARTING
