"""The settings of dead letters by KIP-1191's names: of share groups, of brokers and of topics.

Where Kafka 4.4 leaves a first-time user without the letters, the defaults differ: the record is
copied, and a topic that is missing is created. Everything about a name is checked when it is set;
Kafka finds out when it first writes.
"""

from collections.abc import Mapping
from typing import Final

from penstock.cluster.settings import ConfigType, Setting, Value
from penstock.cluster.topic_names import fault_of, is_internal

TOPIC_NAME: Final = "errors.deadletterqueue.topic.name"
COPY_RECORD_ENABLE: Final = "errors.deadletterqueue.copy.record.enable"
GROUP_ENABLE: Final = "errors.deadletterqueue.group.enable"
TOPIC_NAME_PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
AUTO_CREATE_TOPICS_ENABLE: Final = "errors.deadletterqueue.auto.create.topics.enable"


def _check_name(value: Value) -> str | None:
    """Empty means that there is none."""
    assert isinstance(value, str)
    if is_internal(value):
        return f"{value} is internal: only the broker writes to it"
    return fault_of(value) if value else None


DEAD_LETTER_GROUP_SETTINGS: Final = (
    Setting(
        TOPIC_NAME,
        ConfigType.STRING,
        "",
        "The topic that gets the records which the group has given up. Empty: they are only "
        "skipped.",
        _check_name,
    ),
    Setting(
        COPY_RECORD_ENABLE,
        ConfigType.BOOLEAN,
        "true",
        "Whether a dead letter has the key, the value and the headers of its record. If not, it "
        "has only headers that say which record it was.",
    ),
)

DEAD_LETTER_BROKER_SETTINGS: Final = (
    Setting(
        TOPIC_NAME_PREFIX,
        ConfigType.STRING,
        "dlq.",
        f"What the names of dead-letter topics begin with, which share groups set as {TOPIC_NAME}.",
        is_dynamic=True,
    ),
    Setting(
        AUTO_CREATE_TOPICS_ENABLE,
        ConfigType.BOOLEAN,
        "true",
        "Create the dead-letter topic of a share group when its first letter is sent.",
        is_dynamic=True,
    ),
)

DEAD_LETTER_TOPIC_SETTING: Final = Setting(
    GROUP_ENABLE,
    ConfigType.BOOLEAN,
    "false",
    "Whether share groups may use the topic for their dead letters.",
)


def fault_of_letters_topic(name: str, prefix: str, configs: Mapping[str, str] | None) -> str | None:
    """Why a topic can't take dead letters now; `configs` are its own, or None if it is missing."""
    if not name.startswith(prefix):
        return (
            f"the names of dead-letter topics begin with '{prefix}', because of the broker's "
            f"{TOPIC_NAME_PREFIX}"
        )
    if configs is not None and configs.get(GROUP_ENABLE) != "true":
        return f"the topic does not accept dead letters: set {GROUP_ENABLE}=true on it"
    return None
