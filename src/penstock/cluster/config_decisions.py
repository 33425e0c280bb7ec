"""Decides changes of settings: replaces all of a resource's, or edits some of them one by one.

Each function reads the state and says which records to append; a refusal changes nothing of that
resource. Asking for what is already so appends nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from penstock.cluster.client_metrics import (
    SUBSCRIPTIONS_MAX,
    check_client_metrics,
)
from penstock.cluster.config_definitions import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    broker_setting,
    check_broker_configs,
    check_together,
    check_topic_configs,
    check_values_present,
    effective_broker_setting,
    effective_topic_setting,
)
from penstock.cluster.dead_letter_settings import (
    TOPIC_NAME,
    TOPIC_NAME_PREFIX,
    fault_of_letters_topic,
)
from penstock.cluster.group_settings import (
    GROUP_SETTINGS,
    GROUPS_MAX,
    check_group_configs,
)
from penstock.cluster.records import (
    BrokerConfigStored,
    ClientMetricsStored,
    ClusterRecord,
    GroupConfigStored,
    TopicStored,
)
from penstock.cluster.settings import ConfigType, invalid
from penstock.cluster.state import ClusterState
from penstock.cluster.topic import Topic
from penstock.cluster.topic_names import check_topic_name
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, TopicName

# The name that stands for all brokers.
ALL_BROKERS = ""


class TopicResource(NamedTuple):
    name: str


class BrokerResource(NamedTuple):
    """A broker by its number, as text, or `ALL_BROKERS`."""

    name: str


class ClientMetricsResource(NamedTuple):
    """A subscription to clients' metrics; it exists while it has settings."""

    name: str


class GroupResource(NamedTuple):
    """A consumer group, which need not exist yet."""

    name: str


Resource: TypeAlias = TopicResource | BrokerResource | ClientMetricsResource | GroupResource


