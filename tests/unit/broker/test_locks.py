"""Leases and lines of locks, on the controller and across a change of it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.broker import lock_lines
from penstock.broker.lock_lines import LockLines
from penstock.broker.locks import READS_LOCKS, Locks
from penstock.cluster.lock import Lock
from penstock.model.errors import Reason, Refused
from penstock.replication.alarm_clock import AlarmClock
from tests.unit.clocks import ManualClock
from tests.unit.cluster.fakes import FakeNode, Group, start_node

LEASE_MS = 10_000


class Rig:
    """Nodes that share one metadata log, each with its locks; time passes when a test says so."""

    def __init__(self, group: Group, nodes: list[FakeNode]) -> None:
        self.group = group
        self.nodes = nodes
        self.clock = ManualClock()
        self.locks = [
            Locks(cluster=node.cluster, peers=node.exchange, clock=self.clock) for node in nodes
        ]

    async def pass_ms(self, ms: int) -> None:
        """In steps: a clock that jumps looks like a process that stood still."""
        for _ in range(0, ms, 250):
            self.clock.ms += 250
            for locks in self.locks:
                for alarms in (locks._ends, locks._lines._kept):
                    _ring(alarms)
            await self.settle()

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def take(self, owner: str, node: int = 0, wait_s: float = 0.0) -> Lock | None:
        acquired = await self.locks[node].acquire("a", owner, LEASE_MS, wait_s)
        return acquired.lock if acquired.is_granted else None

    def wait(self, owner: str) -> "asyncio.Task[Lock | None]":
        return asyncio.ensure_future(self.take(owner, wait_s=5.0))


def _ring(alarms: AlarmClock[object] | AlarmClock[str] | AlarmClock[tuple[str, str]]) -> None:
    if alarms._wake_up is not None and alarms._wake_up_at <= alarms._clock.monotonic():
        alarms._wake_up.cancel()
        alarms._ring()


def run(test: Callable[[Rig], Awaitable[None]], *, nodes: int = 1) -> None:
    async def body() -> None:
        group = Group()
        rig = Rig(group, [await start_node(group, number) for number in range(nodes)])
        await test(rig)
        for locks in rig.locks:
            locks.close()

    asyncio.run(body())


async def reason(work: Awaitable[object]) -> Reason:
    with pytest.raises(Refused) as caught:
        await work
    return caught.value.reason


def test_a_lease_ends_unless_it_is_renewed() -> None:
    async def test(rig: Rig) -> None:
        first = await rig.take("one")
        assert first is not None
        await rig.pass_ms(LEASE_MS - 1_000)
        await rig.locks[0].renew("a", "one", first.fencing_token)
        await rig.pass_ms(LEASE_MS - 1_000)
        assert await rig.take("two") is None
        await rig.pass_ms(1_000)
        assert await reason(rig.locks[0].renew("a", "one", first.fencing_token)) is (
            Reason.LOCK_NOT_HELD
        )
        second = await rig.take("two")
        assert second is not None
        assert second.fencing_token > first.fencing_token

    run(test)


def test_a_renewal_stores_nothing_unless_the_lease_changes() -> None:
    async def test(rig: Rig) -> None:
        held = await rig.take("one")
        assert held is not None
        before = len(rig.group.log)
        await rig.locks[0].renew("a", "one", held.fencing_token)
        assert await rig.take("one") == held
        assert len(rig.group.log) == before
        longer = await rig.locks[0].renew("a", "one", held.fencing_token, 2 * LEASE_MS)
        assert longer.lease_ms == 2 * LEASE_MS
        assert len(rig.group.log) == before + 1
        await rig.pass_ms(LEASE_MS + 1_000)
        assert await rig.take("two") is None

    run(test)


def test_what_the_controller_knows_of_a_lock() -> None:
    async def test(rig: Rig) -> None:
        assert await rig.locks[0].describe("a") is None
        held = await rig.take("one")
        waiting = rig.wait("two")
        await rig.pass_ms(1_000)
        found = await rig.locks[0].describe("a")
        assert found is not None
        assert (found.lock, found.left_ms, found.waiters) == (held, LEASE_MS - 1_000, 1)
        assert await rig.locks[0].all() == [found]
        waiting.cancel()
        await rig.settle()
        found = await rig.locks[0].describe("a")
        assert found is not None
        assert found.waiters == 0

    run(test)


def test_those_who_wait_get_the_lock_in_the_order_in_which_they_came() -> None:
    async def test(rig: Rig) -> None:
        held = await rig.take("one")
        assert held is not None
        waiting = [rig.wait(owner) for owner in ("two", "three", "four")]
        await rig.settle()
        waiting[1].cancel()
        await rig.locks[0].release("a", "one", held.fencing_token)
        # Nobody passes those who wait.
        assert await rig.take("five") is None
        second = await waiting[0]
        assert second is not None
        assert not waiting[2].done()
        await rig.locks[0].release("a", "two", second.fencing_token)
        last = await waiting[2]
        assert last is not None
        assert [each.fencing_token for each in (held, second, last)] == [1, 2, 3]

    run(test)


def test_a_place_in_the_line_is_kept_for_somebody_who_asks_again() -> None:
    async def test(rig: Rig) -> None:
        lines = rig.locks[0]._lines
        held = await rig.take("one")
        assert held is not None
        lines._join("a", "early")
        lines.keep("a", "early")
        late = rig.wait("late")
        await rig.settle()
        await rig.locks[0].release("a", "one", held.fencing_token)
        await rig.settle()
        assert not late.done()
        again = await rig.take("early")
        assert again is not None
        lines._join("a", "gone")
        lines.keep("a", "gone")
        await rig.locks[0].release("a", "early", again.fencing_token)
        assert await late is not None
        await rig.pass_ms(lock_lines.PLACE_KEPT_MS)
        assert lines.length("a") == 0

    run(test)


def test_a_line_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_lines, "WAITERS_PER_LOCK_MAX", 2)

    async def test(rig: Rig) -> None:
        await rig.take("one")
        waiting = [rig.wait(owner) for owner in ("two", "three")]
        await rig.settle()
        assert await reason(rig.take("four")) is Reason.THROTTLED
        rig.group.elect(None)
        assert [await reason(each) for each in waiting] == [Reason.NOT_CONTROLLER] * 2

    run(test)


def test_the_same_owner_waits_once() -> None:
    async def test() -> None:
        lines = LockLines(ManualClock(), lambda name: False)
        earlier = lines._join("a", "one")
        lines._join("a", "one")
        assert isinstance(earlier.exception(), Refused)
        assert lines.length("a") == 1

    asyncio.run(test())


def test_after_a_change_of_the_controller_a_lease_has_its_whole_time_again() -> None:
    async def test(rig: Rig) -> None:
        held = await rig.take("one")
        assert held is not None
        await rig.pass_ms(LEASE_MS - 1_000)
        rig.group.elect(1)
        await rig.pass_ms(LEASE_MS - 1_000)
        assert await rig.take("two", node=1) is None
        assert await reason(rig.take("two", node=0)) is Reason.NOT_CONTROLLER
        await rig.pass_ms(1_000)
        later = await rig.take("two", node=1)
        assert later is not None
        assert later.fencing_token > held.fencing_token

    run(test, nodes=2)


def test_a_lock_is_released_through_any_node_and_only_with_its_token() -> None:
    async def test(rig: Rig) -> None:
        held = await rig.take("one")
        assert held is not None
        assert await reason(rig.locks[1].release("a", "one", 99)) is Reason.LOCK_NOT_HELD
        assert await reason(rig.locks[1].release("a", "two", held.fencing_token)) is (
            Reason.LOCK_NOT_HELD
        )
        await rig.locks[1].release("a", "one", held.fencing_token)
        assert await rig.locks[0].describe("a") is None

    run(test, nodes=2)


def test_nobody_hears_of_a_lock_before_it_is_stored() -> None:
    async def test(rig: Rig) -> None:
        rig.group.held = asyncio.Event()
        taking = asyncio.ensure_future(rig.take("one"))
        await rig.settle()
        assert not taking.done()
        rig.group.held.set()
        assert await taking is not None

    run(test)


def test_the_end_of_a_lease_that_can_not_be_stored_is_tried_again() -> None:
    async def test(rig: Rig) -> None:
        await rig.take("one")
        rig.group.is_disk_full = True
        await rig.pass_ms(LEASE_MS + 250)
        assert await rig.take("two") is None
        rig.group.is_disk_full = False
        await rig.pass_ms(1_500)
        assert await rig.take("two") is not None

    run(test)


def test_a_cluster_with_a_node_of_an_earlier_release_has_no_locks() -> None:
    async def test(rig: Rig) -> None:
        async def unknown(_: object, __: bytes) -> bytes:
            raise Refused(Reason.UNSUPPORTED_VERSION, f"Node 1 does not know {READS_LOCKS}.")

        rig.nodes[1].exchange.handlers[READS_LOCKS] = unknown
        with pytest.raises(Refused, match="Node 1 runs an earlier release") as caught:
            await rig.take("one")
        assert caught.value.reason is Reason.UNSUPPORTED_VERSION
        # One that is down does not matter, and once there was a lock nobody is asked.
        rig.nodes[1].is_up = False
        assert await rig.take("one") is not None
        rig.nodes[1].is_up = True
        asked = len(rig.nodes[0].exchange.calls)
        assert (await rig.locks[0].acquire("b", "one", LEASE_MS)).is_granted
        assert len(rig.nodes[0].exchange.calls) == asked

    run(test, nodes=2)


@pytest.mark.parametrize(
    ("name", "owner", "lease_ms"), [("a b", "one", 1_000), ("a", "", 1_000), ("a", "one", 5)]
)
def test_bad_input_is_refused(name: str, owner: str, lease_ms: int) -> None:
    async def test(rig: Rig) -> None:
        asking = rig.locks[0].acquire(name, owner, lease_ms)
        assert await reason(asking) is Reason.INVALID_REQUEST

    run(test)
