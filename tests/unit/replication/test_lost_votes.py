"""Proves that a replica whose vote may be lost comes back as somebody else, with all its data, and
that a group of one goes on."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.model.ids import PartitionId, PartitionIndex, ReplicaId
from penstock.raft.entries import EntryKind
from penstock.raft.messages import AppendRequest, VoteResponse
from penstock.replication.keeper import RETURNING
from tests.unit.storage.rot import lose_last_votes
from tests.waiting import until

from .group_rig import Group, group_of, log_bytes
from .rig import TOPIC_ID, Node, batch, read_values

KEY = PartitionId(TOPIC_ID, PartitionIndex(0))


async def come_back_without_votes(
    group: Group, number: int, lose: Callable[[Path], None] = lose_last_votes
) -> tuple[ReplicaId, ReplicaId]:
    """Who it was, and who it is."""
    old = group.network.nodes[number].id
    await group.crash(number)
    lose(group._path / f"node-{number}")
    node = group.start_node(number)
    await group.open(node)
    return old, node.id


def want(group: Group, *numbers: int) -> None:
    wanted = [group.network.nodes[number].id for number in numbers]
    for replica in group.replicas:
        replica.set_wanted(wanted)


async def append(group: Group, *values: bytes) -> None:
    leader = await group.leader()
    for value in values:
        leader.append(batch(value))
    await leader.committed()


async def test_a_follower_that_lost_its_vote_is_replaced_by_itself_under_another_id(
    tmp_path: Path,
) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        await append(group, b"a", b"b", b"c")
        leader = await group.leader()
        number = next(each for each in (1, 2, 3) if leader.id.node != each)
        loser = group.replica(number)
        await until(lambda: loser.high_watermark == 3)
        group.network.delivered.clear()
        old, new = await come_back_without_votes(group, number)
        assert new != old
        await append(group, b"d")
        assert group.replica(number).log_end_offset == 3, "nobody sends it anything yet"
        want(group, 1, 2, 3)
        await until(lambda: leader.is_reconciled)
        assert leader.membership.voters >= {new}
        assert old not in leader.membership.members
        assert len(leader.membership.voters) == 3
        await until(lambda: log_bytes(group.replica(number)) == log_bytes(leader))
        # It had all but the last record, and is not sent them again; that one may come twice.
        sent = {
            bytes(entry.payload)  # type: ignore[call-overload]
            for message in group.network.delivered
            if isinstance(message, AppendRequest) and message.to == new
            for entry in message.entries
            if entry.kind is EntryKind.DATA
        }
        assert len(sent) == 1
        assert all(message.sender != old for message in group.network.delivered)


async def test_what_only_a_leader_that_lost_its_vote_had_is_cut_off(tmp_path: Path) -> None:
    """Its log holds entries that conflict with those of its successor."""
    async with group_of(tmp_path, 1, 2, 3) as group:
        await append(group, b"a")
        leader = await group.leader()
        number = int(leader.id.node)
        group.network.isolate(number)
        for value in (b"nobody", b"has", b"these"):
            leader.append(batch(value))
        await until(lambda: leader._log.end_offset == 4)
        others = [group.replica(each) for each in (1, 2, 3) if each != number]
        await until(lambda: any(replica.is_settled for replica in others))
        old, new = await come_back_without_votes(group, number)
        group.network.heal()
        await append(group, b"b")
        want(group, 1, 2, 3)
        successor = await group.leader()
        await until(lambda: successor.is_reconciled)
        assert new in successor.membership.voters
        assert old not in successor.membership.members
        await until(lambda: log_bytes(group.replica(number)) == log_bytes(successor))
        assert read_values(successor) == [b"a", b"b"]


async def test_one_that_lost_its_vote_has_none_until_the_group_gives_it_one(tmp_path: Path) -> None:
    """Two voters are left and one of them is away: nobody leads, however long it takes."""
    async with group_of(tmp_path, 1, 2, 3) as group:
        await append(group, b"a")
        leader = await group.leader()
        left, number = (each for each in (1, 2, 3) if each != leader.id.node)
        await come_back_without_votes(group, number)
        await group.crash(int(leader.id.node))
        term = group.replica(left).term
        ticks = group.replica(left)._ticks
        await until(lambda: group.replica(left)._ticks > ticks + 200)
        assert not any(replica.is_leader for replica in group.replicas)
        assert group.replica(left).term == term
        granted = [
            message
            for message in group.network.delivered
            if isinstance(message, VoteResponse)
            and message.sender == group.network.nodes[number].id
            and not message.pre
        ]
        assert granted == []


async def test_a_group_of_one_goes_on_under_the_new_id(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1) as group:
        await append(group, b"a", b"b")
        terms = [group.replica(1).term]
        ids = set()
        for value in (b"c", b"d"):
            old, new = await come_back_without_votes(group, 1)
            ids |= {old, new}
            await append(group, value)
            leader = group.replica(1)
            assert leader.membership.members == {new}
            terms.append(leader.term)
        assert len(ids) == 3
        assert terms == sorted(set(terms)), "no term has two leaders"
        assert read_values(group.replica(1)) == [b"a", b"b", b"c", b"d"]
        # Others that join later find their way.
        for number in (2, 3):
            await group.open(group.start_node(number))
        want(group, 1, 2, 3)
        await until(lambda: group.replica(1).is_reconciled)
        await until(lambda: log_bytes(group.replica(3)) == log_bytes(group.replica(1)))


def lose_all_votes(data_directory: Path) -> None:
    (data_directory / "hard_states").unlink()


@pytest.mark.parametrize("restarts", [0, 1])
@pytest.mark.parametrize("lose", [lose_last_votes, lose_all_votes])
async def test_the_founder_of_a_group_that_moved_away_does_not_found_it_again(
    tmp_path: Path, restarts: int, lose: Callable[[Path], None]
) -> None:
    """It was the only voter once, and has forgotten that it gave its replica up."""
    async with group_of(tmp_path, 1) as group:
        await append(group, b"a")
        await group.open(group.start_node(2))
        first = group.network.nodes[1]
        want(group, 2)
        await until(lambda: group.replica(2).is_leader and group.replica(2).is_reconciled)
        await first.replicas.pop(KEY).close()
        await first.store.remove_partition(KEY)
        await come_back_without_votes(group, 1, lose)
        for _ in range(restarts):
            await group.crash(1)
            await group.open(group.start_node(1))
        ticks = group.replica(2)._ticks
        await until(lambda: group.replica(2)._ticks > ticks + 100)
        assert not group.replica(1).is_leader
        assert mark_of(group, 1).exists()
        want(group, 2, 1)
        await until(lambda: group.replica(2).is_reconciled)
        await until(lambda: log_bytes(group.replica(1)) == log_bytes(group.replica(2)))
        await until(lambda: not mark_of(group, 1).exists())
        assert not group.replica(1).is_returning


def mark_of(group: Group, number: int) -> Path:
    return group.network.nodes[number].directory.partition_directory(*KEY) / RETURNING


async def test_a_log_that_is_being_refilled_does_not_make_a_group_of_one(tmp_path: Path) -> None:
    """Its entries say that it was the only voter; those that say otherwise are not here yet."""
    async with group_of(tmp_path, 1) as group:
        await append(group, b"a")
        mark_of(group, 1).touch()
        await come_back_without_votes(group, 1)
        for _ in range(200):
            group.network.beat()
        assert group.replica(1).is_returning
        assert not group.replica(1).is_leader


async def test_a_directory_remembers_all_that_it_was(tmp_path: Path) -> None:
    node = Node(tmp_path)
    ids = [node.id.directory]
    await node.stop()
    for _ in range(3):
        lose_last_votes(tmp_path)
        node = Node(tmp_path)
        assert list(node.directory.former_ids) == ids
        ids.append(node.id.directory)
        await node.stop()
