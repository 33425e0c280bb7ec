"""Writers and a consumer group that run while a cluster is harmed, and the judgement afterwards.

What is proved: every acknowledged record is where the broker said it is; no record is there twice;
the records of a key are in the order in which they were sent; the group read every one of them,
and nothing that the log does not hold.

librdkafka reports some records as acknowledged without an offset: when a request got no good answer
in time but the next one did, the batches of the first must be stored too, because the broker takes
the sequences of a producer in order. Such a record may be anywhere in its partition.
"""

import itertools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

Place = tuple[int, int]
# Where a record was acknowledged to be: its partition, and its offset if that is known.
AckedPlace = tuple[int, int | None]

KEYS_PER_WRITER = 8
FLUSH_TIMEOUT_S = 60.0
READ_TIMEOUT_S = 90.0
# A client that waits long between tries would tell more of itself than of the cluster.
PATIENCE = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "socket.timeout.ms": 6_000,
    # Lost connections are the point here; thousands of lines about them would hide a failure.
    "log_level": 2,
}


class Pace(NamedTuple):
    """How much all writers together send, and how long each waits between its bursts."""

    per_second: int
    burst_s: float


# Something is always under way. How much it is matters less than the cores that it takes.
STEADY = Pace(300, 0.05)
# For soaks.
BUSY = Pace(600, 0.02)


class Stored(NamedTuple):
    """A record as it lies in the log."""

    offset: int
    key: bytes
    value: bytes


class Claims(Protocol):
    """What a writer says of itself: how many it sent, and where each was acknowledged to be."""

    acknowledged: dict[bytes, AckedPlace]
    failures: list[str]
    sent: int


class Writer:
    """An idempotent producer with acks=all that sends numbered records until it is stopped."""

    def __init__(self, name: str, bootstrap: str, topic: str, pace: Pace) -> None:
        self.acknowledged: dict[bytes, AckedPlace] = {}
        self.acknowledged_at: dict[int, list[float]] = defaultdict(list)
        self.failures: list[str] = []
        self.sent = 0
        self.name, self._topic = name, topic
        self._burst_s = pace.burst_s
        self._burst = max(1, round(pace.per_second * pace.burst_s))
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                **PATIENCE,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 300_000,
            }
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._send_until_stopped()
        except KafkaException as error:
            self.failures.append(f"the producer gave up: {error}")

    def _send_until_stopped(self) -> None:
        while not self._stopping.is_set():
            due = time.monotonic() + self._burst_s
            for _ in range(self._burst):
                self._send_one()
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)
        left_over = self._producer.flush(FLUSH_TIMEOUT_S)
        if left_over:
            self.failures.append(f"{left_over} records were never answered")

    def _send_one(self) -> None:
        key = f"{self.name}-{self.sent % KEYS_PER_WRITER}".encode()
        value = f"{self.name}:{self.sent}".encode()
        try:
            self._producer.produce(self._topic, value, key, on_delivery=self._delivered)
            self.sent += 1
        except BufferError:
            self._producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.acknowledged[message.value()] = (message.partition(), message.offset())
            self.acknowledged_at[message.partition()].append(time.monotonic())
        else:
            self.failures.append(f"{message.value()!r}: {error}")

    def stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        self._thread.join(FLUSH_TIMEOUT_S + 30)
        if self._thread.is_alive():
            self.failures.append("the writer did not end")


