"""Partitions and directories without a disk: what lies on it outlives the objects that use it."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.broker.topics import Topics
from penstock.cluster.coordinator import Cluster
from penstock.model.errors import Reason, Refused
from penstock.model.ids import (
    PartitionId,
    PartitionIndex,
    ReplicaId,
    Term,
    TopicId,
    TopicName,
    TopicPartition,
)
from penstock.model.topic_config import TopicConfig
from penstock.replication.leaders import LeaderInfo
from tests.unit.clocks import ManualClock
from tests.unit.cluster.fakes import FakeExchange, FakeNode, Group, start_node


@dataclass
class Disk:
    """What a crash leaves: the metadata log, and the directories of partitions."""

    log: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    directories: set[tuple[UUID, int]] = field(default_factory=set)
    # How many more partitions can be made before the disk is full.
    room: int = 10**9


class FakeReplica:
    def __init__(self, partition: TopicPartition, topic_id: TopicId, config: TopicConfig) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.key = PartitionId(topic_id, partition.partition)
        self.config = config
        self.term = 7
        self.leader: ReplicaId | None = None
        self.is_leader = True
        self.is_settled = True
        self.is_reconciled = True
        self.stopped_because: Exception | None = None
        self.size_bytes = 100 + partition.partition
        self.wanted: list[ReplicaId] = []
        self.transfers: list[int] = []

    def set_wanted(self, voters: Sequence[ReplicaId], learners: Sequence[ReplicaId] = ()) -> None:
        self.wanted = list(voters)

    def check_running(self) -> None:
        if self.stopped_because is not None:
            raise Refused(Reason.STORAGE_ERROR)

    def transfer(self, node: int) -> None:
        self.transfers.append(node)


class FakePartitions:
    def __init__(self, disk: Disk, exchange: FakeExchange, node: int) -> None:
        self.disk = disk
        self.replicas: dict[TopicId, dict[int, FakeReplica]] = {}
        self._being_made: set[tuple[TopicId, int]] = set()
        self._exchange = exchange
        self._node = node
        # Called with the name of the topic before its partitions are made, to interfere.
        self.before_create: Callable[[str], None] = lambda name: None
        # Given by those who let removals wait for it.
        self.before_removal: asyncio.Event | None = None

    def get(self, topic: str, partition: int) -> Any:
        for replica in self.all():
            if replica.partition == (topic, partition):
                return replica
        raise Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION)

    def get_by_id(self, topic_id: TopicId, partition: int) -> Any:
        try:
            return self.replicas[topic_id][partition]
        except KeyError:
            raise Refused(Reason.UNKNOWN_TOPIC_ID) from None

    def find(self, key: PartitionId) -> Any:
        return self.replicas.get(key.topic_id, {}).get(key.partition)

    def was_here(self, key: PartitionId) -> bool:
        return key in self.disk.directories

    def of_topic(self, topic_id: TopicId) -> dict[int, Any]:
        return dict(self.replicas.get(topic_id, {}))

    def all(self) -> list[Any]:
        return [replica for replicas in self.replicas.values() for replica in replicas.values()]

    async def create(
        self,
        topic: TopicName,
        topic_id: TopicId,
        partitions: Iterable[int],
        config: TopicConfig,
        founders: Mapping[int, Sequence[ReplicaId]],
    ) -> None:
        self.before_create(topic)
        wanted = list(partitions)
        assert set(founders) == set(wanted)
        made = {(topic_id, partition) for partition in wanted}
        assert not made & self._being_made, "two would write to one log"
        self._being_made |= made
        try:
            await self._make(topic_id, wanted)
        finally:
            self._being_made -= made
        self._add(topic, topic_id, wanted, config)

    async def _make(self, topic_id: TopicId, partitions: list[int]) -> None:
        for partition in partitions:
            if (topic_id, partition) in self.disk.directories:
                continue
            if self.disk.room == 0:
                raise Refused(Reason.STORAGE_ERROR, "no space left on device")
            self.disk.room -= 1
            self.disk.directories.add((topic_id, partition))
            # A real disk takes its time, and the loop goes on meanwhile.
            await asyncio.sleep(0.001)

    async def open(
        self,
        topic: TopicName,
        topic_id: TopicId,
        partitions: Iterable[int],
        config: TopicConfig,
        founders: Mapping[int, Sequence[ReplicaId]],
    ) -> None:
        """What was never made is made now, as the store does it."""
        wanted = list(partitions)
        await self._make(topic_id, wanted)
        self._add(topic, topic_id, wanted, config)

    async def retire_topic(self, topic_id: TopicId) -> None:
        if self.before_removal is not None:
            await self.before_removal.wait()
        self.replicas.pop(topic_id, None)

    async def remove_topic_files(self, topic_id: TopicId) -> None:
        assert topic_id not in self.replicas
        kept = {each for each in self.disk.directories if each[0] != topic_id}
        self.disk.directories.clear()
        self.disk.directories.update(kept)

    async def remove_files(self, key: PartitionId) -> None:
        if self.before_removal is not None:
            await self.before_removal.wait()
        self.disk.directories.discard(key)

    async def remove(self, topic_id: TopicId, partitions: Iterable[int]) -> None:
        for partition in partitions:
            del self.replicas[topic_id][partition]
            self.disk.directories.discard((topic_id, partition))

    def set_config(self, topic_id: TopicId, config: TopicConfig) -> None:
        for replica in self.replicas.get(topic_id, {}).values():
            replica.config = config

    def _add(
        self, topic: TopicName, topic_id: TopicId, partitions: list[int], config: TopicConfig
    ) -> None:
        for index in partitions:
            partition = TopicPartition(topic, PartitionIndex(index))
            replica = FakeReplica(partition, topic_id, config)
            self.replicas.setdefault(topic_id, {})[index] = replica
            leader = LeaderInfo(Term(replica.term), self._exchange.own, (self._exchange.own,))
            self._exchange.announce(replica.key, leader)


class FakeDirectories:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def list_topic_directories(self) -> list[TopicId]:
        return [TopicId(topic_id) for topic_id in {each[0] for each in self._disk.directories}]

    def log_directories(self) -> list[Path]:
        topics = Path("topics")
        return [
            Path("metadata"),
            *(topics / each.hex / str(i) for each, i in self._disk.directories),
        ]


class AtOnce(Executor):
    """Runs work where it is submitted, so that tests need no threads."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


