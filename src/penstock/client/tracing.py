"""Traces of a program's own sends and processing, for programs that use OpenTelemetry.

There is nothing to switch on. If the program has set up OpenTelemetry's SDK before it makes a
producer, a consumer or a queue, its records carry `traceparent`, and each send and each record that
a loop processes is a span. In every other program nothing of OpenTelemetry is imported. The names
follow OpenTelemetry's conventions for messaging.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from penstock.model.trace_context import TRACEPARENT, TraceContext, context_of
from penstock.observe.tracing import SYSTEM, span_context

# Records of a batch whose traces its span is linked to; OpenTelemetry keeps as many by default.
LINKS_MAX: Final = 128
# Programs name here, with commas between, what they do not want traced.
_DISABLED: Final = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"

Headers = Iterable[tuple[str, bytes | None]]


def tracing_of_program() -> "ClientTracing | None":
    """None if the program does not trace."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None or "opentelemetry.sdk.trace" not in sys.modules:
        return None
    if "penstock" in (name.strip() for name in os.environ.get(_DISABLED, "").split(",")):
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return ClientTracing(provider.get_tracer("penstock"))


class ClientTracing:
    def __init__(self, tracer: Any) -> None:
        from opentelemetry import propagate, trace

        self._tracer = tracer
        self._trace = trace
        self._propagate = propagate

    # Sending

    def sending(self, topic: str, record: dict[str, Any]) -> Any:
        """The span of a send, begun. librdkafka's arguments get its headers, unless the program
        has placed the record in a trace itself: then the span is linked to that."""
        headers: list[tuple[str, bytes | None]] = list(record.get("headers", ()))
        own = context_of(headers)
        span = self._tracer.start_span(
            f"send {topic}",
            kind=self._trace.SpanKind.PRODUCER,
            attributes=_named("send", topic),
            links=self._links([own] if own is not None else []),
        )
        if not any(name == TRACEPARENT for name, _ in headers):
            carried: dict[str, str] = {}
            self._propagate.inject(carried, self._trace.set_span_in_context(span))
            headers += [(name, text.encode()) for name, text in carried.items()]
        if headers:
            record["headers"] = headers
        return span

    def sent(self, span: Any, partition: int | None, offset: int | None, fault: str = "") -> None:
        """What became of it."""
        if not span.is_recording():
            return
        if fault:
            self._fail(span, fault)
        else:
            span.set_attribute("messaging.destination.partition.id", str(partition))
            span.set_attribute("messaging.kafka.offset", offset or 0)
        span.end()

    # Processing

    def current(self, span: Any) -> AbstractContextManager[Any]:
        """While a record is processed: the span is the program's current one meanwhile, so that
        what it sends is part of the same trace. It ends with the block."""
        return self._trace.use_span(span, end_on_exit=True)

    def begin(
        self, topic: str, headers: Headers, attributes: Mapping[str, str | int | None]
    ) -> Any:
        """The span of a record that is processed, for callers that end it."""
        parent = context_of(headers)
        return self._tracer.start_span(
            f"process {topic}",
            # Without one the span belongs to what the program is at.
            context=None if parent is None else self._context(parent),
            kind=self._trace.SpanKind.CONSUMER,
            attributes=_named("process", topic, attributes),
        )

    def begin_batch(
        self,
        topics: Sequence[str],
        headers: Iterable[Headers],
        attributes: Mapping[str, str | int | None],
    ) -> Any:
        """The span of several records that are processed together, which may be of several
        traces."""
        links: dict[TraceContext, None] = {}
        count = 0
        for each in headers:
            count += 1
            found = context_of(each) if len(links) < LINKS_MAX else None
            if found is not None:
                links[found] = None
        name = topics[0] if len(topics) == 1 else "several topics"
        named = _named("process", name, attributes)
        return self._tracer.start_span(
            f"process {name}",
            kind=self._trace.SpanKind.CONSUMER,
            attributes=named | {"messaging.batch.message_count": count},
            links=self._links(links),
        )

    def _fail(self, span: Any, fault: str) -> None:
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, fault))

    def _links(self, contexts: Iterable[TraceContext]) -> list[Any]:
        return [self._trace.Link(span_context(self._trace, each)) for each in contexts]

    def _context(self, parent: TraceContext) -> Any:
        remote = self._trace.NonRecordingSpan(span_context(self._trace, parent))
        return self._trace.set_span_in_context(remote)


def _named(
    operation: str,
    topic: str,
    attributes: Mapping[str, str | int | None] | None = None,
) -> dict[str, str | int]:
    named: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.destination.name": topic,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
    return named | {key: value for key, value in (attributes or {}).items() if value is not None}


def place_of(
    *, group: str | None, partition: int, offset: int, attempt: int | None = None
) -> dict[str, str | int | None]:
    """Attributes of a record that was read."""
    return {
        "messaging.consumer.group.name": group,
        "messaging.destination.partition.id": str(partition),
        "messaging.kafka.offset": offset,
        "penstock.attempt": attempt,
    }
