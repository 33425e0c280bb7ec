"""What a topic holds, read by a client that shares no code with the data source."""

import time
import uuid
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

READ_TIMEOUT_S = 120.0


class Stored(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int


def stored(bootstrap: str, topic: str) -> list[Stored]:
    """All records of the topic up to its ends as of now, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"contents-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    try:
        partitions = consumer.list_topics(topic, READ_TIMEOUT_S).topics[topic].partitions
        ends = {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), READ_TIMEOUT_S)[1]
            for number in partitions
        }
        filled = [number for number, end in ends.items() if end]
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in filled])
        return sorted(_read(consumer, {number: ends[number] for number in filled}))
    finally:
        consumer.close()


def _read(consumer: Consumer, ends: dict[int, int]) -> list[Stored]:
    found: list[Stored] = []
    deadline = time.monotonic() + READ_TIMEOUT_S
    while ends:
        assert time.monotonic() < deadline, f"partitions {sorted(ends)} did not end in time"
        for message in consumer.consume(10_000, timeout=0.5):
            assert message.error() is None, message.error()
            found.append(
                Stored(
                    partition=message.partition(),
                    offset=message.offset(),
                    key=message.key(),
                    value=message.value(),
                    headers=message.headers() or [],
                    timestamp_ms=message.timestamp()[1],
                )
            )
            if message.offset() + 1 >= ends.get(message.partition(), 0):
                ends.pop(message.partition(), None)
    return found
