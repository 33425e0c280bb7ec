"""Describes and changes the settings of topics, brokers, groups, and subscriptions to metrics."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from penstock.broker.schema_settings import fault_of_validation
from penstock.cluster.client_metrics import CLIENT_METRICS_SETTINGS
from penstock.cluster.config_decisions import (
    ALL_BROKERS,
    BrokerResource,
    ClientMetricsResource,
    Edit,
    GroupResource,
    Operation,
    Resource,
    TopicResource,
    check_broker_name,
)
from penstock.cluster.config_definitions import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    effective_broker_setting,
    effective_topic_setting,
)
from penstock.cluster.coordinator import Cluster
from penstock.cluster.dead_letter_settings import TOPIC_NAME
from penstock.cluster.group_settings import GROUP_SETTINGS
from penstock.cluster.settings import ConfigType, Setting, invalid
from penstock.cluster.topic_names import check_topic_name
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, GroupId

__all__ = [
    "BrokerResource",
    "ClientMetricsResource",
    "ConfigEntry",
    "ConfigSource",
    "Configs",
    "Edit",
    "GroupResource",
    "Operation",
    "Resource",
    "TopicResource",
]


MIN_IN_SYNC = "min.insync.replicas"


class ConfigSource(IntEnum):
    """Who set a value; numbered as DescribeConfigs tells it."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigSynonym(NamedTuple):
    """One of the places that a value could come from; the first of them decides."""

    name: str
    value: str
    source: ConfigSource


class ConfigEntry(NamedTuple):
    setting: Setting
    # None: not set and without a default.
    value: str | None
    source: ConfigSource
    is_read_only: bool
    synonyms: Sequence[ConfigSynonym]

    @property
    def name(self) -> str:
        return self.setting.name

    @property
    def type(self) -> ConfigType:
        return self.setting.type

    @property
    def documentation(self) -> str:
        return self.setting.documentation


