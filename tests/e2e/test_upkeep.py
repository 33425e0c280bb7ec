"""Proves that old records go, by age, by size and by key, and that every client copes with it."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.e2e.clients import Client, Message
from tests.e2e.clients.everyone import BY_NAME, EVERYONE
from tests.e2e.conftest import create_topic
from tests.e2e.processes import Broker
from tests.waiting import wait_until

SEGMENT_BYTES = 1 << 20
FILL = b"x" * 100_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that keeps house five times a second."""
    data_dir = tmp_path_factory.mktemp("upkeep") / "data"
    tidy = Broker(data_dir, "--set", "log.retention.check.interval.ms=200").start()
    yield tidy
    tidy.close()


def watermarks(broker: Broker, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
    consumer.close()
    return low, high


def produce(broker: Broker, topic: str, messages: list[Message]) -> None:
    """Each in a batch of its own, since a batch is what goes and stays as a whole."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    failed: list[object] = []
    for message in messages:
        producer.produce(
            topic,
            message.value,
            message.key,
            partition=0,
            timestamp=message.timestamp_ms or 0,
            on_delivery=lambda error, _: error and failed.append(error),
        )
        assert producer.flush(60) == 0
    assert failed == []


def test_retention_by_size_drops_the_oldest_segments(broker: Broker) -> None:
    topic = create_topic(
        broker.bootstrap, segment_bytes=str(SEGMENT_BYTES), retention_bytes=str(2 * SEGMENT_BYTES)
    )
    produce(broker, topic, [Message(value=FILL)] * 60)

    def is_done() -> bool:
        # It may have begun before all was written, and then has more to do. What is left is less
        # than the bound and one segment.
        low, high = watermarks(broker, topic)
        return low > 0 and (high - low) * len(FILL) < 3 * SEGMENT_BYTES

    wait_until("retention", is_done)
    low, high = watermarks(broker, topic)
    assert high == 60
    assert (high - low) * len(FILL) >= 2 * SEGMENT_BYTES, "more went than had to"
    found = BY_NAME["aiokafka"].consume(broker.bootstrap, topic, high - low, offset=low)
    assert [message.offset for message in found] == list(range(low, high))


def test_compaction_keeps_the_last_value_of_each_key(broker: Broker) -> None:
    topic = create_topic(
        broker.bootstrap,
        cleanup_policy="compact",
        segment_bytes=str(SEGMENT_BYTES),
        min_cleanable_dirty_ratio="0.01",
    )
    keys = [b"a", b"b", b"c"]
    rounds = [Message(key=key, value=b"%d" % n + FILL) for n in range(20) for key in keys]
    produce(broker, topic, [*rounds, Message(key=b"a", value=None)])
    # The active segment is never compacted, so it takes more to close what was written above.
    produce(broker, topic, [Message(key=b"filler", value=FILL)] * 12)
    end = watermarks(broker, topic)[1]
    # Rounds of it began while there was still more to come: only the last one leaves nothing
    # to do, and what the clients below read must not change under their hands.
    wait_until("compaction", lambda: is_compacted(broker, topic, end))
    left = [offset for offset, _ in records_left(broker, topic, end)]
    assert len(left) < 30
    for reader in EVERYONE:
        latest, seen = read_table(broker, topic, reader, len(left))
        assert {key: value[:2] for key, value in latest.items() if value} == {
            b"b": b"19",
            b"c": b"19",
            b"filler": b"xx",
        }, reader.name
        assert latest[b"a"] is None, "the tombstone is still there for slow readers"
        assert seen == left, "offsets never change"


def is_compacted(broker: Broker, topic: str, end: int) -> bool:
    """Whether the closed segments hold no key twice, so that no round has anything left to do."""
    active = max(int(path.stem) for path in (folder_of(broker, topic) / "0").glob("*.log"))
    keys = [key for offset, key in records_left(broker, topic, end) if offset < active]
    return len(keys) == len(set(keys))


def folder_of(broker: Broker, topic: str) -> Path:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = admin.describe_topics(TopicCollection([topic]))[topic]
    topic_id = asked.result(timeout=60).topic_id
    halves = (topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits())
    name = "".join(f"{half & 0xFFFF_FFFF_FFFF_FFFF:016x}" for half in halves)
    folder = broker.data_dir / "topics" / name
    assert folder.is_dir(), folder
    return folder


def records_left(broker: Broker, topic: str, end: int) -> list[tuple[int, bytes]]:
    """Offsets and keys up to the last record, which compaction never takes."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + 60
    while not found or found[-1][0] < end - 1:
        assert time.monotonic() < deadline, f"read no further than {found[-1:]}"
        messages = consumer.consume(500, 0.2)
        found += [(one.offset(), one.key()) for one in messages if one.error() is None]
    consumer.close()
    return found


def read_table(
    broker: Broker, topic: str, reader: Client, count: int
) -> tuple[dict[bytes | None, bytes | None], list[int | None]]:
    messages = reader.consume(broker.bootstrap, topic, count)
    return {m.key: m.value for m in messages}, [m.offset for m in messages]


def test_a_setting_acts_at_once(broker: Broker) -> None:
    """Lowering the limit of a topic that holds too much makes room without a restart."""
    topic = create_topic(broker.bootstrap, segment_bytes=str(SEGMENT_BYTES))
    produce(broker, topic, [Message(value=FILL)] * 40)
    assert watermarks(broker, topic)[0] == 0
    entry = ConfigEntry(
        "retention.bytes", str(SEGMENT_BYTES), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(60)
    wait_until("retention", lambda: watermarks(broker, topic)[0] > 0)


def test_the_files_of_a_deleted_topic_go(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap, partitions=4)
    folder = folder_of(broker, topic)
    produce(broker, topic, [Message(value=FILL)] * 5)
    assert list(folder.rglob("*.log"))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(60)
    wait_until("deletion", lambda: not folder.exists())


def test_retention_by_age_survives_a_kill(broker: Broker) -> None:
    """The start of a log moves for good: a restart does not bring old records back."""
    topic = create_topic(broker.bootstrap, segment_bytes=str(SEGMENT_BYTES), retention_ms="3600000")
    old = Message(value=FILL, timestamp_ms=int(time.time() * 1000) - 7_200_000)
    produce(broker, topic, [old] * 25)
    produce(broker, topic, [Message(value=FILL)] * 15)
    wait_until("retention", lambda: watermarks(broker, topic)[0] > 0)
    before = watermarks(broker, topic)
    broker.kill()
    broker.start()
    low, high = watermarks(broker, topic)
    assert low >= before[0]
    assert high == 40
