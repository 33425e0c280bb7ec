"""Looks settings up: checks values, resolves defaults, and gives topics their typed settings."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from penstock.cluster.broker_settings import BROKER_SETTINGS
from penstock.cluster.dead_letter_settings import GROUP_ENABLE
from penstock.cluster.foreign_settings import PER_LISTENER
from penstock.cluster.group_settings import check_broker_bounds
from penstock.cluster.settings import BadValue, Setting, Value, invalid, write
from penstock.cluster.topic_settings import (
    KEY_SUBJECTS,
    KEY_VALIDATION,
    TOPIC_SETTINGS,
    VALUE_SUBJECTS,
    VALUE_VALIDATION,
)
from penstock.model.errors import Reason, Refused, StartRefused
from penstock.model.topic_config import (
    EVERYBODY,
    NOBODY,
    FlushPolicy,
    SchemaValidation,
    SubjectNames,
    ThrottledReplicas,
    TimestampType,
    TopicConfig,
)

__all__ = [
    "BROKER_SETTINGS",
    "TOPIC_SETTINGS",
    "broker_setting",
    "check_broker_configs",
    "check_topic_configs",
    "effective_broker_setting",
    "effective_topic_setting",
    "topic_config",
    "validate_static",
]

# Combinations of settings whose typed values are remembered.
CONFIGS_KEPT_MAX: Final = 1_000


def normalised(setting: Setting, text: str, reason: Reason) -> str:
    """The value in its normal form; refuses it with a sentence that names setting and value."""
    try:
        return setting.normalise(text)
    except BadValue as fault:
        detail = invalid(setting.name, fault.shown or text, str(fault))
        raise Refused(reason, detail) from None


def check_topic_configs(
    overrides: Mapping[str, str | None], broker: Mapping[str, str]
) -> dict[str, str]:
    """The overrides in normal form; `broker` gives the defaults of those not overridden."""
    checked: dict[str, str] = {}
    check_values_present(overrides, Reason.INVALID_CONFIG)
    for name, text in overrides.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise Refused(Reason.INVALID_CONFIG, f"Unknown topic config name: {name}")
        assert text is not None
        checked[name] = normalised(setting, text, Reason.INVALID_CONFIG)
    check_together(checked, broker)
    return checked


def check_broker_configs(
    configs: Mapping[str, str | None], *, are_for_all: bool = False
) -> dict[str, str]:
    """Dynamic settings of one broker, or of all, in normal form.

    A value that can't be used makes the request a bad one, where a topic's is a bad setting: that
    is how Kafka's brokers tell them apart (KAFKA-13609).
    """
    checked: dict[str, str] = {}
    check_values_present(configs, Reason.INVALID_REQUEST)
    for name, text in configs.items():
        setting = broker_setting(name)
        if not setting.is_dynamic:
            detail = f"Cannot update these configs dynamically: {name}"
            raise Refused(Reason.INVALID_REQUEST, detail)
        assert text is not None
        checked[name] = normalised(setting, text, Reason.INVALID_REQUEST)
        if setting.is_per_broker and are_for_all:
            detail = (
                "Cannot update these configs at default cluster level, broker id must be "
                f"specified: {name}"
            )
            raise Refused(Reason.INVALID_REQUEST, detail)
    return checked


def broker_setting(name: str) -> Setting:
    """The setting that a request to change some names."""
    if name in PER_LISTENER:
        detail = f"These security configs can be updated only per-listener: {name}"
        raise Refused(Reason.INVALID_REQUEST, detail)
    setting = BROKER_SETTINGS.get(name)
    if setting is None:
        raise Refused(Reason.INVALID_CONFIG, f"Unknown broker config name: {name}")
    return setting


def check_values_present(configs: Mapping[str, str | None], reason: Reason) -> None:
    """A missing value is the fault of a new topic's settings, or of a request to change some."""
    missing = [name for name, text in configs.items() if text is None]
    if missing:
        detail = f"Null value not supported for configs: {', '.join(missing)}"
        raise Refused(reason, detail)


def check_together(checked: Mapping[str, str], broker: Mapping[str, str]) -> None:
    config = topic_config(checked, broker)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        detail = (
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms})"
            f" > max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
        raise Refused(Reason.INVALID_CONFIG, detail)
    if config.schema_validation is not None and checked.get(GROUP_ENABLE) == "true":
        # A letter has the schema of the topic that it comes from, if any: it must not get lost.
        detail = f"a topic with {GROUP_ENABLE} takes records as they are, so it can't validate them"
        raise Refused(Reason.INVALID_CONFIG, detail)
    if checked.get("remote.storage.enable") == "true":
        detail = invalid("remote.storage.enable", "true", "This broker has no remote storage")
        raise Refused(Reason.INVALID_CONFIG, detail)


def effective_topic_setting(
    setting: Setting, overrides: Mapping[str, str], broker: Mapping[str, str]
) -> str:
    """The value that acts: the topic's own, else the broker's first synonym, else the default."""
    if setting.name in overrides:
        return overrides[setting.name]
    for synonym in setting.synonyms:
        if synonym.name in broker:
            return _in_topic_unit(broker[synonym.name], synonym.factor)
    assert setting.default is not None
    return setting.default


