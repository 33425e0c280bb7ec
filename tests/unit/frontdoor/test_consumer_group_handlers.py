"""ConsumerGroupHeartbeat and ConsumerGroupDescribe in every version, and what the other requests of
groups answer for a group of the new protocol (KIP-848)."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.frontdoor.kafka.handlers import (
    consumer_group_describe,
    consumer_group_heartbeat,
    describe_groups,
    list_groups,
    offset_commit,
    offset_fetch,
)
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.protocol.kafka.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from penstock.protocol.kafka.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.kafka.messages.list_groups import ListGroupsRequest
from penstock.protocol.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.unit.frontdoor.group_world import G, World, in_world


async def heartbeat(world: World, version: int = 1, **fields: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(**{"group_id": G, "topic_partitions": None} | fields)
    return await world.ask(consumer_group_heartbeat.API, version, request)


def joining(**fields: Any) -> dict[str, Any]:
    said = {
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 300_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    return said | fields


def topic_id(world: World, name: str = "t") -> UUID:
    topic = world.services.topics.find(name)
    assert topic is not None
    return topic.topic_id  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_lives_and_leaves(tmp_path: Path, version: int) -> None:
    async def body(world: World) -> None:
        own = "" if version == 0 else "m"
        answer = await heartbeat(world, version, **joining(member_id=own))
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        assert (answer.member_epoch, answer.heartbeat_interval_ms) == (2, 5_000)
        member_id = answer.member_id
        assert member_id == "m" or version == 0
        assert answer.assignment.topic_partitions == [
            HeartbeatTopicPartitions(topic_id=topic_id(world), partitions=[0, 1])
        ]
        answer = await heartbeat(world, version, member_id=member_id, member_epoch=2)
        assert (answer.member_epoch, answer.assignment) == (2, None)
        answer = await heartbeat(world, version, member_id=member_id, member_epoch=-1)
        assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, -1)
        answer = await heartbeat(world, version, member_id=member_id, member_epoch=2)
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert member_id in answer.error_message

    in_world(tmp_path, body)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        (joining(member_id=" "), ErrorCode.INVALID_REQUEST),
        (joining(group_id=""), ErrorCode.INVALID_REQUEST),
        (joining(instance_id=""), ErrorCode.INVALID_REQUEST),
        (joining(rack_id=" "), ErrorCode.INVALID_REQUEST),
        (joining(rebalance_timeout_ms=-1), ErrorCode.INVALID_REQUEST),
        (joining(topic_partitions=None), ErrorCode.INVALID_REQUEST),
        (joining(topic_partitions=[HeartbeatTopicPartitions()]), ErrorCode.INVALID_REQUEST),
        (joining(subscribed_topic_names=None), ErrorCode.INVALID_REQUEST),
        (joining(member_epoch=-2), ErrorCode.INVALID_REQUEST),
        (joining(member_epoch=-3), ErrorCode.INVALID_REQUEST),
        (joining(server_assignor="sticky"), ErrorCode.UNSUPPORTED_ASSIGNOR),
        (joining(subscribed_topic_regex="("), ErrorCode.INVALID_REGULAR_EXPRESSION),
        (joining(member_id="m" * 9_000), ErrorCode.INVALID_REQUEST),
        (joining(member_epoch=1), ErrorCode.GROUP_ID_NOT_FOUND),
        (joining(member_epoch=-1), ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_bad_requests_are_refused_with_a_sentence(
    tmp_path: Path, fields: dict[str, Any], code: ErrorCode
) -> None:
    async def body(world: World) -> None:
        answer = await heartbeat(world, **fields)
        assert answer.error_code == code
        assert answer.error_message
        assert (answer.member_id, answer.member_epoch, answer.assignment) == (None, 0, None)
        assert await world.services.groups.list_groups() == []

    in_world(tmp_path, body)


def test_an_expression_reads_the_topics_that_match(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        fields = joining(subscribed_topic_names=None, subscribed_topic_regex="[a-t]")
        answer = await heartbeat(world, **fields)
        assert (answer.member_epoch, answer.assignment.topic_partitions) == (1, [])
        answer = await heartbeat(world, member_id="m", member_epoch=1)
        (topic,) = answer.assignment.topic_partitions
        assert topic.topic_id == topic_id(world)
        # A topic that is made later is found by itself.
        await world.node.create("s", partitions=1)
        answer = await heartbeat(world, member_id="m", member_epoch=2)
        assert {each.topic_id for each in answer.assignment.topic_partitions} == {
            topic_id(world, "s"),
            topic_id(world, "t"),
        }

    in_world(tmp_path, body)


@pytest.mark.parametrize("version", [0, 1])
def test_a_group_is_described(tmp_path: Path, version: int) -> None:
    async def body(world: World) -> None:
        await heartbeat(world, **joining(instance_id="one", rack_id="r"))
        request = ConsumerGroupDescribeRequest(
            group_ids=[G, "?"], include_authorized_operations=True
        )
        answer = await world.ask(consumer_group_describe.API, version, request)
        found, missing = answer.groups
        assert (found.error_code, found.group_id, found.group_state) == (0, G, "Stable")
        assert (found.group_epoch, found.assignment_epoch) == (2, 2)
        assert found.assignor_name == "uniform"
        assert found.authorized_operations == describe_groups.ALL_OPERATIONS
        (member,) = found.members
        assert (member.member_id, member.instance_id, member.rack_id) == ("m", "one", "r")
        assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
        assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], "")
        assert (member.member_epoch, member.member_type) == (2, 1 if version else -1)
        (topic,) = member.assignment.topic_partitions
        assert (topic.topic_name, topic.partitions) == ("t", [0, 1])
        assert member.target_assignment == member.assignment
        assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert missing.error_message

    in_world(tmp_path, body)


def test_other_requests_know_the_type(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await heartbeat(world, **joining())
        for types, count in (([], 1), (["Consumer"], 1), (["classic"], 0)):
            request = ListGroupsRequest(types_filter=types)
            assert len((await world.ask(list_groups.API, 5, request)).groups) == count
        (listed,) = (await world.ask(list_groups.API, 5, ListGroupsRequest())).groups
        assert (listed.group_type, listed.protocol_type) == ("consumer", "consumer")
        request = DescribeGroupsRequest(groups=[G])
        (group,) = (await world.ask(describe_groups.API, 6, request)).groups
        assert (group.error_code, group.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
        joined = await world.join()
        # It may: then the group has members of both protocols.
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED

    in_world(tmp_path, body)


def test_commits_and_reads_are_fenced_by_the_member_epoch(tmp_path: Path) -> None:
    async def commit(world: World, epoch: int, version: int = 9) -> int:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        request = OffsetCommitRequest(
            group_id=G,
            member_id="m",
            generation_id_or_member_epoch=epoch,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        answer = await world.ask(offset_commit.API, version, request)
        return int(answer.topics[0].partitions[0].error_code)

    async def fetch(world: World, member_id: str | None, epoch: int) -> Any:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        group = OffsetFetchRequestGroup(
            group_id=G, member_id=member_id, member_epoch=epoch, topics=topics
        )
        answer = await world.ask(offset_fetch.API, 9, OffsetFetchRequest(groups=[group]))
        (found,) = answer.groups
        return found.error_code or found.topics[0].partitions[0].committed_offset

    async def body(world: World) -> None:
        await heartbeat(world, **joining())
        assert await commit(world, 2) == ErrorCode.NONE
        assert await commit(world, 3) == ErrorCode.STALE_MEMBER_EPOCH
        assert await commit(world, 0) == ErrorCode.STALE_MEMBER_EPOCH
        assert await commit(world, 2, version=8) == ErrorCode.UNSUPPORTED_VERSION
        assert await fetch(world, None, -1) == 5
        assert await fetch(world, "m", 2) == 5
        assert await fetch(world, "m", 3) == ErrorCode.STALE_MEMBER_EPOCH
        assert await fetch(world, "?", 1) == ErrorCode.UNKNOWN_MEMBER_ID

    in_world(tmp_path, body)
