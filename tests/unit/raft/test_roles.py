"""Elections: who may win one, who may vote, and what leaves a replica before its disk is done."""

import pytest

from penstock.model.ids import BrokerId, LogIndex, Term
from penstock.raft.messages import (
    AppendRequest,
    Heartbeat,
    Message,
    PeerFault,
    StaleTerm,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.ready import Role
from penstock.raft.settings import RaftSettings
from tests.unit.raft.groups import Group, Member, entries, members, rid
from tests.unit.raft.memory_log import MemoryLog

THREE = members(1, 2, 3)


def ask(
    sender: int,
    to: int,
    term: int,
    *,
    last: tuple[int, int] = (0, 0),
    pre: bool = False,
    transfer: bool = False,
) -> VoteRequest:
    index, last_term = last
    return VoteRequest(
        rid(sender), rid(to), Term(term), LogIndex(index), Term(last_term), pre, transfer
    )


def heartbeat(sender: int, to: int, term: int) -> Heartbeat:
    return Heartbeat(rid(sender), rid(to), Term(term), LogIndex(0), 0)


def granted(messages: list[Message]) -> bool:
    answers = [message for message in messages if isinstance(message, VoteResponse)]
    assert len(answers) == 1
    return answers[0].granted


def test_three_replicas_elect_the_first_to_time_out() -> None:
    group = Group.of(3)
    group[2].tick(10)
    group.deliver()
    assert [group[number].node.role for number in (1, 2, 3)] == [
        Role.FOLLOWER,
        Role.LEADER,
        Role.FOLLOWER,
    ]
    assert {member.node.leader for member in group.members.values()} == {rid(2)}
    assert {member.node.commit_index for member in group.members.values()} == {1}


def test_a_replica_votes_once_per_term_even_after_a_restart() -> None:
    member = Member(1, THREE)
    assert granted(member.step(ask(2, 1, 5)))
    assert not granted(member.step(ask(3, 1, 5)))
    member.restart()
    assert not granted(member.step(ask(3, 1, 5)))
    assert granted(member.step(ask(2, 1, 5)))


def test_a_vote_is_not_sent_before_it_is_durable() -> None:
    member = Member(1, THREE)
    member.syncs_at_once = False
    assert member.step(ask(2, 1, 5)) == []
    member.sync()
    assert granted(member.take())


def test_a_vote_for_a_term_that_is_over_is_never_sent() -> None:
    member = Member(1, THREE)
    member.syncs_at_once = False
    member.step(ask(2, 1, 5))
    member.step(ask(3, 1, 6))
    member.sync()
    assert [message.to for message in member.take()] == [rid(3)]


@pytest.mark.parametrize(
    ("own_terms", "last", "expected"),
    [
        ([1, 1, 2], (3, 2), True),
        ([1, 1, 2], (2, 2), False),
        ([1, 1, 2], (9, 1), False),  # a longer log of an older term is not fresher
        ([1, 1, 2], (1, 3), True),  # a shorter log of a newer term is
    ],
)
def test_only_a_candidate_with_a_log_as_fresh_gets_the_vote(
    own_terms: list[int], last: tuple[int, int], expected: bool
) -> None:
    for pre in (False, True):
        member = Member(1, THREE, log=MemoryLog(entries(*own_terms)), term=3)
        assert granted(member.step(ask(2, 1, 7, last=last, pre=pre))) is expected


def test_a_pre_vote_changes_nobody_s_term_or_vote() -> None:
    member = Member(1, THREE, term=3)
    before = member.log.hard_state
    assert granted(member.step(ask(2, 1, 4, pre=True)))
    assert granted(member.step(ask(3, 1, 4, pre=True)))
    assert (member.node.term, member.log.hard_state) == (3, before)


def test_a_replica_that_is_cut_off_never_raises_its_term() -> None:
    member = Member(1, THREE, term=3)
    member.tick(200)
    assert (member.node.term, member.node.role) == (3, Role.PRE_CANDIDATE)


def test_a_candidate_asks_nobody_before_its_own_term_and_vote_are_durable() -> None:
    """Else it could win a term, forget it in a crash, and win it again with another log."""
    member = Member(1, THREE)
    member.node.campaign()
    member.take()
    member.syncs_at_once = False
    answers = member.step(VoteResponse(rid(2), rid(1), Term(1), True, True))
    assert (member.node.role, answers) == (Role.CANDIDATE, [])
    member.sync()
    assert {(message.to, message.term) for message in member.take()} == {(rid(2), 1), (rid(3), 1)}
    assert member.log.hard_state == (1, rid(1))


def test_a_candidate_s_own_vote_counts_only_once_it_is_durable() -> None:
    member = Member(1, members(1, 2))
    member.syncs_at_once = False
    member.node.campaign()
    member.take()
    member.step(VoteResponse(rid(2), rid(1), Term(1), True, True))
    member.step(VoteResponse(rid(2), rid(1), Term(1), False, True))
    assert member.node.role is Role.CANDIDATE
    member.sync()
    assert member.node.role is Role.LEADER


def test_one_of_four_voters_more_than_half_is_needed() -> None:
    """A quorum that is one too small would let two leaders win in one term."""
    member = Member(1, members(1, 2, 3, 4))
    member.node.campaign()
    member.step(VoteResponse(rid(2), rid(1), Term(1), True, True))
    assert member.node.role is Role.PRE_CANDIDATE
    member.step(VoteResponse(rid(3), rid(1), Term(1), True, True))
    member.step(VoteResponse(rid(2), rid(1), Term(1), False, True))
    assert member.node.role is Role.CANDIDATE
    member.step(VoteResponse(rid(2), rid(1), Term(1), False, True))
    assert member.node.role is Role.CANDIDATE, "the same voter counted twice"
    member.step(VoteResponse(rid(3), rid(1), Term(1), False, True))
    assert member.node.role is Role.LEADER


def test_a_replica_that_hears_from_its_leader_supports_no_other() -> None:
    group = Group.of(3)
    group.elect(1)
    assert group[3].step(ask(2, 3, 2, last=(1, 1), pre=True)) == []
    assert group[3].step(ask(2, 3, 9, last=(1, 1))) == []
    assert (group[3].node.term, group[3].node.leader) == (1, rid(1))
    group[3].tick(10)
    group[3].take()
    assert granted(group[3].step(ask(2, 3, 9, last=(1, 1))))


def test_an_active_leader_answers_a_pre_vote_by_naming_itself() -> None:
    """A member that restarted learns its leader at once, though hosts do the heartbeats."""
    group = Group.of(3)
    group.elect(1)
    group[2].restart()
    group[2].node.campaign()
    group.deliver()
    assert (group[2].node.leader, group[2].node.role) == (rid(1), Role.FOLLOWER)
    assert group[1].node.role is Role.LEADER


def test_a_leader_of_an_earlier_term_is_told_and_resigns() -> None:
    group = Group.of(3)
    leader = group.elect(1)
    group[2].log.hard_state = group[2].log.hard_state._replace(term=Term(5), vote=None)
    group[2].restart()
    answers = group[2].step(heartbeat(1, 2, 1))
    assert answers == [StaleTerm(rid(2), rid(1), Term(5))]
    leader.step(answers[0])
    assert (leader.node.role, leader.node.term) == (Role.FOLLOWER, 5)


def test_a_candidate_follows_whoever_won_its_term() -> None:
    member = Member(1, THREE)
    member.node.campaign()
    member.step(VoteResponse(rid(2), rid(1), Term(1), True, True))
    member.step(heartbeat(3, 1, 1))
    assert (member.node.role, member.node.leader) == (Role.FOLLOWER, rid(3))


def test_votes_of_learners_and_strangers_do_not_count() -> None:
    member = Member(1, members(1, 2, 3, learners=(4,)))
    member.node.campaign()
    for stranger in (4, 9):
        member.step(VoteResponse(rid(stranger), rid(1), Term(1), True, True))
    assert member.node.role is Role.PRE_CANDIDATE
    same_node_other_directory = rid(2, "b")
    member.step(VoteResponse(same_node_other_directory, rid(1), Term(1), True, True))
    assert member.node.role is Role.PRE_CANDIDATE


def test_whoever_knows_that_the_leader_s_process_is_gone_does_not_wait() -> None:
    group = Group.of(3)
    group.elect(1)
    group.cut = {rid(1)}
    for number in (2, 3):
        group[number].node.leader_lost(BrokerId(3))
        assert group[number].node.leader == rid(1), "that was not the leader"
        group[number].node.leader_lost(BrokerId(1))
    group[2].node.tick()
    group.deliver()
    assert group[2].node.role is Role.LEADER


def ticks_until_campaign(member: Member) -> int:
    for ticks in range(1, 50):
        member.node.tick()
        if member.node.role is not Role.FOLLOWER:
            return ticks
    raise AssertionError("it never stood")


@pytest.mark.parametrize(("turn", "expected"), [(0, [1, 3]), (1, [3, 1]), (2, [1, 3])])
def test_those_who_are_left_stand_in_turn(turn: int, expected: list[int]) -> None:
    group = Group.of(3)
    group.elect(1)
    for number in (2, 3):
        group[number].node.leader_lost(BrokerId(1), turn)
    assert [ticks_until_campaign(group[number]) for number in (2, 3)] == expected


def test_after_a_split_those_who_are_left_try_again_soon_but_not_for_ever() -> None:
    settings = RaftSettings(leader_lost_hurries_max=2)
    group = Group.of(3, settings)
    group.elect(1)
    group.cut = {rid(1), rid(2), rid(3)}
    candidate = group[2]
    candidate.node.leader_lost(BrokerId(1))
    assert ticks_until_campaign(candidate) == 1
    waits = []
    for _ in range(4):
        candidate.take()
        waited = 0
        while not candidate.take():
            candidate.node.tick()
            waited += 1
        waits.append(waited)
    assert waits == [2, 2, 10, 10]


def test_whoever_voted_gives_the_candidate_time() -> None:
    group = Group.of(3)
    group.elect(1)
    voter = group[3]
    voter.node.leader_lost(BrokerId(1))
    term = voter.node.term
    voter.step(VoteRequest(rid(2), rid(3), Term(term + 1), LogIndex(9), term, False, False))
    assert ticks_until_campaign(voter) >= 10


def test_a_leader_that_was_taken_for_dead_stays_if_it_is_heard_again() -> None:
    group = Group.of(3)
    leader = group.elect(1)
    group[2].node.leader_lost(BrokerId(1))
    leader.node.propose("x", 1)
    group.deliver()
    group.tick(8)
    assert (leader.node.role, group[2].node.leader) == (Role.LEADER, rid(1))
    leader.node.leader_lost(BrokerId(1))
    assert leader.node.role is Role.LEADER


def test_a_learner_never_campaigns() -> None:
    group = Group.of(3, learners=1)
    group[4].tick(100)
    group[4].node.campaign()
    assert (group[4].node.role, group[4].take()) == (Role.FOLLOWER, [])


def test_a_group_of_one_elects_itself_and_commits_without_a_message() -> None:
    member = Member(1, members(1))
    member.syncs_at_once = False
    member.node.campaign()
    member.settle()
    assert member.node.role is Role.CANDIDATE
    member.sync()
    assert (member.node.role, member.node.commit_index) == (Role.LEADER, 0)
    member.settle()
    member.sync()
    assert (member.node.commit_index, member.node.propose("x", 1)) == (1, 2)
    member.settle()
    assert member.node.commit_index == 1
    member.sync()
    assert (member.node.commit_index, member.take()) == (2, [])


def test_two_leaders_in_one_term_are_a_peer_s_fault() -> None:
    group = Group.of(3)
    leader = group.elect(1)
    claim = AppendRequest(rid(2), rid(1), Term(1), LogIndex(0), Term(0), (), LogIndex(0))
    with pytest.raises(PeerFault, match="also says that it leads in term 1"):
        leader.node.step(claim)
    with pytest.raises(PeerFault, match="reached"):
        leader.node.step(claim._replace(to=rid(3)))


def test_the_call_to_take_over_counts_only_from_the_leader_of_the_term() -> None:
    group = Group.of(3)
    group.elect(1)
    group[2].step(TimeoutNow(rid(3), rid(2), Term(1)))
    assert group[2].node.role is Role.FOLLOWER
    group[2].step(TimeoutNow(rid(1), rid(2), Term(1)))
    assert group[2].node.role is Role.CANDIDATE


def test_a_log_newer_than_the_stored_term_raises_the_term() -> None:
    """Entries can be durable before the term they came in: the term of a log is never above."""
    member = Member(1, THREE, log=MemoryLog(entries(1, 4)), term=2, vote=3)
    member.settle()
    assert (member.node.term, member.log.hard_state) == (4, (4, None))
