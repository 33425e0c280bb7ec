"""Proves that groups share partitions without losing or doubling one, with every client."""

import json
import subprocess
import threading
import time
import uuid

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.e2e.clients import Message
from tests.e2e.clients.everyone import BY_NAME
from tests.e2e.clients.kafkajs import call
from tests.e2e.conftest import MakeBroker, MakeTopic, create_topic
from tests.e2e.ledger import Ledger
from tests.e2e.members import MEMBERS, ConfluentMember
from tests.e2e.processes import Broker

PARTITIONS = 6
RECORDS_PER_PARTITION = 50

# Much longer than the others, of which "uniform" shows the same.
SLOW = {("confluent-kafka-consumer", "range")}
CASES = [
    pytest.param(
        client,
        strategy,
        id=f"{client}-{strategy}",
        marks=[pytest.mark.slow] if (client, strategy) in SLOW else [],
    )
    for client, member in MEMBERS.items()
    for strategy in member.strategies
]


def produce_slowly(bootstrap: str, topic: str) -> None:
    """Records keep coming while members come and go."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(RECORDS_PER_PARTITION):
        for partition in range(PARTITIONS):
            producer.produce(topic, str(number).encode(), partition=partition)
        assert producer.flush(60) == 0
        time.sleep(0.05)


@pytest.mark.parametrize(("client", "strategy"), CASES)
def test_no_partition_is_lost_or_doubled(
    broker: Broker, make_topic: MakeTopic, group: str, client: str, strategy: str
) -> None:
    """Three members join one by one under load, one leaves; each record is read exactly once."""
    topic = make_topic(partitions=PARTITIONS)
    ledger = Ledger(PARTITIONS)
    producing = threading.Thread(target=produce_slowly, args=(broker.bootstrap, topic))
    producing.start()
    members = [
        MEMBERS[client](f"member-{number}", broker.bootstrap, topic, group, strategy, ledger)
        for number in range(3)
    ]
    for count, member in enumerate(members, start=1):
        member.start()
        ledger.wait_until_balanced(count)
    members[1].stop()
    ledger.wait_until_balanced(2)
    producing.join()
    total = PARTITIONS * RECORDS_PER_PARTITION
    ledger.wait_until("reading everything", lambda: ledger.record_count() >= total)
    members[0].stop()
    members[2].stop()
    assert ledger.violations == []
    expected = list(range(RECORDS_PER_PARTITION))
    assert dict(ledger.offsets) == dict.fromkeys(range(PARTITIONS), expected)


def test_kafkajs_members_share_a_topic(broker: Broker, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic(partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        messages = [Message(value=b"x")] * 20
        BY_NAME["confluent-kafka"].produce(broker.bootstrap, topic, messages, partition=partition)
    answer = call(
        broker.bootstrap,
        "group",
        topic=topic,
        group=group,
        members=3,
        partitions=PARTITIONS,
        count=PARTITIONS * 20,
    )
    shares = [set(share) for share in answer["assignments"].values()]
    assert [len(share) for share in shares] == [2, 2, 2]
    assert set.union(*shares) == set(range(PARTITIONS))
    read = {tuple(place) for places in answer["members"].values() for place in places}
    assert read == {(partition, offset) for partition in range(PARTITIONS) for offset in range(20)}


def test_kcat_members_share_a_topic_and_a_killed_one_is_replaced(
    broker: Broker, make_topic: MakeTopic, group: str
) -> None:
    """`kill -9` of a member: nobody says goodbye, so its session has to run out."""
    topic = make_topic(partitions=2)
    arguments = [
        *["kcat", "-b", broker.bootstrap, "-G", group, topic, "-J", "-u", "-q"],
        *["-X", "session.timeout.ms=6000", "-X", "heartbeat.interval.ms=300"],
        *["-X", "auto.offset.reset=earliest"],
    ]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    members = [subprocess.Popen(arguments, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        assert shares_of(admin, group, members=2) == [{0}, {1}]
        members[0].kill()
        assert shares_of(admin, group, members=1) == [{0, 1}]
        for partition in (0, 1):
            messages = [Message(value=b"after the kill")]
            BY_NAME["kafka-python"].produce(broker.bootstrap, topic, messages, partition=partition)
        survivor = members[1].stdout
        assert survivor is not None
        found = [json.loads(survivor.readline()) for _ in range(2)]
        assert {(record["partition"], record["offset"]) for record in found} == {(0, 0), (1, 0)}
    finally:
        for member in members:
            member.kill()
            member.communicate(timeout=10)


def shares_of(admin: AdminClient, group: str, *, members: int) -> list[set[int]]:
    """The members' partitions once the group is stable with this many members."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        described = admin.describe_consumer_groups([group])[group].result(timeout=60)
        shares = [
            {place.partition for place in member.assignment.topic_partitions}
            for member in described.members
        ]
        if described.state.name == "STABLE" and len(shares) == members and all(shares):
            return sorted(shares, key=min)
        time.sleep(0.2)
    raise AssertionError(f"{group} does not settle with {members} members: {described.state}")


class StaticMember(ConfluentMember):
    """A member that keeps its place over a short absence."""

    def start(self) -> None:
        self.settings = {"group.instance.id": f"instance-{self.name}"}
        super().start()


