"""A topic as the cluster's metadata holds it, and where its partitions lie."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.model.ids import BrokerId, PartitionId, PartitionIndex, ReplicaId, TopicId, TopicName


class Assignment(NamedTuple):
    """The brokers that hold a partition."""

    # In the order of preference: the first one leads when it can.
    replicas: tuple[BrokerId, ...]
    # The first voters of its group, for life: anyone who joins later learns the rest from the log.
    founders: tuple[ReplicaId, ...]
    # While the partition moves: where it came from. Nobody gives a replica up until it is there.
    previous: tuple[BrokerId, ...] | None = None

    @property
    def hosts(self) -> tuple[BrokerId, ...]:
        """Every broker that must have a replica now."""
        if self.previous is None:
            return self.replicas
        return tuple(dict.fromkeys((*self.replicas, *self.previous)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: TopicName
    topic_id: TopicId
    # One per partition, by its index.
    assignments: tuple[Assignment, ...]
    configs: Mapping[str, str]
    internal: bool

    def __post_init__(self) -> None:
        assert self.assignments

    @property
    def partitions(self) -> int:
        return len(self.assignments)

    @property
    def is_moving(self) -> bool:
        return any(assignment.previous is not None for assignment in self.assignments)

    def partition_id(self, index: int) -> PartitionId:
        return PartitionId(self.topic_id, PartitionIndex(index))

    def partition_ids(self, first: int = 0) -> list[PartitionId]:
        return [self.partition_id(index) for index in range(first, self.partitions)]
