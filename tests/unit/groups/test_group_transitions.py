"""Every transition of a group's states happens for its reason, and no other transition can."""

import itertools

import pytest

from penstock.groups.commands import Departure, MemberProtocol
from penstock.groups.group import Group
from penstock.groups.transitions import CAN_REBALANCE, TRANSITIONS, GroupState
from penstock.model.errors import Reason
from penstock.model.ids import MemberId
from tests.unit.groups.driver import GROUP, REBALANCE_MS, SESSION_MS, Driver, subscription

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD


def completing(driver: Driver, count: int = 2) -> list[MemberId]:
    tickets = [driver.join() for _ in range(count)]
    driver.advance(driver.settings.initial_rebalance_delay_ms * (count + 1))
    assert driver.group.state is COMPLETING
    return [driver.joined(ticket).member_id for ticket in tickets]


def test_the_table_is_kafkas() -> None:
    """Dead is final; an empty or stable group never skips the rebalance."""
    assert {(a.value, b.value) for a, b in TRANSITIONS} == {
        ("Empty", "PreparingRebalance"),
        ("PreparingRebalance", "CompletingRebalance"),
        ("PreparingRebalance", "Empty"),
        ("CompletingRebalance", "Stable"),
        ("CompletingRebalance", "PreparingRebalance"),
        ("Stable", "PreparingRebalance"),
        *((state.value, "Dead") for state in GroupState if state is not DEAD),
    }
    assert {EMPTY, COMPLETING, STABLE} == CAN_REBALANCE


@pytest.mark.parametrize(
    ("before", "after"),
    [pair for pair in itertools.product(GroupState, GroupState) if pair not in TRANSITIONS],
)
def test_no_other_transition_can_happen(before: GroupState, after: GroupState) -> None:
    group = Driver().group
    group.state = before
    with pytest.raises(AssertionError):
        group._enter(after)


def test_first_join_prepares_and_waits_for_more() -> None:
    driver = Driver()
    first = driver.join()
    assert driver.group.state is PREPARING
    driver.advance(99)
    second = driver.join()
    driver.advance(99)
    assert not driver.answers, "the second member extends the wait"
    driver.advance(2)
    assert driver.group.state is COMPLETING
    assert driver.joined(first).generation == driver.joined(second).generation == 1


def test_the_first_wait_ends_with_the_rebalance_timeout() -> None:
    """Members that keep trickling in don't delay the first generation forever."""
    driver = Driver(initial_rebalance_delay_ms=100)
    driver.join(rebalance_timeout_ms=350)
    for _ in range(10):
        driver.advance(50)
        if driver.group.state is COMPLETING:
            break
        driver.join(rebalance_timeout_ms=350)
    assert driver.group.generation == 1
    assert driver.clock.ms <= 1_000_000 + 400


def test_no_wait_when_the_delay_is_zero() -> None:
    driver = Driver(initial_rebalance_delay_ms=0)
    ticket = driver.join()
    driver.advance(0)
    assert driver.joined(ticket).generation == 1


def test_last_member_leaving_the_first_rebalance_empties_the_group() -> None:
    driver = Driver()
    ticket = driver.join()
    driver.advance(50)
    (member,) = driver.group.members.ids()
    assert driver.leave(Departure(member)) == [None]
    assert driver.joined(ticket).refused is Reason.UNKNOWN_MEMBER_ID
    driver.advance(100)
    assert driver.group.state is EMPTY
    assert driver.stores[0].record.metadata.members == ()


def test_assignment_makes_the_group_stable_only_once_it_is_stored() -> None:
    driver = Driver()
    leader, follower = completing(driver)
    waiting = driver.sync(follower)
    leading = driver.sync(leader, {str(leader): b"L", str(follower): b"F"})
    assert driver.group.state is COMPLETING
    assert not {waiting, leading} & driver.answers.keys()
    driver.store()
    assert driver.group.state is STABLE
    assert driver.synced(waiting).assignment == b"F"
    assert driver.synced(leading).assignment == b"L"


def test_assignment_that_can_not_be_stored_starts_another_rebalance() -> None:
    driver = Driver()
    leader, follower = completing(driver)
    waiting = driver.sync(follower)
    driver.sync(leader, {str(leader): b"L"})
    driver.store(Reason.NOT_COORDINATOR)
    assert driver.group.state is PREPARING
    assert driver.synced(waiting).refused is Reason.NOT_COORDINATOR
    tickets = [driver.join(member_id=leader), driver.join(member_id=follower)]
    assert driver.group.state is COMPLETING
    assert [driver.joined(ticket).generation for ticket in tickets] == [2, 2]


