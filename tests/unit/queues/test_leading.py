"""One queue on the leader of its data partition: what is stored when, and what becomes void."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from penstock.model.errors import Reason, Refused
from penstock.queues import retrying
from penstock.queues.commands import (
    AckType,
    AcquiredRange,
    Change,
    Range,
    RecordState,
    ShareSettings,
)
from penstock.queues.decisions import Open
from penstock.queues.leases import STALE_MAX, LeaseDeadlines
from penstock.queues.records import QueueStored
from penstock.replication import alarm_clock
from tests.unit.clocks import ManualClock
from tests.unit.queues.leading_rig import (
    KEY,
    Asleep,
    FakeLog,
    FakeStore,
    Leader,
    M,
    N,
    Read,
    refusal,
)
from tests.waiting import until

LEASE_MS = ShareSettings().lease_ms


async def test_the_start_is_stored_before_the_first_lease() -> None:
    store = FakeStore()
    leader = await Leader(store, start=4).opened()
    assert [write.changes for write in store.writes] == [(Change(start=4),)]
    assert await leader.acquired() == [AcquiredRange(4, 9, 1)]


async def test_a_start_that_is_stored_is_not_resolved_again() -> None:
    store = FakeStore()
    await Leader(store, start=4).opened()
    second = await Leader(store, FakeLog(term=2), start=9).opened()
    assert second.queue.next_offset() == 4


async def test_records_may_leave_only_when_their_lease_is_stored() -> None:
    store = FakeStore()
    leader = await Leader(store).opened()
    store.goes_on.clear()
    _, commit = leader.acquire()
    await until(lambda: len(store.writes) == 2)
    assert not commit.is_settled
    store.goes_on.set()
    await commit
    stored = store.state.get(KEY)
    assert stored is not None
    assert stored.has_leases


async def test_decisions_made_during_a_write_go_together_with_the_next() -> None:
    store = FakeStore()
    leader = await Leader(store).opened()
    store.goes_on.clear()
    commits = [leader.acquire(M, 1)[1]]
    await until(lambda: len(store.writes) == 2)
    commits += [leader.acquire(N, 1)[1] for _ in range(5)]
    store.goes_on.set()
    for commit in commits:
        await commit
    assert [len(write.changes) for write in store.writes] == [1, 1, 5]
    assert [write.version for write in store.writes] == [1, 2, 3]


async def test_an_answer_without_a_change_waits_for_what_it_saw() -> None:
    store = FakeStore()
    leader = await Leader(store).opened()
    store.goes_on.clear()
    leader.acquire(M)
    await until(lambda: len(store.writes) == 2)
    nothing, commit = leader.acquire(N)
    assert nothing == ()
    assert not commit.is_settled
    store.goes_on.set()
    await commit


async def test_after_an_unknown_outcome_everything_since_is_void_and_read_again() -> None:
    store = FakeStore()
    leader = await Leader(store).opened()
    store.goes_on.clear()
    # It is stored, but nobody hears of it.
    store.refused_after.append(Refused(Reason.REQUEST_TIMED_OUT))
    _, first = leader.acquire(M, 3)
    await until(lambda: len(store.writes) == 2)
    _, second = leader.acquire(N, 3)
    store.goes_on.set()
    assert await refusal(first) is Reason.COORDINATOR_NOT_AVAILABLE
    assert await refusal(second) is Reason.COORDINATOR_NOT_AVAILABLE
    assert not leader.queue.is_open
    await leader.queue.open()
    assert [command.opening for command in store.opens] == [1, 2]
    # What was stored is known, what was only decided is not.
    assert await leader.acquired(N) == [AcquiredRange(3, 9, 1)]


async def test_a_delayed_write_of_an_earlier_opening_changes_nothing() -> None:
    store = FakeStore()
    leader = await Leader(store).opened()
    store.refused_before.append(Refused(Reason.REQUEST_TIMED_OUT))
    assert await refusal(leader.acquire(M, 3)[1]) is Reason.COORDINATOR_NOT_AVAILABLE
    await leader.queue.open()
    delayed = store.writes[-1]
    with pytest.raises(Refused) as refused:
        await store.write(delayed)
    assert refused.value.reason is Reason.FENCED_STATE_EPOCH
    assert await leader.acquired() == [AcquiredRange(0, 9, 1)]


async def read_before_another_opening(leader: Leader, store: FakeStore) -> Read:
    """What one poll reads behind the lease of another, which is never stored."""
    store.goes_on.clear()
    store.refused_before.append(Refused(Reason.REQUEST_TIMED_OUT))
    _, commit = leader.acquire(M, 5)
    read = leader.read()
    assert read.first == 5
    store.goes_on.set()
    assert await refusal(commit) is Reason.COORDINATOR_NOT_AVAILABLE
    await leader.queue.open()
    return read


async def test_what_was_read_before_the_queue_was_opened_again_leases_nothing() -> None:
    store = FakeStore()
    leader = await Leader(store).opened()
    read = await read_before_another_opening(leader, store)
    with pytest.raises(Refused) as refused:
        leader.acquire(N, read=read)
    assert refused.value.reason is Reason.COORDINATOR_NOT_AVAILABLE
    assert await leader.acquired(N) == [AcquiredRange(0, 9, 1)], "no record is lost"


async def test_what_was_found_before_the_queue_was_opened_again_is_not_decided() -> None:
    store = FakeStore()
    leader = await Leader(store, settings=ShareSettings(has_expiry=True)).opened()
    read = await read_before_another_opening(leader, store)
    for decide in (
        lambda: leader.look(read.spans, read.opening),
        lambda: leader.queue.drop_expired(read.spans, opening=read.opening),
    ):
        with pytest.raises(Refused) as refused:
            decide()
        assert refused.value.reason is Reason.COORDINATOR_NOT_AVAILABLE
    assert leader.queue.next_offset() == leader.queue.machine.end == 0
    assert leader.queue.expired_count == 0
    assert await leader.acquired(N) == [AcquiredRange(0, 9, 1)], "no record is lost"


async def test_a_doubled_write_is_refused() -> None:
    store = FakeStore()
    leader = await Leader(store).opened()
    await leader.acquired(M, 3)
    with pytest.raises(Refused) as refused:
        await store.write(store.writes[-1])
    assert refused.value.reason is Reason.FENCED_STATE_EPOCH


async def test_an_old_leader_can_store_nothing_once_the_next_one_has_opened() -> None:
    store = FakeStore()
    old = await Leader(store).opened()
    new = await Leader(store, FakeLog(term=2)).opened()
    _, commit = old.acquire(M)
    assert await refusal(commit) is Reason.NOT_LEADER_OR_FOLLOWER
    assert await new.acquired(N) == [AcquiredRange(0, 9, 1)]


async def test_an_old_leader_can_not_open_any_more() -> None:
    store = FakeStore()
    await Leader(store, FakeLog(term=2)).opened()
    assert await refusal(Leader(store).queue.open()) is Reason.NOT_LEADER_OR_FOLLOWER


async def test_a_coordinator_that_is_away_for_a_moment_is_asked_again() -> None:
    store = FakeStore()
    leader = await Leader(store).opened()
    store.refused_before += [Refused(Reason.NOT_COORDINATOR)] * 2
    assert await leader.acquired() == [AcquiredRange(0, 9, 1)]
    assert [write.version for write in store.writes] == [1, 2, 2, 2]


async def test_a_coordinator_that_stays_away_makes_the_queue_unavailable() -> None:
    store = FakeStore()
    leader = Leader(store)
    store.refused_before += [Refused(Reason.COORDINATOR_NOT_AVAILABLE)] * 2

    async def late() -> None:
        await until(lambda: len(store.opens) == 1)
        leader.clock.ms += int(retrying.RETRIED_S_MAX * 1000)

    outcome, _ = await asyncio.gather(refusal(leader.queue.open()), late())
    assert outcome is Reason.COORDINATOR_NOT_AVAILABLE
    await leader.queue.open()
    assert leader.queue.is_open, "it is tried again when somebody asks"


async def test_a_lost_leadership_ends_all_that_waits() -> None:
    store = FakeStore()
    leader = await Leader(store).opened()
    store.goes_on.clear()
    poll = Asleep()
    leader.queue.wait(poll)
    _, commit = leader.acquire()
    await until(lambda: len(store.writes) == 2)
    leader.log.lose()
    assert await refusal(commit) is Reason.NOT_LEADER_OR_FOLLOWER
    assert poll.woken
    assert leader.closed == [leader.queue]
    assert await refusal(leader.queue.open()) is Reason.NOT_LEADER_OR_FOLLOWER


# Leases


async def test_a_lease_ends_when_its_time_is_over() -> None:
    leader = await Leader(FakeStore()).opened()
    await leader.acquired(M, 2)
    leader.pass_time(LEASE_MS - 1)
    assert await leader.acquired(N, 1) == [AcquiredRange(2, 2, 1)]
    leader.pass_time(1)
    assert await leader.acquired(N, 2) == [AcquiredRange(0, 1, 2)]


async def test_a_lease_begins_when_it_is_stored() -> None:
    store = FakeStore()
    leader = await Leader(store).opened()
    store.goes_on.clear()
    _, commit = leader.acquire(M)
    await until(lambda: len(store.writes) == 2)
    leader.pass_time(20_000)
    store.goes_on.set()
    await commit
    leader.pass_time(LEASE_MS - 1)
    assert await leader.acquired(N) == []


async def test_after_a_take_over_a_lease_runs_its_whole_duration_again() -> None:
    store, clock = FakeStore(), ManualClock()
    first = await Leader(store, clock=clock).opened()
    await first.acquired(M, 2)
    clock.ms += LEASE_MS - 1
    second = await Leader(store, FakeLog(term=2), clock=clock).opened()
    second.pass_time(LEASE_MS - 1)
    assert await second.acquired(N, 1) == [AcquiredRange(2, 2, 1)], "0 and 1 are still leased"
    second.acknowledge(0, 0)
    second.pass_time(1)
    assert await second.acquired(N, 1) == [AcquiredRange(1, 1, 2)], "its attempts are known"


async def test_a_renewed_lease_outlives_its_first_deadline() -> None:
    leader = await Leader(FakeStore(), FakeLog(end=3)).opened()
    await leader.acquired(M)
    leader.pass_time(LEASE_MS - 1)
    await leader.acknowledge(1, 1, AckType.RENEW)
    leader.pass_time(1)
    assert await leader.acquired(N, 3) == [AcquiredRange(0, 0, 2), AcquiredRange(2, 2, 2)]
    leader.pass_time(LEASE_MS - 2)
    assert await leader.acquired(N, 1) == []
    leader.pass_time(1)
    assert await leader.acquired(N, 1) == [AcquiredRange(1, 1, 2)]


async def test_a_renewal_that_stores_nothing_is_answered_when_the_leadership_is_confirmed() -> None:
    leader = await Leader(FakeStore()).opened()
    await leader.acquired(M)
    await leader.acknowledge(0, 0, AckType.RENEW)
    # Somebody else leads, and nobody has said so here.
    leader.log.is_leader = False
    renewal = leader.acknowledge(0, 0, AckType.RENEW)
    assert await refusal(renewal) is Reason.NOT_LEADER_OR_FOLLOWER
    # The coordinator says whether it may be stored.
    await leader.acknowledge(0, 0)


@pytest.mark.parametrize("has_begun", [True, False])
async def test_a_renewal_that_is_not_confirmed_ends_with_the_leadership(has_begun: bool) -> None:
    leader = await Leader(FakeStore()).opened()
    await leader.acquired(M)
    asked = asyncio.Event()

    async def confirm() -> None:
        asked.set()
        await asyncio.Event().wait()

    leader.log.confirm = confirm  # type: ignore[method-assign]
    commit = leader.acknowledge(0, 0, AckType.RENEW)
    if has_begun:
        await asked.wait()
    leader.log.lose()
    assert await refusal(commit) is Reason.NOT_LEADER_OR_FOLLOWER


async def test_a_lease_that_is_given_again_does_not_end_with_the_one_before() -> None:
    leader = await Leader(FakeStore()).opened()
    await leader.acquired(N, 1)
    await leader.acquired(M, 1)
    leader.pass_time(LEASE_MS - 1)
    # The session ends and begins again.
    await leader.queue.release(M)
    assert await leader.acquired(M, 1) == [AcquiredRange(1, 1, 2)]
    leader.pass_time(1)
    assert await leader.acquired(N, 1) == [AcquiredRange(0, 0, 2)], "only the other one ended"


async def test_a_lease_that_is_not_stored_yet_does_not_end_with_one_that_looked_the_same() -> None:
    store = FakeStore()
    leader = await Leader(store).opened()
    await leader.acquired(N, 1)
    await leader.acquired(M, 1)
    leader.pass_time(LEASE_MS - 1)
    # It never reached its member, so the attempt does not count.
    leader.queue.undo(M)
    store.goes_on.clear()
    again, commit = leader.acquire(M, 1)
    leader.pass_time(1)
    store.goes_on.set()
    await commit
    assert again == (AcquiredRange(1, 1, 1),)
    both = [AcquiredRange(0, 0, 2), AcquiredRange(2, 2, 1)]
    assert await leader.acquired(N, 2) == both, "only the other one ended"
    leader.pass_time(LEASE_MS)
    assert (await leader.acquired(N, 2))[1:] == [AcquiredRange(1, 1, 2)]


async def test_deadlines_of_ended_leases_do_not_pile_up() -> None:
    leader = await Leader(FakeStore(), FakeLog(end=5_000)).opened()
    await leader.acquired(N, 1)
    for offset in range(1, 3_000):
        await leader.acquired(M, 1)
        leader.acknowledge(offset, offset)
    assert len(leader.queue._deadlines) <= STALE_MAX + 3
    leader.pass_time(LEASE_MS)
    assert await leader.acquired(N, 1) == [AcquiredRange(0, 0, 2)], "what is leased is kept"


class Looked(tuple[Range, ...]):
    """Leases of one deadline that count how often somebody goes through them."""

    looks = 0

    def __iter__(self) -> Iterator[Range]:
        Looked.looks += 1
        return super().__iter__()


def test_a_lease_that_is_renewed_often_costs_the_same_each_time() -> None:
    Looked.looks, renewals = 0, 10 * STALE_MAX
    lease, other = (
        Range(offset, offset, RecordState.LEASED, 1, member_id, LEASE_MS)
        for offset, member_id in ((0, M), (1, N))
    )
    deadlines = LeaseDeadlines()
    deadlines.add([lease, other], 0.5)
    for at in range(1, renewals + 1):
        deadlines.renew(Looked([lease]), at)
        deadlines.drop_stale([lease, other], 2)
    # Once for each renewal, and once more before it is dropped.
    assert Looked.looks <= 2 * renewals
    assert len(deadlines) <= STALE_MAX + 5
    assert deadlines.pop_due(renewals - 1) == [other], "what is not renewed keeps its deadline"
    assert deadlines.pop_due(renewals) == [lease]


def test_a_deadline_that_a_sooner_one_has_replaced_is_dropped_too() -> None:
    lease = Range(0, 0, RecordState.LEASED, 1, M, LEASE_MS)
    deadlines, renewals = LeaseDeadlines(), 10 * STALE_MAX
    for at in range(renewals, 0, -1):
        deadlines.renew([lease], at)
        deadlines.drop_stale([lease], 1)
    assert len(deadlines) <= STALE_MAX + 3
    assert deadlines.pop_due(1) == [lease]


async def test_after_a_stall_acks_that_have_arrived_come_before_expiries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alarm_clock, "GRACE_AFTER_STALL_S", 0.01)
    leader = await Leader(FakeStore()).opened()
    leader.settings = ShareSettings(lease_ms=10)
    await leader.acquired(M, 2)
    # The process stands still: by the time the alarm rings, long after, an ack has arrived.
    leader.clock.ms += 60_000
    await until(lambda: leader.alarms._wake_up_at > leader.clock.monotonic())
    assert await leader.acquired(N, 1) == [AcquiredRange(2, 2, 1)], "0 and 1 are not given away"
    await leader.acknowledge(0, 1)
    leader.pass_time(60_000)
    assert await leader.acquired(N, 1) == [AcquiredRange(2, 2, 2)]


# Waiting polls


async def test_a_poll_is_woken_by_the_high_watermark() -> None:
    leader = await Leader(FakeStore(), FakeLog(end=0)).opened()
    poll = Asleep()
    leader.queue.wait(poll)
    leader.log.grow()
    assert poll.woken == 1


async def give_back(leader: Leader) -> None:
    await leader.acknowledge(0, 0, AckType.RELEASE)


async def leave(leader: Leader) -> None:
    await leader.queue.release(M)


async def run_out(leader: Leader) -> None:
    leader.pass_time(LEASE_MS)


@pytest.mark.parametrize("event", [give_back, leave, run_out])
async def test_a_poll_is_woken_by_records_that_come_back(
    event: Callable[[Leader], Awaitable[Any]],
) -> None:
    leader = await Leader(FakeStore()).opened()
    await leader.acquired(M)
    poll = Asleep()
    leader.queue.wait(poll)
    await event(leader)
    assert poll.woken == 1


async def test_a_poll_is_woken_when_there_is_room_for_leases() -> None:
    leader = await Leader(FakeStore(), settings=ShareSettings(leased_max=3)).opened()
    assert await leader.acquired(M) == [AcquiredRange(0, 2, 1)]
    poll = Asleep()
    leader.queue.wait(poll)
    leader.log.grow()
    assert poll.woken == 0
    await leader.acknowledge(0, 0)
    assert poll.woken == 1


async def test_a_poll_is_woken_when_another_one_found_something_or_failed() -> None:
    leader = await Leader(FakeStore(), settings=ShareSettings(has_delays=True)).opened()
    queue, poll = leader.queue, Asleep()
    queue.wait(poll)
    with queue.looking():
        assert not queue.may_look(1), "one at a time"
    assert poll.woken == 0, "it would find nothing either"
    with pytest.raises(OSError, match="disk"), queue.looking():
        raise OSError("disk")
    assert poll.woken == 1, "now it is its turn"
    queue.wait(poll)
    with queue.looking():
        leader.look([(0, 0)], queue.opening)
    assert poll.woken == 2


async def test_the_poll_that_waits_longest_is_woken_and_then_the_next() -> None:
    leader = await Leader(FakeStore(), FakeLog(end=0)).opened()
    polls = [Asleep() for _ in range(3)]
    for poll in polls:
        leader.queue.wait(poll)
    leader.log.grow(2)
    assert [poll.woken for poll in polls] == [1, 0, 0]
    await leader.acquired(M, 1)
    leader.queue.leave(polls[0])
    assert [poll.woken for poll in polls] == [1, 1, 0], "there is one more record"
    await leader.acquired(N, 1)
    leader.queue.leave(polls[1])
    assert [poll.woken for poll in polls] == [1, 1, 0], "there is none left"


async def test_a_poll_that_leaves_what_it_finds_is_not_woken_again_for_it() -> None:
    leader = await Leader(FakeStore(), FakeLog(end=0)).opened()
    picky, other = Asleep(), Asleep()
    leader.queue.wait(picky)
    leader.queue.wait(other)
    leader.log.grow()
    leader.queue.wait(picky)
    leader.queue.wait(other)
    assert (picky.woken, other.woken) == (1, 1)


# The log moves underneath


async def test_records_that_retention_removed_do_not_hold_up_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FakeStore()
    leader = await Leader(store).opened()
    await leader.acquired(M, 2)
    await leader.acknowledge(1, 1)
    leader.log.log_start_offset = 5
    assert leader.queue.next_offset() == 5
    assert await leader.acquired(N) == [AcquiredRange(5, 9, 1)]
    assert "4 records" in caplog.text
    stored = store.state.get(KEY)
    assert stored is not None
    assert stored.start == 5


async def test_a_log_that_got_shorter_cuts_the_state_back_loudly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FakeStore()
    leader = await Leader(store).opened()
    await leader.acquired(M)
    await leader.acknowledge(0, 6)
    second = await Leader(store, FakeLog(end=5, term=2)).opened()
    assert "forgotten" in caplog.text
    second.log.grow()
    assert await second.acquired(N) == [AcquiredRange(5, 5, 1)], "a record that came since"


async def test_a_queue_that_is_in_use_is_not_idle() -> None:
    leader = await Leader(FakeStore()).opened()
    await until(lambda: leader.queue.is_idle)
    await leader.acquired(M, 1)
    assert not leader.queue.is_idle
    await leader.acknowledge(0, 0)
    await until(lambda: leader.queue.is_idle)
    leader.queue.wait(Asleep())
    assert not leader.queue.is_idle


async def test_an_opening_that_another_one_overtook_is_refused() -> None:
    store = FakeStore()
    await store.open(Open(key=KEY, term=1, opening=2))
    with pytest.raises(Refused) as refused:
        await store.open(Open(key=KEY, term=1, opening=2))
    assert refused.value.reason is Reason.FENCED_STATE_EPOCH
    queue = store.state.get(KEY)
    assert queue is not None
    assert isinstance(queue.stored(), QueueStored)
