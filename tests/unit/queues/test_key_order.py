"""Order per key: a record waits until all earlier ones of its key are done."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from penstock.queues.backoff import Backoff
from penstock.queues.commands import AckBatch, AckType, AcquiredRange, Change, ShareSettings
from penstock.queues.key_order import KeyOrder
from penstock.queues.letters import LetterState
from penstock.queues.machine import ShareMachine
from penstock.queues.tally import LeaseTally
from tests.unit.clocks import START_MS
from tests.unit.queues.leading_rig import Asleep, FakeLog, FakeStore, Leader, M, N

ORDERED = ShareSettings(has_key_order=True)
A, B = 1, 2


async def leading(
    keys: dict[int, int], *, settings: ShareSettings = ORDERED, store: FakeStore | None = None
) -> Leader:
    log = FakeLog(end=max(keys) + 1)
    log.keys = keys
    return await Leader(store or FakeStore(), log, settings=settings).opened()


async def test_the_next_of_a_key_waits_until_the_one_before_it_is_done() -> None:
    leader = await leading({0: A, 1: A, 2: B, 3: A})
    assert await leader.acquired(M) == [AcquiredRange(0, 0, 1), AcquiredRange(2, 2, 1)]
    assert await leader.acquired(N) == []
    await leader.acknowledge(0, 0)
    assert await leader.acquired(N) == [AcquiredRange(1, 1, 1)]
    await leader.acknowledge(1, 1, member_id=N)
    assert await leader.acquired(M) == [AcquiredRange(3, 3, 1)]


async def test_records_without_a_key_have_no_order() -> None:
    leader = await leading({0: A, 4: A})
    assert await leader.acquired(M) == [AcquiredRange(0, 3, 1)]


async def test_a_record_that_is_released_or_waits_holds_up_its_key() -> None:
    settings = ShareSettings(has_key_order=True, backoff=Backoff(first_ms=1_000, jitter_percent=0))
    leader = await leading({0: A, 1: A}, settings=settings)
    await leader.acquired(M)
    await leader.acknowledge(0, 0, AckType.RELEASE)
    assert await leader.acquired(N) == [], "it waits for its next attempt"
    leader.pass_time(1_000)
    assert await leader.acquired(N) == [AcquiredRange(0, 0, 2)]
    await leader.queue.release(N)
    assert await leader.acquired(M) == [AcquiredRange(0, 0, 3)]


async def test_a_record_that_is_for_later_holds_up_its_key() -> None:
    settings = ShareSettings(has_key_order=True, has_delays=True)
    log = FakeLog(end=3)
    log.keys, log.due = {0: A, 1: A, 2: B}, {0: START_MS + 500}
    leader = await Leader(FakeStore(), log, settings=settings).opened()
    assert await leader.acquired(M) == [AcquiredRange(2, 2, 1)]
    leader.pass_time(500)
    assert await leader.acquired(M) == [AcquiredRange(0, 0, 1)]
    assert await leader.acquired(M) == []


async def test_a_record_whose_time_has_come_still_waits_for_its_key() -> None:
    settings = ShareSettings(has_key_order=True, has_delays=True)
    log = FakeLog(end=2)
    log.keys, log.due = {0: A, 1: A}, {1: START_MS + 500}
    leader = await Leader(FakeStore(), log, settings=settings).opened()
    assert await leader.acquired(M) == [AcquiredRange(0, 0, 1)]
    leader.pass_time(500)
    assert await leader.acquired(M) == []
    await leader.acknowledge(0, 0)
    assert await leader.acquired(M) == [AcquiredRange(1, 1, 1)]


async def test_a_record_that_is_given_up_frees_its_key() -> None:
    for has_dead_letters in (False, True):
        settings = ShareSettings(has_key_order=True, has_dead_letters=has_dead_letters)
        leader = await leading({0: A, 1: A}, settings=settings)
        await leader.acquired(M)
        await leader.acknowledge(0, 0, AckType.REJECT)
        assert await leader.acquired(M) == [AcquiredRange(1, 1, 1)]


async def test_records_that_retention_removed_free_their_keys() -> None:
    leader = await leading({0: A, 1: B, 2: A, 3: A})
    await leader.acquired(M)
    leader.log.log_start_offset = 2
    assert await leader.acquired(N) == [AcquiredRange(2, 2, 1)]


async def test_the_next_leader_keeps_the_order_and_its_poll_is_woken() -> None:
    store, keys = FakeStore(), {0: A, 1: A, 2: B, 3: A}
    first = await leading(keys, store=store)
    await first.acquired(M)
    log = FakeLog(end=4, term=2)
    log.keys = keys
    second = await Leader(store, log, settings=ORDERED).opened()
    assert await second.acquired(N) == []
    poll = Asleep()
    second.queue.wait(poll)
    assert poll.woken == 0
    await second.acknowledge(0, 0)
    assert poll.woken == 1
    assert await second.acquired(N) == [AcquiredRange(1, 1, 1)]


async def test_a_change_of_the_setting_makes_the_leader_begin_again() -> None:
    leader = await leading({0: A, 1: A})
    await leader.acquired(M)
    assert await leader.acquired(N) == []
    leader.settings = ShareSettings()
    leader.queue.follow_settings()
    assert not leader.queue.is_open
    await leader.queue.open()
    assert await leader.acquired(N) == [AcquiredRange(1, 1, 1)]
    leader.settings = ORDERED
    leader.queue.follow_settings()
    await leader.queue.open()
    await leader.acknowledge(1, 1, AckType.RELEASE, N)
    assert await leader.acquired(N) == [], "the one before it is still out"


async def test_how_far_it_looks_past_blocked_records_has_a_limit() -> None:
    settings = ShareSettings(has_key_order=True, blocked_max=5)
    leader = await leading(dict.fromkeys(range(6), A), settings=settings)
    await leader.acquired(M)
    leader.log.grow()
    assert not leader.queue.may_look(500)
    assert not leader.queue.has_news
    await leader.acknowledge(0, 0)
    assert leader.queue.has_news
    assert await leader.acquired(N) == [AcquiredRange(1, 1, 1), AcquiredRange(6, 6, 1)]


# Cost


def blocked_by_one_key(count: int) -> tuple[ShareMachine, KeyOrder, Callable[[Change], None]]:
    settings = ShareSettings(has_key_order=True, blocked_max=1_000_000)
    machine, order = ShareMachine(start=0), KeyOrder(0)

    def apply(change: Change) -> None:
        machine.apply(change)
        machine.apply(order.follow(change, machine, settings))

    order.add((offset, A) for offset in range(count))
    apply(machine.decide_look([(0, count - 1)], [], settings))
    return machine, order, apply


def test_a_hundred_thousand_blocked_records_of_one_key_cost_nothing_each_time() -> None:
    count, rounds = 100_000, 2_000
    machine, order, apply = blocked_by_one_key(count)
    assert (machine.blocked_count, len(list(machine.ranges()))) == (count - 1, 2)
    start = time.process_time()
    for offset in range(rounds):
        change, acquired = machine.decide_acquire(
            M,
            [(offset, offset + 500)],
            records_max=500,
            batch_size=500,
            is_exact=False,
            settings=ORDERED,
            read_from=offset,
        )
        assert acquired == (AcquiredRange(offset, offset, 1),)
        apply(change)
        ack = AckBatch(first=offset, last=offset, types=(AckType.ACCEPT,))
        apply(machine.decide_acknowledge(M, [ack], ORDERED)[0])
    assert machine.first_available() == rounds
    assert len(order) == count - rounds
    # Linear in what is blocked, it would take minutes.
    assert time.process_time() - start < 10


def test_a_gap_of_a_billion_offsets_is_not_counted_one_by_one() -> None:
    machine, order, apply = blocked_by_one_key(10)
    start = time.process_time()
    apply(machine.decide_log_start(1_000_000_000))
    assert time.process_time() - start < 1
    assert (len(order), machine.start) == (0, 1_000_000_000)


class Asked(dict[int, int]):
    """Keys of records that count how many of them somebody asks for."""

    count = 0

    def pop(self, *args: Any) -> Any:
        self.count += 1
        return super().pop(*args)

    def __iter__(self) -> Iterator[int]:
        self.count += len(self)
        return super().__iter__()


def test_a_redrive_does_not_go_through_what_lies_below_the_start() -> None:
    start, known = 100_000, 1_000
    machine, order = ShareMachine(start=start), KeyOrder(start)
    order.add((offset, A) for offset in range(start, start + known))
    machine.apply(machine.decide_look([(start, start + known - 1)], [], ORDERED))
    order._key_at = asked = Asked(order._key_at)
    again = dict.fromkeys(range(0, start, known // 2), 0)
    change, count = machine.decide_reopened(again, ORDERED, LetterState())
    machine.apply(change)
    machine.apply(order.follow(change, machine, ORDERED))
    assert (machine.start, count) == (0, len(again))
    assert (asked.count, len(order)) == (0, known)


# Limits of consumers


async def two_queues(settings: ShareSettings) -> tuple[Leader, Leader]:
    tally = LeaseTally()
    return (
        await Leader(FakeStore(), FakeLog(), settings=settings, tally=tally).opened(),
        await Leader(FakeStore(), FakeLog(), settings=settings, tally=tally).opened(),
    )


async def test_a_member_has_no_more_than_its_limit_over_all_queues() -> None:
    one, other = await two_queues(ShareSettings(member_leased_max=7))
    assert await one.acquired(M, 5) == [AcquiredRange(0, 4, 1)]
    assert await other.acquired(M, 5) == [AcquiredRange(0, 1, 1)]
    assert other.queue.room_of(M) == 0
    assert await other.acquired(N, 5) == [AcquiredRange(2, 6, 1)], "others have their own"
    await one.acknowledge(0, 2)
    assert other.queue.room_of(M) == 3


async def test_all_members_together_have_no_more_than_their_limit() -> None:
    one, other = await two_queues(ShareSettings(group_leased_max=7))
    assert await one.acquired(M, 5) == [AcquiredRange(0, 4, 1)]
    assert await other.acquired(N, 5) == [AcquiredRange(0, 1, 1)]
    assert await other.acquired(M, 5) == []


async def test_a_poll_that_waits_for_room_is_woken_by_an_ack_in_another_queue() -> None:
    one, other = await two_queues(ShareSettings(member_leased_max=5))
    await one.acquired(M, 5)
    poll = Asleep()
    other.queue.wait(poll)
    assert other.queue.room_of(M) == 0
    await one.acknowledge(0, 0)
    assert poll.woken == 1


async def test_what_a_dropped_queue_had_is_not_counted_any_more() -> None:
    one, other = await two_queues(ShareSettings(member_leased_max=5))
    await one.acquired(M, 5)
    one.log.lose()
    assert other.queue.room_of(M) == 5


async def test_leases_that_were_there_before_count_after_a_take_over() -> None:
    store, settings = FakeStore(), ShareSettings(member_leased_max=5)
    first = await Leader(store, settings=settings).opened()
    await first.acquired(M, 5)
    second = await Leader(store, FakeLog(term=2), settings=settings).opened()
    assert second.queue.room_of(M) == 0
    second.pass_time(settings.lease_ms)
    assert second.queue.room_of(M) == 5
