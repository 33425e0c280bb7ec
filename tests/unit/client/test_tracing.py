"""A program is traced if it has set up OpenTelemetry, and only then."""

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock.client import ClientError, Producer
from penstock.client.asynchronous import AsyncProducer
from penstock.client.tracing import tracing_of_program

PROGRAM = """
import sys
from penstock import Consumer, Producer, Queue
Producer("127.0.0.1:1"), Consumer(bootstrap="127.0.0.1:1"), Queue("t", group="g")
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


def test_a_program_without_opentelemetry_does_not_load_it() -> None:
    command = [sys.executable, "-c", PROGRAM]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout == "[]\n"


def test_a_program_that_has_set_it_up_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    assert tracing_of_program() is None
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider())
    assert tracing_of_program() is not None
    monkeypatch.setenv("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "requests, penstock")
    assert tracing_of_program() is None


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


def assert_refused(exporter: InMemorySpanExporter) -> None:
    (span,) = exporter.get_finished_spans()
    assert span.name == "send t"
    assert "can't be sent" in str(span.status.description)


def test_the_span_of_a_record_that_is_refused_at_once_ends(exporter: InMemorySpanExporter) -> None:
    producer = Producer("127.0.0.1:1")
    with pytest.raises(ClientError):
        producer.send("t", "x", timestamp_ms=2**70)
    producer.close()
    assert_refused(exporter)


async def test_the_span_of_such_a_record_ends_with_asyncio_too(
    exporter: InMemorySpanExporter,
) -> None:
    with pytest.raises(ClientError):
        async with AsyncProducer("127.0.0.1:1") as producer:
            await producer.send("t", "x", timestamp_ms=2**70)
    assert_refused(exporter)
