"""The replicas of this node, found by name or by id.

The maps are owned by the event loop; making, opening and removing them on disk is the store's. A
replica that is here takes part in its group: it is known to the exchange between nodes as long as
it is in these maps.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from penstock.cluster.metadata_group import (
    METADATA_CONFIG,
    METADATA_PARTITION,
    METADATA_TOPIC_ID,
)
from penstock.cluster.topic import Topic
from penstock.model.errors import Reason, Refused, StorageDamaged
from penstock.model.ids import (
    PartitionId,
    PartitionIndex,
    ReplicaId,
    TopicId,
    TopicName,
    TopicPartition,
)
from penstock.model.topic_config import TopicConfig
from penstock.replication.pressure import Pressure
from penstock.replication.replica import Replica
from penstock.replication.store import ReplicaStore

__all__ = ["METADATA_CONFIG", "METADATA_PARTITION", "METADATA_TOPIC_ID", "Partitions"]

# Replicas that are closed at the same time when the node stops.
CLOSING_MAX = 64

Founders = Mapping[int, Sequence[ReplicaId]]


class Catalogue(Protocol):
    """Which topics the cluster has, wherever their replicas are."""

    def topic(self, name: str, /) -> Topic | None: ...

    def topic_by_id(self, topic_id: UUID, /) -> Topic | None: ...


class Registry(Protocol):
    """Who brings the messages of other nodes to replicas."""

    def add(self, replica: Replica, /) -> None: ...

    def remove(self, key: PartitionId, /) -> None: ...


class Partitions:
    """Every replica of this node, in the ways in which they are asked for."""

    def __init__(self, *, store: ReplicaStore, exchange: Registry) -> None:
        self._store = store
        self._exchange = exchange
        self._catalogue: Catalogue | None = None
        self._by_name: dict[TopicName, dict[int, Replica]] = {}
        self._by_id: dict[TopicId, dict[int, Replica]] = {}
        self._metadata: Replica | None = None
        self._on_added: list[Callable[[Replica], None]] = []
        self._on_removed: list[Callable[[Replica], None]] = []

    def follow(self, catalogue: Catalogue) -> None:
        """From now on it knows whether a partition is on another node or does not exist."""
        self._catalogue = catalogue

    def on_added(self, callback: Callable[[Replica], None]) -> None:
        self._on_added.append(callback)

    def on_removed(self, callback: Callable[[Replica], None]) -> None:
        self._on_removed.append(callback)

    @property
    def pressure(self) -> Pressure:
        return self._store.pressure

    def soon(self, callback: Callable[[], None]) -> None:
        """Calls back once all that the disk reported is taken, or with the next turn."""
        self._store.soon(callback)

    @property
    def disk_waiting_s(self) -> float:
        """How long the disk has been at work on the oldest write that is not done."""
        return self._store.disk_waiting_s

    # Finding

    def get(self, topic: TopicName, partition: int) -> Replica:
        try:
            return self._by_name[topic][partition]
        except KeyError:
            known = None if self._catalogue is None else self._catalogue.topic(topic)
            raise _not_here(known, f"{topic}-{partition}", partition) from None

    def get_by_id(self, topic_id: TopicId, partition: int) -> Replica:
        try:
            return self._by_id[topic_id][partition]
        except KeyError:
            known = None if self._catalogue is None else self._catalogue.topic_by_id(topic_id)
            if known is None and topic_id not in self._by_id:
                detail = f"no topic has the id {topic_id}"
                raise Refused(Reason.UNKNOWN_TOPIC_ID, detail) from None
            name = f"partition {partition} of topic {topic_id}"
            raise _not_here(known, name, partition) from None

    def find(self, key: PartitionId) -> Replica | None:
        """The replica that is here, if there is one."""
        return self._by_id.get(key.topic_id, {}).get(key.partition)

    def was_here(self, key: PartitionId) -> bool:
        """Whether the disk holds a replica that did not move away."""
        return self._store.was_here(key)

    def of_topic(self, topic_id: TopicId) -> dict[int, Replica]:
        """The replicas of this topic that are here, by partition."""
        return dict(self._by_id.get(topic_id, {}))

    def all(self) -> list[Replica]:
        """Every replica but the metadata log's; a list, so that callers may wait between them."""
        return [replica for replicas in self._by_id.values() for replica in replicas.values()]

    @property
    def metadata(self) -> Replica | None:
        return self._metadata

    # Making and opening

    async def create(
        self,
        topic: TopicName,
        topic_id: TopicId,
        partitions: Iterable[int],
        config: TopicConfig,
        founders: Founders,
    ) -> None:
        """Makes the partitions' logs; they are durable and in use when this returns.

        When one can't be made, none is in use; a later attempt takes over what was made.
        """
        wanted = [TopicPartition(topic, PartitionIndex(index)) for index in partitions]
        try:
            self._add(await self._store.create(wanted, topic_id, config, founders))
        except (OSError, StorageDamaged) as error:
            raise Refused(Reason.STORAGE_ERROR, f"{topic} can't be created: {error}") from error

    async def open(
        self,
        topic: TopicName,
        topic_id: TopicId,
        partitions: Iterable[int],
        config: TopicConfig,
        founders: Founders,
    ) -> None:
        """Opens the partitions' logs at start; a damaged one is there, but stopped."""
        wanted = [TopicPartition(topic, PartitionIndex(index)) for index in partitions]
        try:
            self._add(await self._store.open(wanted, topic_id, config, founders))
        except OSError as error:
            raise Refused(Reason.STORAGE_ERROR, f"{topic} can't be opened: {error}") from error

    async def open_metadata(self, founders: Sequence[ReplicaId]) -> Replica:
        """The log of the cluster's metadata: made on the first start, opened on later ones."""
        assert self._metadata is None
        self._metadata = await self._store.open_metadata(
            METADATA_PARTITION, METADATA_TOPIC_ID, METADATA_CONFIG, founders
        )
        self._exchange.add(self._metadata)
        return self._metadata

    def _add(self, replicas: Iterable[Replica]) -> None:
        for replica in replicas:
            topic, index = replica.partition
            of_topic = self._by_id.setdefault(replica.topic_id, {})
            of_topic[index] = replica
            self._by_name[topic] = of_topic
            self._exchange.add(replica)
            for callback in self._on_added:
                callback(replica)

    # Removing

    async def retire_topic(self, topic_id: TopicId) -> None:
        """Takes the replicas of a deleted topic out of use; their files are still there."""
        replicas = self._by_id.pop(topic_id, None)
        if not replicas:
            return
        self._forget_name(next(iter(replicas.values())).partition.topic, replicas)
        gone = Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        await self._retire(list(replicas.values()), gone)

    async def remove_topic_files(self, topic_id: TopicId) -> None:
        assert topic_id not in self._by_id, "its replicas are in use"
        await self._store.remove_topic(topic_id)

    async def remove(self, topic_id: TopicId, partitions: Iterable[int]) -> None:
        """Gives up replicas of partitions that moved to other brokers, with their files."""
        of_topic = self._by_id.get(topic_id, {})
        leaving = [of_topic.pop(index) for index in partitions]
        if leaving and not of_topic:
            del self._by_id[topic_id]
            self._forget_name(leaving[0].partition.topic, of_topic)
        gone = Refused(Reason.NOT_LEADER_OR_FOLLOWER, "the partition moved to another broker")
        await self._retire(leaving, gone)
        for replica in leaving:
            await self._store.remove_partition(replica.key)

    async def remove_files(self, key: PartitionId) -> None:
        """Removes what an earlier run of the node left of a replica that moved away."""
        assert self.find(key) is None, "the replica is in use"
        await self._store.remove_partition(key)

    def _forget_name(self, name: TopicName, of_topic: dict[int, Replica]) -> None:
        # A topic of the same name may have been made again meanwhile.
        if self._by_name.get(name) is of_topic:
            del self._by_name[name]

    async def _retire(self, replicas: Sequence[Replica], gone: Refused) -> None:
        for replica in replicas:
            self._exchange.remove(replica.key)
            for callback in self._on_removed:
                callback(replica)
        await asyncio.gather(*(replica.retire(gone) for replica in replicas))

    # Settings and the end

    def set_config(self, topic_id: TopicId, config: TopicConfig) -> None:
        for replica in self._by_id.get(topic_id, {}).values():
            replica.set_config(config)

    async def close(self) -> None:
        """Flushes and checkpoints every replica, so that the next start has nothing to recover."""
        replicas = self.all()
        if self._metadata is not None:
            replicas.append(self._metadata)
        for start in range(0, len(replicas), CLOSING_MAX):
            some = replicas[start : start + CLOSING_MAX]
            await asyncio.gather(*(replica.close() for replica in some))


def _not_here(topic: Topic | None, name: str, partition: int) -> Refused:
    """Whether a partition is somewhere else or nowhere."""
    if topic is not None and 0 <= partition < topic.partitions:
        detail = f"{name} has no replica on this broker"
        return Refused(Reason.NOT_LEADER_OR_FOLLOWER, detail)
    return Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, f"There is no {name}.")
