"""Proves that what a follower lacks is read from the disk without anybody else waiting for it."""

import asyncio
import errno
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

import pytest

from penstock.model.errors import StorageDamaged
from penstock.model.ids import BrokerId, DirectoryId, LogIndex, ReplicaId
from penstock.raft.entries import Entry
from penstock.replication import cold_entries
from penstock.replication.cold_entries import READS_MAX, ColdEntries, FollowerReads
from penstock.replication.replica import Replica
from penstock.storage.log import EntriesGone, Log
from penstock.storage.log_entries import LogEntry
from tests.waiting import until

from .group_rig import Group, group_of, log_bytes
from .rig import PATIENCE_S, batch, run

FOLLOWER = ReplicaId(BrokerId(2), DirectoryId(UUID(int=2)))


class Disk:
    """Stands between all logs and what is read of them for followers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.goes_on = Event()
        self.goes_on.set()
        self.error: Exception | None = None
        self.waiting = 0
        self.threads: set[int] = set()
        entries = Log.entries

        def read(log: Log, *given: Any) -> list[LogEntry]:
            self.threads.add(threading.get_ident())
            self.waiting += 1
            assert self.goes_on.wait(PATIENCE_S)
            if self.error is not None:
                raise self.error
            return entries(log, *given)

        monkeypatch.setattr(Log, "entries", read)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def append(leader: Replica, value: bytes) -> None:
    done = leader.append(batch(value)).done
    if done is not None:
        await done


async def fall_behind(group: Group) -> tuple[Replica, Replica]:
    """The leader, and a follower that lacks what the leader has on its disk alone."""
    leader = await group.leader()
    number = next(each for each in group.network.nodes if group.replica(each) is not leader)
    group.network.isolate(number)
    for value in range(20):
        await append(leader, b"%d" % value)
    leader._consensus._stored.recent.clear()
    return leader, group.replica(number)


def is_filled(leader: Replica, follower: Replica) -> bool:
    ends = {replica.log_end_offset for replica in (leader, follower)}
    return ends == {follower.high_watermark}


async def test_others_are_served_while_the_disk_is_waited_for(tmp_path: Path, disk: Disk) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader, follower = await fall_behind(group)
        disk.goes_on.clear()
        group.network.heal()
        await until(lambda: disk.waiting > 0)
        await append(leader, b"meanwhile")
        assert not is_filled(leader, follower)
        disk.goes_on.set()
        await until(lambda: is_filled(leader, follower))
        assert threading.get_ident() not in disk.threads
        assert log_bytes(follower) == log_bytes(leader)


async def test_a_leader_that_can_not_read_for_a_follower_goes_on_and_tries_again(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, cold_entries.__name__)
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader, follower = await fall_behind(group)
        disk.error = OSError(errno.EIO, "the sector is bad")
        group.network.heal()
        await until(lambda: disk.waiting > 3)
        await append(leader, b"meanwhile")
        assert (leader.is_leader, leader.stopped_because) == (True, None)
        assert sum("can't be read for a follower" in each for each in caplog.messages) == 1
        disk.error = None
        await until(lambda: is_filled(leader, follower))


async def test_damage_stops_a_leader_before_it_spreads(tmp_path: Path, disk: Disk) -> None:
    async with group_of(tmp_path, 1, 2, 3) as group:
        leader, _ = await fall_behind(group)
        disk.error = StorageDamaged("a file", 7, "the checksum does not match")
        group.network.heal()
        await until(lambda: leader.stopped_because is not None)


class StandIn:
    """A log of one entry for each index, which is read when the test says so."""

    directory = Path("log")

    def __init__(self) -> None:
        self.last_index = LogIndex(100)
        self.first_index = LogIndex(1)
        self.asked: list[int] = []
        self.goes_on = Event()

    def entries(self, low: LogIndex, high: LogIndex, bytes_max: int) -> Sequence[LogEntry]:
        self.asked.append(low)
        assert self.goes_on.wait(PATIENCE_S)
        if low < self.first_index:
            raise EntriesGone
        return [LogEntry(low + each, low + each, 1, 0, bytes(batch(b"v"))) for each in range(3)]


class Rig:
    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.has_room = True
        self.reads = FollowerReads(executor, lambda _: self.has_room)
        self.arrivals: list[Sequence[Entry] | None] = []

    def group(self, log: StandIn, low: int = 1) -> ColdEntries:
        """That takes what it asks for as the core would, once it is told."""
        cold = ColdEntries(log, self.reads, 1_000)  # type: ignore[arg-type]

        def take() -> None:
            found = cold.get(LogIndex(low), LogIndex(100), 1_000)
            asyncio.get_running_loop().call_soon(self.arrivals.append, found)

        cold.on_arrival = take
        return cold


def play(test: Callable[[Rig], Any]) -> None:
    async def scenario() -> None:
        with ThreadPoolExecutor(8) as executor:
            await test(Rig(executor))

    run(scenario)


def test_few_reads_run_at_a_time_and_none_for_whom_there_is_no_room() -> None:
    async def test(rig: Rig) -> None:
        logs = [StandIn() for _ in range(5)]
        groups = [rig.group(log) for log in logs]
        for group in groups:
            assert not group.is_at_hand(LogIndex(1), FOLLOWER)
            assert not group.is_at_hand(LogIndex(1), FOLLOWER), "it is asked for once"
        await until(lambda: [len(log.asked) for log in logs] == [1] * READS_MAX + [0] * 3)
        rig.has_room = False
        for log in logs:
            log.goes_on.set()
        await until(lambda: len(rig.arrivals) == READS_MAX)
        rig.has_room = True
        assert not groups[-1].is_at_hand(LogIndex(1), FOLLOWER), "it may be asked for again"
        await until(lambda: len(rig.arrivals) == READS_MAX + 1)
        assert [len(log.asked) for log in logs] == [1] * READS_MAX + [0, 0, 1]

    play(test)


def test_what_came_is_there_for_the_turn_that_sends_it_and_no_longer() -> None:
    async def test(rig: Rig) -> None:
        log = StandIn()
        log.goes_on.set()
        cold = rig.group(log)
        assert not cold.is_at_hand(LogIndex(1), FOLLOWER)
        await until(lambda: len(rig.arrivals) == 1)
        (found,) = rig.arrivals
        assert found is not None
        assert [entry.index for entry in found] == [1, 2, 3]
        assert cold.get(LogIndex(1), LogIndex(100), 1_000) is None
        assert not cold.is_at_hand(LogIndex(1), FOLLOWER)

    play(test)


def test_entries_are_given_as_far_as_they_fit() -> None:
    async def test(rig: Rig) -> None:
        log = StandIn()
        log.goes_on.set()
        cold = rig.group(log)
        size = len(batch(b"v"))
        taken: list[Sequence[Entry] | None] = []
        cold.on_arrival = lambda: taken.extend(
            cold.get(LogIndex(1), LogIndex(100), fits)
            for fits in (1, size, 2 * size - 1, 2 * size, 3 * size)
        )
        cold.is_at_hand(LogIndex(1), FOLLOWER)
        await until(lambda: len(taken) == 5)
        assert [len(each) for each in taken if each is not None] == [1, 1, 1, 2, 3]

    play(test)


def test_entries_are_given_up_to_where_the_core_knows_better() -> None:
    async def test(rig: Rig) -> None:
        log = StandIn()
        log.goes_on.set()
        cold = rig.group(log)
        taken: list[Sequence[Entry] | None] = []
        cold.on_arrival = lambda: taken.extend(
            cold.get(LogIndex(1), LogIndex(high), 1_000) for high in (1, 3, 4)
        )
        cold.is_at_hand(LogIndex(1), FOLLOWER)
        await until(lambda: len(taken) == 3)
        assert taken[0] is None
        assert [len(each) for each in taken[1:] if each is not None] == [2, 3]

    play(test)


def test_what_is_gone_is_at_hand_as_nothing() -> None:
    async def test(rig: Rig) -> None:
        log = StandIn()
        log.first_index = LogIndex(50)
        log.goes_on.set()
        rig.group(log).is_at_hand(LogIndex(1), FOLLOWER)
        await until(lambda: rig.arrivals == [()])

    play(test)


def test_what_was_asked_for_before_the_log_became_another_one_is_void() -> None:
    async def test(rig: Rig) -> None:
        log = StandIn()
        cold = rig.group(log, low=7)
        cold.is_at_hand(LogIndex(1), FOLLOWER)
        cold.is_at_hand(LogIndex(4), FOLLOWER._replace(node=BrokerId(3)))
        # By two threads, of which either may be the first.
        await until(lambda: sorted(log.asked) == [1, 4])
        cold.clear()
        assert not cold.is_at_hand(LogIndex(7), FOLLOWER)
        log.goes_on.set()
        await until(lambda: bool(rig.arrivals))
        assert [found is not None for found in rig.arrivals] == [True]
        assert log.asked[2:] == [7]

    play(test)
