"""A replica that lost the tail of its log: whom it votes for, and when it may lead itself."""

import pytest

from penstock.model.ids import NO_END, LogEnd, Term
from penstock.raft.messages import TimeoutNow, VoteResponse
from penstock.raft.quorum import Stuck
from penstock.raft.ready import Role
from tests.unit.raft.groups import Group, Member, entries, members, rid
from tests.unit.raft.memory_log import MemoryLog
from tests.unit.raft.test_roles import ask

THREE = members(1, 2, 3)
# Longer than any election time-out.
LONG_TICKS = 40


def member(number: int, *terms: int, **doubt: LogEnd) -> Member:
    return Member(number, THREE, log=MemoryLog(entries(*terms)), term=max(terms), **doubt)


def leaders(group: Group) -> list[Member]:
    return [m for m in group.members.values() if m.node.role is Role.LEADER]


@pytest.mark.parametrize(
    ("last", "accepted", "is_granted"),
    [
        ((2, 1), NO_END, False),
        ((4, 1), NO_END, False),
        ((5, 1), NO_END, True),
        ((3, 2), NO_END, True),
        ((3, 1), LogEnd(1, 4), False),
        ((3, 1), LogEnd(1, 5), True),
        # What was given up does not make up for what is still here.
        ((2, 1), LogEnd(1, 5), False),
    ],
)
def test_it_votes_as_it_would_have_with_the_log_that_it_had(
    last: tuple[int, int], accepted: LogEnd, is_granted: bool
) -> None:
    voter = member(1, 1, 1, 1, lost_end=LogEnd(1, 5))
    request = ask(2, 1, 9, last=last)._replace(accepted_end=accepted)
    (answer,) = [m for m in voter.step(request) if isinstance(m, VoteResponse)]
    assert answer.granted is is_granted
    assert (answer.log_end, answer.lost_end) == (LogEnd(1, 3), LogEnd(1, 5))


def test_with_one_in_doubt_the_two_others_elect_one_of_them() -> None:
    group = Group(member(1, 1, 1), member(2, 1, 1), member(3, 1, lost_end=LogEnd(1, 2)))
    group.cut.add(rid(1))
    group.tick(LONG_TICKS)
    assert not leaders(group)
    group.cut.clear()
    group.elect(1)
    assert group[3].terms[:2] == [1, 1]


def test_the_whole_log_wins_once_all_voters_answer() -> None:
    doubt = LogEnd(1, 3)
    group = Group(member(1, 1, 1, 1), member(2, 1, lost_end=doubt), member(3, 1, 1, lost_end=doubt))
    group.cut.add(rid(2))
    group.tick(LONG_TICKS)
    assert not leaders(group)
    group.cut.clear()
    group.tick(LONG_TICKS)
    assert group[1].node.role is Role.LEADER
    assert group[3].terms[:3] == [1, 1, 1]


def test_nobody_leads_where_no_log_reaches_as_far_as_one_did() -> None:
    group = Group(
        member(1, 1, 1, 1),
        member(2, 1, lost_end=LogEnd(1, 4)),
        member(3, 1, 1, lost_end=LogEnd(1, 3)),
    )
    group.tick(LONG_TICKS)
    assert not leaders(group)
    for number in (1, 2, 3):
        assert group[number].node.stuck == Stuck(LogEnd(1, 4), rid(2), LogEnd(1, 3), rid(1))


def test_the_answer_of_a_voter_counts_though_its_term_is_an_earlier_one() -> None:
    """Its log knows already that it was removed, so it never stands itself, and nobody's question
    whether to stand moves its term."""
    removed = Member(
        1, members(2, 3), log=MemoryLog(entries(1, 1, 1)), term=1, lost_end=LogEnd(1, 5)
    )
    group = Group(
        removed,
        Member(2, THREE, log=MemoryLog(entries(1, 1)), term=2, lost_end=LogEnd(1, 4)),
        Member(3, THREE, log=MemoryLog(entries(1)), term=2, lost_end=LogEnd(1, 4)),
    )
    group.tick(LONG_TICKS)
    assert not leaders(group)
    assert removed.node.term == 1
    for number in (2, 3):
        assert group[number].node.stuck == Stuck(LogEnd(1, 5), rid(1), LogEnd(1, 3), rid(1))


def test_who_was_given_up_for_leads_and_nobody_is_stuck_then() -> None:
    group = Group(
        member(1, 1, 1, 1, accepted_end=LogEnd(1, 4)),
        member(2, 1, lost_end=LogEnd(1, 4)),
        member(3, 1, 1, lost_end=LogEnd(1, 3)),
    )
    group.tick(LONG_TICKS)
    assert group[1].node.role is Role.LEADER
    assert all(group[number].node.stuck is None for number in (1, 2, 3))


def test_it_does_not_take_over_before_it_is_whole() -> None:
    voter = member(1, 1, 1, 1, lost_end=LogEnd(1, 3))
    voter.node._core.leader = rid(2)
    voter.step(TimeoutNow(rid(2), rid(1), Term(1)))
    assert voter.node.role is Role.FOLLOWER
    voter.node.is_whole_again()
    voter.step(TimeoutNow(rid(2), rid(1), Term(1)))
    assert voter.node.role is Role.CANDIDATE
