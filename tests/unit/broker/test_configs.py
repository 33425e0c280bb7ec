"""Describing settings: values, where they come from, and what else was looked at."""

import asyncio
from collections.abc import Callable

import pytest

from penstock.broker.configs import (
    BrokerResource,
    ConfigEntry,
    Configs,
    ConfigSource,
    Edit,
    Operation,
    Resource,
    TopicResource,
)
from penstock.broker.topics import NewTopic
from penstock.cluster.config_definitions import BROKER_SETTINGS, TOPIC_SETTINGS
from penstock.model.errors import Reason, Refused
from tests.unit.broker.fake_disk import Disk, Node

TOPIC = TopicResource("t")
BROKER = BrokerResource("0")
ALL_BROKERS = BrokerResource("")


def with_configs(
    test: Callable[[Configs], None], *changes: tuple[Resource, dict[str, str]]
) -> None:
    async def body() -> None:
        node = await Node.start(Disk(), log_retention_hours="1", broker_rack="r1")
        await node.topics.create([NewTopic(name="t", configs={"retention.bytes": "5"})])
        configs = Configs(cluster=node.cluster, derived={"log.dirs": "/data"})
        for resource, settings in changes:
            edits = [Edit(name, Operation.SET, text) for name, text in settings.items()]
            assert await configs.edit([(resource, edits)]) == [None]
        test(configs)

    asyncio.run(body())


def entry(configs: Configs, resource: Resource, name: str) -> ConfigEntry:
    (found,) = configs.describe(resource, [name])
    return found


def places(found: ConfigEntry) -> list[tuple[str, str, ConfigSource]]:
    return [(each.name, each.value, each.source) for each in found.synonyms]


def test_every_setting_is_described_with_a_source() -> None:
    def test(configs: Configs) -> None:
        assert {e.name for e in configs.describe(TOPIC)} == set(TOPIC_SETTINGS)
        shown = {name for name, each in BROKER_SETTINGS.items() if not each.is_dynamic_only}
        assert {e.name for e in configs.describe(BROKER)} == shown
        for found in configs.describe(TOPIC, []):
            assert found.value is not None
            assert not found.is_read_only
            if found.synonyms:
                assert found.source == found.synonyms[0].source

    with_configs(test)


def test_a_topics_value_comes_from_the_first_place_that_has_one() -> None:
    def test(configs: Configs) -> None:
        own = entry(configs, TOPIC, "retention.bytes")
        assert (own.value, own.source) == ("5", ConfigSource.TOPIC)
        assert places(own) == [
            ("retention.bytes", "5", ConfigSource.TOPIC),
            ("log.retention.bytes", "-1", ConfigSource.DEFAULT),
        ]
        static = entry(configs, TOPIC, "retention.ms")
        assert (static.value, static.source) == ("3600000", ConfigSource.STATIC_BROKER)
        assert places(static) == [
            ("log.retention.hours", "1", ConfigSource.STATIC_BROKER),
            ("log.retention.hours", "168", ConfigSource.DEFAULT),
        ]
        default = entry(configs, TOPIC, "segment.bytes")
        assert (default.value, default.source) == ("1073741824", ConfigSource.DEFAULT)

    with_configs(test)


def test_dynamic_settings_stand_before_static_ones() -> None:
    def test(configs: Configs) -> None:
        found = entry(configs, TOPIC, "retention.ms")
        assert (found.value, found.source) == ("8", ConfigSource.DYNAMIC_BROKER)
        assert [place[1:] for place in places(found)[:2]] == [
            ("8", ConfigSource.DYNAMIC_BROKER),
            ("9", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ]
        broker = entry(configs, BROKER, "log.retention.ms")
        assert (broker.value, broker.source) == ("8", ConfigSource.DYNAMIC_BROKER)
        everyone = entry(configs, ALL_BROKERS, "log.retention.ms")
        assert everyone.value == "9"
        assert everyone.source == ConfigSource.DYNAMIC_DEFAULT_BROKER

    with_configs(
        test, (ALL_BROKERS, {"log.retention.ms": "9"}), (BROKER, {"log.retention.ms": "8"})
    )


def test_the_rate_of_a_throttle_is_shown_where_it_was_set_and_only_there() -> None:
    rate, other = "leader.replication.throttled.rate", "follower.replication.throttled.rate"

    def test(configs: Configs) -> None:
        found = entry(configs, BROKER, rate)
        assert places(found) == [
            (rate, "7", ConfigSource.DYNAMIC_BROKER),
            (rate, "8", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ]
        assert entry(configs, ALL_BROKERS, rate).value == "8"
        assert configs.describe(BROKER, [other]) == []

    with_configs(test, (ALL_BROKERS, {rate: "8"}), (BROKER, {rate: "7"}))


def test_the_least_replicas_in_sync_are_always_set_for_all_brokers() -> None:
    """A new cluster of Kafka does that, and tools read it there."""

    def unset(configs: Configs) -> None:
        (everyone,) = configs.describe(ALL_BROKERS)
        assert (everyone.name, everyone.value) == ("min.insync.replicas", "1")
        for resource in (TOPIC, BROKER):
            found = entry(configs, resource, "min.insync.replicas")
            assert found.source == ConfigSource.DYNAMIC_DEFAULT_BROKER
            assert [place[1:] for place in places(found)] == [
                ("1", ConfigSource.DYNAMIC_DEFAULT_BROKER),
                ("1", ConfigSource.DEFAULT),
            ]

    def changed(configs: Configs) -> None:
        assert entry(configs, ALL_BROKERS, "min.insync.replicas").value == "2"
        assert entry(configs, TOPIC, "min.insync.replicas").value == "2"

    with_configs(unset)
    with_configs(changed, (ALL_BROKERS, {"min.insync.replicas": "2"}))


def test_broker_settings_tell_which_can_be_changed_now() -> None:
    def test(configs: Configs) -> None:
        assert entry(configs, BROKER, "num.partitions").is_read_only
        assert not entry(configs, BROKER, "log.segment.bytes").is_read_only
        rack = entry(configs, BROKER, "broker.rack")
        assert (rack.value, rack.source) == ("r1", ConfigSource.STATIC_BROKER)

    with_configs(test)


def test_what_follows_from_flags_is_told_too() -> None:
    def test(configs: Configs) -> None:
        values = {e.name: e.value for e in configs.describe(BROKER)}
        assert values["broker.id"] == values["node.id"] == "0"
        assert values["advertised.listeners"] == "PLAINTEXT://localhost:9092"
        assert values["log.dirs"] == "/data"
        assert values["listeners"] is None

    with_configs(test)


@pytest.mark.parametrize(
    ("resource", "reason"),
    [
        (TopicResource("none"), Reason.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicResource("bad name"), Reason.INVALID_TOPIC),
        (BrokerResource("1"), Reason.INVALID_REQUEST),
    ],
)
def test_unknown_resources(resource: Resource, reason: Reason) -> None:
    def test(configs: Configs) -> None:
        with pytest.raises(Refused) as caught:
            configs.describe(resource)
        assert caught.value.reason == reason

    with_configs(test)
