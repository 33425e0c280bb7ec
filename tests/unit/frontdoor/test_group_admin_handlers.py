"""DescribeGroups, ListGroups and DeleteGroups in every version."""

from pathlib import Path

from penstock.broker.groups import CommitOffsets, OffsetToCommit
from penstock.frontdoor.kafka.handlers import delete_groups, describe_groups, list_groups
from penstock.model.ids import GroupId, TopicName
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.kafka.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.kafka.messages.list_groups import ListGroupsRequest
from tests.unit.frontdoor.group_world import G, World, in_world
from tests.unit.groups.driver import subscription


async def commit_without_membership(world: World, group_id: str) -> None:
    offsets = (OffsetToCommit(TopicName("t"), 0, 1, -1, ""),)
    command = CommitOffsets(group_id=GroupId(group_id), offsets=offsets)
    assert await world.node.groups.commit_offsets(command) == [None]


def test_describe_in_every_version(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        joined = await world.stable(group_instance_id="i")
        await commit_without_membership(world, "simple")
        for version in range(7):
            request = DescribeGroupsRequest(groups=[G, "simple", "nobody"])
            answer = await world.ask(describe_groups.API, version, request)
            stable, simple, nobody = answer.groups
            assert (stable.error_code, stable.group_state) == (ErrorCode.NONE, "Stable")
            assert (stable.protocol_type, stable.protocol_data) == ("consumer", "range")
            (member,) = stable.members
            assert member.member_id == joined.member_id
            assert member.group_instance_id == ("i" if version >= 4 else None)
            assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
            assert member.member_metadata == subscription("t")
            assert member.member_assignment == b"assigned"
            assert (simple.group_state, simple.protocol_type) == ("Empty", "")
            assert nobody.group_state == "Dead"
            if version >= 6:
                assert nobody.error_code == ErrorCode.GROUP_ID_NOT_FOUND
                assert nobody.error_message == "Group nobody not found."
            else:
                assert nobody.error_code == ErrorCode.NONE

    in_world(tmp_path, body)


def test_operations_are_told_when_asked_for(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await world.stable()
        for asks in (False, True):
            request = DescribeGroupsRequest(groups=[G], include_authorized_operations=asks)
            (group,) = (await world.ask(describe_groups.API, 5, request)).groups
            expected = 0b1101_0100_1000 if asks else -(2**31)
            assert group.authorized_operations == expected

    in_world(tmp_path, body)


def test_list_in_every_version(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await world.stable()
        await commit_without_membership(world, "simple")
        for version in range(6):
            answer = await world.ask(list_groups.API, version, ListGroupsRequest())
            assert answer.error_code == ErrorCode.NONE
            found = {group.group_id: group for group in answer.groups}
            assert {name: g.protocol_type for name, g in found.items()} == {
                G: "consumer",
                "simple": "",
            }
            assert found[G].group_state == ("Stable" if version >= 4 else "")
            assert found[G].group_type == ("classic" if version >= 5 else "")

    in_world(tmp_path, body)


def test_list_is_filtered_by_state_and_type(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await world.stable()
        await commit_without_membership(world, "simple")
        for states, types, expected in [
            (["stable"], [], {G}),
            (["Empty", "Dead"], [], {"simple"}),
            (["unheard-of"], [], set()),
            ([], ["Classic"], {G, "simple"}),
            ([], ["consumer"], set()),
            (["STABLE"], ["classic", "share"], {G}),
        ]:
            request = ListGroupsRequest(states_filter=states, types_filter=types)
            answer = await world.ask(list_groups.API, 5, request)
            assert {group.group_id for group in answer.groups} == expected

    in_world(tmp_path, body)


def test_delete_in_every_version(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await world.stable()
        for version in range(3):
            await commit_without_membership(world, "simple")
            request = DeleteGroupsRequest(groups_names=[G, "simple", "nobody", "simple"])
            answer = await world.ask(delete_groups.API, version, request)
            assert [(r.group_id, r.error_code) for r in answer.results] == [
                (G, ErrorCode.NON_EMPTY_GROUP),
                ("simple", ErrorCode.NONE),
                ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
                ("simple", ErrorCode.NONE),
            ]

    in_world(tmp_path, body)