@dataclass
class Node:
    """A started node on a disk; a new one on the same disk is what comes after a crash."""

    disk: Disk
    # What all nodes of the cluster share; the name of the log's host when there is only one node.
    host: Group
    metadata: FakeNode
    cluster: Cluster
    partitions: FakePartitions
    topics: Topics
    exchange: FakeExchange

    @classmethod
    async def start(cls, disk: Disk, **more: Any) -> "Node":
        return await cls.join(Group(disk.log), 0, disk, **more)

    @classmethod
    async def join(
        cls,
        group: Group,
        number: int,
        disk: Disk,
        *,
        retry_s: float = 0.001,
        registers: bool = True,
        **settings: str,
    ) -> "Node":
        """One of several nodes, each with a disk of its own."""
        metadata = await start_node(group, number, registers=registers, **settings)
        partitions = FakePartitions(disk, metadata.exchange, number)
        topics = Topics(
            cluster=metadata.cluster,
            partitions=partitions,  # type: ignore[arg-type]
            exchange=metadata.exchange,  # type: ignore[arg-type]
            directory=FakeDirectories(disk),
            executor=AtOnce(),
            clock=ManualClock(),
            retry_s=retry_s,
        )
        await topics.open_all()
        await topics.remove_strays()
        return cls(disk, group, metadata, metadata.cluster, partitions, topics, metadata.exchange)

    def served(self) -> dict[str, int]:
        """Every topic that clients see, with its number of partitions."""
        return {topic.name: topic.partitions for topic in self.cluster.topics()}

    def running(self) -> dict[str, int]:
        """Every topic with a replica here, and how many there are."""
        names = [replica.partition.topic for replica in self.partitions.all()]
        return {name: names.count(name) for name in dict.fromkeys(names)}
