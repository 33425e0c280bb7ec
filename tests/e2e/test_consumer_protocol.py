"""Groups of the new protocol (KIP-848) under real clients, on three nodes whose coordinator dies.

No partition is owned by two at once, no record is skipped or read twice, and what was committed
stays committed.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.groups.partitioner import partition_of
from penstock.model.ids import GroupId
from tests.e2e.clients.java import Java
from tests.e2e.clients.java.member import JavaConsumerMember
from tests.e2e.cluster_nodes import Cluster, ClusterNode
from tests.e2e.conftest import MakeTopic
from tests.e2e.ledger import Ledger
from tests.e2e.members import ConfluentConsumerMember, Member
from tests.e2e.processes import Broker
from tests.e2e.test_java_client import Load
from tests.waiting import wait_until

pytest_plugins = ("tests.e2e.clients.java.fixtures",)
pytestmark = [pytest.mark.xdist_group("cluster-clients"), pytest.mark.timeout(300)]

TOPIC = "orders"
GROUP = "readers"
OFFSETS = "__consumer_offsets"
PARTITIONS = 6
# A member that shares hears of it with its next heartbeat, and the others one later.
BALANCED_WITHIN_S = 120
COORDINATED_WITHIN_S = 60
# Members hear of a new assignment with their next heartbeat, which is due every five seconds.
SHORT_BEATS = {
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
}

MakeMember = Callable[[str, str, Ledger], Member]


def _coordinator(cluster: Cluster) -> ClusterNode:
    """The preferred one, as soon as it coordinates, which it does again after a restart."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    partitions = admin.list_topics(OFFSETS, timeout=30).topics[OFFSETS].partitions
    partition = partition_of(GroupId(GROUP), len(partitions))
    preferred = cluster.nodes[partitions[partition].replicas[0]]
    wait_until(
        "the preferred coordinator",
        lambda: cluster.leader(OFFSETS, partition) is preferred,
        COORDINATED_WITHIN_S,
    )
    return preferred


def _found_by_all(ledger: Ledger, *members: str) -> None:
    """Members know the present coordinator: of two commits, the second was sent to it.

    Java's client does not look for another coordinator once it closes. If it met the move only
    then, its last commit would fail and it would not leave the group, under any broker.
    """
    before = ledger.commits.copy()
    ledger.wait_until(
        "commits by all",
        lambda: all(ledger.commits[member] >= before[member] + 2 for member in members),
    )


def _committed(bootstrap: str) -> dict[int, int]:
    """By partition, as whoever comes next would find it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    found = {place.partition: place.offset for place in consumer.committed(places, timeout=30)}
    consumer.close()
    return found


def _balanced(ledger: Ledger, members: int) -> None:
    ledger.wait_until(
        f"balance between {members} members",
        lambda: len(ledger._members) == members and ledger.is_balanced(),
        BALANCED_WITHIN_S,
    )


def _live_through_kills(folder: Path, make: MakeMember) -> None:
    with Cluster(folder, settings=SHORT_BEATS) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        ledger = Ledger(PARTITIONS)
        load = Load(cluster.bootstrap, TOPIC)
        load.start()
        first, second, third = (make(name, cluster.bootstrap, ledger) for name in "abc")
        first.start()
        _balanced(ledger, 1)
        second.start()
        _balanced(ledger, 2)
        before = _committed(cluster.bootstrap)
        coordinator = _coordinator(cluster)
        coordinator.kill()
        # A member comes while another node takes over.
        third.start()
        _balanced(ledger, 3)
        coordinator.start()
        assert _coordinator(cluster) is coordinator
        _found_by_all(ledger, *"abc")
        after = _committed(cluster.bootstrap)
        assert all(after[partition] >= offset for partition, offset in before.items())
        second.stop()
        _balanced(ledger, 2)
        rounds = load.finish()
        total = PARTITIONS * rounds
        ledger.wait_until("reading all", lambda: ledger.record_count() >= total, 60)
        first.stop()
        third.stop()
        assert ledger.violations == []
        for partition in range(PARTITIONS):
            read = Counter(ledger.offsets[partition])
            again = {offset: count for offset, count in read.items() if count > 1}
            assert (sorted(read), again) == (list(range(rounds)), {}), f"of partition {partition}"
        assert _committed(cluster.bootstrap) == dict.fromkeys(range(PARTITIONS), rounds)


@pytest.mark.slow
def test_librdkafkas_members_live_through_the_death_of_their_coordinator(tmp_path: Path) -> None:
    def make(name: str, bootstrap: str, ledger: Ledger) -> Member:
        return ConfluentConsumerMember(name, bootstrap, TOPIC, GROUP, "uniform", ledger)

    _live_through_kills(tmp_path, make)


@pytest.mark.slow
def test_javas_members_live_through_the_death_of_their_coordinator(
    tmp_path: Path, java: Java
) -> None:
    def make(name: str, bootstrap: str, ledger: Ledger) -> Member:
        return JavaConsumerMember(java, name, bootstrap, TOPIC, GROUP, "uniform", ledger)

    _live_through_kills(tmp_path, make)


def test_clients_of_both_kinds_share_a_group(
    broker: Broker, make_topic: MakeTopic, group: str, java: Java
) -> None:
    topic = make_topic(partitions=PARTITIONS)
    ledger = Ledger(PARTITIONS)
    place = (broker.bootstrap, topic, group, "range", ledger)
    one, other = ConfluentConsumerMember("c", *place), JavaConsumerMember(java, "java", *place)
    one.start()
    _balanced(ledger, 1)
    other.start()
    _balanced(ledger, 2)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(30).valid
    assert group in {each.group_id for each in listed}
    described = admin.describe_consumer_groups([group])[group].result(30)
    assert (described.type, described.partition_assignor) == (ConsumerGroupType.CONSUMER, "range")
    assert len(described.members) == 2
    one.stop()
    _balanced(ledger, 1)
    other.stop()
    assert ledger.violations == []
