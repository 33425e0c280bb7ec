"""Answers about the brokers, their directories and their partitions, in every version."""

from typing import Any

import pytest

from penstock.broker.configs import ClientMetricsResource
from penstock.frontdoor.kafka.handlers import (
    alter_replica_log_dirs,
    describe_cluster,
    describe_log_dirs,
    describe_topic_partitions,
    list_config_resources,
)
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.protocol.kafka.messages.describe_cluster import DescribeClusterRequest
from penstock.protocol.kafka.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from penstock.protocol.kafka.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from penstock.protocol.kafka.messages.list_config_resources import ListConfigResourcesRequest
from tests.unit.frontdoor.admin_world import World, each_version, in_world

CLUSTER, LOG_DIRS = describe_cluster.API, describe_log_dirs.API
PARTITIONS = describe_topic_partitions.API
MOVE, RESOURCES = alter_replica_log_dirs.API, list_config_resources.API


def test_the_cluster_in_every_version() -> None:
    async def test(world: World, version: int) -> None:
        response = await world.ask(CLUSTER, version, DescribeClusterRequest())
        assert (response.error_code, response.cluster_id) == (0, "cluster-of-one")
        assert response.controller_id == 0
        (broker,) = response.brokers
        assert (broker.broker_id, broker.host, broker.port, broker.rack) == (
            0,
            "localhost",
            9092,
            None,
        )
        assert response.cluster_authorized_operations == -(2**31)
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        response = await world.ask(CLUSTER, version, request)
        assert response.cluster_authorized_operations > 0

    each_version(CLUSTER, test)


