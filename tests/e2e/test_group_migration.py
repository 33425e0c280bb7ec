"""A live group moves from the classic protocol to the new one (KIP-848) and back, on three nodes,
by rolling its members one by one, while its coordinator is killed.

No partition is owned by two at once, nothing is skipped, and committed positions never go back.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupListing

from tests.e2e.clients.java import Java
from tests.e2e.clients.java.member import JavaConsumerMember, JavaMember
from tests.e2e.cluster_nodes import Cluster
from tests.e2e.ledger import Ledger
from tests.e2e.members import ConfluentConsumerMember, ConfluentMember, Member
from tests.e2e.test_consumer_protocol import (
    BALANCED_WITHIN_S,
    GROUP,
    PARTITIONS,
    SHORT_BEATS,
    TOPIC,
    _committed,
    _coordinator,
    _found_by_all,
)
from tests.e2e.test_java_client import Load

pytest_plugins = ("tests.e2e.clients.java.fixtures",)
pytestmark = [pytest.mark.xdist_group("cluster-clients"), pytest.mark.timeout(400)]

WATCH_INTERVAL_S = 0.2
# Of the protocol, of the name, for the ledger.
MakeMember = Callable[[str, str, str, Ledger], Member]


class PositionWatch:
    """Looks at what is committed, again and again."""

    def __init__(self, bootstrap: str) -> None:
        self.went_back: list[str] = []
        self.looks = 0
        self._bootstrap = bootstrap
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def watching(self) -> "Iterator[PositionWatch]":
        self._thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            self._thread.join(60)

    def _run(self) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": GROUP})
        places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        seen = dict.fromkeys(range(PARTITIONS), -1)
        while not self._stopping.wait(WATCH_INTERVAL_S):
            try:
                found = consumer.committed(places, timeout=10)
            except KafkaException:
                # The coordinator is away.
                continue
            for place in found:
                if place.offset < seen[place.partition]:
                    before = seen[place.partition]
                    self.went_back.append(f"{place.partition}: {before} -> {place.offset}")
                seen[place.partition] = max(place.offset, seen[place.partition])
            self.looks += 1
        consumer.close()


class Rolling:
    """The members of one group, which are replaced by such of another protocol one by one."""

    def __init__(self, cluster: Cluster, ledger: Ledger, make: MakeMember) -> None:
        self.cluster, self.ledger, self._make = cluster, ledger, make
        self.members: list[Member] = []
        self._made = 0

    def start(self, protocol: str) -> None:
        self._made += 1
        name = f"{protocol}-{self._made}"
        member = self._make(protocol, name, self.cluster.bootstrap, self.ledger)
        self.members.append(member)
        member.start()
        self.balance()

    def roll_one(self, protocol: str) -> None:
        leaving = self.members.pop(0)
        _found_by_all(self.ledger, leaving.name)
        leaving.stop()
        self.start(protocol)

    def balance(self) -> None:
        count = len(self.members)
        self.ledger.wait_until(
            f"balance between {count} members",
            lambda: len(self.ledger._members) == count and self.ledger.is_balanced(),
            BALANCED_WITHIN_S,
        )

    def type_of_group(self) -> str:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        listed: list[ConsumerGroupListing] = admin.list_consumer_groups().result(30).valid
        (found,) = (each for each in listed if each.group_id == GROUP)
        return str(found.type.name).lower()


def _move_up_and_down(folder: Path, make: MakeMember) -> None:
    with Cluster(folder, settings=SHORT_BEATS) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        ledger = Ledger(PARTITIONS)
        load = Load(cluster.bootstrap, TOPIC)
        load.start()
        rolling = Rolling(cluster, ledger, make)
        for _ in range(3):
            rolling.start("classic")
        assert rolling.type_of_group() == "classic"
        with PositionWatch(cluster.bootstrap).watching() as watch:
            rolling.roll_one("consumer")
            assert rolling.type_of_group() == "consumer"
            coordinator = _coordinator(cluster)
            coordinator.kill()
            # Another node serves the mixed group now.
            rolling.roll_one("consumer")
            coordinator.start()
            assert _coordinator(cluster) is coordinator
            rolling.roll_one("consumer")
            assert rolling.type_of_group() == "consumer"
            for _ in range(3):
                rolling.roll_one("classic")
            assert rolling.type_of_group() == "classic"
            rounds = load.finish()
            total = PARTITIONS * rounds
            ledger.wait_until("reading all", lambda: _distinct(ledger) >= total, 60)
            for member in rolling.members:
                member.stop()
        assert ledger.violations == []
        assert watch.went_back == []
        assert watch.looks > 0
        for partition in range(PARTITIONS):
            assert sorted(set(ledger.offsets[partition])) == list(range(rounds))
        assert _committed(cluster.bootstrap) == dict.fromkeys(range(PARTITIONS), rounds)


def _distinct(ledger: Ledger) -> int:
    return sum(len(set(offsets)) for offsets in ledger.offsets.values())


@pytest.mark.parametrize(
    "strategy", [pytest.param("range", marks=pytest.mark.soak), "cooperative-sticky"]
)
def test_a_group_of_librdkafkas_members_moves_up_and_down(tmp_path: Path, strategy: str) -> None:
    def make(protocol: str, name: str, bootstrap: str, ledger: Ledger) -> Member:
        if protocol == "classic":
            return ConfluentMember(name, bootstrap, TOPIC, GROUP, strategy, ledger)
        return ConfluentConsumerMember(name, bootstrap, TOPIC, GROUP, "uniform", ledger)

    _move_up_and_down(tmp_path, make)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fixture", "version"),
    [pytest.param("java", "4.3.1", marks=pytest.mark.soak), ("newer_java", "4.4.0")],
)
def test_a_group_of_javas_members_moves_up_and_down(
    tmp_path: Path, fixture: str, version: str, request: pytest.FixtureRequest
) -> None:
    java: Java = request.getfixturevalue(fixture)
    assert java.call("version", "") == version

    def make(protocol: str, name: str, bootstrap: str, ledger: Ledger) -> Member:
        place = (name, bootstrap, TOPIC, GROUP)
        if protocol == "classic":
            return JavaMember(java, *place, "cooperative-sticky", ledger)
        return JavaConsumerMember(java, *place, "uniform", ledger)

    _move_up_and_down(tmp_path, make)
