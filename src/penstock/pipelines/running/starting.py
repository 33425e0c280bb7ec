"""Makes flows ready to run: builds their frames and sinks, and lets the guard look at each.

All flows are made ready before the first one starts, so that a pipeline runs as a whole or is
refused as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipelines.running.checkpoint_folder import query_id
from penstock.pipelines.running.gate import StopGate
from penstock.pipelines.running.guarding import FlowRecord, check_flow, keep_record
from penstock.pipelines.running.queries import start_query
from penstock.pipelines.running.running_flow import RunningFlow
from penstock.pipelines.running.sink_names import sink_name
from penstock.pipelines.running.source_signature import source_signature
from penstock.pipelines.running.storage import Storage
from penstock.pipelines.sinks.sink import Sink
from penstock.pipelines.specification.model import Flow, Pipeline
from penstock.pipelines.specification.problems import Problem, SpecificationRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyFlow:
    flow: Flow
    frame: "DataFrame"
    sink: Sink
    record: FlowRecord


def make_ready(
    pipeline: Pipeline, spark: "SparkSession", storage: Storage, pipeline_id: str
) -> list[ReadyFlow]:
    """Raises SpecificationRefused with what is wrong in all flows, or RunRefused.

    Nothing has been written by then.
    """
    ready: list[ReadyFlow] = []
    problems: list[Problem] = []
    for flow in pipeline.flows.values():
        try:
            ready.append(_make_ready(flow, pipeline, spark, storage, pipeline_id))
        except SpecificationRefused as refused:
            problems += refused.problems
    if problems:
        # Flows that share a dataset share its problems.
        raise SpecificationRefused(dict.fromkeys(problems))
    return ready


def start(
    ready: ReadyFlow, running: RunningFlow, *, pipeline: str, once: bool, gate: StopGate
) -> None:
    """Start the query, with a note of whose it is before and after."""
    keep_record(running.folder, ready.record)
    query = start_query(
        ready.frame,
        ready.sink,
        pipeline=pipeline,
        flow=ready.flow.name,
        checkpoint=running.folder.checkpoint,
        interval=ready.flow.interval,
        once=once,
        mode=ready.flow.mode,
        gate=gate,
        on_written=running.on_written,
        on_failed=running.on_failed,
    )
    running.started(query)
    if ready.record.query is None:
        keep_record(running.folder, with_query(ready.record, running.folder.checkpoint))


def with_query(record: FlowRecord, checkpoint: Path) -> FlowRecord:
    return replace(record, query=query_id(checkpoint))


def _make_ready(
    flow: Flow, pipeline: Pipeline, spark: "SparkSession", storage: Storage, pipeline_id: str
) -> ReadyFlow:
    from penstock.pipelines.building.datasets import Datasets
    from penstock.pipelines.building.live_reader import LiveReader
    from penstock.pipelines.checking.flows import flow_problems
    from penstock.pipelines.checking.state_signature import state_signature
    from penstock.pipelines.sinks.building import build_sink

    session = flow_session(spark, pipeline.settings, flow.settings)
    frame = Datasets(pipeline, session, LiveReader(session)).frame(flow.input)
    if problems := list(flow_problems(flow, frame, session, is_doubtful=False)):
        raise SpecificationRefused(problems)
    sink = build_sink(flow.sink, session)
    sink.prepare(frame.schema)
    described = FlowRecord(
        pipeline=pipeline.name,
        pipeline_id=pipeline_id,
        flow=flow.name,
        sources=source_signature(frame),
        state=state_signature(frame),
        mode=str(flow.mode),
        sink=sink_name(flow.sink),
    )
    record = check_flow(storage.flow(flow.name), described, sink, file=pipeline.file)
    return ReadyFlow(flow=flow, frame=frame, sink=sink, record=record)


def flow_session(
    spark: "SparkSession", pipeline: Mapping[str, str], flow: Mapping[str, str]
) -> "SparkSession":
    """A session of its own: views and settings of one flow are none of the others' business."""
    session = spark.newSession()
    for name, value in {**pipeline, **flow}.items():
        # What only counts when Spark starts has been given to it then.
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session
