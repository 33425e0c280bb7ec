"""Who leads which partition, as far as this broker knows; what clients learn of it.

Leaders announce themselves to every broker, and the highest term wins, so that what is known here
never goes back. A replica on this node may know of its leader a little earlier than that.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from penstock.broker.leader_waits import LeaderWaits
from penstock.broker.partitions import Partitions
from penstock.cluster.brokers import Broker as Broker
from penstock.cluster.coordinator import Cluster
from penstock.cluster.topic import Topic
from penstock.model.ids import (
    NO_TOPIC_ID,
    BrokerId,
    PartitionId,
    PartitionIndex,
    Term,
    TopicId,
    TopicName,
)
from penstock.replication.leaders import LeaderTable
from penstock.replication.replica import Replica

NO_LEADER = BrokerId(-1)
NO_TERM = Term(-1)
# How long clients hear of a broker that is gone; Kafka's own take about as long to notice.
DEAD_BROKER_TOLD_S = 30.0
# An election after the death of a process takes less.
ELECTION_WAIT_S = 0.6


class Peers(Protocol):
    """Which nodes are there; one's own always is."""

    def is_alive(self, node: BrokerId, /) -> bool: ...


class Leader(NamedTuple):
    """The newest leader that is known, whether or not it can be reached."""

    node: BrokerId
    term: Term
    in_sync: Sequence[int]


class PartitionView(NamedTuple):
    """A partition as clients see it."""

    partition: int
    leader: int
    term: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]


