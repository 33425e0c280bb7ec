"""The plug-in's cluster: nodes that die, stand still and come back, and a network that is cut."""

import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.client import ClientError
from penstock.client.cluster import ClusterClient
from penstock.client.kafka_connection import KafkaConnection
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.testing import ProcessCluster
from tests.e2e.cluster_history import end_of
from tests.e2e.cluster_probe import Probe
from tests.e2e.commands import Shell

SETTLE_S = 60.0
Make = Callable[..., ProcessCluster]


@pytest.fixture
def cluster(penstock_cluster: Make) -> ProcessCluster:
    return penstock_cluster(nodes=3)


@pytest.fixture
def topic(cluster: ProcessCluster) -> str:
    return cluster.create_topic("orders", partitions=3, replication_factor=3)


class Sender:
    """A producer with acks=all that goes on through failures."""

    def __init__(self, bootstrap: str, topic: str, *, idempotent: bool = True) -> None:
        self.acknowledged: list[bytes] = []
        self.failed: list[str] = []
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.max.ms": 500,
            }
        )

    def send(self, count: int = 10, *, partition: int = 0) -> None:
        for _ in range(count):
            value = uuid.uuid4().hex.encode()
            self._producer.produce(
                self._topic, value, partition=partition, on_delivery=self._on_delivery
            )
        self._producer.poll(0)

    def flush(self, timeout_s: float = 60.0) -> int:
        """How many are still not acknowledged."""
        return self._producer.flush(timeout_s)

    def _on_delivery(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged.append(message.value())  # type: ignore[attr-defined]


def await_out_of_sync(cluster: ProcessCluster, number: int) -> None:
    """Until every leader has noticed that the node is gone."""
    deadline = time.monotonic() + SETTLE_S
    with KafkaConnection(cluster.bootstrap, timeout_s=SETTLE_S) as connection:
        client = ClusterClient(connection)
        while any(number in one.in_sync for one in client.partitions()):
            assert time.monotonic() < deadline, f"node {number} still counts as in sync"
            time.sleep(0.1)


def read_all(bootstrap: str, topic: str, partition: int = 0) -> list[bytes]:
    """The values from the first record to the high watermark; every offset is a record here."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex})
    found: list[bytes] = []
    deadline = time.monotonic() + SETTLE_S
    try:
        end = end_of(consumer, TopicPartition(topic, partition))
        consumer.assign([TopicPartition(topic, partition, 0)])
        while len(found) < end:
            assert time.monotonic() < deadline, f"{len(found)} of {end} records were read"
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.append(message.value())
        return found
    finally:
        consumer.close()


def await_leader(bootstrap: str, topic: str, nodes: list[int]) -> None:
    """Wait until the nodes at `bootstrap` know one of `nodes` as leader of partition 0."""
    deadline = time.monotonic() + SETTLE_S
    with KafkaConnection(bootstrap, timeout_s=SETTLE_S) as connection:
        while time.monotonic() < deadline:
            for one in ClusterClient(connection).partitions():
                if one.place == (topic, 0) and one.leader in nodes:
                    return
            time.sleep(0.1)
    raise AssertionError("nobody else took over")


def test_writing_goes_on_when_a_leader_is_killed(cluster: ProcessCluster, topic: str) -> None:
    sender = Sender(cluster.bootstrap, topic)
    sender.send(20)
    assert sender.flush() == 0
    victim = cluster.leader(topic)
    victim.kill()
    sender.send(20)
    assert sender.flush() == 0
    assert cluster.leader(topic) is not victim
    victim.start()
    cluster.await_in_sync()
    assert sender.failed == []
    assert read_all(cluster.bootstrap, topic) == sender.acknowledged


def test_a_paused_leader_is_replaced_and_follows_when_it_wakes(
    cluster: ProcessCluster, topic: str
) -> None:
    sender = Sender(cluster.bootstrap, topic)
    sleeper = cluster.leader(topic)
    sleeper.pause()
    rest = [number for number in cluster.nodes if number != sleeper.number]
    awake = ",".join(cluster.nodes[number].bootstrap for number in rest)
    await_leader(awake, topic, rest)
    other = Sender(awake, topic)
    other.send(10)
    assert other.flush() == 0
    sleeper.resume()
    sender.send(10)
    assert sender.flush() == 0
    cluster.await_in_sync()
    assert set(read_all(awake, topic)) == {*sender.acknowledged, *other.acknowledged}


def test_a_cut_off_leader_acknowledges_nothing(cluster: ProcessCluster, topic: str) -> None:
    sender = Sender(cluster.bootstrap, topic)
    sender.send(5)
    assert sender.flush() == 0
    alone = cluster.leader(topic)
    rest = [number for number in cluster.nodes if number != alone.number]
    cluster.partition([alone.number], rest)
    # By hand, since a client would ask the others where to go when this node can't tell.
    probe = Probe(alone.bootstrap, topic)
    probe.send(5)
    others = ",".join(cluster.nodes[number].bootstrap for number in rest)
    await_leader(others, topic, rest)
    # Not idempotent: a producer id might be asked of the node that can't give one.
    majority = Sender(others, topic, idempotent=False)
    majority.send(5)
    assert majority.flush() == 0
    assert majority.failed == []
    probe.send(5)
    probe.await_answers()
    cluster.heal()
    cluster.await_in_sync()
    assert ErrorCode.NONE not in probe.close()
    assert set(read_all(cluster.bootstrap, topic)) == {*sender.acknowledged, *majority.acknowledged}


def test_a_leader_that_hears_nobody_is_replaced(cluster: ProcessCluster, topic: str) -> None:
    """One way cut: the others hear it, it does not hear them."""
    deaf = cluster.leader(topic)
    rest = [number for number in cluster.nodes if number != deaf.number]
    cluster.cut(*((number, deaf.number) for number in rest))
    others = ",".join(cluster.nodes[number].bootstrap for number in rest)
    await_leader(others, topic, rest)
    sender = Sender(others, topic, idempotent=False)
    sender.send(5)
    assert sender.flush() == 0
    cluster.heal()
    cluster.await_in_sync()


def test_a_restarted_node_keeps_its_address_and_catches_up(
    cluster: ProcessCluster, topic: str
) -> None:
    before = cluster.bootstrap
    sender = Sender(cluster.bootstrap, topic)
    for node in cluster.nodes.values():
        sender.send(10)
        node.restart()
        cluster.await_in_sync()
    assert sender.flush() == 0
    assert cluster.bootstrap == before
    assert read_all(cluster.bootstrap, topic) == sender.acknowledged


def test_a_node_with_an_empty_disk_is_filled_anew(cluster: ProcessCluster, topic: str) -> None:
    sender = Sender(cluster.bootstrap, topic)
    sender.send(50)
    assert sender.flush() == 0
    node = cluster.nodes[2]
    node.kill()
    node.erase()
    # What was erased must not be taken for what comes back.
    await_out_of_sync(cluster, node.number)
    node.start()
    cluster.await_in_sync()
    # A leader of the last two seconds only hopes that the others are in sync; what this node leads,
    # it has.
    Shell(cluster.bootstrap).run("cluster", "transfer-leader", topic, "0", "--to", "2")
    cluster.nodes[1].kill()
    assert read_all(cluster.bootstrap, topic) == sender.acknowledged


def test_a_node_joins(cluster: ProcessCluster, topic: str) -> None:
    node = cluster.add_node()
    assert node.number == 4
    spread = cluster.create_topic("spread", partitions=8, replication_factor=3)
    cluster.await_in_sync()
    sender = Sender(node.bootstrap, spread)
    sender.send(5, partition=7)
    assert sender.flush() == 0
    with pytest.raises(ClientError, match="only be cut off alone"):
        cluster.partition([1, 4], [2, 3])


def test_what_can_not_be_done_is_said(cluster: ProcessCluster) -> None:
    with pytest.raises(ClientError, match="no node 9"):
        cluster.partition([1, 9], [2])
    with pytest.raises(ClientError, match="be in only one group"):
        cluster.partition([1, 2], [2, 3])
    with pytest.raises(ClientError, match="stop or kill"):
        cluster.nodes[1].erase()
