"""Topics: create, list, describe, alter, delete."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import confluent_kafka

# The package is typed but does not mark what it passes on from its private modules.
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from penstock.client.asking import Asking
from penstock.client.errors import ClientError, ControllerNotReached, TopicExists, from_kafka

# Asks the broker for its own default, for partitions and for replicas alike.
BROKER_DEFAULT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSummary:
    name: str
    partitions: int
    replicas: int
    internal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetting:
    name: str
    value: str | None
    source: str
    # Whether the topic itself does not say it: then its brokers or their defaults do.
    is_default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    name: str
    topic_id: str
    internal: bool
    partitions: tuple[PartitionDescription, ...]


class Topics:
    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def all(self) -> list[TopicSummary]:
        """Every topic, by name."""
        found = self._asking.metadata()
        return [
            TopicSummary(
                name=name,
                partitions=len(topic.partitions),
                replicas=max((len(one.replicas) for one in topic.partitions.values()), default=0),
                internal=name.startswith("__"),
            )
            for name, topic in sorted(found.topics.items())
        ]

    def partitions(self, name: str) -> list[int]:
        """The topic's partitions; raises TopicNotFound, and never creates the topic."""
        return [one.partition for one in self.describe(name).partitions]

    def describe(self, name: str) -> TopicDescription:
        """A topic's partitions with their replicas; raises TopicNotFound."""
        client, what = self._asking.client, f"topic {name}"
        futures = self._ask(
            what,
            client.describe_topics,
            confluent_kafka.TopicCollection([name]),
            request_timeout=self._asking.timeout_s,
        )
        found = self._asking.answer(futures[name], what)
        return TopicDescription(
            name=name,
            topic_id=str(found.topic_id),
            internal=bool(found.is_internal),
            partitions=tuple(_partition(one) for one in found.partitions),
        )

    def settings(self, name: str) -> Sequence[TopicSetting]:
        """All settings in force for a topic, and where each comes from."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        futures = self._asking.client.describe_configs(
            [resource], request_timeout=self._asking.timeout_s
        )
        found: dict[str, ConfigEntry] = self._asking.answer(futures[resource], f"topic {name}")
        return [_setting(entry) for _, entry in sorted(found.items())]

    def create(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replicas: int = BROKER_DEFAULT,
        settings: Mapping[str, str] | None = None,
        if_missing: bool = False,
    ) -> bool:
        """Create a topic; False when it was there already and `if_missing` allows that."""
        topic = self._ask(
            f"topic {name}", NewTopic, name, partitions, replicas, config=dict(settings or {})
        )
        try:
            self._create_once(name, topic)
        except TopicExists:
            if if_missing:
                return False
            raise
        return True

    def _create_once(self, name: str, topic: NewTopic) -> None:
        """librdkafka sometimes never connects to a controller that answers everybody else. As
        nothing was sent then, a new client may try."""
        try:
            self._create(name, topic)
        except ControllerNotReached:
            self._asking.reconnect()
            self._create(name, topic)

    def _create(self, name: str, topic: NewTopic) -> None:
        what = f"topic {name}"
        futures = self._ask(
            what,
            self._asking.client.create_topics,
            [topic],
            request_timeout=self._asking.timeout_s,
            operation_timeout=self._asking.timeout_s,
        )
        self._asking.answer(futures[name], what)

    def delete(self, name: str) -> None:
        """Delete a topic and its records; raises TopicNotFound."""
        futures = self._asking.client.delete_topics(
            [name],
            request_timeout=self._asking.timeout_s,
            operation_timeout=self._asking.timeout_s,
        )
        self._asking.answer(futures[name], f"topic {name}")

    def add_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions. Keys may change theirs."""
        what = f"topic {name}"
        futures = self._ask(
            what,
            self._asking.client.create_partitions,
            [self._ask(what, NewPartitions, name, total)],
            request_timeout=self._asking.timeout_s,
        )
        self._asking.answer(futures[name], what)

    def alter(
        self,
        name: str,
        *,
        set_to: Mapping[str, str] | None = None,
        reset: Iterable[str] = (),
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
    ) -> None:
        """Change single settings; those not named keep their values."""
        entries = [
            *_entries(AlterConfigOpType.SET, set_to or {}),
            *_entries(AlterConfigOpType.DELETE, dict.fromkeys(reset, "")),
            *_entries(AlterConfigOpType.APPEND, append or {}),
            *_entries(AlterConfigOpType.SUBTRACT, subtract or {}),
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        futures = self._ask(
            f"topic {name}",
            self._asking.client.incremental_alter_configs,
            [resource],
            request_timeout=self._asking.timeout_s,
        )
        self._asking.answer(futures[resource], f"the settings of topic {name}")

    def _ask(self, what: str, question: Any, *arguments: Any, **options: Any) -> Any:
        """Put a question that librdkafka itself may refuse, because a name or number is bad."""
        try:
            return question(*arguments, **options)
        except confluent_kafka.KafkaException as error:
            raise from_kafka(error.args[0], what=what, bootstrap=self._asking.bootstrap) from None
        except (ValueError, TypeError, OverflowError) as error:
            raise ClientError(f"The client refused {what}: {str(error).rstrip('.')}.") from None


def _partition(found: Any) -> PartitionDescription:
    return PartitionDescription(
        partition=found.id,
        leader=-1 if found.leader is None else found.leader.id,
        replicas=tuple(node.id for node in found.replicas),
        in_sync=tuple(node.id for node in found.isr),
    )


def _setting(entry: ConfigEntry) -> TopicSetting:
    source = ConfigSource(entry.source)
    return TopicSetting(
        name=entry.name,
        value=entry.value,
        source=source.name.removesuffix("_CONFIG").lower().replace("_", " "),
        is_default=source is not ConfigSource.DYNAMIC_TOPIC_CONFIG,
    )


def _entries(kind: AlterConfigOpType, values: Mapping[str, str]) -> Iterable[ConfigEntry]:
    for name, value in values.items():
        yield ConfigEntry(name, value, incremental_operation=kind)
