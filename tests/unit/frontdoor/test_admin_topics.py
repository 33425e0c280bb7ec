"""CreateTopics, DeleteTopics and CreatePartitions in every version."""

from typing import Any
from uuid import UUID

from penstock.cluster.config_definitions import TOPIC_SETTINGS
from penstock.frontdoor.kafka.handlers import create_partitions, create_topics, delete_topics
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.protocol.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.protocol.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.unit.frontdoor.admin_world import World, each_version, in_world

CREATE, DELETE, GROW = create_topics.API, delete_topics.API, create_partitions.API
TIMEOUT_MS = 30_000


def creatable(name: str, partitions: int = 1, factor: int = 1, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=text)
            for key, text in configs.items()
        ],
    )


def result(response: Any, name: str) -> Any:
    (found,) = (each for each in response.topics if each.name == name)
    return found


# CreateTopics


def test_topics_are_made_in_every_version() -> None:
    async def test(world: World, version: int) -> None:
        topics = [creatable("a", 2, retention_ms="77"), creatable("b", -1, -1)]
        response = await world.ask(CREATE, version, CreateTopicsRequest(topics=topics))
        a, b = response.topics
        assert (a.name, a.error_code) == ("a", 0)
        assert not a.error_message
        assert b.error_code == 0
        assert world.node.served() == {"a": 2, "b": 4}
        topic = world.node.cluster.topic("a")
        assert topic is not None
        assert a.topic_id == (topic.topic_id if version >= 7 else UUID(int=0))
        if version >= 5:
            assert (a.num_partitions, a.replication_factor) == (2, 1)
            configs = {each.name: each for each in a.configs}
            assert set(configs) == set(TOPIC_SETTINGS)
            assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == (
                "77",
                1,
            )
            assert configs["segment.bytes"].config_source == 5

    each_version(CREATE, test, num_partitions="4")


def test_validate_only_makes_nothing_from_version_1_on() -> None:
    async def test(world: World, version: int) -> None:
        topics = [creatable("a", 2), creatable("bad name")]
        request = CreateTopicsRequest(topics=topics, validate_only=True)
        response = await world.ask(CREATE, version, request)
        assert result(response, "a").error_code == 0
        assert result(response, "bad name").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert world.node.served() == ({"a": 2} if version == 0 else {})

    each_version(CREATE, test)


def test_each_refusal_has_its_code_and_a_message() -> None:
    async def test(world: World) -> None:
        await world.make("old")
        await world.make("a.b")
        assigned = creatable("assigned", -1, -1)
        assigned.assignments = [
            CreatableReplicaAssignment(partition_index=0, broker_ids=[0]),
            CreatableReplicaAssignment(partition_index=1, broker_ids=[0]),
        ]
        elsewhere = creatable("elsewhere", -1, -1)
        elsewhere.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
        twice = creatable("twice", flush_ms="1")
        twice.configs.append(CreatableTopicConfig(name="flush.ms", value="2"))
        unset = creatable("unset")
        unset.configs = [CreatableTopicConfig(name="flush.ms", value=None)]
        topics = [
            creatable("old"),
            creatable("a_b"),
            creatable("three", 1, 3),
            creatable("none", 0),
            creatable("bad", flush_ms="x"),
            creatable("strange", no_such="x"),
            creatable("same"),
            creatable("same"),
            creatable("__consumer_offsets"),
            assigned,
            elsewhere,
            twice,
            unset,
        ]
        response = await world.ask(CREATE, 7, CreateTopicsRequest(topics=topics))
        codes = {each.name: each.error_code for each in response.topics}
        assert codes == {
            "old": ErrorCode.TOPIC_ALREADY_EXISTS,
            "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "three": ErrorCode.INVALID_REPLICATION_FACTOR,
            "none": ErrorCode.INVALID_PARTITIONS,
            "bad": ErrorCode.INVALID_CONFIG,
            "strange": ErrorCode.INVALID_CONFIG,
            "same": ErrorCode.INVALID_REQUEST,
            "__consumer_offsets": ErrorCode.INVALID_REQUEST,
            "assigned": 0,
            "elsewhere": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "twice": ErrorCode.INVALID_REQUEST,
            "unset": ErrorCode.INVALID_CONFIG,
        }
        for each in response.topics:
            assert bool(each.error_message) == (each.error_code != 0)
        assert "1 broker(s)" in result(response, "three").error_message
        assert result(response, "old").error_message == "Topic 'old' already exists."
        assert world.node.served() == {"old": 1, "a.b": 1, "assigned": 2}

    in_world(test)


def test_a_full_disk_is_a_storage_error_for_each_topic() -> None:
    async def test(world: World) -> None:
        world.node.host.is_disk_full = True
        topics = [creatable("a"), creatable("b")]
        response = await world.ask(CREATE, 7, CreateTopicsRequest(topics=topics))
        for each in response.topics:
            assert each.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "no space" in each.error_message
        assert world.node.served() == {}

    in_world(test)


# DeleteTopics


def doomed(version: int, *names: str) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS)
    states = [DeleteTopicState(name=name) for name in names]
    return DeleteTopicsRequest(topics=states, timeout_ms=TIMEOUT_MS)


def test_topics_are_deleted_by_name_in_every_version() -> None:
    async def test(world: World, version: int) -> None:
        await world.make("a")
        await world.make("b")
        response = await world.ask(DELETE, version, doomed(version, "a", "none", "same", "same"))
        found = {each.name: each for each in response.responses}
        assert {name: each.error_code for name, each in found.items()} == {
            "a": 0,
            "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "same": ErrorCode.INVALID_REQUEST,
        }
        assert bool(found["none"].error_message) == (version >= 5)
        assert world.node.served() == {"b": 1}

    each_version(DELETE, test)


