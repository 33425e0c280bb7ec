"""A flow that fails for a passing reason goes on by itself, with every row once."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from penstock.cli.main import cli
from penstock.cli.pipeline.screen_cells import cells
from penstock.pipelines.running.flow_states import FlowState
from penstock.pipelines.running.looking import look
from penstock.pipelines.running.runner import run_pipeline
from penstock.pipelines.running.storage import Storage
from penstock.pipelines.running.watching import RunView
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.spark.conftest import Produce
from tests.spark.pipelines.running_rig import (
    Recorder,
    good_numbers,
    numbers_in,
    read,
    readings,
    write_specification,
)

RECORDS = 200
# A batch has fifty readings, so that the second one is the first to fail.
STEPS = """\
from pathlib import Path

from pyspark.sql import functions as sf

REGISTER = Path(__file__).with_name("register")


@sf.udf("boolean")
def is_known(number):
    if number >= 60 and not REGISTER.exists():
        raise ConnectionError("the register of sensors is away")
    return True


def known(readings):
    return readings.where(is_known("number"))
"""
STEP = '  known: {function: "steps.py:known"}\nflows:\n'
FLOW = "  known: {from: known, to: {parquet: lake/known}}\n"


class Repairing(Recorder):
    """Brings the register back when the flow rests, after a look from outside."""

    def __init__(self, storage: Storage, register: Path) -> None:
        super().__init__()
        self._storage = storage
        self._register = register
        self.status: list[RunView] = []

    def show(self, view: RunView) -> None:
        super().show(view)
        is_resting = any(flow.state is FlowState.RESTARTING for flow in view.flows)
        if is_resting and not self._register.exists():
            self.status.append(look(self._storage))
            self._register.touch()


@pytest.mark.timeout(600)
def test_a_flow_that_lost_a_connection_restarts_by_itself(
    spark: SparkSession,
    broker: Broker,
    make_topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    topic = make_topic(partitions=1)
    path = write_specification(tmp_path, FLOW)
    path.write_text(path.read_text().replace("flows:\n", STEP))
    (tmp_path / "steps.py").write_text(STEPS)
    produce(topic, readings(0, RECORDS))
    pipeline = read(path, broker.bootstrap, topic)
    storage = Storage(Path(pipeline.storage))
    watcher = Repairing(storage, tmp_path / "register")

    summary = run_pipeline(pipeline, once=True, watcher=watcher, spark=spark)

    assert numbers_in(tmp_path / "lake" / "known") == good_numbers(RECORDS)
    assert numbers_in(tmp_path / "lake" / "raw") == good_numbers(RECORDS)
    done = {flow.name: flow for flow in summary.flows}
    assert {name: flow.restarts for name, flow in done.items()} == {"raw": 0, "known": 1}
    assert done["raw"].rules == {"readings": {"plausible": RECORDS // 10}}

    # Both screens said why, and that there would be another attempt.
    [status] = watcher.status
    seen = next(view for view in watcher.views if view.run.resting)
    assert status.flows == seen.flows
    known = {flow.name: flow for flow in seen.flows}["known"]
    assert known.rest is not None
    assert known.rest.attempt == 1
    reason = (
        f"ConnectionError: the register of sensors is away ({tmp_path}/steps.py:11, in is_known)."
    )
    assert known.rest.reason.startswith(reason)
    assert "(attempt 1)" in cells(known)[1]
    asked = CliRunner().invoke(
        cli, ["pipeline", "status", "--storage", str(storage.path), "--json"]
    )
    flows = json.loads(asked.stdout)["flows"]
    assert {name: flow["state"] for name, flow in flows.items()} == {
        "raw": "ended",
        "known": "ended",
    }
    assert flows["raw"]["broken_rules"] == [
        {"dataset": "readings", "rule": "plausible", "rows": RECORDS // 10}
    ]
