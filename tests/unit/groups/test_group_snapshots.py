"""A snapshot says which kinds of records its version knew; one that knew fewer is not believed.

A version skips the records that it does not know, and its snapshot lacks them. A later version on
the same disk has to read them from the log, or their groups would be lost without a trace.
"""

import struct
from pathlib import Path

import pytest

from penstock.broker.groups import CommitOffsets, ConsumerHeartbeat, OffsetToCommit
from penstock.groups import state as state_module
from penstock.groups.records import (
    FIRST_KINDS,
    KINDS,
    ForeignRecord,
    GroupMetadata,
    GroupRecord,
    GroupRecordCodec,
    GroupRemoved,
    GroupStored,
    OffsetRemoved,
    OffsetStored,
)
from penstock.groups.state import GroupsState
from penstock.model.ids import GroupId, MemberId, Offset, TopicName
from penstock.replication.state_files import StateFile
from penstock.server import node as server_node
from penstock.storage.file_system import RealFileSystem
from tests.unit.lone_node import LoneNode, run

G = GroupId("readers")
EMPTY = GroupStored(
    G,
    GroupMetadata(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader=MemberId("m"),
        state_timestamp_ms=7,
    ),
)


def stored() -> GroupsState:
    state = GroupsState()
    state.apply(EMPTY)
    return state


def test_a_snapshot_of_the_same_version_is_restored() -> None:
    state = GroupsState()
    state.restore(stored().snapshot()())
    assert state.metadata(G) == EMPTY.metadata


def test_a_snapshot_that_knew_fewer_kinds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = stored().snapshot()()
    monkeypatch.setattr(state_module, "KINDS", KINDS | {99})
    with pytest.raises(ValueError, match="99"):
        GroupsState().restore(data)


def test_a_snapshot_that_knew_more_kinds_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr(state_module, "KINDS", KINDS | {99})
        data = stored().snapshot()()
    state = GroupsState()
    state.restore(data)
    assert state.metadata(G) == EMPTY.metadata


def test_the_first_snapshots_name_no_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    data = stored().snapshot()()
    unnamed = data[struct.calcsize(">ii") + len(KINDS) * struct.calcsize(">h") :]
    monkeypatch.setattr(state_module, "KINDS", FIRST_KINDS)
    for held in (unnamed, b""):
        GroupsState().restore(held)
    monkeypatch.setattr(state_module, "KINDS", FIRST_KINDS | {3})
    for held in (unnamed, b""):
        with pytest.raises(ValueError, match="3"):
            GroupsState().restore(held)


def test_the_log_is_replayed_instead_of_a_snapshot_that_knew_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = StateFile(tmp_path / "groups.snapshot", GroupsState, RealFileSystem())
    file.write(stored().snapshot(), Offset(10))
    monkeypatch.setattr(state_module, "KINDS", KINDS | {99})
    state, offset = file.restore(Offset(4), Offset(20))
    assert offset == 4
    assert list(state.group_ids()) == []
    # It is gone for good: the earlier version would otherwise find it again.
    assert not (tmp_path / "groups.snapshot").exists()


# On a disk


async def consumer_epoch(node: LoneNode, epoch: int = 0) -> int:
    topics = frozenset({"t"}) if epoch == 0 else None
    answer = await node.groups.consumer_heartbeat(
        ConsumerHeartbeat(
            group_id=G,
            member_id=MemberId("m"),
            member_epoch=epoch,
            topics=topics,
            rebalance_timeout_ms=60_000 if epoch == 0 else None,
            owned={} if epoch == 0 else None,
        )
    )
    return answer.member_epoch


def test_groups_outlive_a_time_under_a_version_that_does_not_know_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up, down and up again: the earlier version skips what it does not know, commits offsets to
    other groups, and leaves a snapshot behind that lacks the group."""

    class FirstCodec(GroupRecordCodec):
        def decode(self, key: bytes | None, value: bytes | None, /) -> GroupRecord:
            record = super().decode(key, value)
            known = OffsetStored | OffsetRemoved | GroupStored | GroupRemoved
            return record if isinstance(record, known) else ForeignRecord(key or b"", value)

    async def scenario() -> None:
        settings = {"offsets_topic_num_partitions": "1"}
        node = await LoneNode.start(tmp_path, **settings)
        await node.create("t")
        assert await consumer_epoch(node) == 2
        await node.stop()
        for _ in range(2):
            with monkeypatch.context() as earlier:
                earlier.setattr(state_module, "KINDS", FIRST_KINDS)
                earlier.setattr(state_module, "GroupRecordCodec", FirstCodec)
                earlier.setattr(server_node, "GroupRecordCodec", FirstCodec)
                node = await LoneNode.start(tmp_path, **settings)
                listed = await node.groups.list_groups()
                assert G not in {group.group_id for group in listed}
                offsets = (OffsetToCommit(TopicName("t"), 0, 5),)
                command = CommitOffsets(group_id=GroupId("others"), offsets=offsets)
                assert await node.groups.commit_offsets(command) == [None]
                await node.stop()
            node = await LoneNode.start(tmp_path, **settings)
            assert await consumer_epoch(node, 2) == 2
            groups = await node.groups.list_groups()
            assert {group.group_id for group in groups} == {G, "others"}
            await node.stop()

    run(scenario)
