"""Groups on a real disk: what was answered is there after a restart, however it came about."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from penstock.broker.groups import (
    CommitOffsets,
    Departure,
    Join,
    JoinAnswer,
    MemberProtocol,
    OffsetToCommit,
    Sync,
)
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId, TopicName
from penstock.records.batch import decode_records, parse_header
from tests.unit.groups.driver import subscription
from tests.unit.lone_node import ADVERTISED, NODE, run
from tests.unit.lone_node import LoneNode as Node

G = GroupId("readers")
T = TopicName("t")
NO_MEMBER = MemberId("")
RETRIABLE = (
    Reason.NOT_COORDINATOR,
    Reason.COORDINATOR_NOT_AVAILABLE,
    Reason.COORDINATOR_LOAD_IN_PROGRESS,
)
A = TypeVar("A")
FAST = {"group_initial_rebalance_delay_ms": "5", "offsets_topic_num_partitions": "3"}


async def join(node: Node, group_id: GroupId = G, **changes: object) -> JoinAnswer:
    fields: dict[str, object] = {
        "group_id": group_id,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": (MemberProtocol("range", subscription("t")),),
        "takes_member_id": False,
    }
    return await node.groups.join(Join(**(fields | changes)))  # type: ignore[arg-type]


async def stable(node: Node, group_id: GroupId = G) -> MemberId:
    joined = await join(node, group_id)
    command = Sync(
        group_id=group_id,
        member_id=joined.member_id,
        generation=joined.generation,
        assignments={joined.member_id: b"all of it"},
    )
    answer = await node.groups.sync(command)
    assert answer.refused is None
    return joined.member_id


async def commit(
    node: Node,
    offset: int,
    member_id: MemberId = NO_MEMBER,
    generation: int = -1,
    topic: str = T,
) -> list[Reason | None]:
    command = CommitOffsets(
        group_id=G,
        member_id=member_id,
        generation=generation,
        offsets=(OffsetToCommit(TopicName(topic), 0, offset, 3, f"note {offset}"),),
    )
    return await node.groups.commit_offsets(command)


async def committed(node: Node, topic: str = T) -> tuple[int, str] | None:
    ((_, ((_, found),)),) = await node.groups.fetch_offsets(G, [(TopicName(topic), [0])])
    return None if found is None else (found.offset, found.metadata)


@pytest.mark.parametrize("is_killed", [False, True])
def test_offsets_members_and_generation_survive_a_restart(tmp_path: Path, is_killed: bool) -> None:
    async def scenario() -> None:
        node = await Node.start(tmp_path, **FAST)
        await node.create(T)
        member = await stable(node)
        await commit(node, 42, member, 1)
        other = await stable(node, GroupId("others"))
        if is_killed:
            node.kill()
        else:
            await node.stop()
        node = await Node.start(tmp_path, **FAST)
        assert await committed(node) == (42, "note 42")
        node.groups.heartbeat(G, member, None, 1)
        node.groups.heartbeat(GroupId("others"), other, None, 1)
        assert await commit(node, 43, member, 1) == [None]
        described = await node.groups.describe(G)
        assert described is not None
        assert described.state == "Stable"
        assert described.members[0].assignment == b"all of it"
        assert described.members[0].client_host == "/127.0.0.1"
        await node.stop()

    run(scenario)


def test_removed_groups_and_offsets_stay_removed(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await Node.start(tmp_path, **FAST)
        await node.create(T, "u")
        member = await stable(node)
        await commit(node, 1, member, 1)
        await commit(node, 1, member, 1, topic="u")
        assert await node.groups.leave(G, [Departure(member)]) == [None]
        assert await node.groups.delete_offsets(G, [(TopicName("u"), 0)]) == [None]
        await stable(node, GroupId("others"))
        node.kill()
        node = await Node.start(tmp_path, **FAST)
        assert await committed(node, "u") is None
        assert await committed(node) == (1, "note 1")
        non_empty, gone, unknown = await node.groups.delete([GroupId("others"), G, GroupId("?")])
        assert (non_empty, gone, unknown) == (
            Reason.NON_EMPTY_GROUP,
            None,
            Reason.GROUP_ID_NOT_FOUND,
        )
        await node.stop()
        node = await Node.start(tmp_path, **FAST)
        assert [group.group_id for group in await node.groups.list_groups()] == ["others"]
        assert await committed(node) is None
        await node.stop()

    run(scenario)


def test_offsets_go_with_their_topic_even_if_the_node_is_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await Node.start(tmp_path, **FAST)
        await node.create(T, "u")
        await commit(node, 1)
        await commit(node, 2, topic="u")
        await node.topics.delete([T])
        while await committed(node) is not None:
            await asyncio.sleep(0.001)
        assert await commit(node, 3) == [Reason.UNKNOWN_TOPIC_OR_PARTITION]
        # The crash comes before anybody told the groups of the deletion.
        await node.groups.close()
        await node.topics.delete([TopicName("u")])
        node.kill()
        node = await Node.start(tmp_path, **FAST)
        while await committed(node, "u") is not None:
            await asyncio.sleep(0.001)
        await node.create(T, "u")
        assert await committed(node) is None
        assert await committed(node, "u") is None
        await node.stop()

    run(scenario)


async def eventually(ask: Callable[[], Awaitable[A]]) -> A:
    """Asks again while it is told to, as clients do."""
    while True:
        try:
            return await ask()
        except Refused as refused:
            if refused.reason not in RETRIABLE:
                raise
            await asyncio.sleep(0.02)


def test_a_full_disk_is_retriable_and_heals(tmp_path: Path) -> None:
    """The leadership is given up with the disk full, and the groups are back when there is room."""

    async def scenario() -> None:
        node = await Node.start(tmp_path, **FAST)
        await node.create(T)
        member = await stable(node)
        await commit(node, 1, member, 1)
        node.faults.write_error = errno.ENOSPC
        with pytest.raises(Refused) as refused:
            await commit(node, 2, member, 1)
        assert refused.value.reason is Reason.NOT_COORDINATOR
        with pytest.raises(Refused) as refused:
            await committed(node)
        assert refused.value.reason in RETRIABLE
        node.faults.write_error = None
        # What was refused may have been written in the end; what was acknowledged is not lost.
        assert await eventually(lambda: committed(node)) in ((1, "note 1"), (2, "note 2"))
        node.groups.heartbeat(G, member, None, 1)
        assert await commit(node, 3, member, 1) == [None]
        assert await committed(node) == (3, "note 3")
        await node.stop()

    run(scenario)


def test_topic_that_can_not_be_made_is_retriable_and_heals(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await Node.start(tmp_path, **FAST)
        node.faults.write_error = errno.ENOSPC
        with pytest.raises(Refused) as refused:
            await node.groups.find_coordinator(G)
        assert refused.value.reason is Reason.COORDINATOR_NOT_AVAILABLE
        node.faults.write_error = None
        found = await eventually(lambda: node.groups.find_coordinator(G))
        assert found == (NODE, ADVERTISED)
        await node.stop()

    run(scenario)


def test_before_the_topic_exists_there_are_no_groups(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await Node.start(tmp_path, **FAST)
        await node.create(T)
        assert await node.groups.list_groups() == []
        elsewhere = Reason.NOT_COORDINATOR
        assert await node.groups.delete([G]) == [elsewhere]
        # Never taken for a group without offsets: the topic may be one that is not known yet.
        for question in (node.groups.describe(G), node.groups.fetch_offsets(G, None)):
            with pytest.raises(Refused) as refused:
                await question
            assert refused.value.reason is elsewhere
        with pytest.raises(Refused) as refused:
            node.groups.heartbeat(G, MemberId("m"), None, 1)
        assert refused.value.reason is elsewhere
        # Many first users at once make it once.
        await asyncio.gather(*(node.groups.find_coordinator(G) for _ in range(10)))
        topic = node.cluster.topic("__consumer_offsets")
        assert topic is not None
        assert (topic.partitions, topic.internal) == (3, True)
        assert node.cluster.topic_config("__consumer_offsets").cleanup_compact
        await node.stop()

    run(scenario)


def test_the_log_holds_records_that_kafka_tools_read(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await Node.start(tmp_path, **FAST | {"offsets_topic_num_partitions": "1"})
        await node.create(T)
        await commit(node, 42)
        replica = node.partitions.get(TopicName("__consumer_offsets"), 0)
        found = replica.read(0, 10_000)
        assert found is not None
        data = found.read()
        found.release()
        (record,) = decode_records(data[: parse_header(data).size])
        assert record.key == bytes.fromhex("0001 0007") + b"readers" + bytes.fromhex(
            "0001 74 00000000"
        )
        assert record.value is not None
        assert record.value.startswith(bytes.fromhex("0003 000000000000002a 00000003 0007"))
        await node.stop()

    run(scenario)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"session_timeout_ms": 5_999}, Reason.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, Reason.INVALID_SESSION_TIMEOUT),
        ({"group_id": GroupId("")}, Reason.INVALID_GROUP_ID),
        ({"group_id": GroupId("x" * 9_000)}, Reason.INVALID_GROUP_ID),
        ({"instance_id": "x" * 9_000}, Reason.INVALID_REQUEST),
        ({"protocols": (MemberProtocol("p", bytes(5 << 20)),)}, Reason.INVALID_REQUEST),
    ],
)
def test_joins_are_bounded(tmp_path: Path, changes: dict[str, object], reason: Reason) -> None:
    async def scenario() -> None:
        node = await Node.start(tmp_path, **FAST)
        with pytest.raises(Refused) as refused:
            await join(node, **changes)  # type: ignore[arg-type]
        assert refused.value.reason is reason
        await node.stop()

    run(scenario)


def test_the_longest_names_can_be_stored(tmp_path: Path) -> None:
    """Text is stored with a length of 16 bits, and these characters take four bytes each."""

    async def scenario() -> None:
        node = await Node.start(tmp_path, **FAST)
        await node.create(T)
        name = "😀" * 7_900
        joined = await join(
            node,
            GroupId(name),
            client_id=name,
            instance_id=name,
            protocol_type=name,
            protocols=(MemberProtocol(name, b""),),
        )
        command = Sync(
            group_id=GroupId(name),
            member_id=joined.member_id,
            generation=1,
            assignments={},
        )
        assert (await node.groups.sync(command)).refused is None
        await node.stop()

    run(scenario)


def test_a_thousand_members_form_a_generation(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await Node.start(tmp_path, **FAST)
        await node.create(T)
        joins = await asyncio.gather(*(join(node) for _ in range(1_000)))
        assert {answer.generation for answer in joins} == {1}
        (leader,) = (answer for answer in joins if answer.members)
        assert len(leader.members) == 1_000
        syncs = [
            Sync(
                group_id=G,
                member_id=answer.member_id,
                generation=1,
                assignments={m.member_id: bytes(100) for m in answer.members},
            )
            for answer in joins
        ]
        answers = await asyncio.gather(*(node.groups.sync(sync) for sync in syncs))
        assert {answer.refused for answer in answers} == {None}
        for answer in joins:
            node.groups.heartbeat(G, answer.member_id, None, 1)
        with_one_more = await join(node)
        assert with_one_more.refused is Reason.GROUP_MAX_SIZE_REACHED
        await node.stop()

    run(scenario)
