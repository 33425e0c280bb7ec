"""One message on its way through every door of three nodes, while the leader of its partition is
killed: written by curl, polled and given back over gRPC, rejected by Kafka's share consumer,
parked, brought back over HTTP, acked by the share consumer, and read by Spark."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer
from pyspark.sql import SparkSession

from penstock.testing import ProcessCluster
from tests.e2e.grpc_client import Client, Generated
from tests.e2e.queue_session import configure_group
from tests.waiting import wait_until

TOPIC, GROUP, PARKED = "orders", "billing", "dlq.orders"
WAIT_S = 90.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path / "cluster", nodes=3) as cluster:
        yield cluster


def curl(url: str, body: Any = None) -> Any:
    command = ["curl", "-sS", "--fail-with-body", "--retry", "0", "--max-time", "60", url]
    if body is not None:
        command += ["-H", "content-type: application/json", "--data-binary", json.dumps(body)]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert outcome.returncode == 0, (outcome.stdout, outcome.stderr)
    return json.loads(outcome.stdout)


def settle_one(bootstrap: str, kind: AcknowledgeType) -> tuple[bytes, int]:
    """The value and the attempt of the one message that the queue has."""
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "share.acknowledgement.mode": "explicit",
            "reconnect.backoff.max.ms": 300,
            "log_level": 2,
        }
    )
    try:
        consumer.subscribe([TOPIC])
        polled: list[Any] = []

        def has_one() -> bool:
            polled.extend(each for each in consumer.poll(0.5) if each.error() is None)
            return bool(polled)

        wait_until("a message for the share consumer", has_one, WAIT_S)
        (message,) = polled
        consumer.acknowledge(message, kind)
        assert [error for error in consumer.commit_sync(30).values() if error] == []
        return message.value(), message.delivery_count()
    finally:
        consumer.close()


def values(spark: SparkSession, bootstrap: str, topic: str) -> list[str]:
    frame = spark.read.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    rows = frame.option("subscribe", topic).load().selectExpr("CAST(value AS STRING)").collect()
    return [row[0] for row in rows]


@pytest.mark.xdist_group("spark")
def test_a_message_goes_through_every_door(
    spark: SparkSession, cluster: ProcessCluster, tmp_path: Path
) -> None:
    asked, other = cluster.nodes[1], cluster.nodes[2]
    cluster.create_topic(TOPIC, partitions=1, replication_factor=3)
    configure_group(
        asked.bootstrap,
        GROUP,
        share_auto_offset_reset="earliest",
        errors_deadletterqueue_topic_name=PARKED,
    )
    written = curl(
        f"http://{asked.http}/v1/topics/{TOPIC}/records",
        {"records": [{"key": "c1", "value": {"amount": 12}}]},
    )
    assert written["results"][0]["offset"] == 0

    with Client(Generated(tmp_path), other.grpc) as client:
        pb, of = client.messages, {"topic": TOPIC, "group": GROUP}
        polled = client.queues.Poll(pb.PollRequest(**of, wait_ms=20_000, lease_ms=600_000))
        (message,) = polled.messages
        assert (message.record.value, message.attempt) == (b'{"amount":12}', 1)
        nack = pb.NackRequest(**of, tokens=[message.token], delay_ms=0)
        (outcome,) = client.queues.Nack(nack).outcomes
        assert outcome.outcome == "ok", outcome

    leader = cluster.leader(TOPIC)
    leader.kill()
    alive = [node for node in cluster.nodes.values() if node is not leader]
    assert settle_one(alive[0].bootstrap, AcknowledgeType.REJECT) == (b'{"amount":12}', 2)

    queue = f"http://{alive[1].http}/v1/queues/{TOPIC}/{GROUP}"
    wait_until("the letter", lambda: curl(queue)["dead"] == 1, WAIT_S)
    leader.start()
    cluster.await_in_sync()
    assert curl(f"{queue}/redrive", {})["reopened"] == 1
    value, _ = settle_one(cluster.bootstrap, AcknowledgeType.ACCEPT)
    assert value == b'{"amount":12}'
    assert values(spark, cluster.bootstrap, TOPIC) == ['{"amount":12}']
    assert values(spark, cluster.bootstrap, PARKED) == ['{"amount":12}']
