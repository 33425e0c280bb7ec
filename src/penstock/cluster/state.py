"""The cluster's metadata: brokers, topics, settings, producer ids; `apply` is its only mutator.

All transitions, by record:

    TopicStored         the topic with that id is made or replaced
    TopicRemoved        the topic with that id is gone; its id is never used again
    BrokerStored        the broker with that number is made or replaced
    BrokerRemoved       the broker with that number is gone until it registers again
    BrokerConfigStored  the dynamic settings of a broker (or of all) are replaced
    ClientMetricsStored a subscription to clients' metrics is made, replaced or gone
    ProducerIdsTaken    producer ids below the given one are never handed out again
    LockStored          the lock with that name is held, with that token
    LockRemoved         nobody holds the lock with that name
    FencingTokensTaken  fencing tokens below the given one are never handed out again

What to append is decided in the `*_decisions` modules, which only read this state.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial

from penstock.cluster.brokers import DRAINED, Broker
from penstock.cluster.lock import Lock
from penstock.cluster.records import (
    BrokerConfigStored,
    BrokerRemoved,
    BrokerStored,
    ClientMetricsStored,
    ClusterRecord,
    FencingTokensTaken,
    GroupConfigStored,
    LockRemoved,
    LockStored,
    ProducerIdsTaken,
    TopicRemoved,
    TopicStored,
    from_json,
    to_json,
)
from penstock.cluster.topic import Assignment, Topic
from penstock.cluster.topic_names import collision_key
from penstock.model.ids import BrokerId, TopicId, TopicName

__all__ = ["Assignment", "Broker", "ClusterState", "Topic"]


class ClusterState:
    def __init__(self) -> None:
        self.topics: dict[TopicId, Topic] = {}
        self.brokers: dict[BrokerId, Broker] = {}
        self.removed_brokers: set[BrokerId] = set()
        self.broker_configs: dict[str, Mapping[str, str]] = {}
        self.client_metrics: dict[str, Mapping[str, str]] = {}
        self.group_configs: dict[str, Mapping[str, str]] = {}
        self.next_producer_id = 0
        # Those that somebody holds. Tokens begin at 1, so that 0 can stand for none.
        self.locks: dict[str, Lock] = {}
        self.next_fencing_token = 1
        # How many replicas each broker holds, and for how many partitions it is the first choice.
        self.replica_counts: Counter[BrokerId] = Counter()
        self.preferred_counts: Counter[BrokerId] = Counter()
        self._ids: dict[TopicName, TopicId] = {}
        self._names_by_collision_key: dict[str, TopicName] = {}

    def topic(self, name: str) -> Topic | None:
        topic_id = self._ids.get(TopicName(name))
        return None if topic_id is None else self.topics[topic_id]

    def colliding_name(self, name: str) -> TopicName | None:
        """The topic, of this name or another, that metrics could not tell from `name`."""
        return self._names_by_collision_key.get(collision_key(name))

    def broker_config(self, broker: str) -> Mapping[str, str]:
        return self.broker_configs.get(broker, {})

    def is_drained(self, broker: BrokerId) -> bool:
        return self.broker_config(str(broker)).get(DRAINED) == "true"

    def usable_brokers(self) -> list[Broker]:
        """Those that may get replicas, in the order of their numbers."""
        return [self.brokers[n] for n in sorted(self.brokers) if not self.is_drained(n)]

    def apply(self, record: ClusterRecord) -> None:
        match record:
            case TopicStored(topic=topic):
                self._forget(topic.topic_id)
                self._remember(topic)
            case TopicRemoved(topic_id=topic_id):
                self._forget(topic_id)
            case BrokerStored(broker=broker):
                self.brokers[broker.id] = broker
                self.removed_brokers.discard(broker.id)
            case BrokerRemoved(broker=broker_id):
                self.brokers.pop(broker_id, None)
                self.removed_brokers.add(broker_id)
            case BrokerConfigStored(broker=name, configs=configs):
                self.broker_configs.pop(name, None)
                if configs:
                    self.broker_configs[name] = configs
            case ClientMetricsStored(name=name, configs=configs):
                self.client_metrics.pop(name, None)
                if configs:
                    self.client_metrics[name] = configs
            case GroupConfigStored(group=name, configs=configs):
                self.group_configs.pop(name, None)
                if configs:
                    self.group_configs[name] = configs
            case ProducerIdsTaken(next_producer_id=next_producer_id):
                self.next_producer_id = next_producer_id
            case LockStored(lock=lock):
                self.locks[lock.name] = lock
                # In a compacted log the counter may come later than a lock that was stored with it.
                self.next_fencing_token = max(self.next_fencing_token, lock.fencing_token + 1)
            case LockRemoved(name=name):
                self.locks.pop(name, None)
            case FencingTokensTaken(next_fencing_token=next_token):
                self.next_fencing_token = next_token

    def validate(self) -> None:
        """Asserts what every sequence of decisions leaves true; for tests, which call it often."""
        assert not self.brokers.keys() & self.removed_brokers
        assert self.next_producer_id >= 0
        tokens = [lock.fencing_token for lock in self.locks.values()]
        assert len(set(tokens)) == len(tokens), f"a token has two locks: {self.locks}"
        assert max(tokens, default=0) < self.next_fencing_token
        assert self._ids == {topic.name: each for each, topic in self.topics.items()}
        names = [topic.name for topic in self.topics.values()]
        assert self._names_by_collision_key == {collision_key(name): name for name in names}
        known = self.brokers.keys() | self.removed_brokers
        replicas: Counter[BrokerId] = Counter()
        preferred: Counter[BrokerId] = Counter()
        for topic in self.topics.values():
            for assignment in topic.assignments:
                _validate(assignment, known)
                preferred[assignment.replicas[0]] += 1
                replicas.update(assignment.hosts)
        assert self.replica_counts == replicas, f"{self.replica_counts} is not {replicas}"
        assert self.preferred_counts == preferred, f"{self.preferred_counts} is not {preferred}"

    def snapshot(self) -> Callable[[], bytes]:
        return partial(_encode, list(self._records()))

    def restore(self, data: bytes) -> None:
        assert not self.topics, "a snapshot is restored into a new state only"
        for key, value in json.loads(data):
            self.apply(from_json(key, value))

    def _records(self) -> Iterator[ClusterRecord]:
        """The shortest log that leads to this state."""
        for broker in self.brokers.values():
            yield BrokerStored(broker=broker)
        for broker_id in sorted(self.removed_brokers):
            yield BrokerRemoved(broker=broker_id)
        for topic in self.topics.values():
            yield TopicStored(topic=topic)
        for name, configs in self.broker_configs.items():
            yield BrokerConfigStored(broker=name, configs=configs)
        for name, configs in self.client_metrics.items():
            yield ClientMetricsStored(name=name, configs=configs)
        for name, configs in self.group_configs.items():
            yield GroupConfigStored(group=name, configs=configs)
        yield ProducerIdsTaken(next_producer_id=self.next_producer_id)
        if self.next_fencing_token > 1:
            yield FencingTokensTaken(next_fencing_token=self.next_fencing_token)
        for lock in self.locks.values():
            yield LockStored(lock=lock)

    def _remember(self, topic: Topic) -> None:
        assert self.colliding_name(topic.name) is None, f"{topic.name} is taken"
        self.topics[topic.topic_id] = topic
        self._ids[topic.name] = topic.topic_id
        self._names_by_collision_key[collision_key(topic.name)] = topic.name
        self._count(topic, 1)

    def _forget(self, topic_id: TopicId) -> None:
        topic = self.topics.pop(topic_id, None)
        if topic is None:
            return
        self._count(topic, -1)
        del self._ids[topic.name]
        del self._names_by_collision_key[collision_key(topic.name)]

    def _count(self, topic: Topic, by: int) -> None:
        for assignment in topic.assignments:
            self.preferred_counts[assignment.replicas[0]] += by
            for broker in assignment.hosts:
                self.replica_counts[broker] += by


def _validate(assignment: Assignment, known: Set[BrokerId]) -> None:
    assert assignment.founders
    for brokers in (assignment.replicas, assignment.previous):
        assert brokers is None or brokers, f"nobody holds {assignment}"
        assert brokers is None or len(set(brokers)) == len(brokers), f"twice in {assignment}"
    assert known >= set(assignment.hosts), f"{assignment} names a broker that is not known"


def _encode(records: Sequence[ClusterRecord]) -> bytes:
    return json.dumps([to_json(record) for record in records]).encode()
