"""What a batch does with its sink: its epoch, what is told, and when a checkpoint is too old."""

from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.running.gate import StopGate, StopRequested
from penstock.pipelines.running.queries import BatchFunction
from penstock.pipelines.running.refusals import RunRefused
from penstock.pipelines.sinks.sink import Epoch, SinkRefused, Written
from tests.unit.pipelines.running.rig import QUERY, ListSink, make_checkpoint


class Told:
    def __init__(self) -> None:
        self.written: list[tuple[Epoch, Written]] = []
        self.failed: list[Exception] = []

    def on_written(self, epoch: Epoch, written: Written) -> None:
        self.written.append((epoch, written))


def batches(checkpoint: Path, sink: ListSink, told: Told, gate: StopGate) -> BatchFunction:
    return BatchFunction(
        sink=sink,
        pipeline="iot",
        flow="raw",
        checkpoint=checkpoint,
        gate=gate,
        on_written=told.on_written,
        on_failed=told.failed.append,
    )


FRAME: Any = None


def test_an_epoch_is_the_id_of_the_checkpoint_and_the_batch(tmp_path: Path) -> None:
    sink, told = ListSink(), Told()
    function = batches(tmp_path, sink, told, StopGate())
    # Spark makes the checkpoint after the function was given to it.
    make_checkpoint(tmp_path)
    function(FRAME, 0)
    function(FRAME, 1)
    epoch = Epoch(query=QUERY, batch=0, pipeline="iot", flow="raw")
    assert told.written[0] == (epoch, Written(rows=1))
    assert [each.batch for each in sink.written] == [0, 1]


def test_a_batch_that_was_written_before_a_crash_is_taken_as_done(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, planned=4, committed=3)
    sink, told = ListSink({QUERY: 4}), Told()
    function = batches(tmp_path, sink, told, StopGate())
    function(FRAME, 4)
    function(FRAME, 5)
    assert [written.was_there for _, written in told.written] == [True, False]


def test_a_checkpoint_older_than_the_sink_is_refused_and_nothing_is_skipped(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, planned=2, committed=2)
    sink, told = ListSink({QUERY: 7}), Told()
    function = batches(tmp_path, sink, told, StopGate())
    with pytest.raises(RunRefused, match=f"already holds batch 3 of this query.*{tmp_path}"):
        function(FRAME, 3)
    assert told.written == []


def test_failures_and_stops_are_told_as_they_were_raised(tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    sink, told, gate = ListSink(), Told(), StopGate()
    function = batches(tmp_path, sink, told, gate)
    sink.failure = SinkRefused("The table is full.")
    with pytest.raises(SinkRefused):
        function(FRAME, 0)
    gate.request()
    with pytest.raises(StopRequested):
        function(FRAME, 0)
    assert [type(error) for error in told.failed] == [SinkRefused, StopRequested]
    assert sink.written == []
