"""Proves what a group of replicas promises: what was acknowledged survives, all logs agree."""

import asyncio
from pathlib import Path

import pytest

from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, Term
from penstock.model.topic_config import TopicConfig
from penstock.raft.messages import AppendRequest
from tests.waiting import until

from .group_rig import group_of, log_bytes
from .rig import batch, read_values, run


async def test_what_is_acknowledged_is_on_a_majority_and_reaches_all(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader = await group.leader()
        assert leader.id.node == 1
        for number in range(20):
            done = leader.append(batch(b"%d" % number, b"x")).done
            assert done is not None
            await done
        assert leader.high_watermark == 40
        await until(lambda: all(replica.high_watermark == 40 for replica in group.replicas))
        for replica in group.replicas:
            await until(lambda replica=replica: log_bytes(replica) == log_bytes(leader))  # type: ignore[misc]
        assert leader.in_sync() == [1, 2, 3]


async def test_a_follower_whose_connection_is_full_is_filled_when_there_is_room(
    tmp_path: Path,
) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader = await group.leader()
        group.network.full = {3}
        group.network.delivered.clear()
        for number in range(20):
            leader.append(batch(b"%d" % number))
            await leader.committed()
        sent = [
            message
            for message in group.network.delivered
            if isinstance(message, AppendRequest) and message.to.node == 3 and message.entries
        ]
        assert sent == []
        group.network.full = set()
        await until(lambda: group.replica(3).high_watermark == 20)
        await until(lambda: log_bytes(group.replica(3)) == log_bytes(leader))


async def test_only_the_leader_takes_records_and_serves_consumers(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader = await group.leader()
        leader.append(batch(b"a"))
        await leader.committed()
        follower = group.replica(2)
        await until(lambda: follower.high_watermark == 1)
        for call in (
            lambda: follower.append(batch(b"b")),
            lambda: follower.read(0, 1000),
            lambda: follower.end_offset_for_epoch(1),
        ):
            with pytest.raises(Refused) as caught:
                call()
            assert caught.value.reason is Reason.NOT_LEADER_OR_FOLLOWER
        found = follower.read_committed(0, 1000)
        assert found is not None
        found.release()


def test_only_the_leader_s_beats_in_the_own_term_are_accepted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_of(tmp_path, 1, 2, 3) as group:
            leader = await group.leader()
            follower, other = group.replica(2), group.replica(3)
            await until(lambda: follower.heartbeat_received(leader.id, leader.term))
            assert not follower.heartbeat_received(other.id, leader.term)
            assert not follower.heartbeat_received(leader.id, Term(leader.term - 1))
            assert not leader.heartbeat_received(other.id, leader.term)

    run(scenario)


async def test_a_new_leader_has_everything_acknowledged_and_knows_the_producers(
    tmp_path: Path,
) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader = await group.leader()
        for sequence in range(5):
            leader.append(batch(b"%d" % sequence, producer_id=7, epoch=0, sequence=sequence))
            await leader.committed()
        await group.crash(1)
        new = await group.leader()
        assert new.term > leader.term
        assert read_values(new) == [b"0", b"1", b"2", b"3", b"4"]
        again = new.append(batch(b"4", producer_id=7, epoch=0, sequence=4))
        assert (again.base_offset, again.done) == (4, None)
        new.append(batch(b"5", producer_id=7, epoch=0, sequence=5))
        await new.committed()
        await group.open(group.start_node(1))
        await until(lambda: group.replica(1).high_watermark == 6)
        await until(lambda: log_bytes(group.replica(1)) == log_bytes(new))


async def test_a_leader_that_is_cut_off_acknowledges_nothing_and_is_overruled(
    tmp_path: Path,
) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        old = await group.leader()
        old.append(batch(b"before"))
        await old.committed()
        group.network.isolate(1)
        lost = [
            old.append(batch(b"lost", producer_id=3, epoch=0, sequence=sequence))
            for sequence in range(3)
        ]
        assert lost[0].stored is not None
        await lost[0].stored
        for appended in lost:
            assert appended.done is not None
            with pytest.raises(Refused) as caught:
                await appended.done
            assert caught.value.reason is Reason.NOT_LEADER_OR_FOLLOWER
        assert not old.is_leader
        new = await group.leader()
        assert new is not old
        new.append(batch(b"after"))
        await new.committed()
        assert (old.high_watermark, old.log_end_offset) == (1, 4)
        group.network.heal()
        await until(lambda: old.high_watermark == 2)
        await until(lambda: log_bytes(old) == log_bytes(new))
        assert old.log_end_offset == 2
        assert list(old.producers()) == []
        assert (old.unflushed_bytes, new.unflushed_bytes) == (0, 0)


async def test_a_restart_of_all_brings_everything_back(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader = await group.leader()
        for number in range(10):
            leader.append(batch(b"%d" % number))
        await leader.committed()
        for number in (1, 2, 3):
            await group.crash(number)
        for number in (1, 2, 3):
            await group.open(group.start_node(number))
        leader = await group.leader()
        assert read_values(leader) == [b"%d" % number for number in range(10)]


async def test_more_copies_than_a_majority_delay_the_acknowledgement(tmp_path: Path) -> None:
    config = TopicConfig(min_insync_replicas=3)
    async with group_of(tmp_path, 1, 2, 3, config=config) as group:
        leader = await group.leader()
        leader.append(batch(b"a"))
        await leader.committed()
        group.network.cut |= {(1, 3), (3, 1)}
        appended = leader.append(batch(b"b"))
        await until(lambda: leader.high_watermark == 2)
        await asyncio.sleep(0.05)
        assert appended.done is not None
        assert not appended.done.is_settled
        group.network.heal()
        await appended.done
        assert group.replica(3).log_end_offset == 2


def idempotent(value: bytes) -> bytes:
    return batch(value, producer_id=7, epoch=0, sequence=0)


async def test_a_retry_waits_for_as_many_copies_as_the_first_attempt(tmp_path: Path) -> None:
    config = TopicConfig(min_insync_replicas=3)
    async with group_of(tmp_path, 1, 2, 3, config=config) as group:
        leader = await group.leader()
        group.network.isolate(3)
        first = leader.append(idempotent(b"a"))
        await until(lambda: leader.high_watermark == 1)
        retry = leader.append(idempotent(b"a"))
        assert retry.base_offset == first.base_offset
        assert retry.stored is None
        assert first.done is not None
        assert retry.done is not None
        assert not retry.done.is_settled
        group.network.heal()
        await retry.done
        assert group.replica(3).log_end_offset == 1
        # Now all three hold it, and nothing is left to wait for.
        assert leader.append(idempotent(b"a")).done is None


async def test_a_retry_after_a_failover_waits_for_the_copies_as_well(tmp_path: Path) -> None:
    config = TopicConfig(min_insync_replicas=3)
    async with group_of(tmp_path, 1, 2, 3, config=config) as group:
        old = await group.leader()
        group.network.isolate(3)
        old.append(idempotent(b"a"))
        await until(lambda: group.replica(2).high_watermark == 1)
        await group.crash(1)
        group.network.heal()
        # Node 3 lacks the record, so node 2 takes over; it is cut off again at once.
        await until(lambda: group.replica(2).is_settled)
        leader = group.replica(2)
        group.network.isolate(3)
        retry = leader.append(idempotent(b"a"))
        assert retry.done is not None
        await asyncio.sleep(0.05)
        assert not retry.done.is_settled
        await group.open(group.start_node(1))
        group.network.heal()
        await retry.done
        assert [replica.log_end_offset for replica in group.replicas] == [1, 1, 1]


async def test_a_retry_obeys_a_setting_that_was_raised_meanwhile(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader = await group.leader()
        group.network.isolate(3)
        leader.append(idempotent(b"a"))
        await leader.committed()
        assert leader.append(idempotent(b"a")).done is None
        leader.set_config(TopicConfig(min_insync_replicas=3))
        retry = leader.append(idempotent(b"a"))
        assert retry.done is not None
        assert not retry.done.is_settled
        # Lowered again, the same wait is over.
        leader.set_config(TopicConfig(min_insync_replicas=2))
        await retry.done


@pytest.mark.parametrize(("nodes", "may_rest"), [((1,), True), ((1, 2, 3), False)])
async def test_only_a_leader_that_is_alone_needs_no_ticks(
    nodes: tuple[int, ...], may_rest: bool, tmp_path: Path
) -> None:
    async with group_of(tmp_path, *nodes) as group:
        leader = await group.leader()
        await until(lambda: leader.is_settled)
        assert leader.tick() is may_rest


async def test_a_leader_that_rests_is_announced_when_others_are_to_join(tmp_path: Path) -> None:
    """Only a tick brings them in."""
    async with group_of(tmp_path, 1) as group:
        leader = await group.leader()
        await until(leader.tick)
        before = group.network.announced
        leader.set_wanted([leader.id])
        assert group.network.announced == before
        leader.set_wanted([leader.id, leader.id._replace(node=BrokerId(2))])
        assert group.network.announced > before
        assert not leader.tick()
