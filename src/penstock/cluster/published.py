"""What readers see of the cluster's metadata: its committed part, as far as this node knows it."""

from collections.abc import Iterator, Mapping

from penstock.cluster.brokers import Broker
from penstock.cluster.changes import (
    AssignmentsChanged,
    BrokerConfigChanged,
    BrokersChanged,
    Change,
    ClientMetricsChanged,
    ConfigChanged,
    GroupConfigChanged,
    LockChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from penstock.cluster.config_decisions import ALL_BROKERS
from penstock.cluster.config_definitions import (
    BROKER_SETTINGS,
    effective_broker_setting,
    topic_config,
)
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
)
from penstock.cluster.state import ClusterState
from penstock.cluster.topic import Topic
from penstock.model.ids import BrokerId, TopicId, TopicName
from penstock.model.topic_config import TopicConfig


class Published:
    """Follows the committed records one by one and says what each of them changed."""

    def __init__(self, static: Mapping[str, str], broker: str) -> None:
        self.topics: dict[TopicName, Topic] = {}
        self.topics_by_id: dict[TopicId, Topic] = {}
        # Replaced when it changes, never changed: readers may keep what they got.
        self.brokers: Mapping[BrokerId, Broker] = {}
        self.client_metrics: Mapping[str, Mapping[str, str]] = {}
        self.group_configs: dict[str, Mapping[str, str]] = {}
        self.dynamic: dict[str, Mapping[str, str]] = {}
        self.broker_settings: Mapping[str, str] = static
        self._static = static
        self._broker = broker

    def load(self, state: ClusterState) -> None:
        self.dynamic = dict(state.broker_configs)
        self.client_metrics = dict(state.client_metrics)
        self.group_configs = dict(state.group_configs)
        self._merge_settings()
        self.brokers = {number: state.brokers[number] for number in sorted(state.brokers)}
        for topic in state.topics.values():
            self._put(topic)

    def config_of(self, configs: Mapping[str, str]) -> TopicConfig:
        return topic_config(configs, self.broker_settings)

    def apply(self, record: ClusterRecord) -> Iterator[Change]:
        match record:
            case TopicStored(topic=topic):
                yield from self._stored(topic)
            case TopicRemoved(topic_id=topic_id):
                gone = self.topics_by_id.pop(topic_id, None)
                if gone is not None:
                    del self.topics[gone.name]
                    yield TopicDeleted(gone)
            case BrokerConfigStored(broker=broker, configs=configs):
                self.dynamic[broker] = configs
                yield from self._settings_changed()
            case BrokerStored(broker=broker):
                yield from self._brokers_changed({**self.brokers, broker.id: broker})
            case BrokerRemoved(broker=broker_id):
                left = {
                    number: each for number, each in self.brokers.items() if number != broker_id
                }
                yield from self._brokers_changed(left)
            case ClientMetricsStored(name=name, configs=configs):
                others = {each: of for each, of in self.client_metrics.items() if each != name}
                self.client_metrics = {**others, name: configs} if configs else others
                yield ClientMetricsChanged()
            case GroupConfigStored(group=group, configs=configs):
                self.group_configs.pop(group, None)
                if configs:
                    self.group_configs[group] = configs
                yield GroupConfigChanged(group)
            case LockStored(lock=lock):
                yield LockChanged(lock.name, lock)
            case LockRemoved(name=name):
                yield LockChanged(name, None)
            case ProducerIdsTaken() | FencingTokensTaken():
                pass

    def _stored(self, topic: Topic) -> Iterator[Change]:
        before = self.topics_by_id.get(topic.topic_id)
        self._put(topic)
        if before is None:
            yield TopicCreated(topic)
            return
        if topic.partitions > before.partitions:
            yield PartitionsAdded(topic, before.partitions)
        if topic.assignments[: before.partitions] != before.assignments:
            yield AssignmentsChanged(topic)
        if topic.configs != before.configs:
            yield ConfigChanged(topic, self.config_of(topic.configs))

    def _brokers_changed(self, brokers: Mapping[BrokerId, Broker]) -> Iterator[Change]:
        if brokers != self.brokers:
            self.brokers = {number: brokers[number] for number in sorted(brokers)}
            yield BrokersChanged()

    def _put(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic

    def _settings_changed(self) -> Iterator[Change]:
        before = self.broker_settings
        typed_before = {name: self.config_of(topic.configs) for name, topic in self.topics.items()}
        self._merge_settings()
        changed = frozenset(
            name
            for name in BROKER_SETTINGS
            if effective_broker_setting(name, before)
            != effective_broker_setting(name, self.broker_settings)
        )
        if not changed:
            return
        yield BrokerConfigChanged(changed)
        for name, topic in list(self.topics.items()):
            config = self.config_of(topic.configs)
            if config != typed_before[name]:
                yield ConfigChanged(topic, config)

    def _merge_settings(self) -> None:
        self.broker_settings = {
            **self._static,
            **self.dynamic.get(ALL_BROKERS, {}),
            **self.dynamic.get(self._broker, {}),
        }
