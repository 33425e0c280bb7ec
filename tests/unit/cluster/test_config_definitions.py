"""The tables of settings, their defaults, and what operators may set at start."""

import pytest

from penstock.cluster.config_definitions import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    check_broker_configs,
    check_topic_configs,
    effective_broker_setting,
    effective_topic_setting,
    topic_config,
    validate_static,
)
from penstock.cluster.topic_settings import (
    KEY_SUBJECTS,
    KEY_VALIDATION,
    VALUE_SUBJECTS,
    VALUE_VALIDATION,
)
from penstock.model.errors import Reason, Refused, StartRefused
from penstock.model.topic_config import (
    EVERYBODY,
    NOBODY,
    FlushPolicy,
    ThrottledReplicas,
    TimestampType,
    TopicConfig,
)

# What clients of Kafka 4.x may set on a topic.
KAFKA_TOPIC_SETTINGS = [
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
]


def test_every_topic_setting_of_kafka_and_ours_is_there() -> None:
    # Of KIP-1191, which Kafka has from 4.4 on.
    later = {"errors.deadletterqueue.group.enable"}
    confluent = {KEY_VALIDATION, VALUE_VALIDATION, KEY_SUBJECTS, VALUE_SUBJECTS}
    own = {"penstock.flush.policy"}
    assert set(TOPIC_SETTINGS) == {*KAFKA_TOPIC_SETTINGS, *later, *confluent, *own}


# The smallest value that its topics can use, for each setting in a larger unit than theirs.
LARGER_UNITS = {
    "log.retention.hours": -1,
    "log.retention.minutes": -1,
    "log.roll.hours": 1,
    "log.roll.jitter.hours": 0,
}


@pytest.mark.parametrize("name", LARGER_UNITS)
def test_what_a_broker_may_set_in_hours_its_topics_can_use(name: str) -> None:
    """A value that is taken acts; one that no topic could have is refused with a sentence."""
    of_topic = next(
        setting
        for setting in TOPIC_SETTINGS.values()
        if name in [synonym.name for synonym in setting.synonyms]
    )
    smallest = LARGER_UNITS[name]
    for number in (smallest, smallest + 1, 2**31 - 1):
        static = validate_static({name: str(number)})
        of_topic.parse(effective_topic_setting(of_topic, {}, static))
    with pytest.raises(StartRefused, match=rf"{name} can't be .* Value must be at least"):
        validate_static({name: str(smallest - 1)})


def test_every_setting_is_whole() -> None:
    """Names match, defaults pass their own checks, and each has a sentence of documentation."""
    for table in (TOPIC_SETTINGS, BROKER_SETTINGS):
        for name, setting in table.items():
            assert setting.name == name
            assert setting.documentation.endswith(".")
            if setting.default is not None:
                assert setting.normalise(setting.default) == setting.default, name
            if not setting.has_effect:
                assert "without effect" in setting.documentation


def test_topic_settings_find_their_defaults_on_the_broker() -> None:
    for setting in TOPIC_SETTINGS.values():
        for synonym in setting.synonyms:
            assert BROKER_SETTINGS[synonym.name].is_dynamic
        if setting.synonyms:
            last = setting.synonyms[-1]
            default = BROKER_SETTINGS[last.name].default
            assert default is not None
            assert setting.default is not None
            if last.factor == 1:
                assert default == setting.default
            else:
                assert int(default) * last.factor == int(setting.default)


def test_without_any_setting_the_models_defaults_hold() -> None:
    assert topic_config({}, {}) == TopicConfig()


def test_a_topics_settings_reach_the_typed_ones() -> None:
    config = topic_config(
        {
            "cleanup.policy": "compact,delete",
            "retention.ms": "-1",
            "retention.bytes": "-7",
            "segment.bytes": "1000",
            "max.message.bytes": "99",
            "message.timestamp.type": "LogAppendTime",
            "compression.type": "zstd",
            "min.cleanable.dirty.ratio": "0.1",
            "penstock.flush.policy": "interval-unsafe",
            "flush.ms": "20",
        },
        {},
    )
    assert (config.cleanup_compact, config.cleanup_delete) == (True, True)
    assert (config.retention_ms, config.retention_bytes) == (-1, -1)
    assert (config.segment_bytes, config.max_message_bytes) == (1000, 99)
    assert config.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (config.compression_type, config.min_cleanable_dirty_ratio) == ("zstd", 0.1)
    assert (config.flush_policy, config.flush_ms) == (FlushPolicy.INTERVAL_UNSAFE, 20)


def test_an_empty_cleanup_policy_keeps_everything() -> None:
    config = topic_config({"cleanup.policy": ""}, {})
    assert not config.cleanup_compact
    assert not config.cleanup_delete


def test_the_finest_unit_that_the_broker_sets_wins() -> None:
    retention = TOPIC_SETTINGS["retention.ms"]
    hours = {"log.retention.hours": "2"}
    assert effective_topic_setting(retention, {}, hours) == "7200000"
    minutes = {**hours, "log.retention.minutes": "3"}
    assert effective_topic_setting(retention, {}, minutes) == "180000"
    millis = {**minutes, "log.retention.ms": "4"}
    assert effective_topic_setting(retention, {}, millis) == "4"
    assert effective_topic_setting(retention, {"retention.ms": "5"}, millis) == "5"


