"""`Producer`: sends records, and knows what became of each.

librdkafka batches, retries and keeps the order. A record that does not fit into its memory waits:
nothing is dropped, and memory stays bounded.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import confluent_kafka

from penstock.client.connection import bootstrap_or_default, librdkafka_settings
from penstock.client.errors import ClientError, DeliveryFailed, reason_of
from penstock.client.tracing import tracing_of_program
from penstock.client.values import Headers, Value, to_bytes, to_headers

Acks = Literal["0", "1", "all"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]

# The broker's `max.message.bytes` decides, so librdkafka's own lower default must not.
MESSAGE_BYTES_MAX = 100 * 1024 * 1024
# What waits for its acknowledgement takes at most this much memory. It must hold any one record.
BUFFER_KBYTES_MAX = 128 * 1024
LINGER_MS = 5.0
DELIVERY_TIMEOUT_S = 30.0
# How much longer than the time of a record to wait for the word that its time is over.
GRACE_S = 5.0
# How long a wait for deliveries lasts at most before it looks for Ctrl-C, or whether to end.
LOOK_S = 0.2

_Report = Callable[[confluent_kafka.KafkaError | None, confluent_kafka.Message], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Where a record ended up; `latency_s` runs from `send` to the broker's acknowledgement."""

    topic: str
    partition: int
    offset: int
    latency_s: float


class Sending:
    """A record on its way to the broker: what `Producer.send` returns."""

    __slots__ = ("_on_delivery", "_outcome", "_producer", "_span")

    def __init__(
        self,
        producer: "Producer",
        on_delivery: Callable[[Delivery], None] | None,
        span: Any = None,
    ) -> None:
        self._producer = producer
        # Of a program that traces.
        self._span = span
        self._on_delivery = on_delivery
        self._outcome: confluent_kafka.Message | DeliveryFailed | None = None

    def done(self) -> bool:
        """Whether the record was acknowledged, or given up."""
        if self._outcome is None:
            self._producer.raw.poll(0)
        return self._outcome is not None

    def result(self, timeout_s: float | None = None) -> Delivery:
        """Waits for the acknowledgement. Raises DeliveryFailed if there is none.

        Without `timeout_s` it waits until the producer itself has given up the record.
        """
        limit_s = self._producer.delivery_timeout_s + GRACE_S if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        while self._outcome is None and (left_s := deadline - time.monotonic()) > 0:
            self._producer.raw.poll(min(left_s, LOOK_S))
        if self._outcome is None:
            raise DeliveryFailed(f"The record was not acknowledged within {limit_s:g} s.")
        if isinstance(self._outcome, DeliveryFailed):
            raise self._outcome
        return delivery_of(self._outcome)

    def report(
        self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
    ) -> None:
        if self._span is not None:
            self._producer.end_span(self._span, error, message)
        if error is not None:
            self._outcome = self._producer.note_failure(error, message)
            return
        self._producer.note_delivery()
        self._outcome = message
        if self._on_delivery is not None:
            self._on_delivery(delivery_of(message))


