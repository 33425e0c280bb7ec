"""A leader commits only what is safe, hands over only to who is ready, and knows its limits."""

from penstock.model.ids import BrokerId, LogIndex, Term
from penstock.raft.messages import (
    AppendRequest,
    AppendResponse,
    HeartbeatResponse,
    Message,
    TimeoutNow,
)
from penstock.raft.ready import Refusal, Role
from penstock.raft.settings import RaftSettings
from tests.unit.raft.groups import Group, Member, entries, members, rid
from tests.unit.raft.memory_log import MemoryLog


def ack(leader: Member, sender: int, index: int) -> None:
    leader.step(
        AppendResponse(rid(sender), leader.id, leader.node.term, LogIndex(index), LogIndex(0))
    )


def test_an_entry_commits_when_a_majority_has_it() -> None:
    group = Group.of(5)
    leader = group.elect(1)
    group.cut = {rid(2), rid(3), rid(4), rid(5)}
    index = leader.node.propose("x", 1)
    leader.settle()
    ack(leader, 2, 2)
    assert leader.node.commit_index == 1
    ack(leader, 2, 2)
    assert leader.node.commit_index == 1, "one follower counted twice"
    ack(leader, 3, 2)
    assert (index, leader.node.commit_index) == (2, 2)


def test_entries_of_earlier_terms_are_not_committed_by_counting() -> None:
    """Figure 8 of the Raft paper. Index 2 of term 2 reaches a majority under a leader of term 4,
    but replica 5 has an entry of term 3 there and could still win and replace it. Only an entry
    of term 4 on a majority makes it safe."""
    leader = Member(1, members(1, 2, 3, 4, 5), log=MemoryLog(entries(1, 2)), term=3)
    group = Group(leader, Member(2, leader.membership, log=MemoryLog(entries(1, 2)), term=3))
    group.members |= {
        member.id: member
        for member in (
            Member(3, leader.membership, log=MemoryLog(entries(1)), term=3),
            Member(4, leader.membership, log=MemoryLog(entries(1)), term=3),
        )
    }
    group.accepts = lambda message: not isinstance(message, AppendRequest)
    group.elect(1)
    assert leader.node.term == 4
    ack(leader, 2, 2)
    ack(leader, 3, 2)
    assert leader.node.commit_index == 0, "an entry of term 2 was committed by counting copies"
    rival = Member(5, leader.membership, log=MemoryLog(entries(1, 3)), term=3)
    group.members[rival.id] = rival
    group.cut = {rid(1)}
    group.accepts = lambda _: True
    # The replicas that hold index 2 don't vote for the rival, but it may win with 3, 4 and 5.
    for number in (2, 3, 4):
        group[number].tick(10)
        group[number].take()
    rival.node.campaign()
    group.deliver()
    rival.tick(20)
    group.deliver()
    assert rival.node.role is Role.LEADER
    group.tick(5)
    assert group[2].terms[:2] == [1, 3]


def test_an_entry_of_the_own_term_commits_the_earlier_ones_with_it() -> None:
    leader = Member(1, members(1, 2, 3), log=MemoryLog(entries(1, 2)), term=3)
    others = [Member(number, leader.membership, term=3) for number in (2, 3)]
    Group(leader, *others).elect(1)
    assert (leader.node.commit_index, others[0].terms) == (3, [1, 2, 4])


def test_the_own_disk_counts_only_once_it_is_done() -> None:
    group = Group.of(3)
    leader = group.elect(1)
    leader.syncs_at_once = False
    leader.node.propose("x", 1)
    leader.settle()
    ack(leader, 2, 2)
    assert leader.node.commit_index == 1
    leader.sync()
    assert leader.node.commit_index == 2


def test_two_followers_commit_nothing_without_the_leader_s_own_disk() -> None:
    """They may serve readers, and those would be ahead of the leader."""
    group = Group.of(3)
    leader = group.elect(1)
    leader.syncs_at_once = False
    leader.node.propose("x", 1)
    leader.settle()
    ack(leader, 2, 2)
    ack(leader, 3, 2)
    assert leader.node.commit_index == 1
    leader.sync()
    assert leader.node.commit_index == 2


def test_acknowledgements_of_learners_do_not_commit() -> None:
    group = Group.of(3, learners=2)
    leader = group.elect(1)
    leader.node.propose("x", 1)
    leader.settle()
    ack(leader, 4, 2)
    ack(leader, 5, 2)
    assert leader.node.commit_index == 1
    ack(leader, 2, 2)
    assert leader.node.commit_index == 2


def test_only_a_leader_takes_proposals() -> None:
    group = Group.of(3)
    group.elect(1)
    assert group[2].node.propose("x", 1) is Refusal.NOT_LEADER
    assert group[2].node.read("r") is Refusal.NOT_LEADER
    assert group[2].node.transfer(rid(1)) is Refusal.NOT_LEADER


def test_proposals_wait_outside_when_too_much_is_uncommitted() -> None:
    group = Group.of(3, RaftSettings(uncommitted_bytes_max=100))
    leader = group.elect(1)
    assert leader.node.propose("large", 1000) == 2, "alone, even a large one gets through"
    assert leader.node.propose("x", 1) is Refusal.OVERLOADED
    group.deliver()
    assert [leader.node.propose("y", 50) for _ in range(3)] == [3, 4, Refusal.OVERLOADED]
    group.deliver()
    assert leader.node.propose("z", 100) == 5


def test_a_leader_that_hears_from_no_quorum_resigns() -> None:
    group = Group.of(3)
    leader = group.elect(1)
    leader.node.read("r")
    group.cut = {rid(1)}
    leader.tick(20)
    assert (leader.node.role, leader.node.term) == (Role.FOLLOWER, 1)
    assert leader.reads_refused == ["r"]


