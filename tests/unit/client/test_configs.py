"""Settings that run: who says each of them, what the default is, and which one was meant."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client.configs import Configs, Resource
from penstock.client.errors import ClientError
from penstock.client.kafka_connection import KafkaConnection
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from penstock.protocol.kafka.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.unit.client.wire.fake_broker import TOPIC, FakeCluster

TOPIC_SOURCE, DEFAULT_SOURCE = 1, 5
OF_TOPIC = Resource(topic=TOPIC)


def entry(name: str, value: str, *places: tuple[str, str, int]) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        config_source=places[0][2],
        synonyms=[DescribeConfigsSynonym(name=n, value=v, source=s) for n, v, s in places],
    )


def described(request: DescribeConfigsRequest, version: int) -> Any:
    configs = [
        entry(
            "retention.ms",
            "5",
            ("retention.ms", "5", TOPIC_SOURCE),
            ("log.retention.hours", "168", DEFAULT_SOURCE),
        ),
        entry("cleanup.policy", "delete", ("log.cleanup.policy", "delete", DEFAULT_SOURCE)),
    ]
    return DescribeConfigsResponse(results=[DescribeConfigsResult(configs=configs)])


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as made:
        made[1].handlers[ApiKey.DESCRIBE_CONFIGS] = described
        yield made


@pytest.fixture
def configs(cluster: FakeCluster) -> Iterator[Configs]:
    with KafkaConnection(cluster.bootstrap, timeout_s=5.0) as connection:
        yield Configs(connection)


def test_a_setting_comes_with_its_source_and_its_default(configs: Configs) -> None:
    cleanup, retention = configs.all(OF_TOPIC)
    assert (cleanup.source, cleanup.is_default, cleanup.default) == ("default", True, "delete")
    assert (retention.source, retention.is_default) == ("dynamic topic", False)
    # In hours, so without the name of its setting it would be taken for milliseconds.
    assert retention.default == "log.retention.hours=168"


def test_a_misspelt_setting_is_answered_with_the_nearest(configs: Configs) -> None:
    assert configs.one(OF_TOPIC, "retention.ms").value == "5"
    with pytest.raises(ClientError, match=r"no setting retenton.ms of topic .*; nearest is ret"):
        configs.one(OF_TOPIC, "retenton.ms")


def test_changes_name_only_what_is_to_change(cluster: FakeCluster, configs: Configs) -> None:
    answer = IncrementalAlterConfigsResponse(responses=[AlterConfigsResourceResponse()])
    cluster[1].handlers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = lambda request, version: answer
    configs.alter(OF_TOPIC, set_to={"a": "1"}, unset=["b"])
    request: IncrementalAlterConfigsRequest
    (request,) = cluster[1].requests(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    (resource,) = request.resources
    changes = [(one.name, one.config_operation, one.value) for one in resource.configs]
    assert changes == [("a", 0, "1"), ("b", 1, None)]


def test_what_the_broker_refuses_is_one_sentence(cluster: FakeCluster, configs: Configs) -> None:
    refusal = AlterConfigsResourceResponse(error_code=40, error_message="It is read-only.")
    answer = IncrementalAlterConfigsResponse(responses=[refusal])
    cluster[1].handlers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = lambda request, version: answer
    with pytest.raises(ClientError, match=r"refused the settings of topic .*: It is read-only\.$"):
        configs.alter(OF_TOPIC, set_to={"a": "1"})
