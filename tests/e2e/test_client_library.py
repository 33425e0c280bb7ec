"""The Python client: Producer, Consumer and Admin as a program uses them."""

import re
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest

from penstock.client import Admin, Consumer, Producer
from penstock.client.errors import DeliveryFailed, GroupNotFound, TopicNotFound
from penstock.client.positions import AtTime, Beginning, End, Last
from penstock.client.producer import Delivery
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.testing import Broker
from tests.documents import ROOT, Document
from tests.e2e import processes
from tests.e2e.commands import fresh

# As long as librdkafka can count to.
LINGER_S = 60


@pytest.fixture
def bootstrap(penstock_session_broker: Broker) -> str:
    return penstock_session_broker.bootstrap


@pytest.fixture
def topic(penstock_session_broker: Broker) -> str:
    # Some tests send records with old timestamps, which retention would soon remove.
    return penstock_session_broker.create_topic(fresh("orders"), settings={"retention.ms": "-1"})


def partition(topic: str, number: int = 0) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(number))


def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    with Consumer(bootstrap=bootstrap) as consumer:
        consumer.assign({partition(topic): 0})
        return [record.value for record in islice(consumer, count)]


def test_a_producer_reports_each_delivery_in_order(bootstrap: str, topic: str) -> None:
    deliveries: list[Delivery] = []
    with Producer(bootstrap) as producer:
        for number in range(100):
            producer.send(topic, str(number).encode(), on_delivery=deliveries.append)
    assert [one.offset for one in deliveries] == list(range(100))
    assert {one.topic for one in deliveries} == {topic}
    assert (producer.sent, producer.delivered, producer.failed) == (100, 100, 0)
    assert read(bootstrap, topic, 100) == [str(number).encode() for number in range(100)]


def test_headers_times_and_nulls_arrive_as_they_were_sent(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send(topic, None, key=b"k", headers=[("a", b"1"), ("a", None)], timestamp_ms=1_000)
    with Consumer(bootstrap=bootstrap) as consumer:
        consumer.assign({partition(topic): 0})
        (record,) = islice(consumer, 1)
    assert (record.key, record.value, record.timestamp_ms) == (b"k", None, 1_000)
    assert record.headers == (("a", b"1"), ("a", None))


def test_a_refused_record_fails_the_flush(penstock_session_broker: Broker) -> None:
    topic = penstock_session_broker.create_topic(
        fresh("small"), settings={"max.message.bytes": "500"}
    )
    producer = Producer(penstock_session_broker.bootstrap)
    producer.send(topic, b"x" * 5_000)
    with pytest.raises(DeliveryFailed, match="1 of 1 records were not delivered"):
        producer.flush()


def test_an_exception_in_the_block_does_not_wait_for_delivery(bootstrap: str, topic: str) -> None:
    def send_and_fail() -> None:
        with Producer(bootstrap, linger_ms=LINGER_S * 1000) as producer:
            producer.send(topic, b"x")
            raise KeyError

    started = time.monotonic()
    with pytest.raises(KeyError):
        send_and_fail()
    assert time.monotonic() - started < LINGER_S / 2


def test_two_members_share_partitions_and_resume(penstock_session_broker: Broker) -> None:
    topic = penstock_session_broker.create_topic(fresh("orders"), partitions=4)
    group = fresh("kitchen")
    bootstrap = penstock_session_broker.bootstrap
    with Producer(bootstrap) as producer:
        for number in range(40):
            producer.send(topic, str(number).encode(), partition=number % 4)
    seen: list[bytes | None] = []
    with (
        Consumer(topic, group=group, bootstrap=bootstrap) as one,
        Consumer(topic, group=group, bootstrap=bootstrap) as two,
    ):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for member in (one, two):
                records = member.poll(0.1)
                seen += [record.value for record in records]
                member.done(records)
            # A rebalance may deliver again, so that records are not enough to count.
            if len(one.assigned) == len(two.assigned) == 2 and len(set(seen)) == 40:
                break
        assert (len(one.assigned), len(two.assigned)) == (2, 2)
    assert set(seen) == {str(number).encode() for number in range(40)}
    described = Admin(bootstrap).groups.describe(group)
    assert (described.lag, len(described.offsets)) == (0, 4)


def test_positions_mean_offsets(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"x", timestamp_ms=1_000 + number)
    offsets = Admin(bootstrap).offsets
    where = [partition(topic)]
    assert offsets.resolve(Beginning(), where) == {where[0]: 0}
    assert offsets.resolve(End(), where) == {where[0]: 10}
    assert offsets.resolve(Last(3), where) == {where[0]: 7}
    assert offsets.resolve(AtTime(1_004), where) == {where[0]: 4}
    assert offsets.resolve(AtTime(9_999), where) == {where[0]: 10}
    assert offsets.clamp({where[0]: 99}) == {where[0]: 10}


def test_the_cluster_describes_itself(bootstrap: str) -> None:
    found = Admin(bootstrap).cluster()
    assert found.cluster_id
    assert [f"{node.host}:{node.port}" for node in found.nodes] == [bootstrap]
    assert found.controller == 0


def test_what_is_missing_has_a_type(bootstrap: str) -> None:
    admin = Admin(bootstrap)
    with pytest.raises(TopicNotFound):
        admin.topics.describe("nowhere")
    with pytest.raises(GroupNotFound):
        admin.groups.describe("nobody")


def test_the_pages_examples_run_in_order(penstock_broker: Broker) -> None:
    printed = run_blocks(ROOT / "docs" / "how-to" / "use-the-python-client.md", penstock_broker)
    assert "101 readings are stored" in printed
    assert """b'sensor-1' b'{"celsius":29.9}'""" in printed
    assert "10 more are stored" in printed
    assert "read {'celsius': " in printed
    # Those ten, and the one at which the loop ended.
    assert "controllers is empty and has 11 records to read" in printed


def run_blocks(page: Path, broker: Broker) -> str:
    """What the programs of a page print, one after the other. Warnings go to the log."""
    printed = ""
    for block in Document(page).blocks("python"):
        outcome = subprocess.run(
            [sys.executable, "-c", block.text],
            env=processes.clean_environment({"PENSTOCK_BOOTSTRAP": broker.bootstrap}),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert outcome.returncode == 0, f"{block.text}\n{outcome.stderr}"
        assert "Error" not in outcome.stderr.replace("RuntimeError: the box fell down", "")
        printed += outcome.stdout
    return printed


def test_the_tutorials_programs_run_in_order(penstock_broker: Broker) -> None:
    printed = run_blocks(ROOT / "docs" / "tutorial" / "python-program.md", penstock_broker)
    assert "sold: 12" in printed
    assert "statistics: {'apples': 4, 'pears': 4, 'plums': 4}" in printed
    # Threads print at once, so two of them may share a line.
    packed = re.findall(r"packed \d+ at attempt \d", printed)
    assert sorted(packed) == sorted(
        f"packed {number} at attempt {2 if number == 5 else 1}"
        for number in range(12)
        if number != 7
    )
    assert "{'item': 'apples', 'dearest': 18}" in printed
