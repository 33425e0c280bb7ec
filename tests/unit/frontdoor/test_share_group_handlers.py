"""ShareGroupHeartbeat and ShareGroupDescribe, and what they refuse (KIP-932)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.frontdoor.kafka.handlers import (
    list_groups,
    share_group_describe,
    share_group_heartbeat,
)
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.list_groups import ListGroupsRequest
from penstock.protocol.kafka.messages.share_group_describe import ShareGroupDescribeRequest
from penstock.protocol.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.unit.frontdoor.group_world import G, World, in_world

LONG = "x" * 9_000


async def heartbeat(world: World, **fields: Any) -> Any:
    said = {"group_id": G, "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["t"]}
    request = ShareGroupHeartbeatRequest(**(said | fields))
    return await world.ask(share_group_heartbeat.API, 1, request)


async def describe(world: World, *groups: str, **fields: Any) -> Any:
    request = ShareGroupDescribeRequest(group_ids=list(groups), **fields)
    return (await world.ask(share_group_describe.API, 1, request)).groups


async def with_partitions(world: World) -> Any:
    """The first heartbeats may come before the queues are there."""
    answer = await heartbeat(world)
    while not answer.assignment.topic_partitions:
        # A heartbeat without news never lets go of the loop, which has to make the queues.
        await asyncio.sleep(0.005)
        answer = await heartbeat(world)
        assert answer.error_code == ErrorCode.NONE
    return answer


def test_a_member_joins_lives_and_leaves(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        answer = await with_partitions(world)
        assert (answer.member_id, answer.member_epoch) == ("m", 3)
        assert answer.heartbeat_interval_ms == 5_000
        (topic,) = answer.assignment.topic_partitions
        assert topic.partitions == [0, 1]
        quiet = await heartbeat(world, member_epoch=3, subscribed_topic_names=None)
        assert (quiet.error_code, quiet.assignment) == (ErrorCode.NONE, None)
        gone = await heartbeat(world, member_epoch=-1, subscribed_topic_names=None)
        assert (gone.error_code, gone.member_epoch) == (ErrorCode.NONE, -1)

    in_world(tmp_path, body)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": []}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": [LONG]}, ErrorCode.INVALID_REQUEST),
        ({"member_id": LONG}, ErrorCode.INVALID_REQUEST),
        ({"group_id": LONG}, ErrorCode.INVALID_GROUP_ID),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_bad_heartbeat_is_refused(
    tmp_path: Path, fields: dict[str, Any], code: ErrorCode
) -> None:
    async def body(world: World) -> None:
        answer = await heartbeat(world, **fields)
        assert ErrorCode(answer.error_code) is code
        assert answer.error_message
        assert await world.services.groups.list_groups() == []

    in_world(tmp_path, body)


def test_a_group_is_described_and_listed(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await with_partitions(world)
        group, missing, empty = await describe(world, G, "nobody", "")
        assert (group.group_state, group.assignor_name) == ("Stable", "simple")
        assert (group.group_epoch, group.assignment_epoch) == (3, 3)
        (member,) = group.members
        assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
        assert member.subscribed_topic_names == ["t"]
        assert member.assignment.topic_partitions[0].topic_name == "t"
        assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert empty.error_code == ErrorCode.INVALID_GROUP_ID
        request = ListGroupsRequest(types_filter=["Share"])
        (listed,) = (await world.ask(list_groups.API, 5, request)).groups
        assert (listed.group_id, listed.group_type) == (G, "share")

    in_world(tmp_path, body)


def test_operations_are_told_to_those_who_ask(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await with_partitions(world)
        (silent,) = await describe(world, G)
        (asked,) = await describe(world, G, include_authorized_operations=True)
        assert silent.authorized_operations < 0 < asked.authorized_operations

    in_world(tmp_path, body)
