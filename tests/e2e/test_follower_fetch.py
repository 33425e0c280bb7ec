"""Proves that consumers read from a follower in their own rack, and that it does them no harm.

Three real nodes in three racks, under confluent-kafka with `client.rack` (KIP-392).
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseBroker,
)
from tests.e2e.apache_kafka import apache_kafka
from tests.e2e.clients.java import missing
from tests.e2e.cluster_nodes import METADATA_VERSION, Cluster, ClusterNode
from tests.e2e.wire import connect, frame
from tests.waiting import wait_until

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(180)]

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
TOPIC = "racks"
PATIENCE_S = 60.0
FETCH_VERSION = 12
FIRST_RACK_VERSION = 11


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    for node in cluster.nodes.values():
        settings = ("--rack", rack_of(node), "--set", f"replica.selector.class={SELECTOR}")
        node.flags = (*node.flags, *settings)
    with cluster:
        cluster.create_topic(TOPIC, partitions=1)
        cluster.wait_until_healthy(TOPIC)
        yield cluster


def rack_of(node: ClusterNode) -> str:
    return f"rack-{node.number}"


class Reading:
    """A consumer in a rack: it must be given every record once and in order."""

    def __init__(self, cluster: Cluster, rack: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "racks",
                "client.rack": rack,
                "auto.offset.reset": "error",
                "statistics.interval.ms": 100,
                "stats_cb": self._note,
                "topic.metadata.refresh.interval.ms": 1_000,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        self.values: list[bytes] = []
        # By node: how many fetches it was sent, and from whom the partition is read.
        self.fetches: dict[int, int] = {}
        self.reads_from = -1

    def _note(self, text: str) -> None:
        statistics = json.loads(text)
        for broker in statistics["brokers"].values():
            if broker["nodeid"] >= 0:
                self.fetches[broker["nodeid"]] = broker["req"]["Fetch"]
        partition = statistics["topics"].get(TOPIC, {}).get("partitions", {}).get("0", {})
        self.reads_from = partition.get("broker", -1)

    def read(self, count: int) -> None:
        """Until it has this many in all."""
        self.read_until(f"{count} records", lambda: len(self.values) >= count)

    def read_from(self, node: ClusterNode, fetches: int = 1) -> None:
        """Until it reads from this node and has asked it so often, as its statistics say."""
        self.read_until(
            f"reading from {node.number}",
            lambda: self.reads_from == node.number and self.fetches.get(node.number, 0) >= fetches,
        )

    def read_until(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            found = f"{len(self.values)} were read, from {self.reads_from}"
            assert time.monotonic() < deadline, f"{what} did not happen: {found}"
            self._take(self._consumer.poll(0.2))

    def _take(self, message: Any) -> None:
        if message is None:
            return
        assert message.error() is None, message.error()
        assert message.offset() == len(self.values)
        self.values.append(message.value())

    def close(self) -> None:
        self._consumer.close()


class Writing:
    def __init__(self, cluster: Cluster) -> None:
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 0}
        )
        self.values: list[bytes] = []

    def write(self, count: int) -> None:
        for _ in range(count):
            value = b"%d" % len(self.values)
            self._producer.produce(TOPIC, value, partition=0)
            self.values.append(value)
        assert self._producer.flush(PATIENCE_S) == 0


class Cast(NamedTuple):
    """Who plays which part for the topic's one partition."""

    leader: MetadataResponseBroker
    follower: MetadataResponseBroker
    term: int

    @classmethod
    def of(cls, bootstrap: str) -> "Cast":
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False
        )
        with connect(bootstrap.split(",")[0]) as wire:
            wire.send(frame(ApiKey.METADATA, METADATA_VERSION, request))
            answer = wire.receive(ApiKey.METADATA, METADATA_VERSION)
        brokers = {broker.node_id: broker for broker in answer.brokers}
        (partition,) = answer.topics[0].partitions
        leader = brokers.pop(partition.leader_id)
        return cls(leader, brokers[min(brokers)], partition.leader_epoch)


class Told(NamedTuple):
    code: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    # Whether the consumer is sent to the follower, and whether it gets records.
    is_sent_on: bool = False
    has_records: bool = False


def fetch(cast: Cast, broker: MetadataResponseBroker, offset: int, **options: Any) -> Told:
    version = options.pop("version", FETCH_VERSION)
    rack = {"rack_id": options.pop("rack", "")} if version >= FIRST_RACK_VERSION else {}
    place = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, **options)
    topic = FetchTopic(topic=TOPIC, partitions=[place])
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[topic], **rack
    )
    with connect(f"{broker.host}:{broker.port}") as wire:
        wire.send(frame(ApiKey.FETCH, version, request))
        answer = wire.receive(ApiKey.FETCH, version)
    data = answer.responses[0].partitions[0]
    assert data.preferred_read_replica in (-1, cast.follower.node_id)
    return Told(
        ErrorCode(data.error_code),
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        data.preferred_read_replica >= 0,
        bool(data.records),
    )


