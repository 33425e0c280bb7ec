"""The cluster's metadata: topics, dynamic settings, producer ids; `apply` is its only mutator.

All transitions, by record:

    TopicStored         the topic with that id is made or replaced
    TopicRemoved        the topic with that id is gone; its id is never used again
    FilesDoomed         the topic's files are to be removed
    FilesRemoved        they are
    BrokerConfigStored  the dynamic settings of a broker (or of all) are replaced
    ProducerIdsTaken    producer ids below the given one are never handed out again

What to append is decided in `topic_decisions` and `config_decisions`, which only read this state.
"""

import json
from collections.abc import Iterator, Mapping

from penstock.cluster.records import (
    BrokerConfigStored,
    ClusterRecord,
    FilesDoomed,
    FilesRemoved,
    ProducerIdsTaken,
    TopicRemoved,
    TopicStored,
    from_json,
    to_json,
)
from penstock.cluster.topic import Topic
from penstock.cluster.topic_names import collision_key
from penstock.model.ids import TopicId, TopicName

__all__ = ["ClusterState", "Topic"]


class ClusterState:
    def __init__(self) -> None:
        self.topics: dict[TopicId, Topic] = {}
        self.partition_count = 0
        self.doomed: set[TopicId] = set()
        self.broker_configs: dict[str, Mapping[str, str]] = {}
        self.next_producer_id = 0
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

    def apply(self, record: ClusterRecord) -> None:
        match record:
            case TopicStored(topic=topic):
                self._forget(topic.topic_id)
                self._remember(topic)
            case TopicRemoved(topic_id=topic_id):
                self._forget(topic_id)
            case FilesDoomed(topic_id=topic_id):
                self.doomed.add(topic_id)
            case FilesRemoved(topic_id=topic_id):
                self.doomed.discard(topic_id)
            case BrokerConfigStored(broker=broker, configs=configs):
                self.broker_configs.pop(broker, None)
                if configs:
                    self.broker_configs[broker] = configs
            case ProducerIdsTaken(next_producer_id=next_producer_id):
                self.next_producer_id = next_producer_id

    def snapshot(self) -> bytes:
        return json.dumps([to_json(record) for record in self._records()]).encode()

    def restore(self, data: bytes) -> None:
        assert not self.topics, "a snapshot is restored into a new state only"
        for key, value in json.loads(data):
            self.apply(from_json(key, value))

    def _records(self) -> Iterator[ClusterRecord]:
        """The shortest log that leads to this state."""
        for topic in self.topics.values():
            yield TopicStored(topic=topic)
        for topic_id in self.doomed:
            yield FilesDoomed(topic_id=topic_id)
        for broker, configs in self.broker_configs.items():
            yield BrokerConfigStored(broker=broker, configs=configs)
        yield ProducerIdsTaken(next_producer_id=self.next_producer_id)

    def _remember(self, topic: Topic) -> None:
        assert self.colliding_name(topic.name) is None, f"{topic.name} is taken"
        self.topics[topic.topic_id] = topic
        self._ids[topic.name] = topic.topic_id
        self._names_by_collision_key[collision_key(topic.name)] = topic.name
        self.partition_count += topic.partitions

    def _forget(self, topic_id: TopicId) -> None:
        topic = self.topics.pop(topic_id, None)
        if topic is None:
            return
        self.partition_count -= topic.partitions
        del self._ids[topic.name]
        del self._names_by_collision_key[collision_key(topic.name)]
