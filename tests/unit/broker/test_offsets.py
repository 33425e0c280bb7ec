"""Proves where positions are found, for new clients and for the oldest."""

import asyncio
from pathlib import Path

import pytest

from penstock.broker.offsets import Offsets, Position
from penstock.model.errors import Reason, Refused
from penstock.model.ids import LogIndex, Offset
from penstock.model.topic_config import TopicConfig
from penstock.replication import replica as replica_module
from penstock.replication.replica import Replica
from tests.unit.broker.lone_leaderships import lone_leaderships
from tests.unit.broker.partition_rig import running
from tests.unit.replication.rig import (
    START_MS,
    TOPIC,
    TOPIC_ID,
    batch,
)


async def test_positions_by_name_by_time_and_by_term(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        for number in range(4):
            replica.append(batch(b"x", timestamp_ms=START_MS + number))
        await replica.committed()
        offsets = Offsets(leaderships=lone_leaderships(node.partitions))
        assert (await offsets.find(TOPIC, 0, Position.LATEST)).offset == 4
        assert (await offsets.find(TOPIC, 0, START_MS + 2, term=replica.term)).offset == 2
        assert offsets.end_of_term(TOPIC, 0, replica.term) == (replica.term, 4)
        with pytest.raises(Refused) as caught:
            await offsets.find(TOPIC, 0, Position.LATEST, term=replica.term + 1)
        assert caught.value.reason is Reason.UNKNOWN_LEADER_EPOCH
        with pytest.raises(Refused) as caught:
            offsets.end_of_term(TOPIC, 1, 0)
        assert caught.value.reason is Reason.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_term_is_checked_before_the_leadership(tmp_path: Path) -> None:
    """A client that knows of a newer term is not sent back to look for the leader it knows."""
    async with running(tmp_path) as node:
        replica = await node.replica()
        offsets = Offsets(leaderships=lone_leaderships(node.partitions))
        replica.is_leader = replica.is_settled = False
        reasons = {
            1: Reason.UNKNOWN_LEADER_EPOCH,
            0: Reason.NOT_LEADER_OR_FOLLOWER,
            -1: Reason.FENCED_LEADER_EPOCH,
        }
        for ahead, reason in reasons.items():
            term = replica.term + ahead
            with pytest.raises(Refused) as caught:
                await offsets.find(TOPIC, 0, Position.LATEST, term=term)
            assert caught.value.reason is reason
            with pytest.raises(Refused) as caught:
                offsets.end_of_term(TOPIC, 0, 0, term=term)
            assert caught.value.reason is reason


async def test_the_oldest_clients_get_a_list_of_offsets(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        offsets = Offsets(leaderships=lone_leaderships(node.partitions))
        assert await offsets.find_several(TOPIC, 0, Position.LATEST, 5) == [0]
        for number in range(4):
            replica.append(batch(b"x", timestamp_ms=START_MS + number))
        await replica.committed()
        assert await offsets.find_several(TOPIC, 0, Position.LATEST, 5) == [4, 0]
        assert await offsets.find_several(TOPIC, 0, Position.LATEST, 1) == [4]
        assert await offsets.find_several(TOPIC, 0, Position.EARLIEST, 1) == [0]
        assert await offsets.find_several(TOPIC, 0, START_MS + 2, 1) == [2]
        assert await offsets.find_several(TOPIC, 0, START_MS + 9, 1) == [4]


async def test_records_of_a_compacted_topic_are_not_deleted_by_offset(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica(TopicConfig(cleanup_compact=True, cleanup_delete=False))
        replica.append(batch(b"x"))
        await replica.committed()
        offsets = Offsets(leaderships=lone_leaderships(node.partitions))
        with pytest.raises(Refused) as caught:
            await offsets.delete_before(TOPIC, 0, -1)
        assert caught.value.reason is Reason.POLICY_VIOLATION
        node.partitions.set_config(TOPIC_ID, TopicConfig())
        assert await offsets.delete_before(TOPIC, 0, -1) == 1


async def test_the_time_of_a_deletion_ends_the_waiting_and_not_the_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_agree = asyncio.Event()
    delete_records = Replica.delete_records

    async def delete_late(replica: Replica, before: int) -> Offset:
        await others_agree.wait()
        return await delete_records(replica, before)

    monkeypatch.setattr(Replica, "delete_records", delete_late)
    monkeypatch.setattr(Replica, "is_alone", False)
    async with running(tmp_path) as node:
        replica = await node.replica()
        for _ in range(4):
            replica.append(batch(b"x"))
        await replica.committed()
        offsets = Offsets(leaderships=lone_leaderships(node.partitions))
        for wait_s in (0.0, 0.001):
            with pytest.raises(Refused) as caught:
                await offsets.delete_before(TOPIC, 0, 3, wait_s=wait_s)
            assert caught.value.reason is Reason.REQUEST_TIMED_OUT
        others_agree.set()
        monkeypatch.setattr(Replica, "is_alone", True)
        assert await offsets.delete_before(TOPIC, 0, 2, wait_s=0.0) == 3
        assert replica.log_start_offset == 3


async def test_a_new_leader_knows_its_start_but_not_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "SETTLING_S", 0.01)
    async with running(tmp_path) as node:
        replica = await node.replica()
        replica.append(batch(b"x", timestamp_ms=START_MS))
        await replica.committed()
        monkeypatch.setattr(replica, "_leadership_index", LogIndex(10**9))
        replica.is_settled = False
        offsets = Offsets(leaderships=lone_leaderships(node.partitions))
        assert (await offsets.find(TOPIC, 0, Position.EARLIEST)).offset == 0
        for position in (Position.LATEST, Position.MAX_TIMESTAMP, START_MS + 1):
            with pytest.raises(Refused) as caught:
                await offsets.find(TOPIC, 0, position)
            assert caught.value.reason is Reason.OFFSET_NOT_AVAILABLE
        with pytest.raises(Refused) as caught:
            await offsets.find_several(TOPIC, 0, Position.LATEST, 1)
        assert caught.value.reason is Reason.OFFSET_NOT_AVAILABLE


async def test_a_question_for_the_end_waits_until_a_new_leader_knows_it(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        replica.append(batch(b"x", timestamp_ms=START_MS))
        await replica.committed()
        replica.is_settled = False
        offsets = Offsets(leaderships=lone_leaderships(node.partitions))
        asked = asyncio.ensure_future(offsets.find(TOPIC, 0, Position.LATEST))
        await asyncio.sleep(0)
        assert not asked.done()
        # It settles with the next thing that consensus does.
        replica.append(batch(b"y"))
        assert (await asked).offset in (1, 2)


async def test_only_the_leader_knows_positions(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        replica.is_leader = replica.is_settled = False
        offsets = Offsets(leaderships=lone_leaderships(node.partitions))
        for question in (
            offsets.find(TOPIC, 0, Position.EARLIEST),
            offsets.find_several(TOPIC, 0, Position.EARLIEST, 1),
            offsets.delete_before(TOPIC, 0, 0),
        ):
            with pytest.raises(Refused) as caught:
                await question
            assert caught.value.reason is Reason.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(Refused) as caught:
            offsets.end_of_term(TOPIC, 0, 0)
        assert caught.value.reason is Reason.NOT_LEADER_OR_FOLLOWER
