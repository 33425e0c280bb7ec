"""Proves that a replica whose log was repaired does not vote before it has everything again."""

import asyncio
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import cast

import pytest

from penstock.model.errors import Reason, Refused
from penstock.model.ids import (
    UNKNOWN_END,
    BrokerId,
    DirectoryId,
    LogEnd,
    LogIndex,
    PartitionIndex,
    ReplicaId,
    Term,
)
from penstock.model.topic_config import TopicConfig
from penstock.raft.messages import AppendRequest, Heartbeat
from penstock.raft.node import RaftNode
from penstock.replication.keeper import LogKeeper
from penstock.replication.refill import Refill
from penstock.storage import repair
from penstock.storage.log import NO_DOUBT, Log
from tests.waiting import until

from .group_rig import group_of, log_bytes
from .rig import PATIENCE_S, TOPIC_ID, batch, read_values, running
from .test_group_members import want

_LEADER, _OWN = (ReplicaId(BrokerId(number), DirectoryId("d")) for number in (1, 2))


async def test_a_repaired_replica_is_refilled_and_votes_again(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader = await group.leader()
        for number in range(20):
            leader.append(batch(b"%d" % number))
        await leader.committed()
        await until(lambda: group.replica(3).high_watermark == 20)
        node = group.network.nodes[3]
        directory = node.directory.partition_directory(TOPIC_ID, PartitionIndex(0))
        await group.crash(3)
        (segment,) = directory.glob("*.log")
        data = bytearray(segment.read_bytes())
        data[len(data) // 2] ^= 1
        segment.write_bytes(data)
        assert repair.cut(directory, node.file_system)
        await group.open(group.start_node(3))
        repaired = group.replica(3)
        assert repaired.stopped_because is None
        assert repaired._refill.is_due
        assert repaired.log_end_offset < 20
        await until(lambda: not repaired._refill.is_due)
        await until(lambda: log_bytes(repaired) == log_bytes(leader))
        await until(lambda: repaired._log.doubt == NO_DOUBT)
        await group.crash(1)
        await group.leader()


async def test_the_only_copy_goes_on_after_a_repair(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        for number in range(20):
            replica.append(batch(b"%d" % number))
        await replica.committed()
        directory = node.directory.partition_directory(TOPIC_ID, PartitionIndex(0))
    (segment,) = directory.glob("*.log")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    assert repair.cut(directory, node.file_system)
    async with running(tmp_path) as node:
        replica = await node.make()
        assert not replica.is_leader
        await replica.settled(PATIENCE_S)
        kept = replica.high_watermark
        assert 0 < kept < 20
        replica.append(batch(b"new"))
        await replica.committed()
        assert len(read_values(replica)) == kept + 1


async def test_a_replica_that_comes_back_never_takes_itself_for_what_it_was(tmp_path: Path) -> None:
    """Founded alone, moved to others and back: its blank log must not make it the only voter."""
    async with group_of(tmp_path, 1) as group:
        first = await group.leader()
        for number in range(10):
            first.append(batch(b"%d" % number))
        await first.committed()
        for number in (2, 3):
            await group.open(group.start_node(number))
        want(group, 2, 3)
        await until(lambda: group.replica(2).is_reconciled)
        node = group.network.nodes[1]
        await node.replicas.pop(first.key).retire(
            Refused(Reason.NOT_LEADER_OR_FOLLOWER, "it moved away")
        )
        await node.store.remove_partition(first.key)
        back = await group.open(node)
        assert back.is_returning
        assert not back.membership.voters
        await asyncio.sleep(0.1)
        assert (back.is_leader, back.log_end_offset) == (False, 0)
        leader = await group.leader()
        term = leader.term
        want(group, 2, 3, 1)
        await until(lambda: leader.is_reconciled and not back.is_returning)
        await until(lambda: log_bytes(back) == log_bytes(leader))
        assert leader.term == term
        await group.crash(1)
        back = await group.open(group.start_node(1))
        assert not back.is_returning
        await group.crash(2)
        leader = await group.leader()
        assert len(read_values(leader)) == 10


async def test_a_message_while_a_snapshot_is_written_does_not_stop_a_replica_that_came_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then its log begins after all that it knows to be applied."""
    goes_on = Event()
    is_held = Event()
    sync = Log.sync

    def slow_sync(log: Log) -> None:
        if "node-1" in str(log.directory) and log.first_index > 1 and not goes_on.is_set():
            is_held.set()
            assert goes_on.wait(PATIENCE_S)
        sync(log)

    config = TopicConfig(segment_bytes=200)
    async with group_of(tmp_path, 1, 2, 3, config=config) as group:
        first = await group.leader()
        for number in range(20):
            first.append(batch(b"%d" % number))
            await first.committed()
        await group.open(group.start_node(4))
        want(group, 2, 3, 4)
        await until(lambda: group.replica(2).is_reconciled)
        node = group.network.nodes[1]
        await node.replicas.pop(first.key).retire(
            Refused(Reason.NOT_LEADER_OR_FOLLOWER, "it moved away")
        )
        await node.store.remove_partition(first.key)
        leader = await group.leader()
        await leader.delete_records(20)
        assert leader._log.first_index > 1
        monkeypatch.setattr(Log, "sync", slow_sync)
        back = await group.open(node)
        want(group, 2, 3, 4, 1)
        await until(is_held.is_set)
        await leader.confirm()
        await asyncio.sleep(0)
        goes_on.set()
        await until(lambda: leader.is_reconciled or back.stopped_because is not None)
        assert back.stopped_because is None
        await until(lambda: not back.is_returning)


def _refill(lost: LogEnd, *, ends_at: int, term: int = 3) -> Refill:
    """Of a log whose last entries are of one term, and all of them durable."""
    log = SimpleNamespace(
        doubt=NO_DOUBT._replace(lost=lost), term_at=lambda index: term if index > 30 else 2
    )
    node = SimpleNamespace(term=3, stable_index=ends_at)
    return Refill(
        cast("Log", log), cast("RaftNode", node), cast("LogKeeper", None), is_returning=False
    )


def _append(after: int, commit_index: int, term: int = 3) -> AppendRequest:
    return AppendRequest(
        _LEADER, _OWN, Term(term), LogIndex(after), Term(term), (), LogIndex(commit_index)
    )


@pytest.mark.parametrize(
    ("ends_at", "is_whole"), [(46, False), (50, False), (51, True), (60, True)]
)
def test_a_replica_is_not_whole_before_it_holds_what_it_acknowledged_to_its_leader(
    ends_at: int, is_whole: bool
) -> None:
    """The leader counts what was acknowledged as soon as its own disk has it."""
    refill = _refill(LogEnd(3, 51), ends_at=ends_at)
    refill.note(_append(after=32, commit_index=32))
    assert refill.ends(LogIndex(32), Term(3)) is is_whole


def test_a_new_leader_counts_nothing_that_was_acknowledged_to_the_one_before() -> None:
    refill = _refill(LogEnd(3, 51), ends_at=47, term=4)
    refill.note(_append(after=46, commit_index=47, term=4))
    assert refill.ends(LogIndex(47), Term(4))


def test_where_the_log_ended_is_learned_from_the_leader_if_nothing_shows_it() -> None:
    refill = _refill(UNKNOWN_END, ends_at=46)
    refill.note(Heartbeat(_LEADER, _OWN, Term(3), LogIndex(32), 0))
    assert not refill.ends(LogIndex(32), Term(3))
    refill.note(_append(after=51, commit_index=32))
    refill.note(_append(after=40, commit_index=32))
    assert not refill.ends(LogIndex(32), Term(3))
    whole = _refill(UNKNOWN_END, ends_at=51)
    whole.note(_append(after=51, commit_index=32))
    assert whole.ends(LogIndex(32), Term(3))