class Producer:
    """Sends records. They are safe, and stored once, when they are acknowledged.

        with Producer() as producer:
            producer.send("readings", {"celsius": 21.5}, key="kitchen")

    At the end of the block everything is acknowledged, or DeliveryFailed is raised. A record is
    tried again until it is acknowledged or `delivery_timeout_s` is over, whichever broker fails
    meanwhile. Several threads may use one producer.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        acks: Acks = "all",
        compression: Compression = "none",
        linger_ms: float = LINGER_MS,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        settings: dict[str, Any] = {
            "acks": acks,
            "enable.idempotence": acks == "all",
            "compression.type": compression,
            "linger.ms": linger_ms,
            # librdkafka insists that a record's time is longer than the wait for its neighbours.
            "message.timeout.ms": int(delivery_timeout_s * 1000 + linger_ms) + 1,
            "message.max.bytes": MESSAGE_BYTES_MAX,
            "queue.buffering.max.kbytes": BUFFER_KBYTES_MAX,
            # As Java's client and the HTTP door do, so that a key has one partition for all.
            "partitioner": "murmur2_random",
            "error_cb": self._on_error,
        }
        self.bootstrap = bootstrap_or_default(bootstrap)
        self.delivery_timeout_s = delivery_timeout_s
        self.sent = 0
        self.delivered = 0
        self.failed = 0
        self.first_failure: str | None = None
        # What flushes have reported already.
        self._reported = 0
        self._trouble = ""
        self._tracing = tracing_of_program()
        settings = librdkafka_settings(self.bootstrap, settings | dict(options or {}))
        self._buffer_bytes = int(settings["queue.buffering.max.kbytes"]) * 1024
        self._counting = threading.Lock()
        self._producer = _make(settings)

    @property
    def raw(self) -> confluent_kafka.Producer:
        """librdkafka's own, for what must be faster than `send`; it is not counted here."""
        return self._producer

    def send(
        self,
        topic: str,
        value: Value,
        *,
        key: Value = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> Sending:
        """Queue a record; waits while there is no room for it, so memory stays bounded.

            place = producer.send("readings", "21.5").result()
            print(place.partition, place.offset)

        Text is stored as UTF-8, and dicts, lists, numbers and dataclasses as JSON. `on_delivery` is
        called during later calls, in the order of the partition.
        """
        record = new_record(topic, value, key, headers, partition, timestamp_ms)
        span = None if self._tracing is None else self.begin_span(topic, record)
        sending = Sending(self, on_delivery, span)
        try:
            while not self.queue(topic, record, sending.report):
                self._producer.poll(LOOK_S)
        except BaseException as error:
            self.abandon_span(span, error)
            raise
        self._producer.poll(0)
        return sending

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record is acknowledged.

        Raises DeliveryFailed if one was not, and is not yet reported by an earlier flush.
        """
        limit_s = self.delivery_timeout_s + GRACE_S if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        while self._producer.flush(LOOK_S) and time.monotonic() < deadline:
            pass
        self.check_delivered()

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

    def queue(self, topic: str, record: dict[str, Any], report: _Report) -> bool:
        """False if there is no room just now."""
        try:
            self._producer.produce(topic, on_delivery=report, **record)
        except BufferError:
            if len(record["value"] or b"") + len(record["key"] or b"") > self._buffer_bytes:
                raise _unsendable(topic, "it is larger than the producer's buffer") from None
            return False
        except confluent_kafka.KafkaException as error:
            raise _unsendable(topic, reason_of(error.args[0])) from None
        except (OverflowError, UnicodeEncodeError, TypeError) as error:
            raise _unsendable(topic, str(error)) from None
        with self._counting:
            self.sent += 1
        return True

    def begin_span(self, topic: str, record: dict[str, Any]) -> Any:
        """Of a send; None in a program that does not trace."""
        return None if self._tracing is None else self._tracing.sending(topic, record)

    def end_span(
        self,
        span: Any,
        error: confluent_kafka.KafkaError | None,
        message: confluent_kafka.Message,
    ) -> None:
        if span is not None and self._tracing is not None:
            fault = "" if error is None else reason_of(error)
            self._tracing.sent(span, message.partition(), message.offset(), fault)

    def abandon_span(self, span: Any, error: BaseException) -> None:
        """The record was not even queued."""
        if span is not None and self._tracing is not None:
            self._tracing.sent(span, None, None, str(error) or type(error).__name__)

    def note_delivery(self) -> None:
        with self._counting:
            self.delivered += 1

    def check_delivered(self) -> None:
        """Raises DeliveryFailed for what failed since the last time, and for what still waits."""
        failed, self._reported = self.failed - self._reported, self.failed
        if failed:
            raise DeliveryFailed(
                f"{failed} of {self.sent} records were not delivered; the first failed "
                f"because of this: {self.first_failure}."
            )
        waiting = self.sent - self.delivered - self.failed
        if waiting:
            raise DeliveryFailed(f"{waiting} of {self.sent} records are still not acknowledged.")

    def note_failure(
        self, error: confluent_kafka.KafkaError, message: confluent_kafka.Message
    ) -> DeliveryFailed:
        with self._counting:
            self.failed += 1
        reason = reason_of(error)
        if error.code() == confluent_kafka.KafkaError._MSG_TIMED_OUT:
            reason = f"no acknowledgement within {self.delivery_timeout_s:g} s"
            reason += f", {self._trouble}" if self._trouble else ""
        topic = message.topic()
        if self.first_failure is None:
            self.first_failure = f"{reason} (topic {topic})"
        return DeliveryFailed(f"A record for topic {topic} was not delivered: {reason}.")

    def _on_error(self, error: confluent_kafka.KafkaError) -> None:
        self._trouble = reason_of(error)


def new_record(
    topic: str,
    value: Value,
    key: Value,
    headers: Headers,
    partition: int | None,
    timestamp_ms: int | None,
) -> dict[str, Any]:
    """librdkafka's arguments for a record. Raises ClientError for what it can't hold."""
    try:
        record: dict[str, Any] = {"value": to_bytes(value), "key": to_bytes(key)}
        if headers:
            record["headers"] = named = to_headers(headers)
            for name, _ in named:
                # confluent-kafka ends the process for a name that UTF-8 can't hold.
                name.encode()
    except ClientError as error:
        raise _unsendable(topic, str(error).rstrip(".")) from None
    except (UnicodeEncodeError, AttributeError, TypeError, ValueError) as error:
        raise _unsendable(topic, f"its headers are wrong: {error}") from None
    if partition is not None:
        record["partition"] = partition
    if timestamp_ms is not None:
        record["timestamp"] = timestamp_ms
    return record


def _unsendable(topic: str, reason: str) -> ClientError:
    return ClientError(f"A record for topic {topic} can't be sent: {reason}.")


def _make(settings: dict[str, Any]) -> confluent_kafka.Producer:
    try:
        return confluent_kafka.Producer(settings)
    except confluent_kafka.KafkaException as error:
        raise ClientError(f"The producer can't be created: {reason_of(error.args[0])}.") from None


def delivery_of(message: confluent_kafka.Message) -> Delivery:
    return Delivery(
        topic=message.topic() or "",
        partition=_known(message.partition()),
        offset=_known(message.offset()),
        latency_s=message.latency() or 0.0,
    )


def _known(number: int | None) -> int:
    return -1 if number is None else number