def answers(bootstrap: str) -> dict[str, Told]:
    """What leader and follower say to consumers of a topic with ten records."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(10):
        producer.produce(TOPIC, b"%d" % number, partition=0)
        assert producer.flush(PATIENCE_S) == 0
    cast = Cast.of(bootstrap)
    leader, follower, term = cast
    wait_until(
        "a follower that has caught up",
        lambda: (
            fetch(cast, follower, 10).high_watermark == 10
            and fetch(cast, leader, 10, rack=follower.rack).is_sent_on
        ),
        PATIENCE_S,
    )
    return {
        "sent on": fetch(cast, leader, 3, rack=follower.rack),
        "sent on at the end": fetch(cast, leader, 10, rack=follower.rack),
        "in the leader's rack": fetch(cast, leader, 3, rack=leader.rack),
        "in no rack": fetch(cast, leader, 3),
        "in an unknown rack": fetch(cast, leader, 3, rack="nowhere"),
        "too far": fetch(cast, leader, 11, rack=follower.rack),
        "unknown epoch": fetch(cast, leader, 3, rack=follower.rack, current_leader_epoch=term + 1),
        "unknown last epoch": fetch(cast, leader, 3, last_fetched_epoch=term + 1),
        "served": fetch(cast, follower, 3, rack=follower.rack, current_leader_epoch=term),
        "served without a rack": fetch(cast, follower, 3),
        "served at the end": fetch(cast, follower, 10),
        "follower, too far": fetch(cast, follower, 11),
        "follower, unknown epoch": fetch(cast, follower, 3, current_leader_epoch=term + 1),
        "follower, unknown last epoch": fetch(cast, follower, 3, last_fetched_epoch=term + 1),
        "follower, old version": fetch(cast, follower, 3, version=FIRST_RACK_VERSION - 1),
    }


def refused(code: ErrorCode) -> Told:
    return Told(code, -1, -1, -1)


NOTHING, RECORDS = Told(ErrorCode.NONE, 10, 10, 0), Told(ErrorCode.NONE, 10, 10, 0, False, True)
SENT_ON = Told(ErrorCode.NONE, 10, 10, 0, True)
KAFKAS = {
    "sent on": SENT_ON,
    "sent on at the end": SENT_ON,
    "in the leader's rack": RECORDS,
    "in no rack": RECORDS,
    "in an unknown rack": RECORDS,
    "too far": refused(ErrorCode.OFFSET_OUT_OF_RANGE),
    "unknown epoch": refused(ErrorCode.UNKNOWN_LEADER_EPOCH),
    "unknown last epoch": refused(ErrorCode.OFFSET_OUT_OF_RANGE),
    "served": RECORDS,
    "served without a rack": RECORDS,
    "served at the end": NOTHING,
    "follower, too far": refused(ErrorCode.OFFSET_OUT_OF_RANGE),
    "follower, unknown epoch": refused(ErrorCode.UNKNOWN_LEADER_EPOCH),
    "follower, unknown last epoch": refused(ErrorCode.OFFSET_OUT_OF_RANGE),
    "follower, old version": refused(ErrorCode.NOT_LEADER_OR_FOLLOWER),
}
# Our followers leave the last word to the leader (decision 34).
OURS = KAFKAS | {
    "follower, too far": refused(ErrorCode.OFFSET_NOT_AVAILABLE),
    "follower, unknown last epoch": RECORDS,
}


def test_a_consumer_reads_from_its_rack_and_goes_on_when_nodes_die(cluster: Cluster) -> None:
    leader = cluster.leader(TOPIC)
    follower, other = (node for node in cluster.nodes.values() if node is not leader)
    writing, reading = Writing(cluster), Reading(cluster, rack_of(follower))
    try:
        writing.write(500)
        reading.read(500)
        reading.read_from(follower)
        at_leader = reading.fetches[leader.number]
        for _ in range(50):
            writing.write(10)
            reading.read(len(writing.values))
        reading.read_from(follower, fetches=50)
        assert reading.fetches[leader.number] - at_leader <= 5
        assert reading.fetches.get(other.number, 0) == 0
        follower.kill()
        writing.write(200)
        reading.read(len(writing.values))
        reading.read_from(leader)
        follower.start()
        cluster.wait_until_healthy(TOPIC)
        leader.kill()
        writing.write(200)
        reading.read(len(writing.values))
        assert reading.values == writing.values
    finally:
        reading.close()


def test_leaders_and_followers_answer_like_kafka_but_for_offsets_they_do_not_have(
    cluster: Cluster,
) -> None:
    assert answers(cluster.bootstrap) == OURS
    cast = Cast.of(cluster.bootstrap)
    for broker in (cast.leader, cast.follower):
        told = fetch(cast, broker, 3, current_leader_epoch=cast.term - 1)
        assert told == refused(ErrorCode.FENCED_LEADER_EPOCH)


@pytest.mark.soak
@pytest.mark.xdist_group("apache-kafka")
def test_what_kafka_answers_is_known(tmp_path: Path) -> None:
    if missing():
        pytest.skip(f"not installed: {', '.join(missing())}")
    with apache_kafka(tmp_path, nodes=3, replica_selector_class=SELECTOR) as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(PATIENCE_S)
        assert answers(bootstrap) == KAFKAS
