"""What listeners hear after a change of the cluster's metadata is committed and known here."""

from typing import NamedTuple, TypeAlias

from penstock.cluster.lock import Lock
from penstock.cluster.topic import Topic
from penstock.model.topic_config import TopicConfig


class TopicCreated(NamedTuple):
    topic: Topic


class TopicDeleted(NamedTuple):
    topic: Topic


class PartitionsAdded(NamedTuple):
    """The topic now also has the partitions from `first` on."""

    topic: Topic
    first: int


class AssignmentsChanged(NamedTuple):
    """Some partitions of the topic lie elsewhere, are moving, or were taken back."""

    topic: Topic


class ConfigChanged(NamedTuple):
    """The topic's effective settings changed, by its own or by the broker's."""

    topic: Topic
    config: TopicConfig


class BrokerConfigChanged(NamedTuple):
    """These broker settings have a new effective value."""

    names: frozenset[str]


class GroupConfigChanged(NamedTuple):
    """The group has other settings of its own."""

    group: str


class ClientMetricsChanged(NamedTuple):
    """A subscription to clients' metrics came, went, or asks for something else."""


class LockChanged(NamedTuple):
    """The lock of this name has another holder, none, or another lease."""

    name: str
    lock: Lock | None


class BrokersChanged(NamedTuple):
    """A broker came, went, or is reached elsewhere."""


Change: TypeAlias = (
    TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | AssignmentsChanged
    | ConfigChanged
    | BrokerConfigChanged
    | GroupConfigChanged
    | ClientMetricsChanged
    | LockChanged
    | BrokersChanged
)
