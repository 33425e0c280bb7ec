"""What a broker knows of leaders, with brokers, topics and replicas that tests make up."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from penstock.broker.leaderships import Broker, Leaderships
from penstock.broker.partitions import Partitions
from penstock.cluster.topic import Assignment, Topic
from penstock.model.endpoint import Endpoint
from penstock.model.errors import Reason, Refused
from penstock.model.ids import (
    BrokerId,
    DirectoryId,
    PartitionId,
    PartitionIndex,
    ReplicaId,
    Term,
    TopicId,
    TopicName,
    TopicPartition,
)
from penstock.model.topic_config import TopicConfig
from penstock.replication.leaders import LeaderInfo, LeaderTable

TOPIC = TopicName("orders")
TOPIC_ID = TopicId(UUID(int=77))


def broker(node: int, rack: str | None = None) -> Broker:
    return Broker(
        id=BrokerId(node),
        directory=DirectoryId(UUID(int=node).hex),
        kafka=Endpoint(f"host-{node}", 9092 + node),
        peer=Endpoint(f"host-{node}", 9095),
        rack=rack,
    )


def topic_on(*assignments: tuple[int, ...], name: str = TOPIC) -> Topic:
    """One partition for each list of brokers."""
    return Topic(
        name=TopicName(name),
        topic_id=TOPIC_ID,
        assignments=tuple(
            Assignment(replicas=tuple(map(BrokerId, replicas)), founders=())
            for replicas in assignments
        ),
        configs={},
        internal=False,
    )


class MadeUpReplica(SimpleNamespace):
    is_leader: bool
    config = TopicConfig()

    def check_running(self) -> None: ...

    def check_leader(self) -> None:
        if not self.is_leader:
            raise Refused(Reason.NOT_LEADER_OR_FOLLOWER)

    def check_follower(self) -> None:
        """None of them can serve readers unless it leads."""
        self.check_leader()


class MadeUpPartitions(Partitions):
    """The replicas of this node: plain objects that say whether they lead."""

    def __init__(self) -> None:
        registry: Any = SimpleNamespace(add=lambda replica: None, remove=lambda key: None)
        super().__init__(store=cast("Any", None), exchange=registry)

    def put(self, index: int, *, leads: bool, term: int, leader: int | None = None) -> Any:
        found = None if leader is None else ReplicaId(BrokerId(leader), DirectoryId("d"))
        replica: Any = MadeUpReplica(
            partition=TopicPartition(TOPIC, PartitionIndex(index)),
            topic_id=TOPIC_ID,
            is_leader=leads,
            is_settled=leads,
            term=term,
            leader=found,
            stopped_because=None,
            in_sync=lambda: [1],
        )
        self._add([replica])
        return replica


class MadeUpCluster:
    """This node is broker 1; `dead` ones can't be reached."""

    def __init__(self, *brokers: Broker, topics: tuple[Topic, ...] = ()) -> None:
        self.broker_id = BrokerId(1)
        self.cluster_id = "made-up"
        self.controller_id = BrokerId(2)
        self.brokers = {each.id: each for each in brokers}
        self.dead: set[int] = set()
        self._topics = topics
        self.partitions = MadeUpPartitions()
        self.partitions.follow(self)
        self.leaders = LeaderTable()
        self.leaderships = Leaderships(
            cluster=self,  # type: ignore[arg-type]
            partitions=self.partitions,
            leaders=self.leaders,
            exchange=self,
        )

    def is_alive(self, node: BrokerId) -> bool:
        return node not in self.dead

    def topics(self) -> tuple[Topic, ...]:
        return self._topics

    def topic(self, name: str) -> Topic | None:
        return next((topic for topic in self._topics if topic.name == name), None)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        return next((topic for topic in self._topics if topic.topic_id == topic_id), None)

    def announce(self, partition: int, *, leader: int, term: int, in_sync: tuple[int, ...]) -> None:
        key = PartitionId(TOPIC_ID, PartitionIndex(partition))
        self.leaders.learn(key, LeaderInfo(Term(term), BrokerId(leader), in_sync))


def lone_leaderships(partitions: Any) -> Leaderships:
    """Of a node that stands alone: what it does not hold does not exist."""
    return Leaderships(
        cluster=MadeUpCluster(broker(1)),  # type: ignore[arg-type]
        partitions=partitions,
        leaders=LeaderTable(),
        exchange=MadeUpCluster(),
    )
