"""Metadata in every version: all topics, by name, by id, made on demand, damaged, refused."""

from typing import Any
from uuid import UUID

from penstock.frontdoor.kafka.handlers.metadata import API
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.frontdoor.admin_world import World, each_version, in_world


def by_name(*names: str, **more: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **more)


def codes(response: Any) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in response.topics}


def everything(version: int) -> MetadataRequest:
    return MetadataRequest(topics=[] if version == 0 else None)


def test_all_topics_and_the_cluster_in_every_version() -> None:
    async def test(world: World, version: int) -> None:
        await world.make("a", 2)
        await world.make("b")
        response = await world.ask(API, version, everything(version))
        (broker,) = response.brokers
        assert (broker.node_id, broker.host, broker.port) == (0, "localhost", 9092)
        assert codes(response) == {"a": 0, "b": 0}
        first, second = response.topics[0].partitions
        assert (first.partition_index, second.partition_index) == (0, 1)
        assert (first.error_code, first.leader_id) == (0, 0)
        assert (first.replica_nodes, first.isr_nodes) == ([0], [0])
        assert response.cluster_id == ("cluster-of-one" if version >= 2 else None)
        assert response.controller_id == (0 if version >= 1 else -1)
        assert first.leader_epoch == (7 if version >= 7 else -1)
        topic = world.node.cluster.topic("a")
        assert topic is not None
        assert response.topics[0].topic_id == (topic.topic_id if version >= 10 else UUID(int=0))

    each_version(API, test)


def test_an_empty_list_asks_for_no_topic_from_version_1_on() -> None:
    async def test(world: World, version: int) -> None:
        await world.make("a")
        response = await world.ask(API, version, MetadataRequest(topics=[]))
        assert len(response.topics) == (1 if version == 0 else 0)

    each_version(API, test)


def test_a_missing_topic_is_made_and_answered_at_once() -> None:
    async def test(world: World, version: int) -> None:
        response = await world.ask(API, version, by_name("new"))
        (topic,) = response.topics
        assert (topic.error_code, len(topic.partitions)) == (0, 3)
        assert topic.partitions[2].leader_id == 0
        assert world.node.served() == {"new": 3}

    each_version(API, test, num_partitions="3")


def test_a_client_can_forbid_making_topics_from_version_4_on() -> None:
    async def test(world: World, version: int) -> None:
        request = by_name("new", allow_auto_topic_creation=False)
        response = await world.ask(API, version, request)
        made = version < 4
        assert codes(response) == {"new": 0 if made else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert world.node.served() == ({"new": 1} if made else {})

    each_version(API, test)


def test_the_broker_can_forbid_making_topics() -> None:
    async def test(world: World) -> None:
        response = await world.ask(API, 12, by_name("new", "bad name"))
        assert codes(response) == {
            "new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }

    in_world(test, auto_create_topics_enable="false")


def test_names_that_can_not_be_made() -> None:
    async def test(world: World) -> None:
        await world.make("a.b")
        response = await world.ask(API, 12, by_name("bad name", "", "..", "a_b", "good"))
        assert codes(response) == {
            "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "..": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "good": 0,
        }

    in_world(test)


def test_the_brokers_own_topics_are_not_made_by_asking() -> None:
    async def test(world: World) -> None:
        response = await world.ask(API, 12, by_name("__consumer_offsets"))
        (topic,) = response.topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert topic.is_internal
        await world.node.topics.ensure_internal("__consumer_offsets", partitions=2, configs={})
        response = await world.ask(API, 12, by_name("__consumer_offsets"))
        assert response.topics[0].is_internal
        assert len(response.topics[0].partitions) == 2

    in_world(test)


def test_a_full_disk_makes_the_client_ask_again() -> None:
    async def test(world: World) -> None:
        world.node.host.is_disk_full = True
        response = await world.ask(API, 12, by_name("new"))
        assert codes(response) == {"new": ErrorCode.LEADER_NOT_AVAILABLE}
        world.node.host.is_disk_full = False
        world.node.disk.room = 0
        response = await world.ask(API, 12, by_name("new"))
        assert codes(response) == {"new": ErrorCode.LEADER_NOT_AVAILABLE}
        world.node.disk.room = 9
        assert codes(await world.ask(API, 12, by_name("new"))) == {"new": 0}

    in_world(test)


def test_a_default_replication_factor_that_can_not_be_met_is_lowered() -> None:
    async def test(world: World) -> None:
        response = await world.ask(API, 12, by_name("new"))
        assert codes(response) == {"new": 0}
        assert response.topics[0].partitions[0].replica_nodes == [0]

    in_world(test, default_replication_factor="3")


def test_a_topic_asked_for_twice_is_answered_once_and_in_order() -> None:
    async def test(world: World, version: int) -> None:
        await world.make("b")
        response = await world.ask(API, version, by_name("b", "a", "b"))
        assert [topic.name for topic in response.topics] == ["b", "a"]

    each_version(API, test)


def test_topics_by_id_from_version_12_on() -> None:
    async def test(world: World, version: int) -> None:
        await world.make("a", 2)
        topic = world.node.cluster.topic("a")
        assert topic is not None
        asked = [
            MetadataRequestTopic(name=None, topic_id=topic.topic_id),
            MetadataRequestTopic(name=None, topic_id=UUID(int=99)),
        ]
        if version < 10:
            return
        response = await world.ask(API, version, MetadataRequest(topics=asked))
        if version < 12:
            assert [t.error_code for t in response.topics] == [ErrorCode.INVALID_REQUEST] * 2
            return
        known, unknown = response.topics
        assert (known.error_code, known.name, len(known.partitions)) == (0, "a", 2)
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert (unknown.name, unknown.topic_id) == (None, UUID(int=99))

    each_version(API, test)


def test_a_damaged_partition_has_no_leader_and_an_offline_replica() -> None:
    async def test(world: World, version: int) -> None:
        await world.make("a", 2)
        world.damage("a", 1)
        response = await world.ask(API, version, by_name("a"))
        healthy, damaged = response.topics[0].partitions
        assert (healthy.error_code, healthy.offline_replicas) == (0, [])
        assert damaged.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert (damaged.leader_id, damaged.isr_nodes) == (-1, [])
        assert damaged.offline_replicas == ([0] if version >= 5 else [])

    each_version(API, test)


def test_authorised_operations_are_told_only_when_asked_for() -> None:
    async def test(world: World, version: int) -> None:
        await world.make("a")
        request = by_name(
            "a",
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        response = await world.ask(API, version, request)
        asked = version >= 8
        assert (response.topics[0].topic_authorized_operations > 0) == asked
        assert (response.cluster_authorized_operations > 0) == (8 <= version <= 10)
        response = await world.ask(API, version, by_name("a"))
        assert response.topics[0].topic_authorized_operations == -(2**31)

    each_version(API, test)
