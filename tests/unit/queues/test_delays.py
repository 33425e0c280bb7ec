"""Records that wait: after they were given back, or because their producer wants it so."""

import asyncio
import time

import pytest

from penstock.queues import leading
from penstock.queues.backoff import Backoff, Waits
from penstock.queues.commands import (
    AckType,
    AcquiredRange,
    Later,
    Range,
    RecordState,
    ShareSettings,
)
from penstock.queues.machine import ShareMachine
from tests.unit.clocks import START_MS, ManualClock
from tests.unit.queues.leading_rig import KEY, Asleep, FakeLog, FakeStore, Leader, M, N

BACKOFF = Backoff(first_ms=1_000, max_ms=3_000, jitter_percent=0)
RETRIED = ShareSettings(backoff=BACKOFF)
DELAYED = ShareSettings(has_delays=True)


def lowest(_: int) -> int:
    return 0


def highest(below: int) -> int:
    return below - 1


# Backoff


def test_a_wait_doubles_with_every_attempt_up_to_the_longest() -> None:
    assert [BACKOFF.delay_ms(attempts, lowest) for attempts in range(1, 5)] == [
        *(1_000, 2_000, 3_000, 3_000)
    ]
    assert BACKOFF.delay_ms(1_000_000, lowest) == 3_000


def test_chance_moves_a_wait_up_or_down_within_its_bounds() -> None:
    backoff = Backoff(first_ms=1_000, max_ms=60_000, jitter_percent=20)
    assert backoff.delay_ms(1, lowest) == 800
    assert backoff.delay_ms(1, highest) == 1_200
    assert Backoff(first_ms=1, jitter_percent=100).delay_ms(1, lowest) == 1, "not at once"


def test_without_a_backoff_nothing_waits() -> None:
    assert Backoff().delay_ms(3, highest) == 0
    assert Waits(Backoff(), 5, highest).due_after(3) == 0


def test_what_was_tried_as_often_waits_as_long_in_one_request() -> None:
    numbers = iter(range(100))
    backoff = Backoff(first_ms=1_000, jitter_percent=50)
    waits = Waits(backoff, 10_000, lambda _: next(numbers))
    assert waits.due_after(1) == waits.due_after(1) == 10_500
    assert waits.due_after(2) == 11_001


async def test_a_record_that_is_given_back_comes_back_after_its_wait() -> None:
    leader = await Leader(FakeStore(), FakeLog(end=2), settings=RETRIED).opened()
    await leader.acquired()
    await leader.acknowledge(0, 0, AckType.RELEASE)
    assert await leader.acquired(N) == []
    leader.pass_time(999)
    assert await leader.acquired(N) == []
    leader.pass_time(1)
    assert await leader.acquired(N) == [AcquiredRange(0, 0, 2)]
    await leader.acknowledge(0, 0, AckType.RELEASE, N)
    leader.pass_time(1_999)
    assert await leader.acquired(M) == []
    leader.pass_time(1)
    assert await leader.acquired(M) == [AcquiredRange(0, 0, 3)]


async def test_a_lease_that_runs_out_or_is_closed_comes_back_at_once() -> None:
    leader = await Leader(FakeStore(), FakeLog(end=2), settings=RETRIED).opened()
    await leader.acquired(M, 1)
    await leader.queue.release(M)
    assert await leader.acquired(N, 1) == [AcquiredRange(0, 0, 2)]
    leader.pass_time(RETRIED.lease_ms)
    assert leader.queue.next_offset() == 0


async def test_the_wait_is_stored_with_its_chance_and_survives_the_leader() -> None:
    store, settings = FakeStore(), ShareSettings(backoff=Backoff(first_ms=1_000, jitter_percent=50))
    first = await Leader(store, FakeLog(end=1), settings=settings).opened()
    await first.acquired()
    await first.acknowledge(0, 0, AckType.RELEASE)
    stored = store.state.get(KEY)
    assert stored is not None
    assert stored.machine is not None
    due_ms = START_MS + 1_500
    assert [each.due_ms for each in stored.machine.ranges()] == [due_ms]
    second = await Leader(store, FakeLog(end=1, term=2), settings=settings).opened()
    second.pass_time(1_499)
    assert await second.acquired(N) == []
    second.pass_time(1)
    assert await second.acquired(N) == [AcquiredRange(0, 0, 2)]


async def test_a_poll_is_woken_when_a_record_is_due() -> None:
    clock = ManualClock()
    leader = await Leader(FakeStore(), FakeLog(end=1), clock=clock, settings=RETRIED).opened()
    await leader.acquired()
    await leader.acknowledge(0, 0, AckType.RELEASE)
    poll = Asleep()
    leader.queue.wait(poll)
    assert leader.due_alarms.is_set(leader.queue)
    assert poll.woken == 0
    clock.ms += 1_000
    leader.queue.make_due()
    assert poll.woken == 1
    assert not leader.due_alarms.is_set(leader.queue), "nothing waits any more"


class SkewedClock(ManualClock):
    """Whose wall clock can be set without time passing."""

    def __init__(self) -> None:
        super().__init__()
        self.set_by_ms = 0

    def now_ms(self) -> int:
        return self.ms + self.set_by_ms


