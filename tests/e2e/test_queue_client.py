"""Our queue client on our own broker and on one of Apache Kafka: the same from both."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import Producer
from penstock.client.configs import Configs, Resource
from penstock.client.kafka_connection import KafkaConnection
from penstock.client.queues import Queues
from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.queue_leases import Lease, LeaseLost
from penstock.client.wire.queue_reader import QueueReader
from penstock.client.wire.settings import WireSettings
from tests.e2e.apache_kafka import apache_kafka
from tests.e2e.clients.java import missing
from tests.e2e.commands import fresh
from tests.e2e.processes import Broker
from tests.e2e.topics import create_topic
from tests.waiting import WAIT_S_MAX, wait_until

LEASE_S = 1.0
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.assignment.interval.ms": "0",
}
# What Kafka needs to keep queues on one node.
OF_KAFKA = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
pytestmark = pytest.mark.xdist_group("apache-kafka")


@pytest.fixture(scope="module", params=["penstock", pytest.param("kafka", marks=pytest.mark.slow)])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("queues")
    if request.param == "kafka":
        if missing():
            pytest.skip(f"not installed: {', '.join(missing())}")
        chosen = {name.replace(".", "_"): value for name, value in (SETTINGS | OF_KAFKA).items()}
        with apache_kafka(folder, **chosen) as address:
            yield address
        return
    flags = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    broker = Broker(folder / "data", *flags).start()
    yield broker.bootstrap
    broker.close()


@pytest.fixture
def topic(bootstrap: str) -> str:
    """One partition with the values 0 to 9."""
    name = create_topic(bootstrap)
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(name, b"%d" % number, key=b"k", headers=[("h", b"v")])
    return name


@pytest.fixture
def group(bootstrap: str) -> str:
    """A queue that starts with the oldest record and has short leases."""
    name = fresh("workers")
    with KafkaConnection(bootstrap, timeout_s=30.0) as connection:
        chosen = {"share.record.lock.duration.ms": str(int(LEASE_S * 1000))}
        Configs(connection).alter(Resource(group=name), set_to=chosen)
    assert Queues(bootstrap, timeout_s=30.0).begin(name)
    return name


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[WireCluster]:
    with WireCluster(WireSettings(bootstrap=bootstrap)) as made:
        yield made


def take(reader: QueueReader, count: int) -> list[Lease]:
    taken: list[Lease] = []
    while len(taken) < count:
        found = reader.take(count - len(taken), WAIT_S_MAX)
        assert found, "it does not come"
        taken += found
    return taken


def seen(leases: list[Lease]) -> list[tuple[int, int]]:
    """Offset and attempt."""
    return sorted((one.record.offset, one.attempt) for one in leases)


def test_records_are_leased_as_many_as_are_wanted_and_settled_in_any_order(
    cluster: WireCluster, topic: str, group: str
) -> None:
    with cluster.queue(group, [topic]) as reader:
        leases = take(reader, 4)
        assert seen(leases) == [(0, 1), (1, 1), (2, 1), (3, 1)]
        first = min(leases, key=lambda one: one.record.offset).record
        assert (first.key, first.value, first.headers) == (b"k", b"0", (("h", b"v"),))
        by_offset = {one.record.offset: one for one in leases}
        outcomes = [by_offset[2].accept(), by_offset[0].release(), by_offset[3].reject()]
        for one in outcomes:
            one.result(WAIT_S_MAX)
        again = take(reader, 2)
        # Released records come first, and maybe alone.
        assert (0, 2) in seen(again)
        assert (4, 1) in seen(again)
    with cluster.queue(group, [topic]) as reader:
        left = take(reader, 8)
        assert [offset for offset, _ in seen(left)] == [0, 1, 4, 5, 6, 7, 8, 9]
        for lease in left:
            lease.accept().result(WAIT_S_MAX)


def test_a_lease_lasts_as_long_as_its_record_is_held(
    cluster: WireCluster, topic: str, group: str
) -> None:
    with cluster.queue(group, [topic]) as reader, cluster.queue(group, [topic]) as other:
        (held,) = take(reader, 1)
        rest = take(other, 9)
        assert held.record.offset not in [one.record.offset for one in rest]
        # All are held for several times their duration, while both would take more.
        assert other.take(1, 4 * LEASE_S) == []
        for lease in [held, *rest]:
            lease.accept().result(WAIT_S_MAX)
        assert {one.attempt for one in [held, *rest]} == {1}


def test_a_lease_of_a_client_that_stands_still_is_lost(
    cluster: WireCluster, bootstrap: str, topic: str, group: str
) -> None:
    """Its connections stay, so the broker waits for the end of the lease."""
    with cluster.queue(group, [topic]) as reader:
        (held,) = take(reader, 1)
        with KafkaConnection(bootstrap, timeout_s=30.0) as connection:
            renewing = {"share.renew.acknowledge.enable": "false"}
            Configs(connection).alter(Resource(group=group), set_to=renewing)
        again: list[Lease] = []

        def comes_back() -> bool:
            again.extend(other.take(1, LEASE_S))
            return any(one.record.offset == held.record.offset for one in again)

        with cluster.queue(group, [topic]) as other:
            wait_until("the record comes back", comes_back)
            assert isinstance(held.accept().exception(WAIT_S_MAX), LeaseLost)


def test_members_share_a_queue_and_what_one_leaves_another_gets(
    cluster: WireCluster, bootstrap: str, topic: str, group: str
) -> None:
    with cluster.queue(group, [topic]) as first:
        kept = take(first, 3)
        with cluster.queue(group, [topic]) as second:
            take(second, 3)
            found = Queues(bootstrap, timeout_s=30.0).describe(group)
            assert {one.member for one in found.members} == {first.member_id, second.member_id}
            assert found.topics == (topic,)
        results: list[Lease] = []
        taking = threading.Thread(target=lambda: results.extend(take(first, 7)))
        taking.start()
        taking.join(WAIT_S_MAX)
        assert len({one.record.offset for one in [*kept, *results]}) == 10
        for lease in [*kept, *results]:
            lease.accept().result(WAIT_S_MAX)
    assert Queues(bootstrap, timeout_s=30.0).describe(group).members == ()