def test_topics_are_deleted_by_id() -> None:
    async def test(world: World) -> None:
        await world.make("a")
        await world.make("b")
        a, b = world.node.cluster.topic("a"), world.node.cluster.topic("b")
        assert a is not None
        assert b is not None
        states = [
            DeleteTopicState(name=None, topic_id=a.topic_id),
            DeleteTopicState(name="a"),
            DeleteTopicState(name=None, topic_id=UUID(int=99)),
            DeleteTopicState(name="b", topic_id=b.topic_id),
            DeleteTopicState(name=None),
        ]
        response = await world.ask(
            DELETE, 6, DeleteTopicsRequest(topics=states, timeout_ms=TIMEOUT_MS)
        )
        assert [(each.name, each.error_code) for each in response.responses] == [
            ("a", 0),
            ("a", ErrorCode.INVALID_REQUEST),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
            ("b", ErrorCode.INVALID_REQUEST),
            (None, ErrorCode.INVALID_REQUEST),
        ]
        assert response.responses[0].topic_id == a.topic_id
        assert world.node.served() == {"b": 1}

    in_world(test)


def test_switched_off_deletion_has_a_code_of_its_own_from_version_3_on() -> None:
    async def test(world: World, version: int) -> None:
        await world.make("a")
        response = await world.ask(DELETE, version, doomed(version, "a"))
        code = ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        assert [each.error_code for each in response.responses] == [code]

    each_version(DELETE, test, delete_topic_enable="false")


def test_a_deletion_that_can_not_be_committed_deletes_nothing() -> None:
    async def test(world: World) -> None:
        await world.make("a")
        world.node.host.is_disk_full = True
        response = await world.ask(DELETE, 6, doomed(6, "a"))
        assert response.responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert world.node.served() == {"a": 1}

    in_world(test)


# CreatePartitions


def growing(name: str, count: int, assignments: list[list[int]] | None = None) -> Any:
    chosen = None
    if assignments is not None:
        chosen = [CreatePartitionsAssignment(broker_ids=each) for each in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=chosen)


def growth(*topics: CreatePartitionsTopic, validate_only: bool = False) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        topics=list(topics), timeout_ms=TIMEOUT_MS, validate_only=validate_only
    )


def test_every_topic_of_the_request_has_its_result() -> None:
    async def test(world: World, version: int) -> None:
        for name in ("a", "b", "c", "d"):
            await world.make(name, 2)
        topics = [
            growing("a", 3),
            growing("b", 2),
            growing("c", 1),
            growing("none", 5),
            growing("d", 4, [[0], [0]]),
        ]
        response = await world.ask(GROW, version, growth(*topics))
        assert {each.name: each.error_code for each in response.results} == {
            "a": 0,
            "b": ErrorCode.INVALID_PARTITIONS,
            "c": ErrorCode.INVALID_PARTITIONS,
            "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "d": 0,
        }
        for each in response.results:
            assert bool(each.error_message) == (each.error_code != 0)
        assert world.node.served() == {"a": 3, "b": 2, "c": 2, "d": 4}

    each_version(GROW, test)


def test_growth_can_be_checked_without_growing() -> None:
    async def test(world: World, version: int) -> None:
        await world.make("a", 2)
        request = growth(growing("a", 3), growing("none", 3), validate_only=True)
        response = await world.ask(GROW, version, request)
        assert [each.error_code for each in response.results] == [
            0,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert world.node.served() == {"a": 2}

    each_version(GROW, test)


def test_bad_assignments_of_new_partitions() -> None:
    async def test(world: World) -> None:
        for name in ("few", "elsewhere", "same"):
            await world.make(name)
        topics = [
            growing("few", 3, [[0]]),
            growing("elsewhere", 2, [[4]]),
            growing("same", 2),
            growing("same", 3),
        ]
        response = await world.ask(GROW, 3, growth(*topics))
        assert {each.name: each.error_code for each in response.results} == {
            "few": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "elsewhere": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "same": ErrorCode.INVALID_REQUEST,
        }

    in_world(test)


def test_a_growth_that_can_not_be_committed_is_a_storage_error() -> None:
    async def test(world: World) -> None:
        await world.make("a")
        world.node.host.is_disk_full = True
        response = await world.ask(GROW, 3, growth(growing("a", 3)))
        assert response.results[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert world.node.served() == {"a": 1}

    in_world(test)


# Time


def test_without_time_nothing_is_made_grown_or_deleted() -> None:
    async def test(world: World) -> None:
        await world.make("old")
        for timeout_ms in (0, -1):
            making, growing_it, deleting = (
                CreateTopicsRequest(topics=[creatable("new")]),
                growth(growing("old", 3)),
                doomed(5, "old"),
            )
            making.timeout_ms = growing_it.timeout_ms = deleting.timeout_ms = timeout_ms
            answers = [
                *(await world.ask(CREATE, 7, making)).topics,
                *(await world.ask(GROW, 3, growing_it)).results,
                *(await world.ask(DELETE, 5, deleting)).responses,
            ]
            assert [each.error_code for each in answers] == [ErrorCode.REQUEST_TIMED_OUT] * 3
        assert world.node.served() == {"old": 1}

    in_world(test)
