"""The replicas of this node, found by name or by id.

The maps are owned by the event loop; making, opening and removing them on disk is the store's.
"""

import asyncio
from collections.abc import Iterable
from uuid import UUID

from penstock.model.errors import Reason, Refused, StorageDamaged
from penstock.model.ids import PartitionIndex, TopicId, TopicName, TopicPartition
from penstock.model.topic_config import FOREVER, TopicConfig
from penstock.replication.pressure import Pressure
from penstock.replication.replica import Replica
from penstock.replication.store import ReplicaStore

METADATA_PARTITION = TopicPartition(TopicName("__cluster_metadata"), PartitionIndex(0))
# Kafka reserves this id for the metadata log, so no topic can ever have it.
METADATA_TOPIC_ID = TopicId(UUID(int=1))
METADATA_CONFIG = TopicConfig(
    cleanup_delete=False,
    cleanup_compact=True,
    retention_ms=FOREVER,
    segment_bytes=8 * 1024 * 1024,
)
# Replicas that are closed at the same time when the node stops.
CLOSING_MAX = 64


class Partitions:
    """Every replica of this node, in the ways in which they are asked for."""

    def __init__(self, *, store: ReplicaStore) -> None:
        self._store = store
        self._by_name: dict[TopicName, dict[int, Replica]] = {}
        self._by_id: dict[TopicId, dict[int, Replica]] = {}
        self._metadata: Replica | None = None

    @property
    def pressure(self) -> Pressure:
        return self._store.pressure

    def get(self, topic: TopicName, partition: int) -> Replica:
        try:
            return self._by_name[topic][partition]
        except KeyError:
            detail = f"{topic}-{partition} is not on this broker"
            raise Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, detail) from None

    def get_by_id(self, topic_id: TopicId, partition: int) -> Replica:
        replicas = self._by_id.get(topic_id)
        if replicas is None:
            raise Refused(Reason.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
        replica = replicas.get(partition)
        if replica is None:
            detail = f"partition {partition} of topic {topic_id} is not on this broker"
            raise Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, detail)
        return replica

    def all(self) -> list[Replica]:
        """Every replica but the metadata log's; a list, so that callers may wait between them."""
        return [replica for replicas in self._by_id.values() for replica in replicas.values()]

    @property
    def metadata(self) -> Replica | None:
        return self._metadata

    async def create(
        self, topic: TopicName, topic_id: TopicId, partitions: Iterable[int], config: TopicConfig
    ) -> None:
        """Makes the partitions' logs; they are durable and in use when this returns.

        When one can't be made, none is in use; a later attempt takes over what was made.
        """
        wanted = [TopicPartition(topic, PartitionIndex(index)) for index in partitions]
        try:
            self._add(await self._store.create(wanted, topic_id, config))
        except (OSError, StorageDamaged) as error:
            raise Refused(Reason.STORAGE_ERROR, f"{topic} can't be made: {error}") from error

    async def open(
        self, topic: TopicName, topic_id: TopicId, partitions: Iterable[int], config: TopicConfig
    ) -> None:
        """Opens the partitions' logs at start; a damaged one is there, but stopped."""
        wanted = [TopicPartition(topic, PartitionIndex(index)) for index in partitions]
        self._add(await self._store.open(wanted, topic_id, config))

    async def open_metadata(self) -> Replica:
        """The log of the cluster's metadata: made on the first start, opened on later ones."""
        assert self._metadata is None
        self._metadata = await self._store.open_metadata(
            METADATA_PARTITION, METADATA_TOPIC_ID, METADATA_CONFIG
        )
        return self._metadata

    async def delete(self, topic_id: TopicId) -> None:
        """Takes the topic's replicas out of use at once, then removes their files."""
        replicas = self._by_id.pop(topic_id, None)
        if replicas is None:
            return
        for name in {replica.partition.topic for replica in replicas.values()}:
            # A topic of the same name may have been made anew meanwhile.
            if self._by_name.get(name) is replicas:
                del self._by_name[name]
        gone = Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        await asyncio.gather(*(replica.retire(gone) for replica in replicas.values()))
        await self._store.remove_topic(topic_id)

    def set_config(self, topic: TopicName, config: TopicConfig) -> None:
        for replica in self._by_name.get(topic, {}).values():
            replica.set_config(config)

    async def close(self) -> None:
        """Flushes and checkpoints every replica, so that the next start has nothing to recover."""
        replicas = self.all()
        if self._metadata is not None:
            replicas.append(self._metadata)
        for start in range(0, len(replicas), CLOSING_MAX):
            some = replicas[start : start + CLOSING_MAX]
            await asyncio.gather(*(replica.close() for replica in some))

    def _add(self, replicas: Iterable[Replica]) -> None:
        for replica in replicas:
            topic, index = replica.partition
            of_topic = self._by_id.setdefault(replica.topic_id, {})
            of_topic[index] = replica
            self._by_name[topic] = of_topic