def test_forever_is_forever_in_every_unit() -> None:
    retention = TOPIC_SETTINGS["retention.ms"]
    assert effective_topic_setting(retention, {}, {"log.retention.hours": "-1"}) == "-1"


def test_broker_settings_resolve_through_their_coarser_units() -> None:
    assert effective_broker_setting("log.retention.ms", {"log.retention.hours": "1"}) == "3600000"
    assert effective_broker_setting("num.partitions", {}) == "1"
    assert effective_broker_setting("broker.id", {}) == ""


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ({"no.such": "1"}, "Unknown topic config name: no.such"),
        ({"retention.ms": "soon"}, "Invalid value soon for configuration retention.ms: Not a num"),
        ({"retention.ms": "-2"}, "Invalid value -2 for configuration retention.ms: Value must be"),
        ({"cleanup.policy": "shred"}, "Invalid value shred for configuration cleanup.policy"),
        ({"retention.ms": None}, "Null value not supported for configs: retention.ms"),
        (
            {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"},
            r"min.compaction.lag.ms \(5\) > max.compaction.lag.ms \(4\)",
        ),
        ({"remote.storage.enable": "true"}, "remote.storage.enable"),
    ],
)
def test_bad_topic_settings_are_refused_by_name_and_value(
    configs: dict[str, str | None], said: str
) -> None:
    with pytest.raises(Refused, match=said) as caught:
        check_topic_configs(configs, {})
    assert caught.value.reason == Reason.INVALID_CONFIG


def test_topic_settings_are_checked_against_the_brokers_defaults() -> None:
    with pytest.raises(Refused, match="conflict"):
        check_topic_configs(
            {"min.compaction.lag.ms": "5"}, {"log.cleaner.max.compaction.lag.ms": "4"}
        )


def test_static_settings_come_back_in_normal_form() -> None:
    given = {"num.partitions": " 3 ", "auto.create.topics.enable": "FALSE"}
    assert validate_static(given) == {"num.partitions": "3", "auto.create.topics.enable": "false"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"num.partitons": "3"},
            "no broker setting named num.partitons; did you mean num.partitions",
        ),
        ({"zzz": "3"}, "no broker setting named zzz."),
        ({"num.partitions": "0"}, "num.partitions can't be '0': Value must be at least 1"),
        ({"num.partitions": "many"}, "num.partitions can't be 'many': Not a number"),
        (
            {"replica.selector.class": "com.example.Nearest"},
            "It can only be org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ),
        ({"broker.id": "7"}, "broker.id can't be set: use --node"),
        (
            {
                "log.cleaner.min.compaction.lag.ms": "9",
                "log.cleaner.max.compaction.lag.ms": "1",
            },
            "contradict",
        ),
    ],
)
def test_bad_static_settings_refuse_the_start_in_one_sentence(
    settings: dict[str, str], said: str
) -> None:
    with pytest.raises(StartRefused) as caught:
        validate_static(settings)
    sentence = str(caught.value)
    assert said in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


def test_settings_that_mean_nothing_here_are_kept_for_one_broker_or_for_all() -> None:
    kerberos = {"sasl.kerberos.min.time.before.relogin": "100"}
    assert check_broker_configs(kerberos) == kerberos
    threads = {"background.threads": "12", "metric.reporters": ""}
    assert check_broker_configs(threads, are_for_all=True) == threads
    for configs, for_all in (
        (kerberos, True),
        ({"sasl.kerberos.min.time.before.relogin": "soon"}, False),
        ({"ssl.keystore.location": "/keys"}, False),
    ):
        with pytest.raises(Refused) as caught:
            check_broker_configs(configs, are_for_all=for_all)
        assert caught.value.reason is Reason.INVALID_REQUEST


THROTTLED = "leader.replication.throttled.replicas"


@pytest.mark.parametrize(
    ("text", "throttled"),
    [
        ("", NOBODY),
        (" * ", EVERYBODY),
        ("0:1", ThrottledReplicas(listed=frozenset({(0, 1)}))),
        ("0:1, 1:0,0:1,", ThrottledReplicas(listed=frozenset({(0, 1), (1, 0)}))),
    ],
)
def test_throttled_replicas_are_all_or_listed(text: str, throttled: ThrottledReplicas) -> None:
    checked = check_topic_configs({THROTTLED: text}, {})
    assert topic_config(checked, {}).throttled_leaders == throttled


@pytest.mark.parametrize("text", ["1", "0:1:2", "a:1", "*:1", "0:*", "0:1,*", "-1:0", "*,*"])
def test_other_lists_of_throttled_replicas_are_refused_in_kafka_s_words(text: str) -> None:
    with pytest.raises(Refused) as caught:
        check_topic_configs({THROTTLED: text}, {})
    assert caught.value.reason is Reason.INVALID_CONFIG
    assert caught.value.detail == (
        f"Invalid value [{text.replace(',', ', ')}] for configuration {THROTTLED}: {THROTTLED} "
        "must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


def test_rates_of_throttles_are_set_while_a_broker_runs() -> None:
    rate = "follower.replication.throttled.rate"
    assert check_broker_configs({rate: "0"}) == {rate: "0"}
    assert check_broker_configs({rate: "1"}, are_for_all=True) == {rate: "1"}
    with pytest.raises(Refused, match="Value must be at least 0"):
        check_broker_configs({rate: "-1"})
    with pytest.raises(StartRefused, match="can only be set while the broker runs"):
        validate_static({rate: "1"})