class Member:
    """A consumer of a group that reads all the while and commits what it has read."""

    def __init__(self, bootstrap: str, topic: str, group: str, *, is_modern: bool = False) -> None:
        """`is_modern` is the protocol of KIP-848, where the broker decides about the times."""
        times = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
        self.read: dict[Place, set[bytes]] = defaultdict(set)
        self.read_at: list[float] = []
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._consumer = Consumer(
            {
                **PATIENCE,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                **({"group.protocol": "consumer"} if is_modern else times),
            }
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._note(self._consumer.consume(500, 0.1))
        except KafkaException as error:
            self.failures.append(f"a member gave up: {error}")
        self._consumer.close()

    def _note(self, messages: Sequence[Any]) -> None:
        for message in messages:
            if message.error() is None:
                self.read[message.partition(), message.offset()].add(message.value())
        if messages:
            self.read_at.append(time.monotonic())

    def stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        self._thread.join(30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a history amounts to, for anyone who reads the log of a long run."""

    seconds: float
    acknowledged: int
    read: int
    longest_write_pause_s: float
    longest_read_pause_s: float

    def __str__(self) -> str:
        return (
            f"{self.seconds:.0f} s, {self.acknowledged:,} records acknowledged, all in the log "
            f"once and in order, {self.read:,} read by the group; longest pause "
            f"{self.longest_write_pause_s:.2f} s without an acknowledgement in a partition, "
            f"{self.longest_read_pause_s:.2f} s without a read in the group"
        )


class History:
    """Writers and a group on one topic."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int = 3,
        writers: int = 3,
        members: int = 2,
        pace: Pace,
    ) -> None:
        self.bootstrap, self.topic, self.partitions = bootstrap, topic, partitions
        self.started = time.monotonic()
        each = pace._replace(per_second=max(1, pace.per_second // writers))
        self.writers = [Writer(f"w{number}", bootstrap, topic, each) for number in range(writers)]
        self.members = [Member(bootstrap, topic, f"group-of-{topic}") for _ in range(members)]

    @property
    def acknowledged_count(self) -> int:
        return sum(len(writer.acknowledged) for writer in self.writers)

    @property
    def places(self) -> set[Place]:
        return known_places(self.writers)

    def wait_for_progress(self, records: int = 5, timeout_s: float = 60) -> float:
        """Until every writer has that many more records acknowledged in every partition.

        Returns how long it took: one partition that stands still, or one client that holds on to
        a node that is cut off, is as bad as a cluster that does.
        """
        started, before = time.monotonic(), self._counts()
        while late := [
            f"{writer} in partition {partition}"
            for (writer, partition), count in self._counts().items()
            if count < before[writer, partition] + records
        ]:
            failures = [failure for writer in self.writers for failure in writer.failures]
            assert not failures, failures[:5]
            assert time.monotonic() < started + timeout_s, (
                f"fewer than {records} records were acknowledged in {timeout_s} s for: {late}"
            )
            time.sleep(0.02)
        return time.monotonic() - started

    def _counts(self) -> dict[tuple[str, int], int]:
        return {
            (writer.name, partition): len(writer.acknowledged_at[partition])
            for writer in self.writers
            for partition in range(self.partitions)
        }

    def abandon(self) -> None:
        """The run failed: let the threads end without asking what they have."""
        for thread in (*self.writers, *self.members):
            thread.stop()

    def finish(self) -> Summary:
        """Stop writing, let the group read to the end, and judge."""
        for writer in self.writers:
            writer.stop()
        for writer in self.writers:
            writer.join()
        ended = time.monotonic()
        try:
            log = read_log(self.bootstrap, self.topic)
            check_log(self.writers, log)
            self._wait_for_group(log)
        finally:
            for member in self.members:
                member.stop()
        for member in self.members:
            member.join()
        check_reads(self._read(), log)
        return Summary(
            seconds=ended - self.started,
            acknowledged=self.acknowledged_count,
            read=len(self._read()),
            longest_write_pause_s=max(
                longest_pause([writer.acknowledged_at[partition] for writer in self.writers], ended)
                for partition in log
            ),
            longest_read_pause_s=longest_pause([m.read_at for m in self.members], ended),
        )

    def _read(self) -> dict[Place, set[bytes]]:
        found: dict[Place, set[bytes]] = defaultdict(set)
        for member in self.members:
            for place, values in member.read.copy().items():
                found[place] |= values
        return found

    def _wait_for_group(self, log: Mapping[int, Sequence[Stored]]) -> None:
        wanted = {(partition, record.offset) for partition, all_ in log.items() for record in all_}
        deadline = time.monotonic() + READ_TIMEOUT_S
        while missing := wanted - set(self._read()):
            assert time.monotonic() < deadline, (
                f"the group is stuck: it never read {len(missing)} of {len(wanted)} records, the "
                f"first is {min(missing)}; {[member.failures for member in self.members]}"
            )
            time.sleep(0.2)


@contextmanager
def under_load(
    bootstrap: str, topic: str, *, pace: Pace = STEADY, members: int = 2
) -> Iterator[History]:
    """Load for as long as the block runs; the block ends it with `finish`."""
    history = History(bootstrap, topic, pace=pace, members=members)
    try:
        history.wait_for_progress()
        yield history
    finally:
        history.abandon()


def longest_pause(times: Sequence[Sequence[float]], end: float) -> float:
    """The longest time in which nothing happened, from the first event to the end."""
    moments = [*sorted(moment for each in times for moment in each if moment <= end), end]
    return max((later - earlier for earlier, later in itertools.pairwise(moments)), default=0.0)


def read_log(bootstrap: str, topic: str) -> dict[int, list[Stored]]:
    """All of a topic, from its first record to its high watermarks."""
    consumer = Consumer(
        {
            **PATIENCE,
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        ends = {number: end_of(consumer, TopicPartition(topic, number)) for number in partitions}
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        return _read_up_to(consumer, ends)
    finally:
        consumer.close()


def end_of(consumer: Consumer, place: TopicPartition) -> int:
    """The high watermark, asked for by ListOffsets.

    Not the end that a fetch seems to meet: a leader that came into leadership a moment ago does not
    know yet how far the one before it had come, and answers that there is nothing new for now.
    """
    deadline = time.monotonic() + READ_TIMEOUT_S
    while True:
        try:
            # Without this, librdkafka would keep to an answer of when nobody led the partition.
            consumer.list_topics(place.topic, timeout=10)
            return int(consumer.get_watermark_offsets(place, timeout=10)[1])
        except KafkaException:
            # Most likely nobody leads it at the moment, or its leader is too new.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _read_up_to(consumer: Consumer, ends: Mapping[int, int]) -> dict[int, list[Stored]]:
    """Every offset of these partitions is a record: nothing here compacts or aborts."""
    found: dict[int, list[Stored]] = {number: [] for number in ends}
    deadline = time.monotonic() + READ_TIMEOUT_S
    while unfinished := {
        number
        for number, end in ends.items()
        if end > (found[number][-1].offset + 1 if found[number] else 0)
    }:
        assert time.monotonic() < deadline, f"partitions {unfinished} can't be read to their end"
        for message in consumer.consume(1_000, 0.2):
            if message.error() is None:
                record = Stored(message.offset(), message.key(), message.value())
                found[message.partition()].append(record)
    return found


def check_log(writers: Sequence[Claims], log: Mapping[int, Sequence[Stored]]) -> None:
    """Everything acknowledged is where it was said to be, once, and keys keep their order."""
    found = {
        (partition, record.offset): record.value
        for partition, all_ in log.items()
        for record in all_
    }
    stored = {(partition, value) for (partition, _), value in found.items()}
    for writer in writers:
        assert writer.failures == [], writer.failures[:5]
        assert len(writer.acknowledged) == writer.sent
        lost = [
            (value, (partition, offset))
            for value, (partition, offset) in writer.acknowledged.items()
            if (partition, value) not in stored
            or (offset is not None and found.get((partition, offset)) != value)
        ]
        assert not lost, f"{len(lost)} acknowledged records are not where they were: {lost[:5]}"
    counts = Counter(found.values())
    doubled = [value for value, count in counts.items() if count > 1]
    assert not doubled, f"{len(doubled)} records are in the log twice: {doubled[:5]}"
    for partition, records in log.items():
        check_order(partition, records)


def known_places(writers: Sequence[Claims]) -> set[Place]:
    """Of all that was acknowledged with an offset."""
    return {
        (partition, offset)
        for writer in writers
        for partition, offset in list(writer.acknowledged.values())
        if offset is not None
    }


def check_order(partition: int, records: Sequence[Stored]) -> None:
    last: dict[bytes, int] = {}
    for record in records:
        number = int(record.value.split(b":")[1])
        assert last.get(record.key, -1) < number, (
            f"{record.key!r} in partition {partition}: {number} comes after {last[record.key]}"
        )
        last[record.key] = number


def check_reads(read: Mapping[Place, set[bytes]], log: Mapping[int, Sequence[Stored]]) -> None:
    """What the group read is what the log holds: nobody saw a record that was taken back."""
    stored = {(p, record.offset): record.value for p, records in log.items() for record in records}
    wrong = [
        (place, values) for place, values in read.items() if values != {stored.get(place, b"")}
    ]
    assert not wrong, f"the group read {len(wrong)} records that the log does not hold: {wrong[:5]}"
