"""The partitions of a node that stands alone, on a real disk that can be told to fail."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.broker.partitions import Partitions
from penstock.model.ids import PartitionId, TopicId, TopicName
from penstock.model.limits import Limits
from penstock.model.topic_config import TopicConfig
from penstock.replication.replica import Replica
from tests.unit.replication import rig
from tests.unit.replication.rig import PATIENCE_S, TOPIC, TOPIC_ID


class Node(rig.Node):
    """Everything below the use cases, as the server would build it; every group is one of one."""

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        super().__init__(path, limits)
        self.partitions = Partitions(store=self.store, exchange=self)

    # What Partitions tells of its replicas

    def add(self, replica: Replica) -> None:
        self.replicas[replica.key] = replica

    def remove(self, key: PartitionId) -> None:
        self.replicas.pop(key, None)

    async def create(
        self, topic: TopicName, topic_id: TopicId, partitions: Iterable[int], config: TopicConfig
    ) -> None:
        """Made, or opened as they are on disk; active when this returns."""
        indexes = list(partitions)
        founders = {index: [self.id] for index in indexes}
        if topic_id in self.directory.list_topic_directories():
            await self.partitions.open(topic, topic_id, indexes, config, founders)
        else:
            await self.partitions.create(topic, topic_id, indexes, config, founders)
        for index in indexes:
            replica = self.partitions.get_by_id(topic_id, index)
            if replica.stopped_because is None:
                await replica.settled(PATIENCE_S)

    async def replica(
        self, config: TopicConfig | None = None, *, topic_id: TopicId = TOPIC_ID
    ) -> Replica:
        await self.create(TOPIC, topic_id, [0], config or TopicConfig())
        return self.partitions.get_by_id(topic_id, 0)

    async def close_replicas(self) -> None:
        await self.partitions.close()
        await self.store.close()


@asynccontextmanager
async def running(path: Path, limits: Limits | None = None) -> AsyncIterator[Node]:
    node = Node(path, limits)
    node.start_ticking()
    try:
        yield node
    finally:
        node.faults.writes_go_on.set()
        await node.stop()