def test_a_static_member_comes_back_without_a_rebalance(
    broker: Broker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(partitions=4)
    ledger = Ledger(4)

    def member(name: str) -> StaticMember:
        return StaticMember(name, broker.bootstrap, topic, group, "range", ledger)

    stays, goes = member("stays"), member("goes")
    stays.start()
    goes.start()
    ledger.wait_until_balanced(2)
    before, share = ledger.assignments["stays"], ledger.owned_by("goes")
    goes.stop()
    returned = member("goes")
    returned.start()
    ledger.wait_until_balanced(2)
    assert ledger.owned_by("goes") == share
    assert ledger.assignments["stays"] == before
    returned.stop()
    stays.stop()
    assert ledger.violations == []


def test_a_second_holder_of_an_instance_id_fences_the_first(
    broker: Broker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "group.instance.id": "one",
        "session.timeout.ms": 25_000,
        "heartbeat.interval.ms": 300,
    }
    first, second = Consumer(settings), Consumer(settings)
    first.subscribe([topic])
    wait_for_assignment(first)
    second.subscribe([topic])
    wait_for_assignment(second)
    deadline = time.monotonic() + 60
    codes: set[int] = set()
    while KafkaError._FATAL not in codes and time.monotonic() < deadline:
        message = first.poll(0.5)
        if message is not None and message.error():
            codes.add(message.error().code())
    assert KafkaError._FATAL in codes
    first.close()
    second.close()


def wait_for_assignment(consumer: Consumer) -> None:
    deadline = time.monotonic() + 60
    while not consumer.assignment():
        assert time.monotonic() < deadline, "no assignment"
        consumer.poll(0.2)


def test_a_pattern_follows_topics_that_come_and_go(broker: Broker, group: str) -> None:
    """The group rebalances when a topic that fits is created, and when one is deleted."""
    prefix = f"season-{uuid.uuid4().hex[:8]}"
    spring = create_topic(broker.bootstrap, f"{prefix}-spring")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "topic.metadata.refresh.interval.ms": 300,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([f"^{prefix}-.*"])
    wait_for_topics(consumer, {spring})
    summer = create_topic(broker.bootstrap, f"{prefix}-summer")
    wait_for_topics(consumer, {spring, summer})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([spring])[spring].result(60)
    wait_for_topics(consumer, {summer})
    BY_NAME["aiokafka"].produce(broker.bootstrap, summer, [Message(value=b"warm")])
    assert next_value(consumer, gone=spring) == b"warm"
    consumer.close()


def next_value(consumer: Consumer, *, gone: str) -> bytes:
    """Of the first record; that a deleted topic can't be read any more may be told before it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error() is None:
            return bytes(message.value())
        assert message.topic() == gone, message.error()
    raise AssertionError("no record came")


def wait_for_topics(consumer: Consumer, topics: set[str]) -> None:
    deadline = time.monotonic() + 60
    while {place.topic for place in consumer.assignment()} != topics:
        assert time.monotonic() < deadline, f"{consumer.assignment()} instead of {topics}"
        consumer.poll(0.2)


def test_offsets_and_metadata_survive_a_kill(make_broker: MakeBroker, group: str) -> None:
    broker = make_broker().start()
    topic = create_topic(broker.bootstrap, partitions=2)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    wanted = [
        TopicPartition(topic, 0, 7, metadata="seven"),
        TopicPartition(topic, 1, 2**40, metadata="ü" * 100),
    ]
    committed = consumer.commit(offsets=wanted, asynchronous=False)
    assert all(place.error is None for place in committed)
    consumer.close()
    broker.kill()
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    request = ConsumerGroupTopicPartitions(group)
    answer = admin.list_consumer_group_offsets([request])[group].result(timeout=60)
    found = [(p.partition, p.offset, p.metadata) for p in answer.topic_partitions]
    assert sorted(found) == [(0, 7, "seven"), (1, 2**40, "ü" * 100)]


def test_members_resume_after_a_restart(make_broker: MakeBroker, group: str) -> None:
    """A group under way sees a restart of the broker as a rebalance, and skips nothing."""
    broker = make_broker().start()
    topic = create_topic(broker.bootstrap, partitions=PARTITIONS)
    ledger = Ledger(PARTITIONS)
    members = [
        ConfluentMember(f"m{number}", broker.bootstrap, topic, group, "range", ledger)
        for number in range(2)
    ]
    for member in members:
        member.start()
    ledger.wait_until_balanced(2)
    produce_slowly(broker.bootstrap, topic)
    half = PARTITIONS * RECORDS_PER_PARTITION
    ledger.wait_until("reading the first half", lambda: ledger.record_count() >= half)
    ledger.wait_until("committing the first half", ledger.is_committed)
    assert broker.terminate() == 0
    broker.start()
    produce_slowly(broker.bootstrap, topic)
    ledger.wait_until("reading the second half", lambda: ledger.record_count() >= 2 * half)
    for member in members:
        member.stop()
    assert ledger.violations == []
    expected = list(range(2 * RECORDS_PER_PARTITION))
    assert dict(ledger.offsets) == dict.fromkeys(range(PARTITIONS), expected)
