"""Proves that a copy which lost its tail makes nobody forget what was acknowledged."""

import asyncio
import logging
from pathlib import Path

import pytest

from penstock.model.errors import Reason, Refused
from penstock.model.ids import NO_END, LogEnd, PartitionIndex
from penstock.replication.replica import Replica
from penstock.storage import repair
from penstock.storage.log import NO_DOUBT
from tests.waiting import until

from .group_rig import Group, group_of, log_bytes
from .rig import TOPIC_ID, batch, read_values

RECORDS = 10
VALUES = [b"%d" % number for number in range(RECORDS)]
# Longer than an election takes.
A_WHILE_S = 0.5


async def write(leader: Replica, *values: bytes) -> None:
    for value in values:
        leader.append(batch(value))
    await leader.committed()


def directory_of(group: Group, number: int) -> Path:
    node = group.network.nodes[number]
    return node.directory.partition_directory(TOPIC_ID, PartitionIndex(0))


def flip_tail(directory: Path, from_end: int = 10) -> None:
    segment = max(path for path in directory.glob("*.log") if path.stat().st_size)
    data = bytearray(segment.read_bytes())
    data[-from_end] ^= 1
    segment.write_bytes(data)


async def crash_all(group: Group) -> dict[int, Path]:
    directories = {number: directory_of(group, number) for number in group.network.nodes}
    for number in directories:
        await group.crash(number)
    return directories


async def start(group: Group, *numbers: int) -> None:
    for number in numbers:
        await group.open(group.start_node(number))


async def nobody_leads(group: Group) -> None:
    await asyncio.sleep(A_WHILE_S)
    assert not any(replica.is_leader for replica in group.replicas)


async def test_a_flipped_bit_in_the_last_acknowledged_batch_loses_nothing(tmp_path: Path) -> None:
    """Acknowledged by 1 and 2 while 3 was away; then 2 and 3 start without 1."""
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader = await group.leader()
        await write(leader, *VALUES[:-1])
        await until(lambda: group.replica(3).high_watermark == RECORDS - 1)
        await group.crash(3)
        await write(leader, VALUES[-1])
        directories = await crash_all(group)
        flip_tail(directories[2])
        await start(group, 2, 3)
        assert group.replica(2).log_end_offset == RECORDS - 1
        await nobody_leads(group)
        await start(group, 1)
        leader = await group.leader()
        assert leader.id.node == 1
        assert read_values(leader) == VALUES
        await until(lambda: group.replica(2)._log.doubt == NO_DOUBT)
        await write(leader, b"next")
        await until(lambda: log_bytes(group.replica(2)) == log_bytes(leader))


async def test_one_whole_copy_wins_with_the_votes_of_two_in_doubt(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        await write(await group.leader(), *VALUES)
        await until(lambda: all(each.log_end_offset == RECORDS for each in group.replicas))
        directories = await crash_all(group)
        for number in (1, 2):
            flip_tail(directories[number])
        await start(group, 1, 3)
        # One vote in doubt is not enough: the one that is missing may know of more.
        await nobody_leads(group)
        await start(group, 2)
        leader = await group.leader()
        assert leader.id.node == 3
        assert read_values(leader) == VALUES
        for number in (1, 2):
            await until(lambda n=number: log_bytes(group.replica(n)) == log_bytes(leader))
            await until(lambda n=number: group.replica(n)._log.doubt == NO_DOUBT)
        # They vote again like everybody else.
        await group.crash(3)
        assert read_values(await group.leader()) == VALUES


async def test_two_repaired_copies_do_not_keep_the_whole_one_from_leading(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        await write(await group.leader(), *VALUES)
        await until(lambda: all(each.log_end_offset == RECORDS for each in group.replicas))
        directories = await crash_all(group)
        for number in (1, 2):
            flip_tail(directories[number], from_end=250)
            assert repair.cut(directories[number])
        await start(group, 1, 2, 3)
        leader = await group.leader()
        assert leader.id.node == 3
        assert read_values(leader) == VALUES


async def test_a_group_stops_where_something_committed_is_on_no_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And goes on once an operator has given up what is missing."""
    async with group_of(tmp_path, 1, 2, 3) as group:
        await write(await group.leader(), *VALUES)
        await until(lambda: all(each.log_end_offset == RECORDS for each in group.replicas))
        end = group.replica(1)._node.last_index
        term = group.replica(1).term
        directories = await crash_all(group)
        for directory in directories.values():
            flip_tail(directory)
        await start(group, 1, 2, 3)
        await until(lambda: all(replica._refill.stuck for replica in group.replicas))
        await nobody_leads(group)
        with pytest.raises(Refused) as caught:
            group.replica(2).append(batch(b"x"))
        assert caught.value.reason is Reason.STORAGE_ERROR
        assert "penstock log trust" in caught.value.detail
        assert any(
            entry.levelno == logging.ERROR and "has no leader" in entry.getMessage()
            for entry in caplog.records
        )
        needed = LogEnd(term, end)
        await until(lambda: group.replica(2)._log.doubt.needed == needed)

        await group.crash(2)
        missing = repair.missing_tail(directories[2])
        assert missing is not None
        assert missing.needed == needed
        assert missing.end_offset == RECORDS - 1
        assert missing.entries_max == 1
        repair.accept(directories[2], missing.needed)
        assert repair.missing_tail(directories[2]) is None
        await start(group, 2)
        leader = await group.leader()
        assert leader.id.node == 2
        assert read_values(leader) == VALUES[:-1]
        for replica in group.replicas:
            await until(lambda r=replica: r._log.doubt == NO_DOUBT)
            assert not replica._refill.stuck
        await write(leader, b"next")


async def test_what_an_operator_gave_up_does_not_cover_more(tmp_path: Path) -> None:
    """Another copy that reaches further still wins, or blocks."""
    async with group_of(tmp_path, 1, 2, 3) as group:
        await write(await group.leader(), *VALUES)
        await until(lambda: all(each.log_end_offset == RECORDS for each in group.replicas))
        directories = await crash_all(group)
        for directory in directories.values():
            flip_tail(directory)
        await start(group, 1, 2, 3)
        await until(lambda: group.replica(1)._log.doubt.needed != NO_END)
        await group.crash(1)
        missing = repair.missing_tail(directories[1])
        assert missing is not None
        repair.accept(directories[1], missing.needed._replace(index=missing.end.index))
        await start(group, 1)
        await until(lambda: bool(group.replica(1)._refill.stuck))
        await nobody_leads(group)


async def test_a_copy_in_doubt_that_has_everything_again_may_lead(tmp_path: Path) -> None:
    """It was filled again, but died before it could note that."""
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader = await group.leader()
        await write(leader, *VALUES)
        await until(lambda: all(each.log_end_offset == RECORDS for each in group.replicas))
        end = LogEnd(leader.term, leader._node.last_index)
        for replica in group.replicas:
            replica._log.set_doubt(NO_DOUBT._replace(lost=end))
        await crash_all(group)
        await start(group, 1, 2)
        await nobody_leads(group)
        await start(group, 3)
        assert read_values(await group.leader()) == VALUES