async def test_a_wall_clock_that_is_set_is_noticed_soon() -> None:
    clock = SkewedClock()
    settings = ShareSettings(backoff=Backoff(first_ms=3_600_000, max_ms=3_600_000))
    leader = await Leader(FakeStore(), FakeLog(end=1), clock=clock, settings=settings).opened()
    await leader.acquired()
    await leader.acknowledge(0, 0, AckType.RELEASE)
    next_at = leader.due_alarms._deadlines.next_at()
    assert next_at is not None
    assert next_at <= clock.monotonic() + leading.DUE_CHECK_S_MAX
    clock.set_by_ms += 2 * 3_600_000
    leader.queue.make_due()
    assert leader.queue.next_offset() == 0
    # And back again: what is there stays there.
    clock.set_by_ms = 0
    leader.queue.make_due()
    assert await leader.acquired(N) == [AcquiredRange(0, 0, 2)]


async def test_many_that_are_due_at_once_do_not_stop_everything_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leading, "DUE_RANGES_MAX", 3)
    log = FakeLog(end=10)
    log.due = {offset: START_MS + 10 + offset for offset in range(10)}
    leader = await Leader(FakeStore(), log, settings=DELAYED).opened()
    assert await leader.acquired() == []
    leader.clock.ms += 60
    leader.queue.make_due()
    # Before the loop turns: then the alarm rings.
    at = leader.due_alarms._deadlines.next_at()
    assert await leader.acquired() == [AcquiredRange(0, 2, 1)], "the rest follows at once"
    assert at is not None
    assert at <= leader.clock.monotonic()


# Times that producers set


async def test_a_record_for_later_is_not_delivered_before_and_others_pass_it() -> None:
    log = FakeLog(end=4)
    log.due = {0: START_MS + 500, 2: START_MS + 300}
    leader = await Leader(FakeStore(), log, settings=DELAYED).opened()
    assert await leader.acquired() == [AcquiredRange(1, 1, 1), AcquiredRange(3, 3, 1)]
    leader.pass_time(299)
    assert await leader.acquired() == []
    leader.pass_time(1)
    assert await leader.acquired() == [AcquiredRange(2, 2, 1)]
    leader.pass_time(200)
    assert await leader.acquired() == [AcquiredRange(0, 0, 1)]


async def test_one_change_stores_all_delays_of_a_read_and_they_survive() -> None:
    store, log = FakeStore(), FakeLog(end=5)
    log.due = dict.fromkeys(range(5), START_MS + 500)
    leader = await Leader(store, log, settings=DELAYED).opened()
    writes = len(store.writes)
    assert await leader.acquired() == []
    (write,) = store.writes[writes:]
    (change,) = write.changes
    assert change.ranges == (Range(0, 4, RecordState.DELAYED, 0, due_ms=START_MS + 500),)
    second = await Leader(store, FakeLog(end=5, term=2), settings=DELAYED).opened()
    assert second.queue.next_offset() == 5, "nobody looks into them again"
    assert await second.acquired() == []
    second.pass_time(500)
    assert await second.acquired() == [AcquiredRange(0, 4, 1)]


async def test_nothing_new_is_looked_at_while_too_many_wait() -> None:
    settings = ShareSettings(has_delays=True, waiting_max=3)
    log = FakeLog(end=3)
    log.due = dict.fromkeys(range(3), START_MS + 500)
    leader = await Leader(FakeStore(), log, settings=settings).opened()
    await leader.acquired()
    log.grow()
    assert not leader.queue.may_look(500)
    assert not leader.queue.has_news
    leader.pass_time(500)
    assert leader.queue.may_look(500)
    assert await leader.acquired() == [AcquiredRange(0, 3, 1)]


@pytest.mark.slow
def test_two_hundred_thousand_single_delays_are_quick_and_joined_where_they_can_be() -> None:
    count = 200_000
    machine = ShareMachine(start=0)
    later = [Later(at, at, 1_000 + at) for at in range(count)]
    start = time.process_time()
    machine.apply(machine.decide_look([(0, count - 1)], later, DELAYED))
    copy = ShareMachine(start=0, ranges=tuple(machine.ranges()))
    assert copy.next_due_ms() == 1_000
    while (due_ms := copy.next_due_ms()) is not None:
        copy.apply(copy.decide_due(due_ms + 10_000, DELAYED, 1_000))
    assert time.process_time() - start < 30, "a step must not look at all of them"
    assert len(list(copy.ranges())) == 1
    copy.validate()


async def test_who_stores_a_queue_on_the_same_node_shares_its_ranges() -> None:
    store, log = FakeStore(), FakeLog(end=8)
    log.due = {offset: START_MS + 10 + offset for offset in range(8)}
    leader = await Leader(store, log, settings=DELAYED).opened()
    await leader.acquired()
    stored, machine = store.state.get(KEY), leader.queue._machine
    assert stored is not None
    assert stored.machine is not None
    assert machine is not None
    for mine, other in zip(machine.ranges(), stored.machine.ranges(), strict=True):
        assert mine is other
    second = await Leader(store, FakeLog(end=8, term=2), settings=DELAYED).opened()
    assert second.queue._machine is not None
    assert next(second.queue._machine.ranges()) is next(stored.machine.ranges())


async def test_the_alarm_of_what_is_due_has_no_grace_after_a_stall() -> None:
    """The rig's alarm rings in a loop that runs."""
    clock = ManualClock()
    leader = await Leader(FakeStore(), FakeLog(end=1), clock=clock, settings=RETRIED).opened()
    await leader.acquired()
    await leader.acknowledge(0, 0, AckType.RELEASE)
    clock.ms += 60_000
    leader.due_alarms._schedule()
    async with asyncio.timeout(5):
        while leader.queue.next_offset() != 0:
            await asyncio.sleep(0)
