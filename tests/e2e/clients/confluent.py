"""confluent-kafka: librdkafka as Python users meet it."""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)

from tests.e2e.clients import APPEND_TIME, CODECS, CREATE_TIME, Message

DELIVERY_TIMEOUT_S = 60.0


class Confluent:
    name = "confluent-kafka"
    codecs = frozenset(CODECS)

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        **settings: Any,
    ) -> None:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "linger.ms": 50,
                **settings,
            }
        )
        failed: list[KafkaError] = []
        for message in messages:
            producer.produce(
                topic,
                key=message.key,
                value=message.value,
                headers=list(message.headers),
                partition=partition,
                timestamp=message.timestamp_ms or 0,
                on_delivery=lambda error, _: error and failed.append(error),
            )
        assert producer.flush(DELIVERY_TIMEOUT_S) == 0
        assert failed == [], failed

    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0
    ) -> list[Message]:
        # A commit would make the broker create its topic of offsets first, which takes a second.
        settings = {"group.id": "unused", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
        try:
            consumer.assign([TopicPartition(topic, partition, offset)])
            found: list[Message] = []
            deadline = time.monotonic() + DELIVERY_TIMEOUT_S
            while len(found) < count and time.monotonic() < deadline:
                found += [as_message(raw) for raw in consumer.consume(count - len(found), 0.5)]
            return found
        finally:
            consumer.close()


def as_message(raw: Any) -> Message:
    assert raw.error() is None, raw.error()
    kind, timestamp_ms = raw.timestamp()
    return Message(
        key=raw.key(),
        value=raw.value(),
        headers=tuple(raw.headers() or ()),
        timestamp_ms=timestamp_ms,
        timestamp_type=APPEND_TIME if kind == TIMESTAMP_LOG_APPEND_TIME else CREATE_TIME,
        offset=raw.offset(),
    )
