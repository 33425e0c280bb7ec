"""Contexts of traces as W3C writes them, and spans that are exported, or counted as dropped."""

from collections.abc import Sequence
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock.model.trace_context import TraceContext, context_of, headers_of, parse_traceparent
from penstock.observe.tracing import PastSpan, SpanCounts, SpanKind, Spans, TracingUnavailable

TEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PARENT = TraceContext(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, True)


def past(name: str = "deliver jobs", parent: TraceContext | None = PARENT) -> PastSpan:
    return PastSpan(
        name=name,
        kind=SpanKind.INTERNAL,
        parent=parent,
        began_ns=1_000,
        ended_ns=3_000,
        attributes={"penstock.attempt": 1},
    )


class Exporter(SpanExporter):
    def __init__(self, result: SpanExportResult = SpanExportResult.SUCCESS) -> None:
        self.spans: list[ReadableSpan] = []
        self.result = result
        # While it is not set, the collector does not answer.
        self.may_answer = Event()
        self.may_answer.set()

    def export(self, spans: Sequence[ReadableSpan]) -> Any:
        self.may_answer.wait()
        self.spans += spans
        return self.result

    def shutdown(self) -> None:
        self.may_answer.set()


def test_a_context_is_read_and_written() -> None:
    assert parse_traceparent(TEXT) == PARENT
    assert str(PARENT) == TEXT
    with_state = PARENT._replace(state="vendor=1")
    assert context_of(headers_of(with_state)) == with_state
    assert context_of([("other", b"1"), *headers_of(PARENT)]) == PARENT
    assert context_of([("other", b"1")]) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        TEXT.upper(),
        TEXT[:-1],
        f"{TEXT}-more",
        f"ff{TEXT[2:]}",
        TEXT.replace("b7ad6b7169203331", "0" * 16),
        TEXT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
        "00-é",
    ],
)
def test_what_is_not_a_context_counts_as_missing(text: str) -> None:
    assert parse_traceparent(text) is None
    assert context_of([("traceparent", text.encode())]) is None


def test_a_later_version_is_read_as_far_as_this_one_knows() -> None:
    assert parse_traceparent(f"01{TEXT[2:]}-more") == PARENT


@given(text=st.one_of(st.text(), st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-0[0-3]")))
def test_it_agrees_with_opentelemetry(text: str) -> None:
    context = TraceContextTextMapPropagator().extract({"traceparent": text})
    theirs = trace.get_current_span(context).get_span_context()
    ours = parse_traceparent(text)
    # They forgive spaces around it, which no record's header has.
    if text == text.strip():
        assert theirs.is_valid == (ours is not None)
    if ours is not None:
        assert (ours.trace_id, ours.span_id) == (theirs.trace_id, theirs.span_id)
        assert ours.is_sampled == theirs.trace_flags.sampled


def test_a_span_belongs_to_the_trace_of_its_parent() -> None:
    exporter, counts = Exporter(), SpanCounts()
    spans = Spans({"service.instance.id": "7"}, counts, exporter)
    spans.add(past())
    spans.add(past(parent=PARENT._replace(is_sampled=False)))
    spans.close()
    (span,) = exporter.spans
    assert span.context is not None
    assert span.parent is not None
    assert (span.context.trace_id, span.parent.span_id) == (PARENT.trace_id, PARENT.span_id)
    assert (span.start_time, span.end_time) == (1_000, 3_000)
    assert span.resource.attributes["service.name"] == "penstock"
    assert (counts.exported, counts.dropped()["failed"]) == (1, 0)


def test_spans_that_find_no_room_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "512")
    exporter, counts = Exporter(), SpanCounts()
    exporter.may_answer.clear()
    spans = Spans({}, counts, exporter)
    for _ in range(600):
        spans.add(past())
    assert counts.full == 600 - 512
    exporter.may_answer.set()
    spans.close()
    assert (counts.exported, len(exporter.spans)) == (512, 512)


def test_spans_that_the_collector_refuses_are_counted() -> None:
    exporter, counts = Exporter(SpanExportResult.FAILURE), SpanCounts()
    spans = Spans({}, counts, exporter)
    spans.add(past())
    spans.close()
    assert (counts.exported, counts.failed) == (0, 1)


def test_the_end_does_not_wait_for_a_collector_that_hangs() -> None:
    exporter = Exporter()
    exporter.may_answer.clear()
    spans = Spans({}, SpanCounts(), exporter)
    spans.add(past())
    spans.close(0.05)
    assert exporter.may_answer.is_set()


def test_a_span_may_bring_its_ids() -> None:
    exporter = Exporter()
    spans = Spans({}, SpanCounts(), exporter)
    spans.add(replace(past(parent=None), own=PARENT))
    spans.add(past(parent=None))
    spans.close()
    first, second = (span.context for span in exporter.spans)
    assert first is not None
    assert second is not None
    assert (first.trace_id, first.span_id) == PARENT[:2]
    assert PARENT.trace_id != second.trace_id


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "few")
    with pytest.raises(TracingUnavailable, match=r"OTEL_.*'few'"):
        Spans({}, SpanCounts(), Exporter())
