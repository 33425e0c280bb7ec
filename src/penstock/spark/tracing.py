"""Traces of Spark's tasks, with the option `tracing`.

A task that reads a topic makes one span, which is linked to the traces of the records that it has
read. A task that writes to topics makes one too, and its records carry it on as `traceparent`,
unless they have one. All spans of a micro-batch are of one trace, whose id follows from the query
and the number of the batch: so nothing has to be passed between the tasks, and a batch that is
repeated has the same.

Each process sends its spans itself, by the OTEL_* variables of its own environment.
"""

import logging
import os
import time
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from penstock.model.trace_context import TraceContext, headers_of
from penstock.observe.tracing import SYSTEM, PastSpan, SpanCounts, SpanKind, Spans
from penstock.records.traced import traced_in
from penstock.spark.writing.epoch import TaskAttempt

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

# Traces that the span of one task is linked to; OpenTelemetry keeps as many by default.
LINKS_MAX: Final = 128
# Bytes of batches that one task looks into for them.
LOOKED_BYTES_MAX: Final = 4 * 1024 * 1024
# How long a task waits at its end until the collector has its span.
SEND_S_MAX: Final = 0.5


def context_of_task(attempt: TaskAttempt) -> TraceContext:
    """A place for the task's span in the trace of its micro-batch; outside of streams in one of its
    own."""
    trace = os.urandom(16)
    if attempt.epoch is not None:
        name = f"{attempt.epoch.query_id}/{attempt.epoch.batch_id}"
        trace = blake2b(name.encode(), digest_size=16, person=b"penstock.traces").digest()
    # Neither may be zero.
    span_id = int.from_bytes(os.urandom(8)) or 1
    return TraceContext(int.from_bytes(trace) or 1, span_id, is_sampled=True)


@dataclass(slots=True, kw_only=True)
class TaskTrace:
    """The span of one task; `end` sends it."""

    attempt: TaskAttempt
    context: TraceContext
    began_ns: int = field(default_factory=time.time_ns)
    _links: dict[TraceContext, None] = field(default_factory=dict)
    _looked_bytes: int = 0

    @classmethod
    def begin(cls, attempt: TaskAttempt) -> "TaskTrace":
        return cls(attempt=attempt, context=context_of_task(attempt))

    def look_into(self, batches: bytes | memoryview, stop: int) -> None:
        """At what was fetched: whose traces are these?"""
        if len(self._links) >= LINKS_MAX or self._looked_bytes >= LOOKED_BYTES_MAX:
            return
        self._looked_bytes += len(batches)
        for _, found in traced_in(bytes(batches), stop - 1):
            self._links[found] = None
            if len(self._links) >= LINKS_MAX:
                return

    def end_read(self, topic: str, partition: int, fault: str = "") -> None:
        place = {"messaging.destination.partition.id": str(partition)}
        self._end("receive", topic, SpanKind.CONSUMER, place, fault)

    def end_write(self, topic: str | None, records: int, fault: str = "") -> None:
        count = {"messaging.batch.message_count": records}
        self._end("send", topic or "several topics", SpanKind.PRODUCER, count, fault)

    def _end(
        self,
        operation: str,
        topic: str,
        kind: SpanKind,
        more: "dict[str, int] | dict[str, str]",
        fault: str,
    ) -> None:
        epoch = self.attempt.epoch
        attributes: dict[str, str | int] = {
            "messaging.system": SYSTEM,
            "messaging.destination.name": topic,
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "penstock.spark.partition": self.attempt.partition,
            **more,
        }
        if epoch is not None:
            attributes["penstock.spark.query"] = epoch.query_id
            attributes["penstock.spark.batch"] = epoch.batch_id
        past = PastSpan(
            name=f"{operation} {topic}",
            kind=kind,
            parent=None,
            own=self.context,
            began_ns=self.began_ns,
            ended_ns=time.time_ns(),
            attributes=attributes,
            links=list(self._links),
            fault=fault,
        )
        spans = Spans({}, SpanCounts())
        spans.add(past)
        spans.close(SEND_S_MAX)


def with_traceparent(headers: "pa.Array | None", count: int, context: TraceContext) -> "pa.Array":
    """The headers of rows to write, where each row without a `traceparent` gets this one."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from penstock.spark.writing.slab import HEADERS_TYPE

    ((name, value), *_) = headers_of(context)
    added = pa.array([{"key": name, "value": value}], HEADERS_TYPE.value_type)
    if headers is None:
        places = np.zeros(count, np.int64)
        bounds = np.arange(count + 1, dtype=np.int32)
        return pa.ListArray.from_arrays(bounds, added.take(pa.array(places)), HEADERS_TYPE)
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
    present = headers.flatten()
    rows = np.repeat(np.arange(count), counts)
    is_trace = pc.equal(pc.struct_field(present, "key"), name).to_numpy(zero_copy_only=False)
    lacks = np.ones(count, np.int64)
    lacks[rows[is_trace.astype(bool)]] = 0
    bounds = np.concatenate([[0], np.cumsum(counts + lacks)])
    # The added one lies behind all others; each header moves by how many rows before it lack one.
    places = np.full(int(bounds[-1]), len(present), np.int64)
    places[np.arange(len(present)) + np.repeat(np.cumsum(lacks) - lacks, counts)] = np.arange(
        len(present)
    )
    everything = pa.concat_arrays([present, added])
    values = everything.take(pa.array(places))
    return pa.ListArray.from_arrays(bounds.astype(np.int32), values, HEADERS_TYPE)
