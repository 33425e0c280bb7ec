"""`Consumer`: reads records, as a member of a group or from chosen offsets.

A record is processed when the loop asks for the next one. Only then does the group's position move
past it, so a program that dies in the middle of one gets it again: every record at least once.
"""

import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import confluent_kafka

from penstock.client.admin import Admin
from penstock.client.connection import (
    LOGGER,
    bootstrap_or_default,
    check_reachable,
    librdkafka_settings,
)
from penstock.client.errors import ClientError, CommitFailed, from_kafka, reason_of
from penstock.client.positions import Beginning, Bound, End, position_of
from penstock.client.stopping import stopped_by
from penstock.client.tracing import place_of, tracing_of_program
from penstock.client.values import as_json, as_text
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition

# One call hands over at most this many records, so that a caller can react in between.
RECORDS_PER_POLL_MAX = 1_000
# How long a consumer may take to say goodbye, and a commit to be stored.
CLOSE_TIMEOUT_S = 5.0
COMMIT_TIMEOUT_S = 30.0
# How long a wait for records lasts at most before it looks whether to end.
LOOK_S = 0.25
# librdkafka insists on a group even when partitions are assigned by hand.
_NO_GROUP = "penstock-consumer-without-group"
_RETRIED_COMMITS = ("_TIMED_OUT", "_WAIT_COORD", "_TRANSPORT", "COORDINATOR_LOAD_IN_PROGRESS")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedRecord:
    """A record as it was read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def text(self) -> str | None:
        """The value as text; raises ClientError if it is not UTF-8."""
        return as_text(self.value)

    def json(self) -> Any:
        """The value decoded from JSON; raises ClientError if it is not JSON."""
        return as_json(self.value)


class Consumer:
    """Records of topics, for programs that block.

        with Consumer("readings", group="controllers") as consumer:
            for record in consumer:
                adjust(record.key, record.json())

    With a group, its members share the partitions, and the group remembers what was processed.
    `start` says where to begin where it remembers nothing: "earliest", "latest", an offset, a time
    (a datetime, "2026-05-01T12:00", or "15m" for a quarter of an hour ago), or the last N ("-10").

    Without a group all partitions are read from `start`, and nothing is remembered. `start` can be
    a mapping from partitions to positions: then only those partitions are read.

    A loop ends when the program gets SIGTERM (in the main thread, unless the program handles it
    itself) or when `stop` is called, after the record that it is at. Use it in one thread.
    """

    def __init__(
        self,
        topics: str | Iterable[str] = (),
        *,
        group: str | None = None,
        start: Bound | Mapping[int, Bound] = "earliest",
        bootstrap: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.topics = [topics] if isinstance(topics, str) else list(topics)
        for topic in self.topics:
            if ":" in topic:
                raise ClientError(f"{topic!r} is not a topic; give an address as bootstrap=.")
        if group is not None and isinstance(start, Mapping):
            raise ClientError("A group shares partitions itself: give one start for all of them.")
        self.bootstrap = bootstrap_or_default(bootstrap)
        # Partitions that were read to their end, with that end; new records take them out again.
        self.ended: dict[TopicPartition, int] = {}
        self.assigned: set[TopicPartition] = set()
        self.assignments = 0
        # Why the broker can't be reached just now, or None.
        self.unreachable_because: str | None = None
        self.unreachable_since: float | None = None
        self._group = group
        self._tracing = tracing_of_program()
        self._start = start
        self._is_begun = not self.topics
        self._is_closed = False
        self._is_stopping = False
        # An error that came among records, raised once those are handed over.
        self._failure: ClientError | None = None
        settings = {
            "group.id": group or _NO_GROUP,
            "enable.auto.commit": group is not None,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "latest" if self._starts_at(End) else "earliest",
            "enable.partition.eof": True,
            "error_cb": self._on_error,
        }
        self._consumer = _make(librdkafka_settings(self.bootstrap, settings | dict(options or {})))

    @property
    def raw(self) -> confluent_kafka.Consumer:
        """librdkafka's own, for what must be faster than `poll`."""
        return self._consumer

    @property
    def assigns_slowly(self) -> bool:
        """Whether new partitions are looked up first, during a poll."""
        return self._group is not None and not self._starts_at(Beginning, End)

    def subscribe(self, topics: Sequence[str]) -> None:
        """Share the topics' partitions with the other members of the group."""
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
        self._consumer.assign(
            [
                confluent_kafka.TopicPartition(partition.topic, partition.partition, offset)
                for partition, offset in offsets.items()
            ]
        )

    def begin(self) -> None:
        """Find the topics, and join the group or go to the start; the first poll does it too."""
        if self._is_begun:
            return
        if self._group is not None:
            check_reachable(self.bootstrap)
            self.subscribe(self.topics)
        else:
            admin = Admin(self.bootstrap)
            there = [
                _key(topic, index)
                for topic in self.topics
                for index in self._chosen(topic, admin.topics.partitions(topic))
            ]
            self.assign(self._resolved(admin, there))
        self._is_begun = True

    def poll(
        self, timeout_s: float = LOOK_S, count_max: int = RECORDS_PER_POLL_MAX
    ) -> list[ConsumedRecord]:
        """What has arrived, waiting at most `timeout_s` for the first record."""
        self.begin()
        self._raise_failure()
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        messages = [first]
        if count_max > 1:
            messages += self._consumer.consume(count_max - 1, 0)
        records = [self._record(message) for message in messages if not self._noticed(message)]
        if not records:
            self._raise_failure()
        return records

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

    def commit(self, timeout_s: float = COMMIT_TIMEOUT_S) -> None:
        """Store now how far the group is: past everything that is done.

        That happens by itself every few seconds and at the end. Raises CommitFailed if the
        partitions belong to others by now, or nobody stores it in time.
        """
        if self._group is None:
            return
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self._consumer.commit(asynchronous=False)
                return
            except confluent_kafka.KafkaException as failure:
                error = failure.args[0]
                if error.name() == "_NO_OFFSET":
                    return
                is_worth_it = error.retriable() or error.name() in _RETRIED_COMMITS
                if not is_worth_it or time.monotonic() > deadline:
                    raise CommitFailed(
                        f"Group {self._group} could not store what is processed: "
                        f"{reason_of(error)}."
                    ) from None
            time.sleep(LOOK_S)

    def __iter__(self) -> Iterator[ConsumedRecord]:
        """Records until it stops, each marked done when the next one is asked for."""
        with stopped_by((signal.SIGTERM,), self.stop, if_unhandled=True):
            while not self._is_stopping:
                # One at a time: partitions are only lost during a poll, so the loop never holds a
                # record that another member has too.
                for record in self.poll(LOOK_S, 1):
                    if self._tracing is None:
                        yield record
                    else:
                        with self._tracing.current(self.begin_span(record)):
                            yield record
                    self.done([record])

    def batches(self) -> Iterator[list[ConsumedRecord]]:
        """What has arrived, up to 1,000 records at a time.

        A batch is committed when the next one is asked for.
        """
        with stopped_by((signal.SIGTERM,), self.stop, if_unhandled=True):
            while not self._is_stopping:
                records = self.poll()
                if records:
                    if self._tracing is None:
                        yield records
                    else:
                        with self._tracing.current(self.begin_batch_span(records)):
                            yield records
                    self.settle(records)

    def settle(self, records: Sequence[ConsumedRecord]) -> None:
        """Mark records as processed and store that; what others took over is theirs."""
        self.done(records)
        try:
            self.commit()
        except CommitFailed as failure:
            LOGGER.warning("%s Others may read those records again.", failure)

    def stop(self) -> None:
        """Loops end after what they are at. Any thread may call it."""
        self._is_stopping = True

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
        try:
            self.begin()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Traces, in programs that make some

    def begin_batch_span(self, records: Sequence[ConsumedRecord]) -> Any:
        """Of several that are processed together."""
        if self._tracing is None:
            return None
        topics = list({record.topic: None for record in records})
        headers = (record.headers for record in records)
        group = {"messaging.consumer.group.name": self._group}
        return self._tracing.begin_batch(topics, headers, group)

    def begin_span(self, record: ConsumedRecord) -> Any:
        """Of a record that is processed; None in a program that does not trace."""
        if self._tracing is None:
            return None
        return self._tracing.begin(record.topic, record.headers, self._place_of(record))

    @staticmethod
    def end_span(span: Any) -> None:
        if span is not None:
            span.end()

    def _place_of(self, record: ConsumedRecord) -> dict[str, str | int | None]:
        return place_of(group=self._group, partition=record.partition, offset=record.offset)

    # What librdkafka reports

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _noticed(self, message: confluent_kafka.Message) -> bool:
        """Whether the message is an event or an error rather than a record."""
        error = message.error()
        if error is None:
            if self.ended:
                self.ended.pop(_key(message.topic() or "", message.partition() or 0), None)
            self.unreachable_because = self.unreachable_since = None
            return False
        if error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            place = _key(message.topic() or "", message.partition() or 0)
            self.ended[place] = message.offset() or 0
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
        if self.assigns_slowly and partitions:
            self._take_from_start(consumer, partitions)
        self.assigned.update(_key(one.topic, one.partition) for one in partitions)
        self.assignments += 1

    def _take_from_start(
        self, consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]
    ) -> None:
        """Where the group remembers nothing, it begins at our start."""
        try:
            known = consumer.committed(partitions, timeout=COMMIT_TIMEOUT_S)
            fresh = {_key(one.topic, one.partition): one for one in known if one.offset < 0}
            for place, offset in self._resolved(Admin(self.bootstrap), list(fresh)).items():
                fresh[place].offset = offset
        except confluent_kafka.KafkaException as error:
            # Without an assignment nothing is read, so nothing is skipped either.
            what = f"group {self._group}"
            self._failure = from_kafka(error.args[0], what=what, bootstrap=self.bootstrap)
            consumer.assign([])
        except ClientError as failure:
            self._failure = failure
            consumer.assign([])
        else:
            consumer.assign(known)

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

    # Where to start

    def _starts_at(self, *kinds: type) -> bool:
        if isinstance(self._start, Mapping):
            return False
        return isinstance(position_of(self._start, 0, Beginning(), now_ms=0), kinds)

    def _chosen(self, topic: str, there: Sequence[int]) -> Sequence[int]:
        if not isinstance(self._start, Mapping):
            return there
        unknown = sorted(set(self._start) - set(there))
        if unknown:
            raise ClientError(f"The topic {topic} has no partition {unknown[0]}.")
        return sorted(self._start)

    def _resolved(
        self, admin: Admin, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        now_ms = int(time.time() * 1000)
        by_position: dict[Any, list[TopicPartition]] = {}
        for one in partitions:
            position = position_of(self._start, one.partition, Beginning(), now_ms=now_ms)
            by_position.setdefault(position, []).append(one)
        found: dict[TopicPartition, int] = {}
        for position, places in by_position.items():
            found |= admin.offsets.resolve(position, places)
        return found


def _key(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(partition))


def _make(settings: dict[str, Any]) -> confluent_kafka.Consumer:
    try:
        return confluent_kafka.Consumer(settings)
    except confluent_kafka.KafkaException as error:
        raise ClientError(f"The consumer can't be created: {reason_of(error.args[0])}.") from None
