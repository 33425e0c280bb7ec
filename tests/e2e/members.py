"""Group members of three Python clients, each in a thread of its own, reporting to a ledger.

Each member commits right after it has read, while it still owns what it read. So every record must
be read exactly once, however often the group rebalances.
"""

import asyncio
import threading
import time
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as AioSticky,
)
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.e2e.ledger import Ledger

# Longer than any machine stands still: a member that is taken for dead reads things twice.
SESSION_MS = 25_000
HEARTBEAT_MS = 300
COMMIT_ATTEMPTS = 300
_GROUP_MOVED_ON = (
    confluent_kafka.KafkaError.REBALANCE_IN_PROGRESS,
    confluent_kafka.KafkaError.ILLEGAL_GENERATION,
    confluent_kafka.KafkaError.STALE_MEMBER_EPOCH,
)

KAFKA_PYTHON_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
AIOKAFKA_ASSIGNORS = {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky}


class Member(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None:
        """Leave the group in good order."""
        ...


class ThreadMember:
    """The common part: a thread that runs until told to stop and reports its own failure."""

    strategies: tuple[str, ...] = ()

    def __init__(
        self, name: str, bootstrap: str, topic: str, group: str, strategy: str, ledger: Ledger
    ) -> None:
        self.name, self.bootstrap, self.topic = name, bootstrap, topic
        self.group, self.strategy, self.ledger = group, strategy, ledger
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> None:
        self.ledger.joins(self.name)
        self.thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join(timeout=60)
        assert not self.thread.is_alive(), f"{self.name} does not stop"

    def _guarded(self) -> None:
        try:
            self.run()
        except Exception as error:
            self.ledger.failed(self.name, error)

    def run(self) -> None:
        raise AssertionError("each client says how it runs")


class ConfluentMember(ThreadMember):
    strategies = ("range", "roundrobin", "cooperative-sticky")
    settings: dict[str, Any] = {}

    def run(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "reconnect.backoff.max.ms": 500,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **self._protocol(),
                **self.settings,
            }
        )
        consumer.subscribe([self.topic], on_assign=self._assigned, on_revoke=self._revoked)
        while not self.stopping.is_set():
            messages = [each for each in consumer.consume(50, 0.2) if not _joins_again(each)]
            for message in messages:
                assert message.error() is None, message.error()
                self.ledger.read(self.name, message.partition(), message.offset())
            if messages:
                self._commit(consumer)
                self.ledger.committed(self.name)
        self.ledger.left(self.name)
        consumer.close()

    def _protocol(self) -> dict[str, Any]:
        return {
            "partition.assignment.strategy": self.strategy,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }

    def _assigned(self, _: Any, places: list[confluent_kafka.TopicPartition]) -> None:
        self.ledger.assigned(self.name, [place.partition for place in places])

    def _revoked(self, _: Any, places: list[confluent_kafka.TopicPartition]) -> None:
        self.ledger.revoked(self.name, [place.partition for place in places])

    def _commit(self, consumer: confluent_kafka.Consumer) -> None:
        """Cooperative members may commit while others are between join and sync, or behind their
        own join and so with the generation before it, as on Kafka: try again."""
        for _ in range(COMMIT_ATTEMPTS):
            try:
                consumer.commit(asynchronous=False)
                return
            except confluent_kafka.KafkaException as error:
                code = error.args[0].code()
                if code == confluent_kafka.KafkaError._NO_OFFSET:
                    return
                if code not in _GROUP_MOVED_ON:
                    raise
                time.sleep(0.1)
        raise AssertionError("the group never settled")


def _joins_again(message: confluent_kafka.Message) -> bool:
    """A classic group that becomes one of the new protocol ends the joins that wait, as on Kafka.
    librdkafka says so, and joins again by itself."""
    error = message.error()
    code = confluent_kafka.KafkaError.REBALANCE_IN_PROGRESS
    return error is not None and error.code() == code


class ConfluentConsumerMember(ConfluentMember):
    """Of the new protocol (KIP-848): the broker assigns, and says how often it wants to hear."""

    strategies = ("uniform", "range")

    def _protocol(self) -> dict[str, Any]:
        return {"group.protocol": "consumer", "group.remote.assignor": self.strategy}


class KafkaPythonMember(ThreadMember):
    strategies = tuple(KAFKA_PYTHON_ASSIGNORS)

    def run(self) -> None:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            partition_assignment_strategy=[KAFKA_PYTHON_ASSIGNORS[self.strategy]],
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        consumer.subscribe([self.topic], listener=_KafkaPythonListener(self))
        while not self.stopping.is_set():
            found = consumer.poll(timeout_ms=200)
            for place, records in found.items():
                for record in records:
                    self.ledger.read(self.name, place.partition, record.offset)
            if found:
                self._commit(consumer)
                self.ledger.committed(self.name)
        self.ledger.left(self.name)
        consumer.close()

    def _commit(self, consumer: kafka.KafkaConsumer) -> None:
        for _ in range(COMMIT_ATTEMPTS):
            try:
                consumer.commit()
                return
            except kafka.errors.RebalanceInProgressError:
                time.sleep(0.1)
        raise AssertionError("the group never settled")


class _KafkaPythonListener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: KafkaPythonMember) -> None:
        self.member = member

    def on_partitions_assigned(self, assigned: Any) -> None:
        places = [place.partition for place in assigned]
        self.member.ledger.assigned(self.member.name, places)

    def on_partitions_revoked(self, revoked: Any) -> None:
        places = [place.partition for place in revoked]
        self.member.ledger.revoked(self.member.name, places)


class AioKafkaMember(ThreadMember):
    strategies = tuple(AIOKAFKA_ASSIGNORS)

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self.lock = asyncio.Lock()
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            partition_assignment_strategy=[AIOKAFKA_ASSIGNORS[self.strategy]],
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        consumer.subscribe([self.topic], listener=_AioListener(self))
        await consumer.start()
        while not self.stopping.is_set():
            await self._read_some(consumer)
        self.ledger.left(self.name)
        await consumer.stop()

    async def _read_some(self, consumer: aiokafka.AIOKafkaConsumer) -> None:
        """The lock keeps the background rebalance from starting between a read and its commit."""
        found = await consumer.getmany(timeout_ms=200, max_records=50)
        async with self.lock:
            for place, records in found.items():
                for record in records:
                    self.ledger.read(self.name, place.partition, record.offset)
            if found:
                await consumer.commit()
                self.ledger.committed(self.name)


class _AioListener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: AioKafkaMember) -> None:
        self.member = member

    async def on_partitions_assigned(self, assigned: Any) -> None:
        places = [place.partition for place in assigned]
        self.member.ledger.assigned(self.member.name, places)

    async def on_partitions_revoked(self, revoked: Any) -> None:
        async with self.member.lock:
            places = [place.partition for place in revoked]
            self.member.ledger.revoked(self.member.name, places)


MEMBERS = {
    "confluent-kafka": ConfluentMember,
    "confluent-kafka-consumer": ConfluentConsumerMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AioKafkaMember,
}
