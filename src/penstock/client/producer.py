"""Sends records and keeps count of what was delivered and what was not."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import confluent_kafka

from penstock.client.connection import DEFAULT_BOOTSTRAP, librdkafka_settings
from penstock.client.errors import ClientError, DeliveryFailed, reason_of

Acks = Literal["0", "1", "all"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Headers = Iterable[tuple[str, bytes | None]]

# The broker's `max.message.bytes` decides, so librdkafka's own lower default must not.
MESSAGE_BYTES_MAX = 100 * 1024 * 1024
LINGER_MS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Where a record ended up; `latency_s` runs from `send` to the broker's acknowledgement."""

    topic: str
    partition: int
    offset: int
    latency_s: float


class Producer:
    """A producer that by default waits for durable and duplicate-free delivery."""

    def __init__(
        self,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        *,
        acks: Acks = "all",
        compression: Compression = "none",
        linger_ms: float = LINGER_MS,
        delivery_timeout_s: float = 30.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        settings = {
            "acks": acks,
            "enable.idempotence": acks == "all",
            "compression.type": compression,
            "linger.ms": linger_ms,
            # librdkafka insists that a record's time is longer than the wait for its neighbours.
            "message.timeout.ms": int(delivery_timeout_s * 1000 + linger_ms) + 1,
            "message.max.bytes": MESSAGE_BYTES_MAX,
        }
        self._delivery_timeout_s = delivery_timeout_s
        self._producer = _make(librdkafka_settings(bootstrap, settings | dict(options or {})))
        self.sent = 0
        self.delivered = 0
        self.failed = 0
        self.first_failure: str | None = None

    @property
    def raw(self) -> confluent_kafka.Producer:
        """librdkafka's own, for what must be faster than `send`; it is not counted here."""
        return self._producer

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> None:
        """Queue a record; waits while the queue is full, so memory stays bounded."""
        arguments: dict[str, Any] = {"value": value, "key": key, "headers": list(headers)}
        if partition is not None:
            arguments["partition"] = partition
        if timestamp_ms is not None:
            arguments["timestamp"] = timestamp_ms
        arguments["on_delivery"] = self._reporter(on_delivery)
        self._queue(topic, arguments)
        self.sent += 1
        self._producer.poll(0)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record is delivered; raises DeliveryFailed when one was not."""
        limit = self._delivery_timeout_s + 5.0 if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit
        # Short waits, so that Ctrl-C is heard.
        while self._producer.flush(0.2) and time.monotonic() < deadline:
            pass
        waiting = self.sent - self.delivered - self.failed
        if self.failed:
            raise DeliveryFailed(
                f"{self.failed} of {self.sent} records were not delivered; the first failed "
                f"because of this: {self.first_failure}."
            )
        if waiting:
            raise DeliveryFailed(f"{waiting} of {self.sent} records are still not acknowledged.")

    def close(self) -> None:
        """Give up what is still queued; `flush` first to keep it."""
        self._producer.purge()
        self._producer.flush(1.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def _queue(self, topic: str, arguments: dict[str, Any]) -> None:
        try:
            _check_names(arguments["headers"])
            self._queue_when_there_is_room(topic, arguments)
        except confluent_kafka.KafkaException as error:
            raise _unsendable(topic, reason_of(error.args[0])) from None
        except (OverflowError, UnicodeEncodeError) as error:
            raise _unsendable(topic, str(error)) from None

    def _queue_when_there_is_room(self, topic: str, arguments: dict[str, Any]) -> None:
        while True:
            try:
                self._producer.produce(topic, **arguments)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _reporter(
        self, on_delivery: Callable[[Delivery], None] | None
    ) -> Callable[[confluent_kafka.KafkaError | None, confluent_kafka.Message], None]:
        def report(
            error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
        ) -> None:
            if error is not None:
                self._note_failure(error, message)
                return
            self.delivered += 1
            if on_delivery is not None:
                on_delivery(_delivery(message))

        return report

    def _note_failure(
        self, error: confluent_kafka.KafkaError, message: confluent_kafka.Message
    ) -> None:
        self.failed += 1
        if self.first_failure is None:
            self.first_failure = f"{reason_of(error)} (topic {message.topic()})"


def _check_names(headers: list[tuple[str, bytes | None]]) -> None:
    """confluent-kafka ends the process for a name that UTF-8 can't hold."""
    for header in headers:
        if isinstance(header[0], str):
            header[0].encode()


def _unsendable(topic: str, reason: str) -> ClientError:
    return ClientError(f"A record for topic {topic} can't be sent: {reason}.")


def _make(settings: dict[str, Any]) -> confluent_kafka.Producer:
    try:
        return confluent_kafka.Producer(settings)
    except confluent_kafka.KafkaException as error:
        raise ClientError(f"The producer can't be created: {reason_of(error.args[0])}.") from None


def _delivery(message: confluent_kafka.Message) -> Delivery:
    return Delivery(
        topic=message.topic() or "",
        partition=_known(message.partition()),
        offset=_known(message.offset()),
        latency_s=message.latency() or 0.0,
    )


def _known(number: int | None) -> int:
    return -1 if number is None else number
