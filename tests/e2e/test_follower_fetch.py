"""Proves that consumers read from a follower in their own rack, and that it does them no harm.

Three real nodes in three racks, under confluent-kafka with `client.rack` (KIP-392).
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.e2e.cluster_nodes import Cluster, ClusterNode, wait_until

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(180)]

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
TOPIC = "racks"
PATIENCE_S = 60.0
FETCH_VERSION = 12


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
        """Until it has so many in all."""
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


def fetch(
    node: ClusterNode, offset: int, *, term: int = -1, rack: str = "", version: int = FETCH_VERSION
) -> Any:
    place = FetchPartition(
        partition=0, current_leader_epoch=term, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_epoch=-1,
        topics=[FetchTopic(topic=TOPIC, partitions=[place])],
        rack_id=rack,
    )
    answer = node.ask(ApiKey.FETCH, version, request)
    return answer.responses[0].partitions[0]


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


def test_answers_of_leaders_and_followers_on_the_wire(cluster: Cluster) -> None:
    leader = cluster.leader(TOPIC)
    follower, _ = (node for node in cluster.nodes.values() if node is not leader)
    Writing(cluster).write(10)
    wait_until(
        "the follower's high watermark",
        lambda: fetch(follower, 0).high_watermark == 10,
        PATIENCE_S,
    )
    sent = fetch(leader, 3, rack=rack_of(follower))
    assert (sent.error_code, sent.preferred_read_replica) == (ErrorCode.NONE, follower.number)
    assert (sent.high_watermark, sent.last_stable_offset, sent.log_start_offset) == (10, 10, 0)
    assert sent.records == b""
    kept = fetch(leader, 3, rack=rack_of(leader))
    served = fetch(follower, 3, rack=rack_of(follower))
    assert kept == served
    assert (served.preferred_read_replica, served.high_watermark) == (-1, 10)
    assert served.records
    codes = {
        fetch(follower, 3, term=0).error_code,
        fetch(leader, 3, term=0).error_code,
    }
    assert codes == {ErrorCode.FENCED_LEADER_EPOCH}
    unknown = fetch(follower, 3, term=99)
    assert unknown.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    old = fetch(follower, 3, version=10)
    assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    beyond = fetch(follower, 11)
    assert beyond.error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert fetch(leader, 11).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