@pytest.mark.parametrize(
    ("kind", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_only_brokers_have_addresses(kind: int, code: ErrorCode) -> None:
    async def test(world: World) -> None:
        response = await world.ask(CLUSTER, 1, DescribeClusterRequest(endpoint_type=kind))
        assert (response.error_code, response.brokers) == (code, [])
        assert response.error_message

    in_world(test)


def test_log_directories_in_every_version() -> None:
    async def test(world: World, version: int) -> None:
        await world.make("a", 2)
        await world.make("b")
        response = await world.ask(LOG_DIRS, version, DescribeLogDirsRequest(topics=None))
        (directory,) = response.results
        assert (directory.error_code, directory.log_dir) == (0, "/data")
        sizes = {
            topic.name: [
                (p.partition_index, p.partition_size, p.offset_lag) for p in topic.partitions
            ]
            for topic in directory.topics
        }
        assert sizes == {"a": [(0, 100, 0), (1, 101, 0)], "b": [(0, 100, 0)]}
        space = (1000, 400) if version >= 4 else (-1, -1)
        assert (directory.total_bytes, directory.usable_bytes) == space

    each_version(LOG_DIRS, test)


def test_log_directories_of_some_partitions_with_one_damaged() -> None:
    async def test(world: World, version: int) -> None:
        await world.make("a", 3)
        world.node.partitions.get("a", 2).stopped_because = OSError("damaged")
        asked = [
            DescribableLogDirTopic(topic="a", partitions=[1, 2, 9]),
            DescribableLogDirTopic(topic="none", partitions=[0]),
        ]
        response = await world.ask(LOG_DIRS, version, DescribeLogDirsRequest(topics=asked))
        healthy, damaged = response.results
        assert [p.partition_index for p in healthy.topics[0].partitions] == [1]
        assert damaged.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert [p.partition_index for p in damaged.topics[0].partitions] == [2]

    each_version(LOG_DIRS, test)


def test_replicas_can_be_moved_only_to_the_one_directory() -> None:
    async def test(world: World, version: int) -> None:
        await world.make("a", 2)

        async def moved(*paths: str) -> Any:
            topics = [
                AlterReplicaLogDirTopic(name="a", partitions=[0, 9]),
                AlterReplicaLogDirTopic(name="none", partitions=[0]),
            ]
            dirs = [AlterReplicaLogDir(path=path, topics=topics) for path in paths]
            response = await world.ask(MOVE, version, AlterReplicaLogDirsRequest(dirs=dirs))
            return [
                (topic.topic_name, each.partition_index, each.error_code)
                for topic in response.results
                for each in topic.partitions
            ]

        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        stays = [("a", 0, 0), ("a", 9, missing), ("none", 0, missing)]
        assert await moved("/data") == await moved("/other", "/data") == stays
        assert {code for *_, code in await moved("/other")} == {ErrorCode.LOG_DIR_NOT_FOUND}
        world.damage("a", 0)
        assert (await moved("/data"))[0] == ("a", 0, ErrorCode.KAFKA_STORAGE_ERROR)

    each_version(MOVE, test)


def test_resources_that_have_settings() -> None:
    async def test(world: World) -> None:
        await world.make("a")

        async def named(*types: int, version: int = 1) -> Any:
            request = ListConfigResourcesRequest(resource_types=list(types))
            response = await world.ask(RESOURCES, version, request)
            assert response.error_code == 0
            return [(each.resource_type, each.resource_name) for each in response.config_resources]

        assert await named() == [(2, "a"), (4, "0"), (8, "0")]
        assert await named(2, 16, 32, 2) == [(2, "a")]
        assert await named(version=0) == []
        subscribed = ClientMetricsResource("s"), {"metrics": "*"}
        assert await world.services.configs.replace([subscribed]) == [None]
        assert await named(2, 16) == [(2, "a"), (16, "s")]
        assert await named(version=0) == [(16, "s")]
        request = ListConfigResourcesRequest(resource_types=[2, 3])
        response = await world.ask(RESOURCES, 1, request)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION

    in_world(test)


def page(*names: str, limit: int = 2000, after: tuple[str, int] | None = None) -> Any:
    cursor = None if after is None else Cursor(topic_name=after[0], partition_index=after[1])
    topics = [TopicRequest(name=name) for name in names]
    return DescribeTopicPartitionsRequest(
        topics=topics, response_partition_limit=limit, cursor=cursor
    )


def shown(response: Any) -> list[tuple[str, list[int]]]:
    return [
        (topic.name, [partition.partition_index for partition in topic.partitions])
        for topic in response.topics
    ]


def test_all_topics_page_by_page() -> None:
    async def test(world: World) -> None:
        for name, partitions in (("b", 3), ("a", 2), ("c", 1)):
            await world.make(name, partitions)
        seen: list[tuple[str, int]] = []
        after: tuple[str, int] | None = None
        for _ in range(10):
            response = await world.ask(PARTITIONS, 0, page(limit=2, after=after))
            for name, partitions in shown(response):
                seen += [(name, partition) for partition in partitions]
            if response.next_cursor is None:
                break
            after = (response.next_cursor.topic_name, response.next_cursor.partition_index)
        assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]

    in_world(test)


def test_a_page_tells_everything_about_a_partition() -> None:
    async def test(world: World) -> None:
        await world.make("a", 2)
        world.damage("a", 1)
        response = await world.ask(PARTITIONS, 0, page("a"))
        (topic,) = response.topics
        known = world.node.cluster.topic("a")
        assert known is not None
        assert (topic.topic_id, topic.is_internal) == (known.topic_id, False)
        assert topic.topic_authorized_operations > 0
        healthy, damaged = topic.partitions
        assert (healthy.leader_id, healthy.leader_epoch, healthy.isr_nodes) == (0, 7, [0])
        assert (healthy.eligible_leader_replicas, healthy.last_known_elr) == ([], [])
        assert (damaged.leader_id, damaged.offline_replicas) == (-1, [0])
        assert damaged.error_code == ErrorCode.LEADER_NOT_AVAILABLE

    in_world(test)


def test_named_topics_that_are_missing_are_told() -> None:
    async def test(world: World) -> None:
        await world.make("b")
        response = await world.ask(PARTITIONS, 0, page("b", "a", "bad name"))
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("b", 0),
            ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ]
        assert response.next_cursor is None

    in_world(test)


def test_the_brokers_own_limit_holds_too() -> None:
    async def test(world: World) -> None:
        await world.make("a", 5)
        response = await world.ask(PARTITIONS, 0, page(limit=100))
        assert shown(response) == [("a", [0, 1, 2])]
        assert response.next_cursor == Cursor(topic_name="a", partition_index=3)
        response = await world.ask(PARTITIONS, 0, page(limit=-4))
        assert shown(response) == [("a", [0])]

    in_world(test, max_request_partition_size_limit="3")


def test_a_cursor_beyond_a_topic_that_shrank_goes_on_with_the_next() -> None:
    async def test(world: World) -> None:
        await world.make("a", 1)
        await world.make("b", 1)
        response = await world.ask(PARTITIONS, 0, page(after=("a", 7)))
        assert shown(response) == [("a", []), ("b", [0])]
        response = await world.ask(PARTITIONS, 0, page(after=("aa", 0)))
        assert shown(response) == [("b", [0])]

    in_world(test)


@pytest.mark.parametrize("after", [("b", 0), ("a", -1)])
def test_bad_cursors_are_refused(after: tuple[str, int]) -> None:
    async def test(world: World) -> None:
        await world.make("a", 1)
        response = await world.ask(PARTITIONS, 0, page("a", after=after))
        assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST]

    in_world(test)
