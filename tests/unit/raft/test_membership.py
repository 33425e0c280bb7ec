"""Membership changes one voter at a time, never two at once, and can be taken back."""

from penstock.model.ids import LogIndex, Term
from penstock.raft.entries import Entry, EntryKind
from penstock.raft.membership import (
    Change,
    ChangeKind,
    Membership,
    MembershipHistory,
    MembershipStep,
    changed,
)
from penstock.raft.messages import AppendRequest, AppendResponse, Message
from penstock.raft.ready import Refusal, Role
from penstock.raft.settings import RaftSettings
from tests.unit.raft.groups import Group, Member, entries, entry, members, rid
from tests.unit.raft.memory_log import MemoryLog


def add(number: int) -> Change:
    return Change(ChangeKind.ADD_LEARNER, rid(number))


def promote(number: int) -> Change:
    return Change(ChangeKind.PROMOTE, rid(number))


def remove(number: int) -> Change:
    return Change(ChangeKind.REMOVE, rid(number))


def no_append_answers(message: Message) -> bool:
    return not isinstance(message, AppendResponse)


def group_with_stranger(settings: RaftSettings | None = None) -> tuple[Group, Member]:
    """Replicas 1 to 3 are voters, 4 is running but no member yet."""
    group = Group.of(3, settings)
    stranger = Member(4, members(1, 2, 3), settings)
    group.members[stranger.id] = stranger
    return group, stranger


def test_each_change_moves_at_most_one_voter() -> None:
    start = members(1, 2, 3, learners=(4,))
    assert changed(start, add(5)) == members(1, 2, 3, learners=(4, 5))
    assert changed(start, promote(4)) == members(1, 2, 3, 4)
    assert changed(start, remove(4)) == members(1, 2, 3)
    assert changed(start, remove(3)) == members(1, 2, learners=(4,))
    for impossible in (add(1), add(4), promote(1), promote(9), remove(9)):
        assert changed(start, impossible) is None
    assert changed(members(1), remove(1)) is None, "a group without voters is lost"


def test_a_learner_joins_catches_up_and_becomes_a_voter() -> None:
    group, stranger = group_with_stranger()
    leader = group.elect(1)
    for number in range(5):
        leader.node.propose(number, 1)
    assert isinstance(leader.node.change_membership(add(4)), int)
    group.deliver()
    assert stranger.terms == leader.terms
    assert leader.node.is_caught_up(rid(4))
    assert isinstance(leader.node.change_membership(promote(4)), int)
    group.deliver()
    assert {member.node.membership for member in group.members.values()} == {members(1, 2, 3, 4)}


def test_a_learner_that_is_behind_is_not_promoted() -> None:
    """Counting a voter that lags would stop commits until it has caught up."""
    group, stranger = group_with_stranger()
    leader = group.elect(1)
    leader.node.change_membership(add(4))
    group.cut = {stranger.id}
    group.deliver()
    assert leader.node.change_membership(promote(4)) is Refusal.LEARNER_BEHIND
    leader.node.propose("x", 1)
    group.deliver()
    group.cut = set()
    group.accepts = lambda message: message.sender != stranger.id
    group.tick(3)
    assert leader.node.change_membership(promote(4)) is Refusal.LEARNER_BEHIND
    group.accepts = lambda _: True
    group.tick(3)
    assert isinstance(leader.node.change_membership(promote(4)), int)


def test_a_learner_needs_what_was_committed_an_election_time_out_ago() -> None:
    group, stranger = group_with_stranger()
    leader = group.elect(1)
    leader.node.change_membership(add(4))
    group.tick(3)
    group.accepts = lambda message: (
        message.to != stranger.id or not isinstance(message, AppendRequest)
    )
    for span in (100, 7):
        leader.node.propose("x", 1, span)
        group.deliver()
    assert leader.node.is_caught_up(stranger.id), "that was committed only now"
    group.tick(10)
    assert not leader.node.is_caught_up(stranger.id)
    group.accepts = lambda _: True
    group.tick(3)
    assert leader.node.is_caught_up(stranger.id)


def test_a_learner_needs_what_was_committed_before_it_joined_a_leader_without_ticks() -> None:
    """Nobody ticks a leader that is alone; it must not promote anyone who has its first entry."""
    leader = Member(1, members(1))
    stranger = Member(2, members(1))
    group = Group(leader, stranger)
    group.elect(1)
    for number in range(5):
        leader.node.propose(number, 1)
    group.deliver()
    leader.node.change_membership(add(2))
    leader.step(AppendResponse(rid(2), rid(1), leader.node.term, LogIndex(4), LogIndex(0)))
    assert not leader.node.is_caught_up(rid(2))
    leader.step(AppendResponse(rid(2), rid(1), leader.node.term, LogIndex(6), LogIndex(0)))
    assert leader.node.is_caught_up(rid(2))


def test_a_learner_needs_all_that_a_new_leader_came_with() -> None:
    leader = Member(1, members(1, 2, learners=[3]), log=MemoryLog(entries(*[1] * 9)), term=1)
    other = Member(2, leader.membership, log=leader.log.copy(), term=1)
    group = Group(leader, other)
    group.elect(1)
    leader.step(AppendResponse(rid(3), rid(1), leader.node.term, LogIndex(4), LogIndex(0)))
    assert not leader.node.is_caught_up(rid(3))