def test_a_leader_that_hears_from_one_of_two_followers_stays() -> None:
    group = Group.of(3)
    leader = group.elect(1)
    group.cut = {rid(3)}
    group.tick(50)
    assert (leader.node.role, leader.node.term) == (Role.LEADER, 1)


def test_a_follower_whose_process_is_gone_does_not_count_as_active() -> None:
    leader = Group.of(3).elect(1)
    assert [status.recently_active for status in leader.node.replicas()] == [True, True]
    leader.node.leader_lost(BrokerId(2))
    assert {s.replica: s.recently_active for s in leader.node.replicas()} == {
        rid(2): False,
        rid(3): True,
    }
    ack(leader, 2, 1)
    assert all(status.recently_active for status in leader.node.replicas())


def test_a_leader_that_its_host_makes_resign_names_a_successor() -> None:
    group = Group.of(3)
    leader = group.elect(1)
    leader.node.propose("x", 1)
    group.deliver()
    leader.node.resign()
    assert leader.node.role is Role.FOLLOWER
    group.deliver()
    assert group[2].node.role is Role.LEADER
    leader.node.resign()
    assert group[2].node.role is Role.LEADER, "only a leader resigns"


def test_a_leader_without_others_resigns_too() -> None:
    leader = Group.of(1).elect(1)
    leader.node.resign()
    assert (leader.node.role, leader.node.leader) == (Role.FOLLOWER, None)


def handed_over(messages: list[Message]) -> list[Message]:
    return [message for message in messages if isinstance(message, TimeoutNow)]


def test_leadership_moves_at_once_to_a_voter_that_has_everything() -> None:
    group = Group.of(3)
    leader = group.elect(1)
    assert leader.node.transfer(rid(2)) is None
    group.deliver()
    assert [group[number].node.role for number in (1, 2)] == [Role.FOLLOWER, Role.LEADER]
    assert {member.node.leader for member in group.members.values()} == {rid(2)}


def test_a_voter_that_lags_is_made_to_catch_up_before_it_takes_over() -> None:
    group = Group.of(3)
    leader = group.elect(1)
    leader.node.propose("x", 1)
    assert leader.node.transfer(rid(2)) is None
    assert handed_over(leader.take()) == []
    assert leader.node.propose("y", 1) is Refusal.TRANSFERRING
    assert leader.node.transfer(rid(3)) is Refusal.TRANSFERRING
    leader.node.step(AppendResponse(rid(2), rid(1), Term(1), LogIndex(2), LogIndex(0)))
    assert handed_over(leader.take()) == [TimeoutNow(rid(1), rid(2), Term(1))]


def test_a_transfer_that_does_not_happen_is_given_up() -> None:
    group = Group.of(3)
    leader = group.elect(1)
    group.accepts = lambda message: not isinstance(message, TimeoutNow)
    leader.node.transfer(rid(2))
    group.tick(10)
    assert leader.node.role is Role.LEADER
    assert leader.node.propose("x", 1) == 2


def test_leadership_goes_to_no_learner_and_no_stranger() -> None:
    group = Group.of(3, learners=1)
    leader = group.elect(1)
    for number in (1, 4, 9):
        assert leader.node.transfer(rid(number)) is Refusal.NOT_A_VOTER


def confirm(leader: Member, sender: int, read_round: int) -> None:
    leader.step(
        HeartbeatResponse(rid(sender), leader.id, leader.node.term, LogIndex(0), read_round)
    )


def test_a_read_waits_for_a_quorum_to_confirm_the_leader() -> None:
    group = Group.of(5)
    leader = group.elect(1)
    leader.node.read("r")
    leader.settle()
    confirm(leader, 2, 1)
    assert leader.reads == []
    confirm(leader, 3, 1)
    assert leader.reads == [("r", 1)]


def test_answers_to_an_older_round_do_not_confirm_a_newer_read() -> None:
    """They could have been sent before the read arrived, and before another leader's commit."""
    group = Group.of(3)
    leader = group.elect(1)
    leader.node.read("first")
    leader.settle()
    leader.node.read("second")
    leader.settle()
    confirm(leader, 2, 1)
    assert [read.context for read in leader.reads] == ["first"]
    confirm(leader, 2, 2)
    assert [read.context for read in leader.reads] == ["first", "second"]


def test_a_read_waits_until_the_leader_committed_in_its_own_term() -> None:
    """Before, its commit index may be behind what an earlier leader acknowledged."""
    group = Group.of(3)
    group.accepts = lambda message: not isinstance(message, AppendResponse)
    leader = group.elect(1)
    leader.node.read("r")
    group.tick(3)
    assert leader.reads == []
    group.accepts = lambda _: True
    group.tick(3)
    assert leader.reads == [("r", 1)]


def test_a_group_of_one_reads_at_once() -> None:
    group = Group.of(1)
    leader = group.elect(1)
    leader.node.read("r")
    leader.settle()
    assert leader.reads == [("r", 1)]


def test_a_lost_confirmation_is_asked_for_again_even_when_hosts_beat() -> None:
    group = Group.of(3, RaftSettings(heartbeats_by_host=True))
    leader = group.elect(1)
    group.cut = {rid(1)}
    leader.node.read("r")
    group.deliver()
    assert leader.reads == []
    group.cut = set()
    group.tick(1)
    assert leader.reads == [("r", 1)]


def test_reads_have_a_limit() -> None:
    group = Group.of(3, RaftSettings(reads_waiting_max=2))
    leader = group.elect(1)
    assert [leader.node.read(n) for n in range(3)] == [None, None, Refusal.OVERLOADED]
