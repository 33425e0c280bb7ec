"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs in every version."""

from typing import Any

import pytest

from penstock.broker.configs import ConfigSource
from penstock.cluster.config_definitions import BROKER_SETTINGS, TOPIC_SETTINGS
from penstock.frontdoor.kafka.config_resources import ResourceType
from penstock.frontdoor.kafka.handlers import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
)
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages import alter_configs as alter_messages
from penstock.protocol.kafka.messages import incremental_alter_configs as edit_messages
from penstock.protocol.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tests.unit.frontdoor.admin_world import World, each_version, in_world

DESCRIBE, REPLACE, EDIT = describe_configs.API, alter_configs.API, incremental_alter_configs.API
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
METRICS = ResourceType.CLIENT_METRICS
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


async def described(
    world: World, kind: int, name: str, keys: list[str] | None = None, version: int = 4, **more: Any
) -> Any:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[asked], **more)
    (result,) = (await world.ask(DESCRIBE, version, request)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def replaced(world: World, version: int, *resources: tuple[int, str, dict[str, Any]]) -> Any:
    request = alter_messages.AlterConfigsRequest(
        resources=[
            alter_messages.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    alter_messages.AlterableConfig(name=key, value=text)
                    for key, text in configs.items()
                ],
            )
            for kind, name, configs in resources
        ]
    )
    return (await world.ask(REPLACE, version, request)).responses


async def edited(
    world: World,
    version: int,
    *resources: tuple[int, str, list[tuple[str, int, str | None]]],
    validate_only: bool = False,
) -> Any:
    request = edit_messages.IncrementalAlterConfigsRequest(
        validate_only=validate_only,
        resources=[
            edit_messages.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    edit_messages.AlterableConfig(name=key, config_operation=operation, value=text)
                    for key, operation, text in edits
                ],
            )
            for kind, name, edits in resources
        ],
    )
    return (await world.ask(EDIT, version, request)).responses


def topic_configs(world: World, name: str = "t") -> Any:
    topic = world.node.cluster.topic(name)
    assert topic is not None
    return topic.configs


# DescribeConfigs


def test_all_settings_of_a_topic_in_every_version() -> None:
    async def test(world: World, version: int) -> None:
        await world.make("t", retention_ms="7")
        result = await described(
            world,
            TOPIC,
            "t",
            version=version,
            include_synonyms=True,
            include_documentation=True,
        )
        assert result.error_code == 0
        configs = {each.name: each for each in result.configs}
        assert set(configs) == set(TOPIC_SETTINGS)
        own, default = configs["retention.ms"], configs["segment.bytes"]
        assert (own.value, default.value) == ("7", "1073741824")
        assert not own.read_only
        assert not own.is_sensitive
        if version == 0:
            assert (own.is_default, default.is_default) == (False, True)
        else:
            assert (own.config_source, default.config_source) == (1, 5)
            assert [each.name for each in own.synonyms] == ["retention.ms", "log.retention.hours"]
        if version >= 3:
            assert (own.config_type, configs["cleanup.policy"].config_type) == (5, 7)
            assert own.documentation.startswith("How long records are kept")

    each_version(DESCRIBE, test)


def test_synonyms_and_documentation_only_when_asked_for() -> None:
    async def test(world: World) -> None:
        await world.make("t")
        result = await described(world, TOPIC, "t", ["retention.ms", "no.such"])
        (config,) = result.configs
        assert config.synonyms == []
        assert config.documentation is None

    in_world(test)


