"""Kafka's own producer and consumer behind the face that all clients share."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.e2e.clients import CODECS, Message
from tests.e2e.clients.java import Java
from tests.e2e.clients.kafkajs import as_json, as_message

# The producer is idempotent unless told otherwise; saying so keeps a test true to its name.
IDEMPOTENT = {"enable.idempotence": "true", "acks": "all"}


class JavaClient:
    name = "java"
    codecs = frozenset(CODECS)

    def __init__(self, java: Java) -> None:
        self.java = java

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        settings: Mapping[str, str] = IDEMPOTENT,
        **arguments: Any,
    ) -> list[int]:
        """The offsets that the broker acknowledged, in the order of the messages."""
        offsets = self.java.call(
            "produce",
            bootstrap,
            topic=topic,
            partition=partition,
            messages=[as_json(message) for message in messages],
            settings={"compression.type": codec, "linger.ms": "20", **settings},
            **arguments,
        )
        assert isinstance(offsets, list)
        return offsets

    def consume(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        settings: Mapping[str, str] | None = None,
        **place: int,
    ) -> list[Message]:
        """At least `count` records of a partition, from an `offset` or a time (`from_ms`) on."""
        where: dict[str, Any] = {
            "topic": topic,
            "count": count,
            "settings": dict(settings or {}),
            **place,
        }
        return [as_message(raw) for raw in self.java.call("consume", bootstrap, **where)]