def test_a_second_change_waits_until_the_first_is_committed() -> None:
    group, _ = group_with_stranger()
    leader = group.elect(1)
    group.accepts = no_append_answers
    assert leader.node.change_membership(remove(3)) == 2
    group.deliver()
    assert leader.node.change_membership(remove(2)) is Refusal.CHANGE_TOO_EARLY
    group.accepts = lambda _: True
    group.tick(3)
    assert leader.node.change_membership(add(4)) == 3


def test_a_change_waits_until_the_leader_committed_in_its_own_term() -> None:
    """Else two leaders in turn can each change one voter away from a common past, and their
    majorities need not overlap."""
    group = Group.of(3)
    group.accepts = no_append_answers
    leader = group.elect(1)
    assert leader.node.change_membership(remove(3)) is Refusal.CHANGE_TOO_EARLY
    group.accepts = lambda _: True
    group.tick(2)
    assert leader.node.change_membership(remove(3)) == 2


def test_a_membership_holds_from_the_moment_it_is_in_the_log() -> None:
    group = Group.of(4)
    leader = group.elect(1)
    group.cut = {rid(3), rid(4)}
    leader.node.propose("x", 1)
    group.deliver()
    assert leader.node.commit_index == 1, "two of four are not a majority"
    leader.node.change_membership(remove(4))
    group.deliver()
    assert leader.node.commit_index == 3, "two of three are"


def test_a_truncated_change_is_taken_back() -> None:
    """The membership in an entry that never commits must not outlive it."""
    three = members(1, 2, 3)
    change = Entry(LogIndex(2), Term(1), EntryKind.MEMBERSHIP, members(1, 2), 0)
    member = Member(2, three, log=MemoryLog([*entries(1), change]), term=1)
    assert member.node.membership == members(1, 2)
    member.step(
        AppendRequest(rid(3), rid(2), Term(2), LogIndex(1), Term(1), (entry(2, 2),), LogIndex(0))
    )
    assert member.node.membership == three


def test_history_keeps_what_truncation_may_need_and_no_more() -> None:
    steps = [MembershipStep(LogIndex(index), members(*range(1, index + 2))) for index in range(4)]
    history = MembershipHistory(steps[:1])
    for step in steps[1:]:
        history.append(step)
    history.commit(2)
    assert history.truncate(3)
    assert (history.current, history.current_index) == (steps[2].membership, 2)
    assert not history.truncate(3)


def test_a_leader_that_removes_itself_leads_until_then_and_names_a_successor() -> None:
    group = Group.of(3)
    leader = group.elect(1)
    leader.node.change_membership(remove(1))
    assert leader.node.role is Role.LEADER
    group.deliver()
    assert (leader.node.role, leader.node.commit_index) == (Role.FOLLOWER, 2)
    group.deliver()
    successors = [number for number in (2, 3) if group[number].node.role is Role.LEADER]
    assert len(successors) == 1
    assert group[successors[0]].node.membership == members(2, 3)
    leader.tick(100)
    assert leader.take() == [], "one that was removed does not campaign"


def test_a_leader_that_removes_itself_does_not_count_itself() -> None:
    group = Group.of(3)
    leader = group.elect(1)
    group.cut = {rid(3)}
    leader.node.change_membership(remove(1))
    group.deliver()
    assert leader.node.commit_index == 1, "one of two is not a majority"
    group.cut = set()
    group.tick(2)
    assert group[2].node.commit_index >= 2


def test_a_removed_voter_may_finish_its_own_removal() -> None:
    """Only replicas 1 and 4 hold the removal of 4; 1 is gone, and nobody but 4 can win."""
    group = Group.of(4)
    leader = group.elect(1)
    group.cut = {rid(2), rid(3)}
    leader.node.change_membership(remove(4))
    group.accepts = no_append_answers
    # Replica 4 is not sent the entry by a leader that does not count it: it got it just before.
    group[4].step(
        AppendRequest(
            rid(1),
            rid(4),
            Term(1),
            LogIndex(1),
            Term(1),
            (Entry(LogIndex(2), Term(1), EntryKind.MEMBERSHIP, members(1, 2, 3), 0),),
            LogIndex(1),
        )
    )
    group.cut = {rid(1)}
    group.accepts = lambda _: True
    group.tick(30)
    memberships = {group[number].node.membership for number in (2, 3)}
    assert memberships == {members(1, 2, 3)}
    assert {group[number].node.commit_index for number in (2, 3)} != {1}


def test_a_lost_directory_is_replaced_by_a_new_identity_of_the_same_node() -> None:
    group = Group.of(3)
    leader = group.elect(1)
    del group.members[rid(3)]
    fresh = Member(3, members(1, 2, 3), directory="b")
    group.members[fresh.id] = fresh
    for change in (
        Change(ChangeKind.ADD_LEARNER, fresh.id),
        remove(3),
        Change(ChangeKind.PROMOTE, fresh.id),
    ):
        assert isinstance(leader.node.change_membership(change), int)
        group.tick(3)
    assert fresh.node.membership == Membership(frozenset({rid(1), rid(2), fresh.id}))
    assert fresh.terms == leader.terms