def test_settings_of_this_broker_and_of_all_brokers() -> None:
    async def test(world: World, version: int) -> None:
        result = await described(world, BROKER, "0", version=version)
        configs = {each.name: each for each in result.configs}
        # Throttles have no default: Kafka shows them only where they are set.
        listed = {name for name, each in BROKER_SETTINGS.items() if not each.is_dynamic_only}
        assert set(configs) == listed
        assert configs["num.partitions"].value == "4"
        assert configs["num.partitions"].read_only
        if version >= 1:
            assert configs["num.partitions"].config_source == 4
        (only,) = (await described(world, BROKER, "", version=version)).configs
        assert only.name == "min.insync.replicas"
        await replaced(world, 2, (BROKER, "", {"log.retention.ms": "9"}))
        everyone = (await described(world, BROKER, "", version=version)).configs
        assert {each.name: each.value for each in everyone} == {
            "log.retention.ms": "9",
            "min.insync.replicas": "1",
        }
        if version >= 1:
            assert {each.config_source for each in everyone} == {3}

    each_version(DESCRIBE, test, num_partitions="4")


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "0", ErrorCode.INVALID_REQUEST),
        (ResourceType.CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (ResourceType.GROUP, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_resources_that_are_not_there(kind: int, name: str, code: ErrorCode) -> None:
    async def test(world: World) -> None:
        result = await described(world, kind, name)
        assert result.error_code == code
        assert result.error_message
        assert result.configs == []
        (answer,) = await replaced(world, 2, (kind, name, {}))
        assert answer.error_code == code
        (answer,) = await edited(world, 1, (kind, name, []))
        assert (answer.error_code, answer.resource_name) == (code, name)

    in_world(test)


def test_a_topic_without_a_name_can_not_be_told_and_not_be_changed() -> None:
    """The two have different codes, as in Kafka: brokers have defaults to change, topics none."""

    async def test(world: World) -> None:
        result = await described(world, TOPIC, "")
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        (answer,) = await replaced(world, 2, (TOPIC, "", {}))
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        (answer,) = await edited(world, 1, (TOPIC, "", []))
        assert answer.error_code == ErrorCode.INVALID_REQUEST

    in_world(test)


# AlterConfigs


def test_all_settings_are_replaced_in_every_version() -> None:
    async def test(world: World, version: int) -> None:
        await world.make("t", retention_ms="7")
        await world.make("u")
        answers = await replaced(
            world,
            version,
            (TOPIC, "t", {"flush.ms": "5"}),
            (TOPIC, "u", {"flush.ms": "x"}),
            (BROKER, "0", {"log.segment.bytes": "99"}),
        )
        assert [each.error_code for each in answers] == [0, ErrorCode.INVALID_CONFIG, 0]
        assert "Invalid value x for configuration flush.ms" in answers[1].error_message
        assert topic_configs(world) == {"flush.ms": "5"}
        assert topic_configs(world, "u") == {}
        replica = world.node.partitions.get("t", 0)
        assert (replica.config.flush_ms, replica.config.segment_bytes) == (5, 99)

    each_version(REPLACE, test)


def test_replacing_can_be_checked_without_replacing() -> None:
    async def test(world: World) -> None:
        await world.make("t")
        resource = alter_messages.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name="t",
            configs=[alter_messages.AlterableConfig(name="flush.ms", value="5")],
        )
        request = alter_messages.AlterConfigsRequest(resources=[resource], validate_only=True)
        response = await world.ask(REPLACE, 2, request)
        assert response.responses[0].error_code == 0
        assert topic_configs(world) == {}

    in_world(test)


def test_ambiguous_replacements_are_refused() -> None:
    async def test(world: World) -> None:
        await world.make("t")
        answers = await replaced(
            world, 2, (TOPIC, "t", {"flush.ms": "5"}), (TOPIC, "t", {"flush.ms": "6"})
        )
        assert [each.error_code for each in answers] == [ErrorCode.INVALID_REQUEST] * 2
        (answer,) = await replaced(world, 2, (TOPIC, "t", {"flush.ms": None}))
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert topic_configs(world) == {}

    in_world(test)


# IncrementalAlterConfigs


def test_single_settings_are_edited_in_every_version() -> None:
    async def test(world: World, version: int) -> None:
        await world.make("t", retention_ms="7", flush_ms="8")
        (answer,) = await edited(
            world,
            version,
            (
                TOPIC,
                "t",
                [
                    ("retention.ms", DELETE, None),
                    ("segment.ms", SET, "9"),
                    ("cleanup.policy", APPEND, "compact"),
                ],
            ),
        )
        assert (answer.error_code, answer.error_message) == (0, None)
        assert topic_configs(world) == {
            "flush.ms": "8",
            "segment.ms": "9",
            "cleanup.policy": "delete,compact",
        }
        assert world.node.partitions.get("t", 0).config.cleanup_compact
        await edited(world, version, (TOPIC, "t", [("cleanup.policy", SUBTRACT, "delete")]))
        assert topic_configs(world)["cleanup.policy"] == "compact"

    each_version(EDIT, test)


@pytest.mark.parametrize(
    ("edits", "code"),
    [
        ([("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("no.such", SET, "5")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", 9, "5")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "5"), ("retention.ms", SET, "6")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_edits_change_nothing_but_spare_the_others(edits: Any, code: ErrorCode) -> None:
    async def test(world: World) -> None:
        await world.make("t")
        await world.make("u")
        good = (TOPIC, "u", [("flush.ms", SET, "5")])
        answers = await edited(world, 1, (TOPIC, "t", edits), good)
        assert [each.error_code for each in answers] == [code, 0]
        assert answers[0].error_message
        assert topic_configs(world) == {}
        assert topic_configs(world, "u") == {"flush.ms": "5"}

    in_world(test)


def test_edits_can_be_checked_without_editing() -> None:
    async def test(world: World) -> None:
        await world.make("t")
        edit = (TOPIC, "t", [("flush.ms", SET, "5")])
        (answer,) = await edited(world, 1, edit, validate_only=True)
        assert answer.error_code == 0
        assert topic_configs(world) == {}

    in_world(test)


def test_settings_that_can_not_be_committed_are_a_storage_error() -> None:
    async def test(world: World) -> None:
        await world.make("t")
        world.node.host.is_disk_full = True
        answers = await edited(
            world, 1, (TOPIC, "t", [("flush.ms", SET, "5")]), (TOPIC, "bad name", [])
        )
        # A bad resource is found in the same decision, so the failed commit speaks for both.
        assert answers[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert topic_configs(world) == {}

    in_world(test)


# Subscriptions to clients' metrics


def test_a_subscription_is_made_told_changed_and_removed() -> None:
    async def test(world: World) -> None:
        async def told() -> list[tuple[str, str | None, int]]:
            result = await described(world, METRICS, "s", include_synonyms=True)
            assert result.error_code == 0
            assert [len(each.synonyms) for each in result.configs] == [
                each.config_source == ConfigSource.CLIENT_METRICS for each in result.configs
            ]
            return [(each.name, each.value, each.config_source) for each in result.configs]

        own, default = ConfigSource.CLIENT_METRICS, ConfigSource.DEFAULT
        nothing = [("metrics", "", default), ("interval.ms", "300000", default)]
        assert await told() == [*nothing, ("match", "", default)]
        edits: list[tuple[str, int, str | None]]
        edits = [
            ("metrics", SET, "a,b"),
            ("interval.ms", SET, "100"),
            ("match", SET, "client_id=x"),
        ]
        (answer,) = await edited(world, 1, (METRICS, "s", edits))
        assert answer.error_code == 0
        changed = [("metrics", "a,b", own), ("interval.ms", "100", own)]
        assert await told() == [*changed, ("match", "client_id=x", own)]
        edits = [("metrics", SET, "b"), ("match", DELETE, None), ("no.such", DELETE, None)]
        (answer,) = await edited(world, 1, (METRICS, "s", edits))
        assert await told() == [("metrics", "b", own), changed[1], ("match", "", default)]
        assert world.services.client_metrics.subscriptions() == ["s"]
        (answer,) = await replaced(world, 2, (METRICS, "s", {}))
        assert answer.error_code == 0
        assert world.services.client_metrics.subscriptions() == []

    in_world(test)


@pytest.mark.parametrize(
    ("edit", "code"),
    [
        (("no.such", SET, "1"), ErrorCode.INVALID_REQUEST),
        (("interval.ms", SET, "99"), ErrorCode.INVALID_REQUEST),
        (("interval.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("interval.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("match", APPEND, "client_id=x"), ErrorCode.INVALID_CONFIG),
        (("match", SET, "color=red"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_subscription_with_a_bad_setting_is_not_made(
    edit: tuple[str, int, str], code: ErrorCode
) -> None:
    async def test(world: World) -> None:
        (answer,) = await edited(world, 1, (METRICS, "s", [("metrics", SET, "a"), edit]))
        assert answer.error_code == code
        assert world.services.client_metrics.subscriptions() == []

    in_world(test)


def test_a_group_has_settings_before_it_exists() -> None:
    session, group = "consumer.session.timeout.ms", ResourceType.GROUP

    async def test(world: World) -> None:
        async def told() -> list[tuple[str, str | None, int]]:
            result = await described(world, group, "g", include_synonyms=True)
            assert result.error_code == 0
            (entry,) = [each for each in result.configs if each.name == session]
            assert (entry.value, entry.config_source) == (
                entry.synonyms[0].value,
                entry.synonyms[0].source,
            )
            return [(each.name, each.value, each.source) for each in entry.synonyms]

        of_broker = (f"group.{session}", "46000", ConfigSource.STATIC_BROKER)
        default = (f"group.{session}", "45000", ConfigSource.DEFAULT)
        assert await told() == [of_broker, default]
        (answer,) = await edited(world, 1, (group, "g", [(session, SET, "50000")]))
        assert answer.error_code == 0
        assert await told() == [(session, "50000", ConfigSource.GROUP), of_broker, default]
        assert world.services.configs.groups() == ["g"]
        (answer,) = await edited(world, 1, (group, "g", [(session, SET, "1")]))
        assert answer.error_code == ErrorCode.INVALID_CONFIG
        assert await told() == [(session, "50000", ConfigSource.GROUP), of_broker, default]
        (answer,) = await replaced(world, 2, (group, "g", {}))
        assert answer.error_code == 0
        assert world.services.configs.groups() == []

    in_world(test, group_consumer_session_timeout_ms="46000")