class Operation(IntEnum):
    """Numbered as IncrementalAlterConfigs tells it."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Edit(NamedTuple):
    name: str
    operation: Operation
    value: str | None


class ConfigRules(NamedTuple):
    """What these decisions need to know beside the metadata."""

    brokers: Collection[BrokerId]
    # All that acts on the brokers now, static and dynamic; it gives topics their defaults.
    broker_settings: Mapping[str, str]


def decide_replacement(
    state: ClusterState, resource: Resource, configs: Mapping[str, str | None], rules: ConfigRules
) -> list[ClusterRecord]:
    """All settings of the resource become these."""
    check_values_present(configs, Reason.INVALID_REQUEST)
    if isinstance(resource, TopicResource):
        return _topic_changed(_topic_of(state, resource), configs, rules)
    if isinstance(resource, ClientMetricsResource):
        return _client_metrics_changed(state, resource, configs)
    if isinstance(resource, GroupResource):
        return _group_changed(state, resource, configs, rules)
    check_broker_name(resource, rules.brokers)
    return _broker_changed(state, resource, configs, rules)


def decide_edits(
    state: ClusterState, resource: Resource, edits: Sequence[Edit], rules: ConfigRules
) -> list[ClusterRecord]:
    """Some settings of the resource change, all of them or none."""
    _check_edits(edits)
    if isinstance(resource, TopicResource):
        topic = _topic_of(state, resource)
        edited = _topic_edited(topic.configs, edits, rules.broker_settings)
        return _topic_changed(topic, edited, rules)
    if isinstance(resource, ClientMetricsResource):
        edited = _client_metrics_edited(state.client_metrics.get(resource.name, {}), edits)
        return _client_metrics_changed(state, resource, edited)
    if isinstance(resource, GroupResource):
        edited = _group_edited(state.group_configs.get(resource.name, {}), edits)
        return _group_changed(state, resource, edited, rules)
    check_broker_name(resource, rules.brokers)
    current = state.broker_config(resource.name)
    edited = _broker_edited(current, edits, rules.broker_settings)
    return _broker_changed(state, resource, edited, rules)


def check_broker_name(resource: BrokerResource, brokers: Collection[BrokerId]) -> None:
    if resource.name == ALL_BROKERS or resource.name in {str(broker) for broker in brokers}:
        return
    expected = " or ".join(str(broker) for broker in sorted(brokers))
    detail = f"Unexpected broker id, expected {expected} or empty, but received {resource.name}"
    raise Refused(Reason.INVALID_REQUEST, detail)


def _topic_of(state: ClusterState, resource: TopicResource) -> Topic:
    topic = state.topic(check_topic_name(resource.name))
    if topic is None:
        detail = f"There is no topic '{resource.name}'."
        raise Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, detail)
    return topic


def _topic_changed(
    topic: Topic, configs: Mapping[str, str | None], rules: ConfigRules
) -> list[ClusterRecord]:
    checked = check_topic_configs(configs, rules.broker_settings)
    if checked == topic.configs:
        return []
    return [TopicStored(topic=replace(topic, configs=checked))]


def _broker_changed(
    state: ClusterState,
    resource: BrokerResource,
    configs: Mapping[str, str | None],
    rules: ConfigRules,
) -> list[ClusterRecord]:
    checked = check_broker_configs(configs, are_for_all=resource.name == ALL_BROKERS)
    check_together({}, {**rules.broker_settings, **checked})
    if checked == state.broker_config(resource.name):
        return []
    return [BrokerConfigStored(broker=resource.name, configs=checked)]


def _client_metrics_changed(
    state: ClusterState, resource: ClientMetricsResource, configs: Mapping[str, str | None]
) -> list[ClusterRecord]:
    checked = check_client_metrics(resource.name, configs)
    if checked == state.client_metrics.get(resource.name, {}):
        return []
    if resource.name not in state.client_metrics and len(state.client_metrics) >= SUBSCRIPTIONS_MAX:
        detail = f"There are already {SUBSCRIPTIONS_MAX} subscriptions."
        raise Refused(Reason.POLICY_VIOLATION, detail)
    return [ClientMetricsStored(name=resource.name, configs=checked)]


def _group_changed(
    state: ClusterState,
    resource: GroupResource,
    configs: Mapping[str, str | None],
    rules: ConfigRules,
) -> list[ClusterRecord]:
    checked = check_group_configs(resource.name, configs, rules.broker_settings)
    if checked == state.group_configs.get(resource.name, {}):
        return []
    _check_letters_topic(state, resource, checked, rules)
    if resource.name not in state.group_configs and len(state.group_configs) >= GROUPS_MAX:
        detail = f"There are {GROUPS_MAX} groups with settings of their own already."
        raise Refused(Reason.POLICY_VIOLATION, detail)
    return [GroupConfigStored(group=resource.name, configs=checked)]


def _check_letters_topic(
    state: ClusterState, resource: GroupResource, checked: Mapping[str, str], rules: ConfigRules
) -> None:
    """Only when it changes: other settings of the group must not depend on it."""
    name = checked.get(TOPIC_NAME, "")
    if not name or name == state.group_configs.get(resource.name, {}).get(TOPIC_NAME):
        return
    topic = state.topic(TopicName(name))
    prefix = effective_broker_setting(TOPIC_NAME_PREFIX, rules.broker_settings)
    fault = fault_of_letters_topic(name, prefix, None if topic is None else topic.configs)
    if fault is not None:
        raise Refused(Reason.INVALID_CONFIG, invalid(TOPIC_NAME, name, fault))


# Edits


def _check_edits(edits: Sequence[Edit]) -> None:
    names = [edit.name for edit in edits]
    if len(set(names)) != len(names):
        raise Refused(Reason.INVALID_REQUEST, "A configuration key is given more than once.")
    changed = {edit.name: edit.value for edit in edits if edit.operation != Operation.DELETE}
    check_values_present(changed, Reason.INVALID_REQUEST)


def _topic_edited(
    current: Mapping[str, str], edits: Sequence[Edit], broker: Mapping[str, str]
) -> dict[str, str | None]:
    edited: dict[str, str | None] = dict(current)
    for edit in edits:
        setting = TOPIC_SETTINGS.get(edit.name)
        if setting is None:
            if edit.operation == Operation.DELETE:
                # Tools tidy up settings of other versions in this way: it is gone already.
                continue
            raise Refused(Reason.INVALID_CONFIG, f"Unknown topic config name: {edit.name}")
        acting = effective_topic_setting(setting, current, broker)
        _apply_edit(edited, edit, setting.type, acting)
    return edited


def _broker_edited(
    current: Mapping[str, str], edits: Sequence[Edit], broker: Mapping[str, str]
) -> dict[str, str | None]:
    edited: dict[str, str | None] = dict(current)
    for edit in edits:
        if edit.operation == Operation.DELETE and edit.name not in BROKER_SETTINGS:
            continue
        setting = broker_setting(edit.name)
        acting = effective_broker_setting(edit.name, {**broker, **current})
        _apply_edit(edited, edit, setting.type, acting)
    return edited


def _client_metrics_edited(
    current: Mapping[str, str], edits: Sequence[Edit]
) -> dict[str, str | None]:
    """Kafka does not know that some of these are lists: they can only be set as a whole."""
    edited: dict[str, str | None] = dict(current)
    for edit in edits:
        _apply_edit(edited, edit, ConfigType.STRING, "")
    return edited


def _group_edited(current: Mapping[str, str], edits: Sequence[Edit]) -> dict[str, str | None]:
    edited: dict[str, str | None] = dict(current)
    for edit in edits:
        setting = GROUP_SETTINGS.get(edit.name)
        if setting is None and edit.operation != Operation.DELETE:
            raise Refused(Reason.INVALID_CONFIG, f"Unknown group config name: {edit.name}")
        kind = ConfigType.INT if setting is None else setting.type
        _apply_edit(edited, edit, kind, current.get(edit.name, ""))
        if kind is ConfigType.LIST and not edited.get(edit.name):
            # A list that is empty again is as good as none.
            edited.pop(edit.name, None)
    return edited


def _apply_edit(edited: dict[str, str | None], edit: Edit, kind: ConfigType, acting: str) -> None:
    """`acting` is the value in force, which a list is extended from when it is not set itself."""
    if edit.operation == Operation.DELETE:
        edited.pop(edit.name, None)
    elif edit.operation == Operation.SET:
        edited[edit.name] = edit.value
    elif kind != ConfigType.LIST:
        detail = (
            f"Can't {edit.operation.name} to key {edit.name} because its type is not LIST: "
            f"the value {edit.value} was not applied."
        )
        raise Refused(Reason.INVALID_CONFIG, detail)
    else:
        assert edit.value is not None
        edited[edit.name] = _list_edited(acting, edit.operation, edit.value)


def _list_edited(acting: str, operation: Operation, value: str) -> str:
    elements = [element for element in acting.split(",") if element]
    named = [element for part in value.split(",") if (element := part.strip())]
    if operation == Operation.APPEND:
        elements.extend(element for element in named if element not in elements)
    else:
        elements = [element for element in elements if element not in named]
    return ",".join(elements)
