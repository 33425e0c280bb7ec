"""Proves that a trace goes on through Spark: a micro-batch is linked to the traces of its records,
and what it writes belongs to its own."""

from pathlib import Path

from pyspark.sql import SparkSession

from penstock.client import Consumer, Producer
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.otlp_collector import OtlpCollector
from tests.spark.rig import finish
from tests.waiting import wait_until

TRACES = ["0af7651916cd43dd8448eb211c80319c", "1af7651916cd43dd8448eb211c80319c"]
PARENTS = [f"00-{trace}-b7ad6b7169203331-01".encode() for trace in TRACES]
UNSAMPLED = PARENTS[0][:-1] + b"0"


def test_a_micro_batch_is_linked_to_its_records_and_marks_what_it_writes(
    spark: SparkSession,
    broker: Broker,
    make_topic: MakeTopic,
    collector: OtlpCollector,
    tmp_path: Path,
) -> None:
    source, target = make_topic(), make_topic()
    with Producer(broker.bootstrap) as producer:
        for parent in (*PARENTS, PARENTS[0], UNSAMPLED):
            producer.send(source, "traced", headers=[("traceparent", parent)])
        producer.send(source, "plain", headers=[("a", b"b")])
        producer.send(source, "bare")
    common = {"kafka.bootstrap.servers": broker.bootstrap, "tracing": "true"}
    rows = (
        spark.readStream.format("penstock")
        .options(**common, subscribe=source, startingOffsets="earliest", includeHeaders="true")
        .load()
        .select("value", "headers")
    )
    query = (
        rows.writeStream.format("penstock")
        .options(**common, topic=target, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    finish(query)
    wait_until("two spans", lambda: collector.named(f"send {target}"))
    (read,), (written,) = collector.named(f"receive {source}"), collector.named(f"send {target}")
    assert set(read.links) == set(TRACES)
    assert read.attributes["penstock.spark.query"] == str(query.id)
    assert written.attributes["messaging.batch.message_count"] == 6
    # Both are of the micro-batch.
    assert read.trace_id == written.trace_id

    own = f"00-{written.trace_id}-{written.span_id}-01".encode()
    with Consumer(target, bootstrap=broker.bootstrap) as consumer:
        records = [next(loop) for loop in [iter(consumer)] for _ in range(6)]
    headers = [(record.text(), dict(record.headers)) for record in records]
    assert headers[:3] == [("traced", {"traceparent": each}) for each in (*PARENTS, PARENTS[0])]
    assert headers[3:] == [
        ("traced", {"traceparent": UNSAMPLED}),
        ("plain", {"a": b"b", "traceparent": own}),
        ("bare", {"traceparent": own}),
    ]
