"""Proves that a disk that hangs counts as one that has failed, and only for as long as it hangs."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event

import pytest

from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId
from penstock.raft.messages import TimeoutNow
from penstock.raft.ready import Role
from penstock.replication.hard_state_writer import stored
from penstock.replication.replica import Replica
from penstock.replication.write_side import WriteSide
from tests.waiting import until

from .group_rig import Group, group_of
from .rig import PATIENCE_S, Node, batch, read_values, run

TIMEOUT_S = 3.0
# As many ticks as an election takes at most, and some more.
ELECTION_TICKS = 30


def ticks(node: Node) -> int:
    return node.store._write_side.now


async def ticks_pass(node: Node, count: int) -> None:
    end = ticks(node) + count
    await until(lambda: ticks(node) >= end)


@asynccontextmanager
async def hanging(node: Node) -> AsyncIterator[None]:
    node.faults.writes_go_on.clear()
    try:
        yield
    finally:
        node.faults.writes_go_on.set()


async def refused(done: object) -> Reason:
    with pytest.raises(Refused) as caught:
        await done  # type: ignore[misc]
    return caught.value.reason


def node_of(group: Group, replica: Replica) -> Node:
    return group.network.nodes[replica.id.node]


async def commits(group: Group, value: bytes) -> Replica:
    leader = await group.leader()
    await leader.append(batch(value)).done  # type: ignore[misc]
    return leader


async def test_a_leader_whose_disk_hangs_steps_down_and_follows_once_it_answers(
    tmp_path: Path,
) -> None:
    async with group_of(tmp_path, 1, 2, 3, disk_timeout_s=TIMEOUT_S) as group:
        old = await commits(group, b"before")
        async with hanging(node_of(group, old)):
            appended = old.append(batch(b"during"))
            assert await refused(appended.done) is Reason.STORAGE_ERROR
            assert not old.is_leader
            await until(lambda: any(r.is_settled for r in group.replicas if r is not old))
            new = await commits(group, b"after")
            assert new is not old
            await ticks_pass(node_of(group, old), ELECTION_TICKS)
            assert old._node.role is Role.FOLLOWER
            assert new.is_leader
        await until(lambda: old.high_watermark == new.high_watermark)
        assert old.failing_because is None
        assert read_values(new)[-1] == b"after"
        new.transfer(old.id.node)
        await until(lambda: old.is_settled)


async def test_a_shorter_stall_costs_no_election(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3, disk_timeout_s=TIMEOUT_S) as group:
        leader = await commits(group, b"before")
        term = leader.term
        async with hanging(node_of(group, leader)):
            appended = leader.append(batch(b"during"))
            await ticks_pass(node_of(group, leader), 25)
        await appended.done  # type: ignore[misc]
        assert leader.is_leader
        assert leader.term == term


async def test_time_that_a_process_missed_does_not_count() -> None:
    side = WriteSide(ThreadPoolExecutor(1), TIMEOUT_S)
    for _ in range(30):
        side.tick()
        assert not side.is_over(0)
    side.tick()
    assert side.is_over(0)
    assert not side.is_over(1)


async def test_a_sole_voter_refuses_producers_and_serves_readers_until_the_disk_answers(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, disk_timeout_s=TIMEOUT_S)
    replica = await node.replica()
    node.start_ticking()
    await replica.append(batch(b"before")).done  # type: ignore[misc]
    async with hanging(node):
        appended = replica.append(batch(b"during"))
        assert await refused(appended.done) is Reason.STORAGE_ERROR
        with pytest.raises(Refused, match="has not answered for 3 s") as caught:
            replica.append(batch(b"too late"))
        assert caught.value.reason is Reason.STORAGE_ERROR
        with pytest.raises(Refused, match="has not answered"):
            await replica.delete_records(1)
        assert replica.is_leader
        assert read_values(replica) == [b"before"]
    await until(lambda: replica.failing_because is None)
    await replica.append(batch(b"after")).done  # type: ignore[misc]
    # What was refused may be there: anyone who sent it does not know, and asks again.
    assert read_values(replica) == [b"before", b"during", b"after"]
    await node.stop()


async def test_a_disk_that_hangs_is_noticed_by_a_leader_that_gets_no_ticks(tmp_path: Path) -> None:
    """One without peers rests, and its producers wait for nothing else."""
    node = Node(tmp_path, disk_timeout_s=TIMEOUT_S)
    replica = await node.replica()
    async with hanging(node):
        appended = replica.append(batch(b"during"))
        for _ in range(2 * ELECTION_TICKS):
            node.store.tick()
            await asyncio.sleep(0)
        assert await refused(appended.done) is Reason.STORAGE_ERROR
    await node.stop()


def test_a_replica_whose_disk_hangs_does_not_stand_for_election(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_of(tmp_path, 1, 2, 3, disk_timeout_s=TIMEOUT_S) as group:
            leader = await commits(group, b"before")
            sick = next(replica for replica in group.replicas if replica is not leader)
            node = node_of(group, sick)
            async with hanging(node):
                leader.append(batch(b"during"))
                await until(lambda: sick.failing_because is not None)
                sick.step(TimeoutNow(leader.id, sick.id, leader.term))
                assert sick._node.role is Role.FOLLOWER
                number = leader.id.node
                await group.crash(number)
                sick.leader_lost(BrokerId(number))
                for _ in range(3 * ELECTION_TICKS):
                    await ticks_pass(node, 1)
                    assert sick._node.role is Role.FOLLOWER
            await commits(group, b"after")

    run(scenario)


async def test_a_vote_that_hangs_does_not_count_and_holds_up_nobody(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3, disk_timeout_s=TIMEOUT_S) as group:
        leader = await commits(group, b"before")
        sick, well = (replica for replica in group.replicas if replica is not leader)
        node = node_of(group, sick)
        # The disk hangs before anything is handed to it: only the election finds out.
        async with hanging(node):
            sick._node.campaign()
            sick._consensus.touch()
            leader.transfer(well.id.node)
            await until(lambda: well.is_settled)
            await commits(group, b"during")
            await until(lambda: node.store._hard_states.hangs is not None)
            assert not sick.is_leader
        await until(lambda: sick.high_watermark == well.high_watermark)
        assert node.store._hard_states.hangs is None


async def test_a_leader_that_only_idles_steps_down_when_its_node_can_not_write_votes(
    tmp_path: Path,
) -> None:
    async with group_of(tmp_path, 1, 2, 3, disk_timeout_s=TIMEOUT_S) as group:
        leader = await commits(group, b"before")
        node = node_of(group, leader)
        async with hanging(node):
            state = stored(leader._node._core.hard_state)
            node.store._hard_states.put(leader.key, state)
            await until(lambda: not leader.is_leader)
            new = await commits(group, b"during")
        await until(lambda: leader.high_watermark == new.high_watermark)


async def test_jobs_that_wait_for_a_thread_among_hanging_calls_are_late_too(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3, disk_timeout_s=TIMEOUT_S) as group:
        old = await commits(group, b"before")
        node = node_of(group, old)
        go_on = Event()
        async with hanging(node):
            for _ in range(4):
                node.disk.submit(go_on.wait, PATIENCE_S)
            try:
                appended = old.append(batch(b"during"))
                assert await refused(appended.done) is Reason.STORAGE_ERROR
                assert not old.is_leader
            finally:
                go_on.set()
        await commits(group, b"after")


async def test_a_chore_that_hangs_is_a_failure_too(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3, disk_timeout_s=TIMEOUT_S) as group:
        old = await commits(group, b"before")
        node = node_of(group, old)
        go_on = Event()
        async with hanging(node):
            chore = asyncio.ensure_future(old._writer.exclusively(lambda _: go_on.wait(PATIENCE_S)))
            with pytest.raises(OSError, match="has not answered"):
                await chore
            assert not old.is_leader
            with pytest.raises(OSError, match="has not answered"):
                await old._writer.exclusively(lambda _: None)
            go_on.set()
        await until(lambda: old.failing_because is None)
        await commits(group, b"after")
