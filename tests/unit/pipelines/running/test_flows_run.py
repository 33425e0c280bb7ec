"""How flows are looked after: started one by one, tried again, told of, ended together."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.errors import PySparkException

from penstock.pipelines.running.failures import NO_PYTHON
from penstock.pipelines.running.flow_states import FlowState
from penstock.pipelines.running.progress import ProgressLog
from penstock.pipelines.running.refusals import FlowFailed
from penstock.pipelines.running.run_record import RunState
from penstock.pipelines.specification.model import Restart
from tests.unit.pipelines.running.flows_rig import ATTEMPTS_MAX, FakeQuery, Rig, Watching

NOBODY = """[STREAM_FAILED] It broke: Traceback (most recent call last):
  File "cluster_map.py", line 1, in _ask_each
penstock.client.errors.BrokerUnreachable: No broker answers at x:1: connection refused."""


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
