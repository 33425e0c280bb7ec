"""Starts a flow as a streaming query whose micro-batches a sink takes, each known forever.

All sinks run inside `foreachBatch`: there the epoch is known, one action is run on the batch, and
a stop can be kept between two batches. The epoch's identity is the query's id, which Spark makes
with the checkpoint and never again.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipelines.running.checkpoint_folder import (
    clear_unplanned,
    last_planned,
    location,
    query_id,
)
from penstock.pipelines.running.gate import StopGate
from penstock.pipelines.running.refusals import RunRefused
from penstock.pipelines.sinks.sink import Epoch, Sink, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

OnWritten = Callable[[Epoch, Written], None]
OnFailed = Callable[[Exception], None]
NOTHING_PLANNED = -1
# The next batch begins as soon as the last has ended.
AT_ONCE = "0 seconds"


def start_query(
    frame: "DataFrame",
    sink: Sink,
    *,
    pipeline: str,
    flow: str,
    checkpoint: Path,
    interval: str | None,
    once: bool,
    mode: str,
    gate: StopGate,
    on_written: OnWritten,
    on_failed: OnFailed | None = None,
) -> "StreamingQuery":
    """The running query, whose name in Spark is `<pipeline>.<flow>`.

    `once` reads what is there at the start and ends; `interval` has no meaning then. `on_written`
    is called inside the batch, before Spark notes that it is done. `on_failed` gets what a batch
    raised in Python, which Spark itself hands on only as text.
    """
    clear_unplanned(checkpoint)
    batches = BatchFunction(
        sink=sink,
        pipeline=pipeline,
        flow=flow,
        checkpoint=checkpoint,
        gate=gate,
        on_written=on_written,
        on_failed=on_failed,
    )
    writer = (
        frame.writeStream.queryName(f"{pipeline}.{flow}")
        .outputMode(mode)
        .option("checkpointLocation", location(checkpoint))
        .foreachBatch(batches)
    )
    if once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=interval or AT_ONCE)
    return writer.start()


class BatchFunction:
    """What Spark calls with each micro-batch of one query."""

    def __init__(
        self,
        *,
        sink: Sink,
        pipeline: str,
        flow: str,
        checkpoint: Path,
        gate: StopGate,
        on_written: OnWritten,
        on_failed: OnFailed | None = None,
    ) -> None:
        self._sink = sink
        self._pipeline = pipeline
        self._flow = flow
        self._checkpoint = checkpoint
        self._gate = gate
        self._on_written = on_written
        self._on_failed = on_failed
        self._query: str | None = None
        planned = last_planned(checkpoint)
        self._planned_before = NOTHING_PLANNED if planned is None else planned

    def __call__(self, frame: "DataFrame", batch: int) -> None:
        try:
            with self._gate.batch(self._flow, batch):
                self._write(frame, self._epoch(batch))
        except Exception as error:
            if self._on_failed is not None:
                self._on_failed(error)
            raise

    def _write(self, frame: "DataFrame", epoch: Epoch) -> None:
        written = self._sink.write(frame, epoch)
        if written.was_there and epoch.batch > self._planned_before:
            raise RunRefused(self._behind(epoch))
        self._on_written(epoch, written)

    def _epoch(self, batch: int) -> Epoch:
        if self._query is None:
            # The first batch may come before `start` has returned the query.
            self._query = query_id(self._checkpoint)
            assert self._query is not None, "Spark writes the id before the first batch."
        return Epoch(query=self._query, batch=batch, pipeline=self._pipeline, flow=self._flow)

    def _behind(self, epoch: Epoch) -> str:
        # A crash leaves at most one batch that was planned and written, but not noted. A batch that
        # was planned only now and is in the sink already means other rows than these.
        return (
            f"The sink of {epoch.flow} already holds batch {epoch.batch} of this query, but the "
            f"checkpoint {self._checkpoint} had not reached it: the checkpoint is older than what "
            f"was written, so the flow must be reset."
        )
