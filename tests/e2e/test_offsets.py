"""Proves that clients find positions: by time, earliest, latest, and after records are gone."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from tests.e2e.clients import Message
from tests.e2e.clients.everyone import BY_NAME
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker, run_tool

# Three batches of ten records, a second apart from record to record. They are long past, so the
# topics must keep records forever.
FIRST_MS = 1_650_000_000_000
STEP_MS = 1_000
COUNT = 30
TIMEOUT_S = 60.0


@pytest.fixture
def topic(broker: Broker, make_topic: MakeTopic) -> str:
    name = make_topic(retention_ms="-1")
    messages = [
        Message(value=str(number).encode(), timestamp_ms=FIRST_MS + number * STEP_MS)
        for number in range(COUNT)
    ]
    for start in range(0, COUNT, 10):
        BY_NAME["confluent-kafka"].produce(
            broker.bootstrap, name, messages[start : start + 10], codec="gzip"
        )
    return name


TIMES = [
    (0, 0),
    (FIRST_MS, 0),
    (FIRST_MS + 1, 1),
    (FIRST_MS + 15 * STEP_MS, 15),
    (FIRST_MS + 15 * STEP_MS + 1, 16),
    (FIRST_MS + (COUNT - 1) * STEP_MS, COUNT - 1),
]
AFTER_ALL_MS = FIRST_MS + COUNT * STEP_MS


def test_confluent_finds_offsets_by_time(broker: Broker, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    for timestamp, expected in TIMES:
        found = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], timeout=TIMEOUT_S)
        assert found[0].offset == expected
    found = consumer.offsets_for_times([TopicPartition(topic, 0, AFTER_ALL_MS)], timeout=TIMEOUT_S)
    assert found[0].offset == -1
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S) == (0, COUNT)
    consumer.close()


def test_aiokafka_finds_offsets_by_time(broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap)
        await consumer.start()
        try:
            place = AioPartition(topic, 0)
            for timestamp, expected in TIMES:
                found = (await consumer.offsets_for_times({place: timestamp}))[place]
                assert found is not None
                assert found.offset == expected
            assert (await consumer.offsets_for_times({place: AFTER_ALL_MS}))[place] is None
            assert await consumer.beginning_offsets([place]) == {place: 0}
            assert await consumer.end_offsets([place]) == {place: COUNT}
        finally:
            await consumer.stop()

    asyncio.run(scenario())


def test_kafka_python_finds_offsets_by_time(broker: Broker, topic: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap)
    place = KafkaPythonPartition(topic, 0)
    for timestamp, expected in TIMES:
        assert consumer.offsets_for_times({place: timestamp})[place].offset == expected
    assert consumer.offsets_for_times({place: AFTER_ALL_MS})[place] is None
    assert consumer.beginning_offsets([place]) == {place: 0}
    assert consumer.end_offsets([place]) == {place: COUNT}
    consumer.close()


def test_kcat_finds_offsets_by_time(broker: Broker, topic: str) -> None:
    for timestamp, expected in TIMES:
        output = run_tool(["kcat", "-b", broker.bootstrap, "-Q", "-t", f"{topic}:0:{timestamp}"])
        assert output.decode().split() == [topic, "[0]", "offset", str(expected)]
    read = ["kcat", "-b", broker.bootstrap, "-C", "-t", topic, "-e", "-q", "-f", "%o\n"]
    output = run_tool([*read, "-o", f"s@{FIRST_MS + 25 * STEP_MS}"])
    assert output.decode().split() == ["25", "26", "27", "28", "29"]


def test_the_record_with_the_greatest_timestamp_is_found(
    broker: Broker, make_topic: MakeTopic
) -> None:
    """It need not be the last one: producers may send times in any order."""
    topic = make_topic(retention_ms="-1")
    times = [FIRST_MS, FIRST_MS + 500, FIRST_MS + 100]
    messages = [Message(value=b"x", timestamp_ms=timestamp) for timestamp in times]
    BY_NAME["confluent-kafka"].produce(broker.bootstrap, topic, messages)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    place = TopicPartition(topic, 0)
    found = admin.list_offsets({place: OffsetSpec.max_timestamp()})[place].result(timeout=TIMEOUT_S)
    assert (found.offset, found.timestamp) == (1, FIRST_MS + 500)


def test_earliest_moves_when_records_are_deleted(broker: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    place = TopicPartition(topic, 0, 12)
    assert admin.delete_records([place])[place].result(timeout=TIMEOUT_S).low_watermark == 12
    found = admin.list_offsets({place: OffsetSpec.earliest()})[place].result(timeout=TIMEOUT_S)
    assert found.offset == 12
    reader = BY_NAME["kafka-python"]
    messages = reader.consume(broker.bootstrap, topic, COUNT - 12, offset=12)
    assert [message.offset for message in messages] == list(range(12, COUNT))


@pytest.mark.parametrize(("policy", "expected"), [("earliest", 12), ("latest", COUNT)])
def test_an_offset_out_of_range_is_reset_as_the_consumer_asks(
    broker: Broker, topic: str, group: str, policy: str, expected: int
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([TopicPartition(topic, 0, 12)])[TopicPartition(topic, 0, 12)].result(
        TIMEOUT_S
    )
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": policy,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 3)])
    if policy == "latest":
        # At the end it says so. Only then is something written that it has to see.
        end = consumer.poll(TIMEOUT_S)
        assert end.error().code() == KafkaError._PARTITION_EOF
        assert end.offset() == expected
        BY_NAME["confluent-kafka"].produce(broker.bootstrap, topic, [Message(value=b"new")])
    message = consumer.poll(TIMEOUT_S)
    assert message.error() is None
    assert message.offset() == expected
    consumer.close()
