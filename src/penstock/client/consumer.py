"""Reads records, either from chosen partitions and offsets or as a member of a group."""

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import confluent_kafka

from penstock.client.connection import DEFAULT_BOOTSTRAP, LOGGER, librdkafka_settings
from penstock.client.errors import ClientError, from_kafka, reason_of
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition

# One call hands over at most this many records, so that a caller can react in between.
RECORDS_PER_POLL_MAX = 1_000
# How long a consumer may take to say goodbye.
CLOSE_TIMEOUT_S = 5.0
# librdkafka insists on a group even when partitions are assigned by hand.
_NO_GROUP = "penstock-consumer-without-group"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedRecord:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Consumer:
    """With `group`, offsets are committed for records that were `done`; without, never."""

    def __init__(
        self,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        *,
        group: str | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        settings = {
            "group.id": group or _NO_GROUP,
            "enable.auto.commit": group is not None,
            "enable.auto.offset.store": False,
            "auto.offset.reset": start,
            "enable.partition.eof": True,
            "error_cb": self._on_error,
        }
        self.bootstrap = bootstrap
        # Partitions that were read to their end, with that end; new records take them out again.
        self.ended: dict[TopicPartition, int] = {}
        self.assigned: set[TopicPartition] = set()
        self.assignments = 0
        # Why the broker can't be reached just now, or None.
        self.unreachable_because: str | None = None
        self.unreachable_since: float | None = None
        self._group = group
        self._is_closed = False
        # Records that an iterator has taken and not handed on: the next reader gets them first.
        self._unread: deque[ConsumedRecord] = deque()
        # An error that came among records, told once those are handed over.
        self._failure: ClientError | None = None
        self._consumer = _make(librdkafka_settings(bootstrap, settings | dict(options or {})))

    @property
    def raw(self) -> confluent_kafka.Consumer:
        """librdkafka's own, for what must be faster than `poll`."""
        return self._consumer

    def subscribe(self, topics: Sequence[str]) -> None:
        """Share the topics' partitions with the other members of the group."""
        self._unread.clear()
        self._consumer.subscribe(
            list(topics),
            on_assign=self._take,
            on_revoke=self._lose,
            on_lost=self._lose,
        )

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, without a group."""
        self.assigned = set(offsets)
        self.assignments += 1
        self._unread.clear()
        self._consumer.assign(
            [
                confluent_kafka.TopicPartition(partition.topic, partition.partition, offset)
                for partition, offset in offsets.items()
            ]
        )

    def poll(self, timeout_s: float = 0.25) -> list[ConsumedRecord]:
        """What has arrived, waiting at most `timeout_s` for the first record."""
        if self._unread:
            rest = list(self._unread)
            self._unread.clear()
            return rest
        self._tell_failure()
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        messages = [first, *self._consumer.consume(RECORDS_PER_POLL_MAX - 1, 0)]
        records = [self._record(message) for message in messages if not self._noticed(message)]
        if records:
            self.unreachable_because = self.unreachable_since = None
        else:
            self._tell_failure()
        return records

    def _tell_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def done(self, records: Sequence[ConsumedRecord]) -> None:
        """Mark records as processed: the group's committed offset will move past them."""
        if self._group is None:
            return
        latest = {(record.topic, record.partition): record.offset + 1 for record in records}
        held = [
            confluent_kafka.TopicPartition(topic, partition, offset)
            for (topic, partition), offset in latest.items()
            if _key(topic, partition) in self.assigned
        ]
        if held:
            self._consumer.store_offsets(offsets=held)

    def __iter__(self) -> Iterator[ConsumedRecord]:
        """Records without end, each marked done when the next one is asked for."""
        while True:
            self._unread.extend(self.poll())
            while self._unread:
                record = self._unread.popleft()
                yield record
                self.done([record])

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Commit what is done and leave the group; gives up when the broker is not there."""
        if self._is_closed:
            return
        self._is_closed = True
        # librdkafka waits for as long as a session lasts, so it does that beside us.
        closing = threading.Thread(target=self._consumer.close, name="close", daemon=True)
        closing.start()
        closing.join(timeout_s)
        if closing.is_alive():
            LOGGER.warning("the consumer could not leave its group: the broker is not there")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _noticed(self, message: confluent_kafka.Message) -> bool:
        """Whether the message is an event or an error rather than a record."""
        partition = _key(message.topic() or "", message.partition() or 0)
        error = message.error()
        if error is None:
            self.ended.pop(partition, None)
            return False
        if error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            self.ended[partition] = message.offset() or 0
            return True
        if error.retriable() and not error.fatal():
            self._on_error(error)
            return True
        topic = message.topic()
        what = f"group {self._group}" if topic is None else f"topic {topic}"
        failure = from_kafka(error, what=what, bootstrap=self.bootstrap)
        # The first one, which may be why there are others.
        self._failure = self._failure or failure
        return True

    def _on_error(self, error: confluent_kafka.KafkaError) -> None:
        if error.code() == confluent_kafka.KafkaError._ALL_BROKERS_DOWN:
            self.unreachable_because = self.unreachable_because or "all brokers are down"
            self.unreachable_since = self.unreachable_since or time.monotonic()
        elif error.code() == confluent_kafka.KafkaError._TRANSPORT:
            self.unreachable_because = reason_of(error)

    def _take(
        self, consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]
    ) -> None:
        self.assigned.update(_key(one.topic, one.partition) for one in partitions)
        self.assignments += 1

    def _lose(
        self, consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]
    ) -> None:
        lost = {_key(one.topic, one.partition) for one in partitions}
        self.assigned -= lost
        if not self.assigned:
            # A rebalance has begun: what this member reads next is only known when it ends.
            self.assignments = 0
        self.ended = {one: end for one, end in self.ended.items() if one not in lost}

    @staticmethod
    def _record(message: confluent_kafka.Message) -> ConsumedRecord:
        kind, timestamp = message.timestamp()
        headers: Any = message.headers() or ()
        return ConsumedRecord(
            topic=message.topic() or "",
            partition=message.partition() or 0,
            offset=message.offset() or 0,
            timestamp_ms=None if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else timestamp,
            key=message.key(),
            value=message.value(),
            headers=tuple(headers),
        )


def _key(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(partition))


def _make(settings: dict[str, Any]) -> confluent_kafka.Consumer:
    try:
        return confluent_kafka.Consumer(settings)
    except confluent_kafka.KafkaException as error:
        raise ClientError(f"The consumer can't be created: {reason_of(error.args[0])}.") from None
