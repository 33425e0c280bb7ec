"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat and LeaveGroup in every version."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.frontdoor.kafka.handlers import (
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    sync_group,
)
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.kafka.messages.heartbeat import HeartbeatRequest
from penstock.protocol.kafka.messages.join_group import JoinGroupRequestProtocol
from penstock.protocol.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.unit.frontdoor.group_world import G, World, in_world
from tests.unit.groups.driver import subscription


def versions(api: object) -> range:
    first, last = api.versions  # type: ignore[attr-defined]
    return range(first, last + 1)


def test_find_coordinator_of_a_group(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        for version in versions(find_coordinator.API):
            request = FindCoordinatorRequest(key=G, coordinator_keys=[G, "", G])
            answer = await world.ask(find_coordinator.API, version, request)
            if version < 4:
                assert (answer.error_code, answer.node_id) == (ErrorCode.NONE, 1)
                assert (answer.host, answer.port) == ("localhost", 9092)
            else:
                first, empty, again = answer.coordinators
                assert (first.key, first.node_id, first.host, first.port) == (
                    G,
                    1,
                    "localhost",
                    9092,
                )
                assert first.error_code == ErrorCode.NONE
                assert (empty.error_code, empty.node_id) == (ErrorCode.INVALID_GROUP_ID, -1)
                assert again == first

    in_world(tmp_path, body)


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:0", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("with:colons:AAAAAAAAAAAAAAAAAAAAAQ:12", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("", ErrorCode.INVALID_REQUEST),
        ("g", ErrorCode.INVALID_REQUEST),
        (" :AAAAAAAAAAAAAAAAAAAAAQ:0", ErrorCode.INVALID_REQUEST),
        ("g:AAAA:0", ErrorCode.INVALID_REQUEST),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:x", ErrorCode.INVALID_REQUEST),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:99999999999999", ErrorCode.INVALID_REQUEST),
    ],
)
def test_find_coordinator_of_a_queue(tmp_path: Path, key: str, code: ErrorCode) -> None:
    """Nobody has used a queue yet, so no topic keeps any."""

    async def body(world: World) -> None:
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
        answer = await world.ask(find_coordinator.API, 6, request)
        assert answer.coordinators[0].error_code == code

    in_world(tmp_path, body)


@pytest.mark.parametrize(
    ("key_type", "code"),
    [
        (1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (99, ErrorCode.INVALID_REQUEST),
    ],
)
def test_other_coordinators_do_not_exist(tmp_path: Path, key_type: int, code: ErrorCode) -> None:
    """A transactional producer is told so in a way that it takes as final."""

    async def body(world: World) -> None:
        for version in versions(find_coordinator.API)[1:]:
            request = FindCoordinatorRequest(key="k", key_type=key_type, coordinator_keys=["k"])
            answer = await world.ask(find_coordinator.API, version, request)
            found = answer if version < 4 else answer.coordinators[0]
            assert (found.error_code, found.node_id, found.port) == (code, -1, -1)
            assert "this broker has no" in found.error_message

    in_world(tmp_path, body)


@pytest.mark.parametrize("version", versions(join_group.API))
def test_join_and_sync_in_every_version(tmp_path: Path, version: int) -> None:
    async def body(world: World) -> None:
        joined = await world.join(version)
        if version >= 4:
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert joined.member_id.startswith("client-")
            assert joined.generation_id == -1
            assert joined.protocol_name == (None if version >= 7 else "")
            joined = await world.join(version, member_id=joined.member_id)
        assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 1)
        assert joined.protocol_name == "range"
        assert joined.protocol_type == ("consumer" if version >= 7 else None)
        assert joined.leader == joined.member_id
        assert [m.metadata for m in joined.members] == [subscription("t")]
        synced = await world.sync(joined, min(version, 5))
        assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"assigned")
        assert synced.protocol_name == ("range" if version >= 5 else None)

    in_world(tmp_path, body)


