"""How the changes of a queue are stored where the coordinator is on the same node."""

import asyncio

import pytest

from penstock.model.errors import Reason, Refused
from penstock.queues import storing
from penstock.queues.commands import AcquiredRange
from penstock.queues.decisions import Write, decide_write
from penstock.replication.commit import Commit
from tests.unit.queues.leading_rig import FakeStore, Leader, refusal


class StoreHere(FakeStore):
    """Appends at once, and commits when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[Commit] = []
        self.is_here = True

    def write_here(self, command: Write) -> Commit | None:
        if not self.is_here:
            return None
        self.writes.append(command)
        for record in decide_write(self.state, command):
            self.state.apply(record)
        self.commits.append(Commit())
        return self.commits[-1]

    async def commit(self, error: Refused | None = None) -> None:
        """What the last turn has written."""
        await asyncio.sleep(0)
        self.commits.pop().settle(error)


async def opened(store: StoreHere) -> Leader:
    leader = await Leader(store).opened()
    store.writes.clear()
    return leader


async def test_what_is_decided_in_one_turn_is_one_write() -> None:
    store = StoreHere()
    leader = await opened(store)
    leader.acquire(count=3)
    await store.commit()
    acked = leader.acknowledge(0, 2)
    ranges, leased = leader.acquire(count=2)
    assert ranges == (AcquiredRange(3, 4, 1),)
    await asyncio.sleep(0)
    assert not acked.is_settled
    assert not leased.is_settled
    await store.commit()
    await acked
    await leased
    assert [len(write.changes) for write in store.writes] == [1, 2]


async def test_what_is_decided_while_a_write_is_under_way_goes_with_the_next() -> None:
    store = StoreHere()
    leader = await opened(store)
    _, first = leader.acquire(count=1)
    await asyncio.sleep(0)
    _, second = leader.acquire(count=1)
    _, third = leader.acquire(count=1)
    await asyncio.sleep(0)
    assert len(store.writes) == 1
    await store.commit()
    await first
    assert not second.is_settled
    await store.commit()
    await second
    await third
    assert [len(write.changes) for write in store.writes] == [1, 2]
    assert [write.version for write in store.writes] == [2, 3]


async def test_a_write_of_unknown_fate_voids_all_that_was_decided_since() -> None:
    store = StoreHere()
    leader = await opened(store)
    _, first = leader.acquire(count=1)
    await asyncio.sleep(0)
    _, second = leader.acquire(count=1)
    await store.commit(Refused(Reason.NOT_LEADER_OR_FOLLOWER, "another one leads"))
    assert await refusal(first) is Reason.COORDINATOR_NOT_AVAILABLE
    assert await refusal(second) is Reason.COORDINATOR_NOT_AVAILABLE
    assert not leader.queue.is_open, "only what is stored says what is true"
    await leader.queue.open()
    assert leader.queue.machine.leased_count == 1, "it was stored after all"


async def test_a_write_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "WRITE_S_MAX", 0.01)
    store = StoreHere()
    leader = await opened(store)
    _, commit = leader.acquire(count=1)
    assert await refusal(commit) is Reason.COORDINATOR_NOT_AVAILABLE
    assert not leader.queue.is_open
    await leader.queue.open()
    # It ends at last, and nobody waits for it any more.
    await store.commit()
    assert leader.queue.is_open


async def test_a_coordinator_that_moves_to_another_node_is_asked_there() -> None:
    store = StoreHere()
    leader = await opened(store)
    store.is_here = False
    assert await leader.acquired(count=1) == [AcquiredRange(0, 0, 1)]
    store.is_here = True
    _, commit = leader.acquire(count=1)
    await store.commit()
    await commit
    assert [write.version for write in store.writes] == [2, 3]
