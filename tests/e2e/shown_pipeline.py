"""As `penstock pipeline run`, with a run that shows a dozen flows instead of one that needs Spark.

Run by test_pipeline_screen.py in a terminal, which knows from VIEW what has to be on the screen.
The run ends with the first signal, or with STUBBORN in the environment not before the second.
"""

import os
import sys
import time
from dataclasses import replace
from typing import Any

from penstock.cli.main import main
from penstock.pipelines.running import runner
from penstock.pipelines.running.flow_states import FlowState
from penstock.pipelines.running.gate import StopGate
from penstock.pipelines.running.run_record import RunState
from penstock.pipelines.running.runner import RunSummary
from penstock.pipelines.running.watching import RunView, Watcher
from tests.unit.cli.pipeline_views import FLOW, RUN

STATES = [FlowState.RUNNING] * 9 + [FlowState.IDLE, FlowState.NO_BROKER, FlowState.FAILED]
FAILURE = (
    "ValueError: sensor 7 is too hot (/srv/iot/anomalies.py:46, in check). The record is in batch "
    "12, which reads offsets 600 to 649 of partition 0 of topic readings."
)
VIEW = RunView(
    run=replace(RUN, silent={"x:1": "No broker answers at x:1: connection refused."}),
    flows=tuple(
        replace(
            FLOW,
            name=f"flow_{number:02}_of_a_dozen",
            state=state,
            failure=FAILURE if state is FlowState.FAILED else None,
        )
        for number, state in enumerate(STATES)
    ),
)
POLL_S = 0.02


def run_pipeline(pipeline: Any, *, gate: StopGate, watcher: Watcher, **given: Any) -> RunSummary:
    watcher.show(VIEW)
    print("a row of a console sink")
    while not gate.is_requested:
        time.sleep(POLL_S)
    while "STUBBORN" in os.environ:
        watcher.show(replace(VIEW, run=replace(VIEW.run, state=RunState.STOPPING)))
        time.sleep(POLL_S)
    return RunSummary(seconds=1.0, flows=(), was_stopped=True)


if __name__ == "__main__":
    runner.run_pipeline = run_pipeline
    sys.exit(main())