def effective_broker_setting(name: str, broker: Mapping[str, str]) -> str:
    """Empty when it is neither set nor has a default, and no other setting decides for it."""
    setting = BROKER_SETTINGS[name]
    if name in broker:
        return broker[name]
    if setting.default is not None:
        return setting.default
    for topic_setting in TOPIC_SETTINGS.values():
        if topic_setting.synonyms and topic_setting.synonyms[0].name == name:
            return effective_topic_setting(topic_setting, {}, broker)
    return ""


def _in_topic_unit(text: str, factor: int) -> str:
    # A negative age means forever in every unit.
    return text if factor == 1 or int(text) < 0 else str(int(text) * factor)


class _Reader:
    """Reads a topic's effective settings as typed values."""

    def __init__(self, overrides: Mapping[str, str], broker: Mapping[str, str]) -> None:
        self._overrides = overrides
        self._broker = broker

    def value(self, name: str) -> Value:
        setting = TOPIC_SETTINGS[name]
        text = effective_topic_setting(setting, self._overrides, self._broker)
        return setting.parse(text)

    def integer(self, name: str) -> int:
        value = self.value(name)
        assert isinstance(value, int)
        return value

    def text(self, name: str) -> str:
        return write(self.value(name))


def topic_config(overrides: Mapping[str, str], broker: Mapping[str, str]) -> TopicConfig:
    """What storage and replication act on; the texts were checked when they were set."""
    return _topic_config(frozenset(overrides.items()), frozenset(broker.items()))


@lru_cache(maxsize=CONFIGS_KEPT_MAX)
def _topic_config(
    overrides: frozenset[tuple[str, str]], broker: frozenset[tuple[str, str]]
) -> TopicConfig:
    """Thousands of topics have few combinations of settings, and each is read many times."""
    read = _Reader(dict(overrides), dict(broker))
    policies = read.text("cleanup.policy").split(",")
    return TopicConfig(
        cleanup_delete="delete" in policies,
        cleanup_compact="compact" in policies,
        retention_ms=read.integer("retention.ms"),
        retention_bytes=max(-1, read.integer("retention.bytes")),
        segment_bytes=read.integer("segment.bytes"),
        segment_ms=read.integer("segment.ms"),
        index_interval_bytes=read.integer("index.interval.bytes"),
        max_message_bytes=read.integer("max.message.bytes"),
        timestamp_type=TimestampType(read.text("message.timestamp.type")),
        timestamp_before_max_ms=read.integer("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=read.integer("message.timestamp.after.max.ms"),
        compression_type=read.text("compression.type"),
        min_insync_replicas=read.integer("min.insync.replicas"),
        min_cleanable_dirty_ratio=float(read.text("min.cleanable.dirty.ratio")),
        min_compaction_lag_ms=read.integer("min.compaction.lag.ms"),
        max_compaction_lag_ms=read.integer("max.compaction.lag.ms"),
        delete_retention_ms=read.integer("delete.retention.ms"),
        flush_policy=FlushPolicy(read.text("penstock.flush.policy")),
        flush_ms=read.integer("flush.ms"),
        throttled_leaders=_throttled(read.text("leader.replication.throttled.replicas")),
        throttled_followers=_throttled(read.text("follower.replication.throttled.replicas")),
        schema_validation=_schema_validation(read),
    )


def _schema_validation(read: _Reader) -> SchemaValidation | None:
    key, value = (
        SubjectNames(read.text(subjects)) if read.value(validation) else None
        for validation, subjects in (
            (KEY_VALIDATION, KEY_SUBJECTS),
            (VALUE_VALIDATION, VALUE_SUBJECTS),
        )
    )
    return SchemaValidation(key, value) if key or value else None


def _throttled(text: str) -> ThrottledReplicas:
    if not text:
        return NOBODY
    if text == "*":
        return EVERYBODY
    pairs = (element.split(":") for element in text.split(","))
    return ThrottledReplicas(
        listed=frozenset((int(partition), int(broker)) for partition, broker in pairs)
    )


def validate_static(settings: Mapping[str, str]) -> dict[str, str]:
    """The broker settings that the operator gave, in normal form; a bad one refuses the start."""
    checked = {name: _checked_static(name, text) for name, text in settings.items()}
    try:
        check_together({}, checked)
    except Refused as refused:
        raise StartRefused(
            f"The broker settings contradict each other: {refused.detail}."
        ) from None
    check_broker_bounds(checked)
    return checked


def _checked_static(name: str, text: str) -> str:
    setting = BROKER_SETTINGS.get(name)
    if setting is None:
        raise StartRefused(f"There is no broker setting named {name}{_did_you_mean(name)}.")
    if setting.flag is not None:
        raise StartRefused(f"The broker setting {name} can't be set: use {setting.flag}.")
    if setting.is_dynamic_only:
        raise StartRefused(f"The broker setting {name} can only be set while the broker runs.")
    try:
        return setting.normalise(text)
    except BadValue as fault:
        sentence = f"The broker setting {name} can't be {text!r}: {fault}."
        raise StartRefused(sentence) from None


def _did_you_mean(name: str) -> str:
    # Only a start that fails anyway pays for this import.
    from difflib import get_close_matches

    near = get_close_matches(name, BROKER_SETTINGS, n=1)
    return f"; did you mean {near[0]}" if near else ""
