"""Proves that members come and go without losing anything, and that leadership goes where it is
preferred."""

import asyncio
from pathlib import Path

import pytest

from penstock.model.errors import Refused, StorageDamaged
from penstock.model.ids import BrokerId
from penstock.model.topic_config import TopicConfig
from tests.waiting import until

from .group_rig import Group, group_of, log_bytes
from .rig import batch, read_values


async def add_node(group: Group, number: int, directory: str = "") -> None:
    await group.open(group.start_node(number, directory))


def want(group: Group, *numbers: int) -> None:
    wanted = [group.network.nodes[number].id for number in numbers]
    for replica in group.replicas:
        replica.set_wanted(wanted)


async def test_a_replica_moves_to_another_node(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader = await group.leader()
        for number in range(30):
            leader.append(batch(b"%d" % number, producer_id=5, epoch=0, sequence=number))
        await leader.committed()
        await add_node(group, 4)
        want(group, 1, 2, 4)
        await until(lambda: leader.is_reconciled)
        assert {replica.node for replica in leader.membership.voters} == {1, 2, 4}
        newcomer = group.replica(4)
        await until(lambda: newcomer.high_watermark == 30)
        await until(lambda: log_bytes(newcomer) == log_bytes(leader))
        assert dict(newcomer.producers()).keys() == {5}


async def test_a_node_that_lost_its_disk_is_replaced(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader = await group.leader()
        leader.append(batch(b"a"))
        await leader.committed()
        await group.crash(3)
        await add_node(group, 3, directory="-new")
        want(group, 1, 2, 3)
        await until(lambda: leader.is_reconciled)
        assert group.network.nodes[3].id in leader.membership.voters
        assert len(leader.membership.voters) == 3
        await until(lambda: group.replica(3).high_watermark == 1)
        await until(lambda: log_bytes(group.replica(3)) == log_bytes(leader))


async def test_a_leader_that_is_to_go_hands_over_first(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        old = await group.leader()
        assert old.id.node == 1
        old.append(batch(b"a"))
        await old.committed()
        want(group, 2, 3)
        # Perhaps by way of the other one, if that has everything earlier.
        leader = group.replica(2)
        await until(lambda: leader.is_reconciled)
        assert {replica.node for replica in leader.membership.voters} == {2, 3}
        assert read_values(leader) == [b"a"]


async def test_leadership_goes_to_the_preferred_replica_by_itself(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        await group.leader()
        want(group, 3, 1, 2)
        await until(lambda: group.replica(3).is_settled)


async def test_leadership_can_be_handed_over(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader = await group.leader()
        with pytest.raises(Refused):
            leader.transfer(BrokerId(9))
        leader.transfer(BrokerId(2))
        await until(lambda: group.replica(2).is_settled)
        with pytest.raises(Refused):
            leader.transfer(BrokerId(3))


async def test_a_single_copy_grows_to_three_and_shrinks_again(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1) as group:
        leader = await group.leader()
        large = batch(b"x" * 200_000)
        for _ in range(5):
            leader.append(large)
        await leader.committed()
        for number in (2, 3):
            await add_node(group, number)
        want(group, 1, 2, 3)
        for _ in range(5):
            leader.append(large)
            await leader.committed()
        await until(lambda: leader.is_reconciled)
        await until(lambda: group.replica(3).high_watermark == 10)
        await until(lambda: log_bytes(group.replica(3)) == log_bytes(leader))
        want(group, 1)
        await until(lambda: leader.is_reconciled)
        leader.append(large)
        await leader.committed()


async def test_a_dead_voter_leaves_the_in_sync_set_at_once(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader = await group.leader()
        assert leader.in_sync() == [1, 2, 3]
        await group.crash(3)
        for replica in group.replicas:
            replica.leader_lost(BrokerId(3))
        assert leader.in_sync() == [1, 2]
        await add_node(group, 3)
        await until(lambda: leader.in_sync() == [1, 2, 3])


async def test_a_voter_that_is_cut_off_is_in_sync_no_longer_after_a_while(tmp_path: Path) -> None:
    config = TopicConfig(min_insync_replicas=3)
    async with group_of(tmp_path, 1, 2, 3, config=config) as group:
        leader = await group.leader()
        group.network.isolate(3)
        leader.append(batch(b"a"))
        await until(lambda: leader.in_sync() == [1, 2])
        with pytest.raises(Refused):
            leader.append(batch(b"b"))
        stored = leader.append(batch(b"b"), acks_all=False).stored
        assert stored is not None
        await stored
        group.network.heal()
        await until(lambda: leader.in_sync() == [1, 2, 3])
        leader.append(batch(b"c"))
        await leader.committed()


async def test_all_replicas_are_enough_though_the_topic_asks_for_more(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, config=TopicConfig(min_insync_replicas=2)) as group:
        leader = await group.leader()
        leader.append(batch(b"a"))
        await leader.committed()
        assert read_values(leader) == [b"a"]


async def test_the_whole_group_agrees_where_the_log_starts(tmp_path: Path) -> None:
    config = TopicConfig(segment_bytes=500)
    async with group_of(tmp_path, 1, 2, 3, config=config) as group:
        leader = await group.leader()
        for number in range(40):
            leader.append(batch(b"%d" % number * 20, producer_id=1, epoch=0, sequence=number))
            await leader.committed()
        assert await leader.delete_records(25) == 25
        await until(lambda: all(r.log_start_offset == 25 for r in group.replicas))
        assert read_values(leader, 25)[-1] == b"39" * 20


async def test_a_follower_behind_the_log_start_gets_a_snapshot_and_then_the_data(
    tmp_path: Path,
) -> None:
    config = TopicConfig(segment_bytes=500)
    async with group_of(tmp_path, 1, 2, 3, config=config) as group:
        leader = await group.leader()
        for producer_id in (1, 2):
            for number in range(10):
                leader.append(batch(b"x" * 20, producer_id=producer_id, epoch=0, sequence=number))
                await leader.committed()
        await group.crash(3)
        for number in range(10, 30):
            leader.append(batch(b"y" * 20, producer_id=2, epoch=0, sequence=number))
            await leader.committed()
        assert await leader.delete_records(35) == 35
        await add_node(group, 3)
        late = group.replica(3)
        await until(lambda: late.high_watermark == leader.high_watermark)
        await until(lambda: late.log_start_offset == leader.log_start_offset == 35)
        await until(lambda: log_bytes(late) == log_bytes(leader))
        assert {key: value.batches for key, value in late.producers()} == {
            key: value.batches for key, value in leader.producers()
        }
        await group.crash(3)
        await add_node(group, 3)
        late = group.replica(3)
        await until(lambda: late.high_watermark == leader.high_watermark)
        await until(lambda: log_bytes(late) == log_bytes(leader))


async def test_a_read_is_confirmed_by_a_majority_or_refused(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader = await group.leader()
        await leader.confirm()
        group.network.isolate(1)
        with pytest.raises(Refused):
            await leader.confirm()
        with pytest.raises(Refused):
            await group.replica(1).confirm()
        await asyncio.sleep(0)


async def test_who_waits_to_hear_that_a_replica_leads_hears_that_it_stopped(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader = await group.leader()
        group.network.isolate(leader.id.node)
        waiting = asyncio.ensure_future(leader.confirm())
        await asyncio.sleep(0)
        leader.stop(StorageDamaged("log", 7, "a bit was flipped"))
        # Not after some time-out, but in this very turn.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert waiting.done()
        with pytest.raises(Refused, match="a bit was flipped"):
            await waiting
