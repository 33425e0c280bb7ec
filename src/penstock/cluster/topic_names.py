"""Which names a topic may have, which of them collide, and which are the broker's own."""

from penstock.model.errors import Reason, Refused
from penstock.model.ids import TopicName
from penstock.model.limits import TOPIC_NAME_LENGTH_MAX

_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

CONSUMER_OFFSETS = TopicName("__consumer_offsets")
SHARE_GROUP_STATE = TopicName("__share_group_state")
TRANSACTION_STATE = TopicName("__transaction_state")
# The log of the cluster's own metadata, which is not a topic that anyone may make or read.
CLUSTER_METADATA = TopicName("__cluster_metadata")

# Made by the broker when it first needs them; users neither make nor delete them, since a wrong
# number of partitions or a wrong clean-up policy would lose what they hold.
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})
# The broker settings that say how many replicas they have.
INTERNAL_FACTORS = {
    CONSUMER_OFFSETS: "offsets.topic.replication.factor",
    SHARE_GROUP_STATE: "share.coordinator.state.topic.replication.factor",
}


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def fault_of(name: str) -> str | None:
    """Why this can't be a topic's name, or None if it can."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"it has {len(name)} characters and may have {TOPIC_NAME_LENGTH_MAX}"
    if not _LEGAL.issuperset(name):
        return f"'{name}' has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def check_topic_name(name: str) -> TopicName:
    fault = fault_of(name)
    if fault is not None:
        raise Refused(Reason.INVALID_TOPIC, f"Topic name is invalid: {fault}")
    return TopicName(name)


def collision_key(name: str) -> str:
    """Equal for two names that differ only in '.' and '_', which metrics can't tell apart."""
    return name.replace(".", "_")
