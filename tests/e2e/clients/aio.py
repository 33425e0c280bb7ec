"""aiokafka: the asyncio client."""

import asyncio
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.e2e.clients import APPEND_TIME, CODECS, CREATE_TIME, Message

TIMEOUT_S = 60.0


class AioKafka:
    name = "aiokafka"
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
        asyncio.run(produce(bootstrap, topic, messages, partition, codec))

    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0
    ) -> list[Message]:
        return asyncio.run(consume(bootstrap, topic, count, partition, offset))


async def produce(
    bootstrap: str, topic: str, messages: Sequence[Message], partition: int, codec: str
) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        acks="all",
        linger_ms=50,
    )
    await producer.start()
    try:
        sent = [
            await producer.send(
                topic,
                key=message.key,
                value=message.value,
                headers=list(message.headers),
                partition=partition,
                timestamp_ms=message.timestamp_ms,
            )
            for message in messages
        ]
        await asyncio.wait_for(asyncio.gather(*sent), TIMEOUT_S)
    finally:
        await producer.stop()


async def consume(
    bootstrap: str, topic: str, count: int, partition: int, offset: int
) -> list[Message]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        place = TopicPartition(topic, partition)
        consumer.assign([place])
        consumer.seek(place, offset)
        async with asyncio.timeout(TIMEOUT_S):
            return [as_message(await consumer.getone()) for _ in range(count)]
    finally:
        await consumer.stop()


def as_message(raw: Any) -> Message:
    return Message(
        key=raw.key,
        value=raw.value,
        headers=tuple(raw.headers),
        timestamp_ms=raw.timestamp,
        timestamp_type=APPEND_TIME if raw.timestamp_type == 1 else CREATE_TIME,
        offset=raw.offset,
    )
