"""kafka-python: the pure Python client."""

import time
from collections.abc import Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.e2e.clients import APPEND_TIME, CODECS, CREATE_TIME, Message

TIMEOUT_S = 60.0


class KafkaPython:
    name = "kafka-python"
    codecs = frozenset(CODECS)

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
    ) -> None:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            acks="all",
            linger_ms=50,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    key=message.key,
                    value=message.value,
                    headers=list(message.headers),
                    partition=partition,
                    timestamp_ms=message.timestamp_ms,
                )
                for message in messages
            ]
            producer.flush(timeout=TIMEOUT_S)
            for future in sent:
                future.get(timeout=TIMEOUT_S)
        finally:
            producer.close(timeout=5)

    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0
    ) -> list[Message]:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        try:
            place = TopicPartition(topic, partition)
            consumer.assign([place])
            consumer.seek(place, offset)
            found: list[Message] = []
            deadline = time.monotonic() + TIMEOUT_S
            while len(found) < count and time.monotonic() < deadline:
                for batch in consumer.poll(timeout_ms=500).values():
                    found += [as_message(raw) for raw in batch]
            return found[:count]
        finally:
            consumer.close()


def as_message(raw: Any) -> Message:
    return Message(
        key=raw.key,
        value=raw.value,
        headers=tuple(raw.headers),
        timestamp_ms=raw.timestamp,
        timestamp_type=APPEND_TIME if raw.timestamp_type == 1 else CREATE_TIME,
        offset=raw.offset,
    )