def test_version_0_has_one_timeout_for_both(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        joined = await world.join(0, session_timeout_ms=7_000)
        await world.sync(joined, 0)
        described = await world.node.groups.describe(G)  # type: ignore[arg-type]
        assert described is not None
        assert described.members[0].client_host == "/127.0.0.1"
        coordinator = world.node.groups._coordinator(G)  # type: ignore[arg-type]
        (member,) = coordinator._classic.get(G).members  # type: ignore[arg-type,union-attr]
        assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (7_000, 7_000)

    in_world(tmp_path, body)


def test_joins_that_are_refused(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        for version in versions(join_group.API):
            cases: list[tuple[dict[str, Any], ErrorCode]] = [
                ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
                ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
                ({"member_id": "m"}, ErrorCode.UNKNOWN_MEMBER_ID),
                ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ]
            for fields, code in cases:
                answer = await world.join(version, **fields)
                assert answer.error_code == code
                assert answer.member_id == fields.get("member_id", "")
                assert answer.members == []

    in_world(tmp_path, body)


def test_of_two_protocols_of_one_name_the_first_counts(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        protocols = [
            JoinGroupRequestProtocol(name="a", metadata=b"first"),
            JoinGroupRequestProtocol(name="b", metadata=b"other"),
            JoinGroupRequestProtocol(name="a", metadata=b"second"),
        ]
        joined = await world.enter(protocols=protocols, protocol_type="test")
        assert joined.protocol_name == "a"
        assert [m.metadata for m in joined.members] == [b"first"]

    in_world(tmp_path, body)


def test_static_member_comes_back_and_fences_its_predecessor(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        first = await world.stable(group_instance_id="i")
        second = await world.join(group_instance_id="i")
        assert second.error_code == ErrorCode.NONE
        assert second.skip_assignment
        assert second.generation_id == first.generation_id
        fenced = ErrorCode.FENCED_INSTANCE_ID
        beat = HeartbeatRequest(
            group_id=G, generation_id=1, member_id=first.member_id, group_instance_id="i"
        )
        for version in (3, 4):
            assert (await world.ask(heartbeat.API, version, beat)).error_code == fenced
            synced = await world.sync(first, version, group_instance_id="i")
            assert synced.error_code == fenced
        rejoined = await world.join(member_id=first.member_id, group_instance_id="i")
        assert rejoined.error_code == fenced
        assert (await world.sync(second)).assignment == b"assigned"

    in_world(tmp_path, body)


def test_syncs_that_are_refused(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        joined = await world.stable()
        for version in versions(sync_group.API):
            cases: list[tuple[dict[str, Any], ErrorCode]] = [
                ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
                ({"group_id": "?"}, ErrorCode.UNKNOWN_MEMBER_ID),
                ({"member_id": "?"}, ErrorCode.UNKNOWN_MEMBER_ID),
                ({"generation_id": 7}, ErrorCode.ILLEGAL_GENERATION),
            ]
            for fields, code in cases:
                answer = await world.sync(joined, version, **fields)
                assert (answer.error_code, answer.assignment) == (code, b"")
        for fields in (
            {"protocol_name": "other"},
            {"protocol_name": None},
            {"protocol_type": None},
        ):
            answer = await world.sync(joined, 5, **fields)
            assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    in_world(tmp_path, body)


def test_heartbeats(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        joined = await world.stable()
        good: dict[str, Any] = {"group_id": G, "generation_id": 1, "member_id": joined.member_id}
        for version in versions(heartbeat.API):
            cases: list[tuple[dict[str, Any], ErrorCode]] = [
                ({}, ErrorCode.NONE),
                ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
                ({"member_id": "?"}, ErrorCode.UNKNOWN_MEMBER_ID),
                ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
            ]
            for changes, code in cases:
                request = HeartbeatRequest(**good | changes)
                assert (await world.ask(heartbeat.API, version, request)).error_code == code
        other = asyncio.get_running_loop().create_task(world.join(0))
        code = ErrorCode.NONE
        while code == ErrorCode.NONE:
            await asyncio.sleep(0.001)
            code = (await world.ask(heartbeat.API, 4, HeartbeatRequest(**good))).error_code
        assert code == ErrorCode.REBALANCE_IN_PROGRESS
        other.cancel()

    in_world(tmp_path, body)


def test_leaving_in_every_version(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        for version in versions(leave_group.API):
            member_id = (await world.stable()).member_id
            members = [
                MemberIdentity(member_id="?"),
                MemberIdentity(member_id=member_id, reason="done"),
            ]
            request = LeaveGroupRequest(group_id=G, member_id=member_id, members=members)
            answer = await world.ask(leave_group.API, version, request)
            assert answer.error_code == ErrorCode.NONE
            if version >= 3:
                codes = [(m.member_id, m.error_code) for m in answer.members]
                assert codes == [("?", ErrorCode.UNKNOWN_MEMBER_ID), (member_id, ErrorCode.NONE)]
            again = await world.ask(leave_group.API, version, request)
            expected = ErrorCode.UNKNOWN_MEMBER_ID if version < 3 else ErrorCode.NONE
            assert again.error_code == expected
            empty = await world.ask(leave_group.API, version, LeaveGroupRequest(group_id=""))
            assert empty.error_code == ErrorCode.INVALID_GROUP_ID

    in_world(tmp_path, body)


def test_operator_removes_static_members(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await world.stable(group_instance_id="i")
        members = [
            MemberIdentity(member_id="", group_instance_id="i"),
            MemberIdentity(member_id="", group_instance_id="j"),
        ]
        request = LeaveGroupRequest(group_id=G, members=members)
        answer = await world.ask(leave_group.API, 5, request)
        assert [(m.group_instance_id, m.error_code) for m in answer.members] == [
            ("i", ErrorCode.NONE),
            ("j", ErrorCode.UNKNOWN_MEMBER_ID),
        ]

    in_world(tmp_path, body)