class Leaderships:
    """Joins what was announced with what the metadata assigned and with who is there."""

    def __init__(
        self, *, cluster: Cluster, partitions: Partitions, leaders: LeaderTable, exchange: Peers
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._leaders = leaders
        self._exchange = exchange
        self._isolated_at: float | None = None
        # Counted from when somebody first asked: early enough for what they are for.
        self._dead_since: dict[BrokerId, float] = {}
        self._leaderless_since: dict[PartitionId, float] = {}
        self._waits = LeaderWaits(leaders)
        leaders.on_change(self._has_leader)

    # Brokers

    @property
    def cluster_id(self) -> str:
        return self._cluster.cluster_id

    def brokers(self, now: float) -> list[Broker]:
        """Those that can be reached, or could a short while before `now`.

        A client that sees one broker less forgets it at once, together with the partitions
        that it is just moving to another one. A broker that knows no controller can't judge who is
        there: it may be the one that was cut off, so it names them all.
        """
        brokers = self._cluster.brokers
        if self.controller() == NO_LEADER:
            return list(brokers.values())
        return [broker for node, broker in brokers.items() if self._is_listed(node, now)]

    def _is_listed(self, node: BrokerId, now: float) -> bool:
        if self._exchange.is_alive(node):
            self._dead_since.pop(node, None)
            return True
        return now - self._dead_since.setdefault(node, now) < DEAD_BROKER_TOLD_S

    def all_brokers(self) -> list[tuple[Broker, bool]]:
        """Every broker of the cluster, and whether this one reaches it."""
        is_alive = self._exchange.is_alive
        return [(broker, is_alive(node)) for node, broker in self._cluster.brokers.items()]

    def controller(self) -> BrokerId:
        """None is reported while nobody leads the metadata, or when its leader is gone."""
        node = self._cluster.controller_id
        return node if node >= 0 and self._exchange.is_alive(node) else NO_LEADER

    def admin_broker(self) -> BrokerId:
        """Whom clients should send admin requests to; every broker takes them.

        So while no controller is known, or one that has not registered yet, this one names itself:
        told of none, or of one without an address, some clients would keep their request until
        they ask again by themselves, minutes later.
        """
        controller = self.controller()
        return controller if controller in self._cluster.brokers else self._cluster.broker_id

    def isolated_s(self, now: float) -> float:
        """How long this broker has known no controller, at the time `now` of the monotonic clock.

        Counted from the first time that somebody asks, which is early enough for its purpose.
        """
        if self.controller() != NO_LEADER or len(self._cluster.brokers) == 1:
            self._isolated_at = None
            return 0.0
        if self._isolated_at is None:
            self._isolated_at = now
        return now - self._isolated_at

    def broker(self, node: BrokerId) -> Broker | None:
        return self._cluster.brokers.get(node)

    # Partitions

    def describe(
        self, topic: Topic, first: int = 0, last: int | None = None
    ) -> list[PartitionView]:
        """The partitions of the topic from `first` up to but not including `last`."""
        end = topic.partitions if last is None else min(last, topic.partitions)
        is_alive = self._exchange.is_alive
        dead = {node for node in self._cluster.brokers if not is_alive(node)}
        here = self._partitions.of_topic(topic.topic_id)
        return [self._view(topic, index, here.get(index), dead) for index in range(first, end)]

    def leader(self, topic_id: TopicId, partition: int) -> Leader | None:
        """Who leads in the newest term that is known here."""
        key = PartitionId(topic_id, PartitionIndex(partition))
        return self._newest(key, self._partitions.find(key))

    def reachable_leader(self, topic_id: TopicId, partition: int) -> Broker | None:
        """The broker to send a client to, if there is one."""
        key = PartitionId(topic_id, PartitionIndex(partition))
        replica = self._partitions.find(key)
        leader = self._newest(key, replica)
        if leader is None or not self._is_reachable(leader, replica):
            return None
        return self._cluster.brokers.get(leader.node)

    def hint(self, topic: TopicName, topic_id: TopicId, partition: int) -> Leader | None:
        """For a client that came to the wrong broker: the right one, unless that is this one."""
        known = self._topic(topic, topic_id)
        if known is None:
            return None
        leader = self.leader(known.topic_id, partition)
        if leader is None or leader.node == self._cluster.broker_id:
            return None
        return leader if self._exchange.is_alive(leader.node) else None

    def worth_a_wait(self, keys: Iterable[PartitionId], now: float) -> list[PartitionId]:
        """Of partitions without a leader those that lost it a moment ago: they get one in another.

        A client that learns at once that there is none comes back after a pause, which is most
        often longer than the election.
        """
        since = self._leaderless_since
        return [key for key in keys if now - since.setdefault(key, now) < ELECTION_WAIT_S]

    def _has_leader(self, key: PartitionId) -> None:
        self._leaderless_since.pop(key, None)

    async def wait_for_leaders(self, keys: Iterable[PartitionId]) -> None:
        """Returns when all of them have a leader that is there, or after a bound."""
        is_alive = self._exchange.is_alive
        await self._waits.wait(keys, ELECTION_WAIT_S, lambda info: is_alive(info.leader))

    # Replicas on this node

    def lead(self, topic: TopicName, partition: int, term: int = -1) -> Replica:
        """The partition's replica, if this broker leads it, in that term if one is given."""
        replica = self.replica(topic, partition)
        if term != -1:
            # Before the leadership, as on Kafka: who knows of a newer term knows a newer leader.
            replica.check_running()
            replica.check_epoch(term)
        replica.check_leader()
        return replica

    def replica(self, topic: TopicName, partition: int) -> Replica:
        """The partition's replica, no matter who leads it."""
        return self._partitions.get(topic, partition)

    # Inside

    def _topic(self, topic: TopicName, topic_id: TopicId) -> Topic | None:
        if topic_id == NO_TOPIC_ID:
            return self._cluster.topic(topic)
        return self._cluster.topic_by_id(topic_id)

    def _view(
        self, topic: Topic, index: int, replica: Replica | None, dead: set[BrokerId]
    ) -> PartitionView:
        # While replicas move, both those that come and those that go are replicas.
        replicas: list[int] = list(topic.assignments[index].hosts)
        if replica is not None and replica.stopped_because is not None:
            dead = dead | {self._cluster.broker_id}
        offline = [node for node in replicas if node in dead] if dead else []
        leader = self._newest(topic.partition_id(index), replica)
        if leader is None:
            return PartitionView(index, NO_LEADER, NO_TERM, replicas, [], offline)
        node = leader.node if self._is_reachable(leader, replica) else NO_LEADER
        in_sync = [member for member in leader.in_sync if member not in dead]
        return PartitionView(index, node, leader.term, replicas, in_sync, offline)

    def _newest(self, key: PartitionId, replica: Replica | None) -> Leader | None:
        info = self._leaders.get(key)
        if replica is not None and (info is None or replica.term > info.term):
            found = replica.leader
            if found is not None:
                in_sync = replica.in_sync() if replica.is_leader else ()
                return Leader(found.node, replica.term, in_sync)
        return None if info is None else Leader(info.leader, info.term, info.in_sync)

    def _is_reachable(self, leader: Leader, replica: Replica | None) -> bool:
        if leader.node != self._cluster.broker_id:
            return self._exchange.is_alive(leader.node)
        # Of itself it knows better than what it announced when it became the leader.
        return replica is not None and replica.is_leader
