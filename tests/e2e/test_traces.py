"""A message is followed by its trace: from the producer through each delivery attempt to the
consumer and the dead letter, whatever door it takes."""

import gc
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from penstock import AsyncConsumer, AsyncProducer, AsyncQueue
from penstock.client import Consumer, Message, Producer, Queue
from penstock.client.child_broker import ChildBroker
from tests.documents import ROOT, Document
from tests.e2e.commands import fresh
from tests.e2e.grpc_client import Client, Generated
from tests.e2e.processes import clean_environment
from tests.e2e.queue_session import configure_group
from tests.e2e.topics import create_topic
from tests.otlp_collector import CollectedSpan, OtlpCollector, otlp_collector
from tests.waiting import wait_until

ATTEMPTS = 2


@pytest.fixture(scope="module")
def collector() -> Iterator[OtlpCollector]:
    with otlp_collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def program(collector: OtlpCollector) -> Iterator[trace.Tracer]:
    """This process, as a program that has set up OpenTelemetry."""
    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    exporter = OTLPSpanExporter(endpoint=f"{collector.endpoint}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with pytest.MonkeyPatch.context() as patch:
        # OpenTelemetry lets a process set its provider once.
        patch.setattr(trace, "_TRACER_PROVIDER", provider)
        yield provider.get_tracer("shop")
    provider.shutdown()


@pytest.fixture(scope="module")
def node(
    tmp_path_factory: pytest.TempPathFactory, collector: OtlpCollector
) -> Iterator[ChildBroker]:
    folder = tmp_path_factory.mktemp("traced")
    with ChildBroker(
        folder / "data", flags=["--tracing", "on"], environment=collector.environment
    ) as broker:
        yield broker


def metric(node: ChildBroker, name: str) -> float:
    with urllib.request.urlopen(f"http://{node.http}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_one_trace_from_the_producer_to_the_dead_letter(
    node: ChildBroker, collector: OtlpCollector, program: trace.Tracer
) -> None:
    topic, group = create_topic(node.bootstrap), fresh("billing")
    dlq = f"dlq.{topic}"
    limit = {"share.delivery.count.limit": str(ATTEMPTS)}
    configure_group(node.bootstrap, group, **limit, **{"errors.deadletterqueue.topic.name": dlq})
    with program.start_as_current_span("checkout") as root, Producer(node.bootstrap) as producer:
        producer.send(topic, "poison", key="k").result()
        producer.send(topic, "fine").result()
    trace_id = f"{root.get_span_context().trace_id:032x}"

    def handle(message: Message) -> None:
        # What a handler sends is part of the trace.
        if message.text() == "poison":
            raise ValueError("not for me")
        with Producer(node.bootstrap) as bills:
            bills.send(f"{topic}-bills", "bill")

    with Queue(topic, group=group, bootstrap=node.bootstrap) as queue:
        queue.work(handle, idle_s=2.0)
    with Consumer(dlq, bootstrap=node.bootstrap) as letters:
        letter = next(iter(letters))
    wait_until("the dead letter's span", lambda: collector.named(f"dead-letter {topic}"))

    sends = {
        span.attributes["messaging.kafka.offset"]: span for span in collector.named(f"send {topic}")
    }
    poison, fine = sends[0], sends[1]
    attempts = collector.named(f"deliver {topic}")
    told = sorted(
        (
            span.attributes["messaging.kafka.offset"],
            span.attributes["penstock.attempt"],
            span.attributes["penstock.outcome"],
            span.parent_id,
        )
        for span in attempts
    )
    assert told == [
        (0, 1, "nack", poison.span_id),
        (0, 2, "nack", poison.span_id),
        (1, 1, "ack", fine.span_id),
    ]
    assert all(span.service == "penstock" and span.duration_ns > 0 for span in attempts)
    handled = collector.named(f"process {topic}")
    assert sorted((span.attributes["penstock.attempt"], span.is_error) for span in handled) == [
        (1, False),
        (1, True),
        (2, True),
    ]
    (dead,) = collector.named(f"dead-letter {topic}")
    assert (dead.parent_id, dead.attributes["penstock.attempt"]) == (poison.span_id, ATTEMPTS)
    assert dead.attributes["penstock.dead_letter.topic"] == dlq
    (bill,) = collector.named(f"send {topic}-bills")
    ours = [*sends.values(), *attempts, *handled, dead, bill]
    assert {span.trace_id for span in ours} == {trace_id}
    # The dead letter goes on from where the record came from.
    traceparent = dict(letter.headers)["traceparent"] or b""
    assert traceparent.startswith(f"00-{trace_id}-{poison.span_id}-0".encode())
    assert metric(node, "penstock_spans_exported_total") >= 4
    assert metric(node, "penstock_spans_dropped_total") == 0


async def test_loops_and_asyncio_are_traced(
    node: ChildBroker, collector: OtlpCollector, program: trace.Tracer
) -> None:
    topic = create_topic(node.bootstrap)
    roots = []
    for number in range(2):
        with program.start_as_current_span("order") as root:
            async with AsyncProducer(node.bootstrap) as producer:
                await producer.send_and_wait(topic, str(number))
        roots.append(f"{root.get_span_context().trace_id:032x}")
    with Consumer(topic, bootstrap=node.bootstrap) as consumer:
        for record in consumer:
            # It is the current span, until the loop asks for the next record.
            current = trace.get_current_span().get_span_context()
            assert f"{current.trace_id:032x}" == roots[record.offset]
            if record.offset == 1:
                break
    del consumer
    async with AsyncConsumer(topic, bootstrap=node.bootstrap) as reader:
        async for record in reader:
            if record.offset == 1:
                break
    with Consumer(topic, bootstrap=node.bootstrap) as consumer:
        batches = consumer.batches()
        seen = len(next(batches))
        while seen < 2:
            seen += len(next(batches))
        batches.close()
    async with AsyncQueue(topic, group=fresh("loop"), bootstrap=node.bootstrap) as queue:
        taken = 0
        async for _ in queue:
            taken += 1
            if taken == 2:
                queue.stop()

    sends = collector.named(f"send {topic}")
    assert [span.trace_id for span in sends] == roots

    def processed() -> list[CollectedSpan]:
        return collector.named(f"process {topic}")

    batch_key = "messaging.batch.message_count"
    # Of the reader that was left in the middle of a record, the last is ended by the collector
    # of garbage.
    wait_until("all spans", lambda: gc.collect() >= 0 and len(processed()) >= 7)
    alone = [span for span in processed() if batch_key not in span.attributes]
    together = [span for span in processed() if batch_key in span.attributes]
    assert sorted(span.trace_id for span in alone) == sorted(roots * 3)
    assert sorted(link for span in together for link in span.links) == sorted(roots)


def asked(node: ChildBroker, path: str, body: dict[str, Any], **headers: str) -> Any:
    request = urllib.request.Request(
        f"http://{node.http}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", **headers},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_traces_go_through_the_other_doors(
    node: ChildBroker, collector: OtlpCollector, tmp_path: Path
) -> None:
    """A request's `traceparent` becomes that of its records, and polls answer with it."""
    topic = create_topic(node.bootstrap)
    traces = {
        "http": "0af7651916cd43dd8448eb211c80319c",
        "grpc": "1af7651916cd43dd8448eb211c80319c",
    }
    parents = {door: f"00-{trace_id}-b7ad6b7169203331-01" for door, trace_id in traces.items()}
    asked(
        node,
        f"/v1/topics/{topic}/records",
        {"records": [{"value": "http"}]},
        traceparent=parents["http"],
    )
    client = Client(Generated(tmp_path), node.grpc)
    new = client.messages.NewRecord(value=b"grpc")
    request = client.messages.PublishRequest(topic=topic, records=[new])
    client.streams.Publish(request, metadata=[("traceparent", parents["grpc"])])
    client.plain_channel.close()

    queue = f"/v1/queues/{topic}/workers"
    polled = asked(node, f"{queue}/poll", {"limit": 2, "wait_ms": 20_000})["messages"]
    said = [message["headers"] for message in polled]
    assert [header["value"] for headers in said for header in headers] == list(parents.values())
    first, second = (message["token"] for message in polled)
    asked(node, f"{queue}/ack", {"tokens": [first]})
    asked(node, f"{queue}/nack", {"tokens": [second], "delay_ms": 60_000})
    wait_until("two spans", lambda: len(collector.named(f"deliver {topic}")) == 2)
    spans = collector.named(f"deliver {topic}")
    assert {(span.trace_id, span.attributes["penstock.outcome"]) for span in spans} == {
        (traces["http"], "ack"),
        (traces["grpc"], "nack"),
    }


def test_a_collector_that_is_away_costs_spans_and_nothing_else(
    collector: OtlpCollector, tmp_path: Path, program: trace.Tracer
) -> None:
    nowhere = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_BSP_SCHEDULE_DELAY": "50"}
    nowhere["OTEL_EXPORTER_OTLP_TIMEOUT"] = "1"
    with ChildBroker(tmp_path / "data", flags=["--tracing", "on"], environment=nowhere) as node:
        topic = create_topic(node.bootstrap)
        with Producer(node.bootstrap) as producer:
            producer.send(topic, "a").result()
        with Queue(topic, group="workers", bootstrap=node.bootstrap) as queue:
            (message,) = queue.take(timeout_s=30)
            message.ack().result(30)
        failed = 'penstock_spans_dropped_total{reason="failed"}'
        wait_until("a dropped span", lambda: metric(node, failed) == 1)
    assert "Traceback" not in node.log


def test_the_program_of_the_how_to_page(node: ChildBroker, collector: OtlpCollector) -> None:
    (block,) = Document(ROOT / "docs/how-to/trace-messages.md").blocks("python")
    program = block.text.replace("127.0.0.1:9092", node.bootstrap)
    subprocess.run(
        [sys.executable, "-c", program],
        env=clean_environment({**collector.environment, "OTEL_SERVICE_NAME": "page"}),
        check=True,
        timeout=60,
    )
    wait_until("the attempt's span", lambda: collector.named("deliver orders"))
    (root,) = [span for span in collector.named("checkout") if span.service == "page"]
    steps = [root, *(span for span in collector.spans if span.name.endswith(" orders"))]
    assert sorted((span.name, span.service) for span in steps) == [
        ("checkout", "page"),
        ("deliver orders", "penstock"),
        ("process orders", "page"),
        ("send orders", "page"),
    ]
    assert {span.trace_id for span in steps} == {root.trace_id}