def test_join_of_a_new_member_interrupts_the_sync_phase() -> None:
    driver = Driver()
    leader, follower = completing(driver)
    waiting = driver.sync(follower)
    driver.join()
    assert driver.group.state is PREPARING
    assert driver.synced(waiting).refused is Reason.REBALANCE_IN_PROGRESS
    assert driver.group.members[leader].assignment == b""


def test_changed_metadata_interrupts_the_sync_phase() -> None:
    driver = Driver()
    leader, _ = completing(driver)
    driver.join(member_id=leader, protocols=(MemberProtocol("range", subscription("t", "u")),))
    assert driver.group.state is PREPARING


def test_leaving_interrupts_the_sync_phase_and_the_stable_one() -> None:
    driver = Driver()
    leader, follower = completing(driver)
    driver.leave(Departure(follower))
    assert driver.group.state is PREPARING
    driver.join(member_id=leader)
    driver.sync(leader, {})
    driver.store()
    assert driver.group.state is STABLE
    driver.leave(Departure(leader))
    assert driver.group.state is EMPTY
    assert driver.group.generation == 3


def test_member_that_does_not_sync_in_time_is_removed() -> None:
    driver = Driver()
    leader, follower = completing(driver)
    driver.sync(leader, {})
    driver.store()
    assert driver.group.state is STABLE
    for _ in range(REBALANCE_MS // 1000 + 1):
        for member_id in list(driver.group.members.ids()):
            driver.heartbeat(member_id)
        driver.advance(1000)
    assert driver.group.state is PREPARING
    assert set(driver.group.members.ids()) == {leader}
    assert follower not in driver.group.members


def test_silent_member_starts_a_rebalance() -> None:
    driver = Driver()
    driver.stable({}, {})
    driver.advance(SESSION_MS)
    assert driver.group.state is EMPTY, "both were silent"
    assert driver.group.generation == 2


def test_leader_that_joins_again_starts_a_rebalance() -> None:
    driver = Driver()
    leader, _ = driver.stable({}, {})
    driver.join(member_id=leader)
    assert driver.group.state is PREPARING


def test_follower_that_joins_again_unchanged_does_not() -> None:
    driver = Driver()
    _, follower = driver.stable({}, {})
    ticket = driver.join(member_id=follower)
    assert driver.group.state is STABLE
    assert driver.joined(ticket).generation == 1
    assert driver.joined(ticket).members == ()


def test_members_that_do_not_come_back_in_time_are_left_behind() -> None:
    driver = Driver()
    first, second = driver.stable({}, {"session_timeout_ms": 300_000})
    ticket = driver.join(member_id=first)
    driver.advance(REBALANCE_MS - 1)
    assert driver.group.state is PREPARING
    driver.advance(1)
    assert driver.group.state is COMPLETING
    assert driver.joined(ticket).generation == 2
    assert set(driver.group.members.ids()) == {first}
    assert second not in driver.group.members


@pytest.mark.parametrize("state", [state for state in GroupState if state is not DEAD])
def test_closing_answers_whoever_waits(state: GroupState) -> None:
    driver = Driver()
    waiting: list[int] = []
    if state is PREPARING:
        waiting = [driver.join(), driver.join()]
    elif state is COMPLETING:
        _, follower = completing(driver)
        waiting = [driver.sync(follower)]
    elif state is STABLE:
        driver.stable({}, {})
    assert driver.group.state is state
    driver.perform(driver.group.close())
    assert driver.group.state is DEAD
    assert {driver.answers[ticket].refused for ticket in waiting} <= {Reason.NOT_COORDINATOR}
    assert len(waiting) == len([t for t in waiting if t in driver.answers])
    assert len(driver.deadlines) == 0, "a dead group has no timers"


def test_restored_group_goes_on_in_its_generation() -> None:
    driver = Driver()
    leader, follower = driver.stable({}, {})
    ticket = driver.join(member_id=leader)
    driver.join(member_id=follower)
    assert driver.joined(ticket).generation == 2
    driver.sync(leader, {str(leader): b"L"})
    (store,) = driver.stores
    metadata = store.record.metadata
    restored = Driver(Group.restored(GROUP, metadata, settings=driver.settings, clock=driver.clock))
    restored.clock.ms = driver.clock.ms
    assert restored.group.state is STABLE
    restored.perform(restored.group.start_sessions())
    assert restored.group.heartbeat(leader, None, 2) == SESSION_MS
    assert restored.group.members.leader == leader
    restored.advance(SESSION_MS - 1)
    assert len(restored.group.members) == 2, "sessions start again"
    restored.advance(1)
    assert restored.group.state is EMPTY
