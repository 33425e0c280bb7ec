"""A run of a pipeline as screens get it, for tests of what they show."""

from penstock.pipelines.running.flow_states import FlowState
from penstock.pipelines.running.progress import BatchProgress, Totals
from penstock.pipelines.running.run_record import Run, RunState
from penstock.pipelines.running.watching import FlowView
from penstock.pipelines.specification.model import ConsoleSink, Flow, Pipeline
from penstock.pipelines.specification.problems import Place

BATCH = BatchProgress(
    at_ms=1,
    query="q",
    batch=12,
    rows_in=1_000,
    rows_out=24,
    batch_ms=310,
    rows_in_per_second=5_000.4,
    lag={"readings": {"0": 3, "1": 4_000}},
    state_rows=24,
    state_bytes=8_544,
    watermark="2026-11-16T05:53:11.601Z",
    rules={"readings": {"plausible": 2}},
    dead_letters=1,
    total=Totals(rows_in=20_000, rows_out=24, dead_letters=7, rules={"readings": {"plausible": 9}}),
)
FLOW = FlowView(name="averages", sink="delta /lake", state=FlowState.RUNNING, last=BATCH)
PLACE = Place("iot.yaml")
PIPELINE = Pipeline(
    name="iot",
    file="iot.yaml",
    storage="",
    parameters={},
    sources={},
    steps={},
    flows={
        "averages": Flow(
            name="averages", input="readings", sink=ConsoleSink(place=PLACE), place=PLACE
        )
    },
    place=PLACE,
)
RUN = Run(
    pipeline="iot",
    file="iot.yaml",
    pid=1,
    host="h",
    started_ms=1_000,
    ended_ms=66_000,
    state=RunState.RUNNING,
    master="local[2]",
    ui="http://localhost:4040",
)
