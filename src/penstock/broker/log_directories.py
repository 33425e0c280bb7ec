"""Tells how much room this node's data takes, and how much its disk has left."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple, Protocol

from penstock.broker.partitions import Partitions
from penstock.model.ids import TopicName, TopicPartition
from penstock.replication.replica import Replica

UNKNOWN_BYTES = -1


class DiskUsage(Protocol):
    @property
    def total(self) -> int: ...

    @property
    def free(self) -> int: ...


class PartitionSize(NamedTuple):
    partition: int
    size_bytes: int


class LogDirectory(NamedTuple):
    """The directory of all healthy partitions, or that of one partition that is stopped."""

    path: str
    is_damaged: bool
    topics: Mapping[TopicName, Collection[PartitionSize]]
    total_bytes: int = UNKNOWN_BYTES
    usable_bytes: int = UNKNOWN_BYTES


class LogDirectories:
    def __init__(
        self,
        *,
        partitions: Partitions,
        directory: Path,
        disk_usage: Callable[[Path], DiskUsage],
        executor: Executor,
    ) -> None:
        self._partitions = partitions
        self._directory = directory.absolute()
        self._disk_usage = disk_usage
        self._executor = executor

    @property
    def path(self) -> str:
        return str(self._directory)

    async def usage(self) -> DiskUsage | None:
        """None if the disk does not tell."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, self._disk_usage, self._directory)
        except OSError:
            return None

    async def describe(self, wanted: Collection[TopicPartition] | None) -> list[LogDirectory]:
        """The given partitions, or all. A stopped one stands apart, so that it shows as damaged."""
        usage = await self.usage()
        if usage is None:
            return [LogDirectory(path=self.path, is_damaged=True, topics={})]
        chosen = self._chosen(wanted)
        healthy = [replica for replica in chosen if replica.stopped_because is None]
        stopped = [replica for replica in chosen if replica.stopped_because is not None]
        whole = LogDirectory(
            path=self.path,
            is_damaged=False,
            topics=_by_topic(healthy),
            total_bytes=usage.total,
            usable_bytes=usage.free,
        )
        return [whole, *(self._damaged(replica) for replica in stopped)]

    def _chosen(self, wanted: Collection[TopicPartition] | None) -> list[Replica]:
        replicas = self._partitions.all()
        if wanted is None:
            return list(replicas)
        chosen = frozenset(wanted)
        return [replica for replica in replicas if replica.partition in chosen]

    def _damaged(self, replica: Replica) -> LogDirectory:
        topic, partition = replica.partition
        path = self._directory / "topics" / replica.topic_id.hex / str(partition)
        # The size of what can't be read is not known.
        return LogDirectory(
            path=str(path), is_damaged=True, topics={topic: [PartitionSize(partition, 0)]}
        )


def _by_topic(replicas: Iterable[Replica]) -> dict[TopicName, list[PartitionSize]]:
    topics: dict[TopicName, list[PartitionSize]] = {}
    for replica in replicas:
        topic, partition = replica.partition
        topics.setdefault(topic, []).append(PartitionSize(partition, replica.size_bytes))
    return topics