class Configs:
    def __init__(
        self,
        *,
        cluster: Cluster,
        derived: Mapping[str, str] | None = None,
        topics_read: Callable[[GroupId], Awaitable[Collection[str]]] | None = None,
    ) -> None:
        """`derived` are settings that follow from flags of the command line, by Kafka's name;
        `topics_read` says which topics a share group reads."""
        self._cluster = cluster
        self._derived = dict(derived or {})
        self._topics_read = topics_read

    def derive(self, name: str, value: str) -> None:
        """A setting that follows from a flag, and is known only now."""
        self._derived[name] = value

    async def replace(
        self,
        wanted: Sequence[tuple[Resource, Mapping[str, str | None]]],
        *,
        validate_only: bool = False,
    ) -> list[Refused | None]:
        """All settings of each resource become the given ones; None where that succeeded."""
        faults = [await self._fault(each, configs) for each, configs in wanted]
        allowed = [each for each, fault in zip(wanted, faults, strict=True) if fault is None]
        outcomes = iter(await self._cluster.replace_configs(allowed, validate_only=validate_only))
        return [next(outcomes) if fault is None else fault for fault in faults]

    async def edit(
        self, wanted: Sequence[tuple[Resource, Sequence[Edit]]], *, validate_only: bool = False
    ) -> list[Refused | None]:
        """Some settings of each resource change; None where that succeeded."""
        faults = [await self._fault(each, _given(edits)) for each, edits in wanted]
        allowed = [each for each, fault in zip(wanted, faults, strict=True) if fault is None]
        outcomes = iter(await self._cluster.edit_configs(allowed, validate_only=validate_only))
        return [next(outcomes) if fault is None else fault for fault in faults]

    async def _fault(self, resource: Resource, given: Mapping[str, str | None]) -> Refused | None:
        """What only the broker knows to be wrong with values that somebody sets."""
        if isinstance(resource, TopicResource):
            return fault_of_validation(given)
        return await self._loop(resource, given.get(TOPIC_NAME))

    async def _loop(self, resource: Resource, letters_topic: str | None) -> Refused | None:
        """A group that read its own dead letters would give them up again and again. If nobody can
        say what it reads now, its queues find out (`queue_settings.py`)."""
        if not letters_topic or not isinstance(resource, GroupResource) or not self._topics_read:
            return None
        try:
            read = await self._topics_read(GroupId(resource.name))
        except Refused:
            return None
        if letters_topic not in read:
            return None
        fault = f"group {resource.name} reads this topic itself"
        return Refused(Reason.INVALID_CONFIG, invalid(TOPIC_NAME, letters_topic, fault))

    def describe(
        self, resource: Resource, names: Collection[str] | None = None
    ) -> list[ConfigEntry]:
        """All settings of the resource, or those of the given names that it has."""
        if isinstance(resource, TopicResource):
            return self._describe_topic(resource, names)
        if isinstance(resource, ClientMetricsResource):
            return self._describe_client_metrics(resource, names)
        if isinstance(resource, GroupResource):
            return self._describe_group(resource, names)
        check_broker_name(resource, self._cluster.brokers)
        if resource.name == ALL_BROKERS:
            return self._describe_all_brokers(names)
        entries = (
            self._broker_entry(setting, resource.name)
            for setting in _chosen(BROKER_SETTINGS, names)
        )
        return [each for each in entries if each.synonyms or not each.setting.is_dynamic_only]

    def describe_new_topic(self, configs: Mapping[str, str]) -> list[ConfigEntry]:
        """The settings that a topic with these of its own has."""
        return [self._topic_entry(setting, configs) for setting in TOPIC_SETTINGS.values()]

    # Topics

    def _describe_topic(
        self, resource: TopicResource, names: Collection[str] | None
    ) -> list[ConfigEntry]:
        topic = self._cluster.topic(check_topic_name(resource.name))
        if topic is None:
            detail = f"There is no topic '{resource.name}'."
            raise Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, detail)
        return [
            self._topic_entry(setting, topic.configs) for setting in _chosen(TOPIC_SETTINGS, names)
        ]

    def _topic_entry(self, setting: Setting, configs: Mapping[str, str]) -> ConfigEntry:
        synonyms: list[ConfigSynonym] = []
        if setting.name in configs:
            own = ConfigSynonym(setting.name, configs[setting.name], ConfigSource.TOPIC)
            synonyms.append(own)
        for synonym in setting.synonyms:
            synonyms.extend(self._places(BROKER_SETTINGS[synonym.name], self._own_name()))
        return ConfigEntry(
            setting=setting,
            value=effective_topic_setting(setting, configs, self._cluster.broker_settings),
            source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
            is_read_only=False,
            synonyms=synonyms,
        )

    # Client metrics

    def _describe_client_metrics(
        self, resource: ClientMetricsResource, names: Collection[str] | None
    ) -> list[ConfigEntry]:
        """One that does not exist has the defaults: it could be made."""
        if not resource.name:
            detail = "Client metrics subscription name must not be empty"
            raise Refused(Reason.INVALID_REQUEST, detail)
        configs = self._cluster.client_metrics.get(resource.name, {})
        source = ConfigSource.CLIENT_METRICS
        return [
            ConfigEntry(
                setting=setting,
                value=configs.get(setting.name, setting.default),
                source=source if setting.name in configs else ConfigSource.DEFAULT,
                is_read_only=False,
                synonyms=[ConfigSynonym(setting.name, configs[setting.name], source)]
                if setting.name in configs
                else [],
            )
            for setting in _chosen(CLIENT_METRICS_SETTINGS, names)
        ]

    # Groups

    def groups(self) -> list[str]:
        """Those with settings of their own."""
        return sorted(self._cluster.group_configs)

    def _describe_group(
        self, resource: GroupResource, names: Collection[str] | None
    ) -> list[ConfigEntry]:
        """One that does not exist has what the broker gives it: it could be made."""
        if not resource.name:
            raise Refused(Reason.INVALID_REQUEST, "Group name must not be empty")
        return [self._group_entry(setting, resource) for setting in _chosen(GROUP_SETTINGS, names)]

    def _group_entry(self, setting: Setting, resource: GroupResource) -> ConfigEntry:
        configs = self._cluster.group_configs.get(resource.name, {})
        synonyms: list[ConfigSynonym] = []
        if setting.name in configs:
            own = ConfigSynonym(setting.name, configs[setting.name], ConfigSource.GROUP)
            synonyms.append(own)
        for synonym in setting.synonyms:
            synonyms.extend(self._places(BROKER_SETTINGS[synonym.name], self._own_name()))
        if not setting.synonyms and setting.default is not None:
            default = ConfigSynonym(setting.name, setting.default, ConfigSource.DEFAULT)
            synonyms.append(default)
        return ConfigEntry(
            setting=setting,
            value=synonyms[0].value,
            source=synonyms[0].source,
            is_read_only=False,
            synonyms=synonyms,
        )

    # Brokers

    def _describe_all_brokers(self, names: Collection[str] | None) -> list[ConfigEntry]:
        """What was set for all brokers while they ran, and nothing else: as Kafka answers it."""
        dynamic = self._of_all_brokers()
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        return [
            ConfigEntry(
                setting=setting,
                value=dynamic[setting.name],
                source=source,
                is_read_only=False,
                synonyms=[ConfigSynonym(setting.name, dynamic[setting.name], source)],
            )
            for setting in _chosen(BROKER_SETTINGS, names)
            if setting.name in dynamic
        ]

    def _broker_entry(self, setting: Setting, broker: str) -> ConfigEntry:
        synonyms = list(self._places(setting, broker))
        return ConfigEntry(
            setting=setting,
            value=synonyms[0].value if synonyms else None,
            source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
            is_read_only=not setting.is_dynamic,
            synonyms=synonyms,
        )

    def _places(self, setting: Setting, broker: str) -> Iterator[ConfigSynonym]:
        """Where a broker setting has a value, the one that acts first."""
        for source, layer in self._layers(broker):
            if setting.name in layer:
                yield ConfigSynonym(setting.name, layer[setting.name], source)
        if setting.default is not None:
            yield ConfigSynonym(setting.name, setting.default, ConfigSource.DEFAULT)

    def _layers(self, broker: str) -> Iterable[tuple[ConfigSource, Mapping[str, str]]]:
        yield ConfigSource.DYNAMIC_BROKER, self._cluster.dynamic_broker_config(broker)
        yield ConfigSource.DYNAMIC_DEFAULT_BROKER, self._of_all_brokers()
        # What another broker was started with, only that broker knows.
        if broker == self._own_name():
            yield ConfigSource.STATIC_BROKER, self._cluster.static_broker_config
            yield ConfigSource.STATIC_BROKER, self._derived
        yield ConfigSource.STATIC_BROKER, self._identity(broker)

    def _of_all_brokers(self) -> Mapping[str, str]:
        """A new cluster of Kafka sets one of them by itself, so that its leaders agree on it."""
        given = effective_broker_setting(MIN_IN_SYNC, self._cluster.static_broker_config)
        return {MIN_IN_SYNC: given, **self._cluster.dynamic_broker_config(ALL_BROKERS)}

    def _identity(self, broker: str) -> Mapping[str, str]:
        identity = {"broker.id": broker, "node.id": broker}
        known = self._cluster.brokers.get(BrokerId(int(broker)))
        if known is not None:
            identity["advertised.listeners"] = f"PLAINTEXT://{known.kafka}"
            if known.rack is not None:
                identity["broker.rack"] = known.rack
        return identity

    def _own_name(self) -> str:
        return str(self._cluster.broker_id)


def _given(edits: Sequence[Edit]) -> dict[str, str | None]:
    """The values that are set, of each name the first."""
    set_ones = [edit for edit in edits if edit.operation is Operation.SET]
    return {edit.name: edit.value for edit in reversed(set_ones)}


def _chosen(settings: Mapping[str, Setting], names: Collection[str] | None) -> Iterator[Setting]:
    # An empty list asks for everything, as a missing one does: so do Kafka's brokers read it.
    if not names:
        yield from settings.values()
        return
    wanted = frozenset(names)
    yield from (setting for name, setting in settings.items() if name in wanted)
