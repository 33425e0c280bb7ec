"""Partitions and directories without a disk: what lies on it outlives the objects that use it."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from penstock.broker.topics import Topics
from penstock.cluster.coordinator import Cluster
from penstock.model.errors import Reason, Refused
from penstock.model.ids import PartitionIndex, TopicId, TopicName, TopicPartition
from penstock.model.topic_config import TopicConfig
from tests.unit.cluster.fakes import FakeHost, make_cluster


@dataclass
class Disk:
    """What a crash leaves: the metadata log, and the directories of partitions."""

    log: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    directories: set[tuple[UUID, int]] = field(default_factory=set)
    # How many more partitions can be made before the disk is full.
    room: int = 10**9


class FakePartitions:
    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.replicas: dict[TopicId, dict[int, Any]] = {}
        self._being_made: set[tuple[TopicId, int]] = set()
        # Called with the name of the topic before its partitions are made, to interfere.
        self.before_create: Callable[[str], None] = lambda name: None

    def get(self, topic: str, partition: int) -> Any:
        for replicas in self.replicas.values():
            replica = replicas.get(partition)
            if replica is not None and replica.partition.topic == topic:
                return replica
        raise Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION)

    def get_by_id(self, topic_id: TopicId, partition: int) -> Any:
        try:
            return self.replicas[topic_id][partition]
        except KeyError:
            raise Refused(Reason.UNKNOWN_TOPIC_ID) from None

    def all(self) -> list[Any]:
        return [replica for replicas in self.replicas.values() for replica in replicas.values()]

    async def create(
        self, topic: TopicName, topic_id: TopicId, partitions: Iterable[int], config: TopicConfig
    ) -> None:
        self.before_create(topic)
        wanted = list(partitions)
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
            if self.disk.room == 0:
                raise Refused(Reason.STORAGE_ERROR, "no space left on device")
            self.disk.room -= 1
            self.disk.directories.add((topic_id, partition))
            # A real disk takes its time, and the loop goes on meanwhile.
            await asyncio.sleep(0.001)

    async def open(
        self, topic: TopicName, topic_id: TopicId, partitions: Iterable[int], config: TopicConfig
    ) -> None:
        wanted = list(partitions)
        self._add(topic, topic_id, wanted, config)
        for partition in wanted:
            if (topic_id, partition) not in self.disk.directories:
                self.replicas[topic_id][partition].stopped_because = OSError("directory is lost")

    async def delete(self, topic_id: TopicId) -> None:
        if self.replicas.pop(topic_id, None) is not None:
            FakeDirectories(self.disk).remove_topic(topic_id)

    def set_config(self, topic: TopicName, config: TopicConfig) -> None:
        for replica in self.all():
            if replica.partition.topic == topic:
                replica.config = config

    def _add(
        self, topic: TopicName, topic_id: TopicId, partitions: list[int], config: TopicConfig
    ) -> None:
        for partition in partitions:
            self.replicas.setdefault(topic_id, {})[partition] = SimpleNamespace(
                partition=TopicPartition(topic, PartitionIndex(partition)),
                topic_id=topic_id,
                term=7,
                config=config,
                stopped_because=None,
                size_bytes=100 + partition,
            )


class FakeDirectories:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def list_topic_directories(self) -> list[TopicId]:
        return [TopicId(topic_id) for topic_id in {each[0] for each in self._disk.directories}]

    def remove_topic(self, topic_id: TopicId) -> None:
        kept = {each for each in self._disk.directories if each[0] != topic_id}
        self._disk.directories.clear()
        self._disk.directories.update(kept)


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
    host: FakeHost
    cluster: Cluster
    partitions: FakePartitions
    topics: Topics

    @classmethod
    async def start(cls, disk: Disk, *, retry_s: float = 0.001, **settings: str) -> "Node":
        host = FakeHost()
        host.log = disk.log
        cluster = make_cluster(host, **settings)
        await cluster.load()
        partitions = FakePartitions(disk)
        topics = Topics(
            cluster=cluster,
            partitions=partitions,  # type: ignore[arg-type]
            directory=FakeDirectories(disk),
            executor=AtOnce(),
            retry_s=retry_s,
        )
        await topics.open_all()
        return cls(disk, host, cluster, partitions, topics)

    def served(self) -> dict[str, int]:
        """Every topic that clients see, with its number of partitions, all of them running."""
        for topic in self.cluster.topics():
            assert all(view.leader == 0 for view in self.topics.describe(topic))
        return {topic.name: topic.partitions for topic in self.cluster.topics()}
