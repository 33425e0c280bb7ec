"""Proves that votes of many groups share a sync, and that none is promised that may be lost."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from penstock.model.ids import (
    BrokerId,
    DirectoryId,
    PartitionId,
    PartitionIndex,
    ReplicaId,
    Term,
    TopicId,
)
from penstock.raft.entries import HardState
from penstock.replication import hard_state_writer
from penstock.replication.hard_state_writer import HardStateWriter, stored
from penstock.replication.write_side import WriteSide
from penstock.storage.file_system import SyncFailed
from penstock.storage.hard_states import StoredHardState

from .rig import PATIENCE_S


class Disk:
    """A file of hard states that can be told to fail."""

    def __init__(self) -> None:
        self.flushes = 0
        self.states: dict[PartitionId, StoredHardState] = {}
        self.error: OSError | None = None

    def get(self, key: PartitionId) -> StoredHardState | None:
        return self.states.get(key)

    def put(self, key: PartitionId, state: StoredHardState) -> None:
        self.states[key] = state

    def forget_topic(self, topic_id: TopicId) -> None:
        self.states = {key: state for key, state in self.states.items() if key[0] != topic_id}

    def flush(self) -> None:
        if self.error is not None:
            raise self.error
        self.flushes += 1


def key(number: int) -> PartitionId:
    return PartitionId(TopicId(UUID(int=1)), PartitionIndex(number))


STATE = stored(HardState(Term(3), ReplicaId(BrokerId(1), DirectoryId("a"))))


def run(scenario: Callable[[HardStateWriter, Disk], Awaitable[None]]) -> None:
    async def bounded() -> None:
        disk = Disk()
        with ThreadPoolExecutor(1) as executor:
            writer = HardStateWriter(disk, WriteSide(executor))  # type: ignore[arg-type]
            await asyncio.wait_for(scenario(writer, disk), PATIENCE_S)

    asyncio.run(bounded())


def test_what_one_turn_brings_shares_a_sync() -> None:
    async def scenario(writer: HardStateWriter, disk: Disk) -> None:
        told: list[Exception | None] = []
        for number in range(100):
            writer.put(key(number), STATE, told.append)
        assert told == []
        await writer.close()
        assert told == [None] * 100
        assert (disk.flushes, disk.states[key(99)]) == (1, STATE)
        writer.forget_topic(key(0).topic_id)
        await writer.close()
        assert disk.states == {}

    run(scenario)


def test_a_failed_sync_is_for_good() -> None:
    async def scenario(writer: HardStateWriter, disk: Disk) -> None:
        told: list[Exception | None] = []
        disk.error = SyncFailed(errno.EIO, "broken", "votes")
        writer.put(key(0), STATE, told.append)
        await writer.close()
        disk.error = None
        writer.put(key(1), STATE, told.append)
        await asyncio.sleep(0.05)
        assert len(told) == 2
        assert all(isinstance(error, SyncFailed) for error in told)

    run(scenario)


def test_a_full_disk_is_tried_again_and_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hard_state_writer, "RETRY_AFTER_S", 0.02)

    async def scenario(writer: HardStateWriter, disk: Disk) -> None:
        told: list[Exception | None] = []
        disk.error = OSError(errno.ENOSPC, "full")
        writer.put(key(0), STATE, told.append)
        await asyncio.sleep(0.05)
        assert told == []
        disk.error = None
        while not told:
            await asyncio.sleep(0.02)
        assert told == [None]
        disk.error = OSError(errno.ENOSPC, "full")
        writer.put(key(0), STATE, told.append)
        await writer.close()
        assert told == [None]

    run(scenario)
