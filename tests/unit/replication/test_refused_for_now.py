"""Proves that batches in flight behind one that was refused for now are refused as it was.

Were they told that their sequence is out of order, a client would take the refused one for lost,
begin a new epoch, and send again in it what the log may hold already.
"""

from pathlib import Path

import pytest

from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId
from penstock.replication.replica import Replica
from tests.waiting import until

from .group_rig import Group, group_of
from .rig import batch, read_values


def numbered(number: int) -> bytes:
    return batch(b"%d" % number, producer_id=5, epoch=0, sequence=number)


def refusal(replica: Replica, number: int) -> Reason:
    with pytest.raises(Refused) as caught:
        replica.append(numbered(number))
    return caught.value.reason


async def first_batch(group: Group) -> Replica:
    leader = await group.leader()
    leader.append(numbered(0))
    await leader.committed()
    return leader


async def check_order(leader: Replica) -> None:
    """The second batch has to wait for the first one, which is as welcome as ever."""
    assert refusal(leader, 2) is Reason.NOT_LEADER_OR_FOLLOWER
    for number in (1, 2):
        leader.append(numbered(number))
    await leader.committed()
    assert read_values(leader)[-2:] == [b"1", b"2"]


async def test_by_a_leader_whose_handover_comes_to_nothing(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader = await first_batch(group)
        target = next(replica for replica in group.replicas if replica is not leader)
        group.network.isolate(target.id.node)
        leader.transfer(BrokerId(target.id.node))
        assert refusal(leader, 1) is Reason.NOT_LEADER_OR_FOLLOWER
        assert refusal(leader, 2) is Reason.NOT_LEADER_OR_FOLLOWER
        await until(lambda: takes_anything(leader))
        await check_order(leader)


def takes_anything(replica: Replica) -> bool:
    """Asked for by a batch that cannot be wrong."""
    try:
        replica.append_own(batch(b"a probe"))
    except Refused:
        return False
    return True


async def test_by_a_follower_that_comes_to_lead(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader = await first_batch(group)
        other = next(replica for replica in group.replicas if replica is not leader)
        await until(lambda: other.high_watermark == 1)
        assert refusal(other, 1) is Reason.NOT_LEADER_OR_FOLLOWER
        leader.transfer(BrokerId(other.id.node))
        await until(lambda: other.is_settled)
        await check_order(other)


async def test_by_a_leader_that_lost_its_leadership_and_comes_back(tmp_path: Path) -> None:
    """What it had taken meanwhile is cut off by its successor."""
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader = await first_batch(group)
        group.network.isolate(leader.id.node)
        for number in (1, 2):
            leader.append(numbered(number))
        await until(lambda: not leader.is_leader)
        others = [replica for replica in group.replicas if replica is not leader]
        await until(lambda: any(replica.is_settled for replica in others))
        successor = next(replica for replica in others if replica.is_settled)
        group.network.heal()
        await until(lambda: leader.log_end_offset == 1)
        successor.transfer(BrokerId(leader.id.node))
        await until(lambda: leader.is_settled)
        assert refusal(leader, 3) is Reason.NOT_LEADER_OR_FOLLOWER
        await check_order(leader)
