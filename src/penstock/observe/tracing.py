"""Spans for OpenTelemetry: made of what has happened, and exported in a thread of its SDK.

Whoever traces says afterwards what it was, when it began and when it ended (`PastSpan`). The SDK
samples, collects and sends it, by OpenTelemetry's own environment variables. Nothing here waits
for a collector but `close`, and that not for long. What is dropped is counted.

OpenTelemetry is an extra. It is imported when somebody wants to trace.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from penstock.model.trace_context import TraceContext

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

# Spans that wait for the collector, unless OTEL_BSP_MAX_QUEUE_SIZE says otherwise.
WAITING_MAX: Final = 2_048
# How long the end of a process waits for a collector that does not answer.
CLOSE_S_MAX: Final = 3.0
# What traces call this program, unless OTEL_SERVICE_NAME says otherwise.
SERVICE_NAME: Final = "penstock"
# The conventions have no name for it of their own: it speaks Kafka's protocol.
SYSTEM: Final = "kafka"

Attributes = Mapping[str, str | int]


class TracingUnavailable(Exception):
    """Its text says what to install."""


class SpanKind(Enum):
    INTERNAL = auto()
    PRODUCER = auto()
    CONSUMER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class PastSpan:
    """Something that is over, as part of the trace that it belongs to."""

    name: str
    kind: SpanKind
    # None begins a trace.
    parent: TraceContext | None
    # Its own ids, if they are known already; only of one without a parent.
    own: TraceContext | None = None
    # By the wall clock.
    began_ns: int
    ended_ns: int
    attributes: Attributes = field(default_factory=dict)
    links: Sequence[TraceContext] = ()
    # Why it failed; empty if it did not.
    fault: str = ""


class SpanCounts:
    """Each number has one thread that writes it."""

    __slots__ = ("exported", "failed", "full", "untracked", "unwatched")

    def __init__(self) -> None:
        self.exported = 0
        # The collector did not take them.
        self.failed = 0
        # More waited for the collector than may.
        self.full = 0
        # Attempts that were not followed because too many were open, or could not be read.
        self.untracked = 0
        # What happened while the thread that makes spans was too far behind.
        self.unwatched = 0

    def dropped(self) -> dict[str, int]:
        """By reason."""
        return {
            "failed": self.failed,
            "full": self.full,
            "untracked": self.untracked,
            "unwatched": self.unwatched,
        }


class Spans:
    """Exports spans to where OTEL_EXPORTER_OTLP_ENDPOINT says."""

    def __init__(
        self,
        resource: Attributes,
        counts: SpanCounts,
        exporter: "SpanExporter | None" = None,
    ) -> None:
        """Raises TracingUnavailable. Tests bring their exporter."""
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.environment_variables import OTEL_BSP_MAX_QUEUE_SIZE
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as missing:
            raise TracingUnavailable(
                f"Tracing needs OpenTelemetry, and {missing.name} is not installed: "
                "pip install 'penstock-mq[otel]'."
            ) from None
        self._api = trace
        self._counts = counts
        self._ids = _ids()
        named = dict(resource)
        if "OTEL_SERVICE_NAME" not in os.environ:
            named.setdefault("service.name", SERVICE_NAME)
        try:
            self._exporter = exporter or OTLPSpanExporter()
            self._waiting_max = int(os.environ.get(OTEL_BSP_MAX_QUEUE_SIZE) or WAITING_MAX)
            processor = BatchSpanProcessor(
                _counted_exporter(self._exporter, counts), max_queue_size=self._waiting_max
            )
            self._provider = TracerProvider(resource=Resource.create(named), id_generator=self._ids)
        except ValueError as wrong:
            raise TracingUnavailable(f"A variable OTEL_* can't be used: {wrong}.") from None
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("penstock")
        self._added = 0

    def add(self, past: PastSpan) -> None:
        """In one thread at a time. The SDK would drop the oldest span without a word; so one that
        finds no room is dropped and counted here."""
        counts = self._counts
        if self._added - counts.exported - counts.failed >= self._waiting_max:
            counts.full += 1
            return
        trace = self._api
        parent = _context(trace, past.parent)
        self._ids.next = past.own
        span = self._tracer.start_span(
            past.name,
            context=parent,
            kind=getattr(trace.SpanKind, past.kind.name),
            attributes=dict(past.attributes),
            links=[trace.Link(span_context(trace, each)) for each in past.links],
            start_time=past.began_ns,
        )
        if past.fault:
            span.set_status(trace.Status(trace.StatusCode.ERROR, past.fault))
        self._added += span.is_recording()
        span.end(past.ended_ns)

    def close(self, wait_s: float = CLOSE_S_MAX) -> None:
        """Sends what is left, if the collector takes it in this time."""
        closing = Thread(target=self._provider.shutdown, name="close traces", daemon=True)
        closing.start()
        closing.join(wait_s)
        if closing.is_alive():
            # Ends its attempts to send again.
            self._exporter.shutdown()


def _ids() -> Any:
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class Ids(RandomIdGenerator):
        """By chance, except where a span brings its own."""

        next: TraceContext | None = None

        def generate_trace_id(self) -> int:
            return super().generate_trace_id() if self.next is None else self.next.trace_id

        def generate_span_id(self) -> int:
            return super().generate_span_id() if self.next is None else self.next.span_id

    return Ids()


def _counted_exporter(inner: "SpanExporter", counts: SpanCounts) -> "SpanExporter":
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Counted(SpanExporter):
        """Knows what became of each span."""

        def export(self, spans: "Sequence[ReadableSpan]") -> Any:
            result: Any = None
            try:
                result = inner.export(spans)
            finally:
                if result is SpanExportResult.SUCCESS:
                    counts.exported += len(spans)
                else:
                    counts.failed += len(spans)
            return result

        def shutdown(self) -> None:
            inner.shutdown()

    return Counted()


def span_context(trace: Any, context: TraceContext) -> Any:
    """OpenTelemetry's form of it; `trace` is `opentelemetry.trace`."""
    flags = trace.TraceFlags.SAMPLED if context.is_sampled else trace.TraceFlags.DEFAULT
    return trace.SpanContext(
        trace_id=context.trace_id,
        span_id=context.span_id,
        is_remote=True,
        trace_flags=trace.TraceFlags(flags),
        trace_state=trace.TraceState.from_header([context.state]) if context.state else None,
    )


def _context(trace: Any, parent: TraceContext | None) -> Any:
    from opentelemetry.context import Context

    # Never what the caller's thread is at.
    if parent is None:
        return Context()
    return trace.set_span_in_context(trace.NonRecordingSpan(span_context(trace, parent)), Context())
