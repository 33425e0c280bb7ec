"""The face to the host: heartbeats it exchanges itself, what a Ready holds, what it may ask."""

from penstock.model.ids import LogIndex, Term
from penstock.raft.entries import HardState
from penstock.raft.messages import AppendRequest, CommitNotice, Heartbeat
from penstock.raft.progress import ProgressState
from penstock.raft.ready import Leadership, Role
from penstock.raft.settings import RaftSettings
from tests.unit.raft.groups import Group, Member, members, rid
from tests.unit.raft.memory_log import MemoryLog

BY_HOST = RaftSettings(heartbeats_by_host=True)


def test_an_idle_group_whose_host_beats_says_nothing() -> None:
    group = Group.of(3, BY_HOST)
    leader = group.elect(1)
    for _ in range(50):
        for number in (2, 3):
            assert group[number].node.heartbeat_received(rid(1), Term(1))
            assert leader.node.heartbeat_acknowledged(rid(number), Term(1))
        group.deliver()
        for member in group.members.values():
            member.node.tick()
            assert member.take() == []
    assert leader.node.role is Role.LEADER


def test_a_heartbeat_of_another_term_or_leader_does_not_count() -> None:
    """A leader of an earlier term that still beats must not keep its followers from electing."""
    group = Group.of(3, BY_HOST)
    group.elect(1)
    follower = group[2].node
    for _ in range(10):
        assert not follower.heartbeat_received(rid(1), Term(0))
        assert not follower.heartbeat_received(rid(1), Term(2))
        assert not follower.heartbeat_received(rid(3), Term(1))
        follower.tick()
    assert follower.role is Role.PRE_CANDIDATE
    assert not follower.heartbeat_received(rid(1), Term(1)), "it looks for another leader by now"


def test_an_answer_to_another_term_s_heartbeat_does_not_keep_a_leader() -> None:
    group = Group.of(3, BY_HOST)
    leader = group.elect(1)
    for _ in range(20):
        for number in (2, 3):
            assert not leader.node.heartbeat_acknowledged(rid(number), Term(0))
        leader.node.tick()
    assert leader.node.role is Role.FOLLOWER
    assert not leader.node.heartbeat_acknowledged(rid(2), Term(1))


def test_a_leader_does_not_take_its_own_heartbeat_for_one_of_its_leader() -> None:
    group = Group.of(3, BY_HOST)
    assert not group.elect(1).node.heartbeat_received(rid(1), Term(1))


def test_a_follower_that_forgot_its_leader_is_introduced_to_it() -> None:
    group = Group.of(3, BY_HOST)
    leader = group.elect(1)
    group[2].restart()
    assert not group[2].node.heartbeat_received(rid(1), Term(1))
    assert leader.node.heartbeat_refused(rid(2), Term(1))
    assert not leader.node.heartbeat_refused(rid(2), Term(0))
    group.deliver()
    assert group[2].node.heartbeat_received(rid(1), Term(1))


def test_a_follower_that_was_made_anew_is_filled_again() -> None:
    """Its process and so its connection are the same: that it forgot its leader is all that the
    leader hears of it."""
    group = Group.of(3, BY_HOST)
    leader = group.elect(1)
    leader.node.propose("x", 1)
    group.deliver()
    lost = group[2]
    lost.log = MemoryLog()
    lost.log.hard_state = HardState(leader.node.term)
    lost.restart()
    assert not lost.node.heartbeat_received(rid(1), Term(1))
    assert leader.node.heartbeat_refused(rid(2), Term(1))
    group.deliver()
    assert lost.terms == leader.terms == [1, 1]


def test_a_lost_commit_notice_is_repeated_after_a_heartbeat_and_then_no_more() -> None:
    group = Group.of(3, BY_HOST)
    leader = group.elect(1)
    group.accepts = lambda message: not isinstance(message, CommitNotice)
    leader.node.propose("x", 1)
    group.deliver()
    assert (leader.node.commit_index, group[2].node.commit_index) == (2, 1)
    assert leader.node.heartbeat_acknowledged(rid(2), Term(1))
    group.deliver()
    assert group[2].node.commit_index == 2
    leader.node.heartbeat_acknowledged(rid(2), Term(1))
    assert leader.take() == []


def test_the_commit_index_told_never_exceeds_what_the_follower_acknowledged() -> None:
    """Beyond that its log may hold other entries, which it would take for committed."""
    group = Group.of(3)
    leader = group.elect(1)
    group.cut = {rid(3)}
    for number in range(3):
        leader.node.propose(number, 1)
        group.deliver()
    leader.node.tick()
    told = {
        message.to: message.commit_index
        for message in leader.take()
        if isinstance(message, Heartbeat)
    }
    assert leader.node.commit_index == 4
    assert told == {rid(2): 4, rid(3): 1}


def test_leadership_and_membership_are_reported_once() -> None:
    member = Member(1, members(1))
    member.node.campaign()
    reported = []
    while (ready := member.node.ready()) is not None:
        reported.append(ready.leadership)
        if ready.write is not None:
            member.log.carry_out(ready.write)
            member.node.persisted(ready.write.number)
    assert reported[0] == Leadership(Term(1), Role.CANDIDATE, None)
    assert reported[1] == Leadership(Term(1), Role.LEADER, rid(1))
    assert set(reported[2:]) == {None}


def test_many_proposals_travel_in_one_message_and_one_write() -> None:
    group = Group.of(3)
    leader = group.elect(1)
    for number in range(32):
        leader.node.propose(number, 1)
    ready = leader.node.ready()
    assert ready is not None
    assert ready.write is not None
    assert len(ready.write.entries) == 32
    appends = [message for message in ready.messages if isinstance(message, AppendRequest)]
    assert [len(message.entries) for message in appends] == [32, 32]


def test_a_leader_knows_how_far_everyone_is() -> None:
    group = Group.of(2, learners=1)
    leader = group.elect(1)
    assert leader.node.has_committed_in_term
    assert [(status.replica, status.is_voter) for status in leader.node.replicas()] == [
        (rid(2), True),
        (rid(3), False),
    ]
    assert {status.match_index for status in leader.node.replicas()} == {LogIndex(1)}
    assert {status.state for status in leader.node.replicas()} == {ProgressState.REPLICATE}
    assert group[2].node.replicas() == []
