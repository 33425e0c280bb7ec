"""A leader fills every follower: fast when all is well, and again after anything was lost."""

from collections.abc import Sequence

import pytest

from penstock.model.ids import LogIndex, ReplicaId, Term
from penstock.raft.entries import Entry, EntryKind, Snapshot
from penstock.raft.messages import (
    AppendRequest,
    AppendResponse,
    CommitNotice,
    InstallSnapshot,
    PeerFault,
)
from penstock.raft.progress import ProgressState
from penstock.raft.ready import Refusal, Role
from penstock.raft.settings import RaftSettings
from tests.unit.raft.groups import Group, Member, entries, members, rid
from tests.unit.raft.memory_log import MemoryLog


def state_of(leader: Member, number: int) -> ProgressState:
    return {status.replica: status.state for status in leader.node.replicas()}[rid(number)]


def snapshot_of(leader: Member) -> Snapshot:
    index = leader.node.commit_index
    return Snapshot(index, leader.log.term_at(index), leader.node.membership)


def appends_to(leader: Member, number: int) -> list[AppendRequest]:
    return [
        message
        for message in leader.take()
        if isinstance(message, AppendRequest) and message.to == rid(number)
    ]


def test_appends_are_sent_ahead_of_their_acknowledgements_within_a_window() -> None:
    group = Group.of(3, RaftSettings(appends_in_flight_max=4, append_bytes_max=10))
    leader = group.elect(1)
    for number in range(10):
        leader.node.propose(number, 10)
    sent = appends_to(leader, 2)
    assert [message.previous_index for message in sent] == [1, 2, 3, 4]
    leader.node.step(AppendResponse(rid(2), rid(1), Term(1), LogIndex(3), LogIndex(1)))
    assert [message.previous_index for message in appends_to(leader, 2)] == [5, 6]


def test_the_commit_index_is_told_alone_only_once_nothing_is_on_its_way() -> None:
    """An append that follows carries it, and so no notice has to."""
    group = Group.of(3)
    leader = group.elect(1)
    leader.node.propose("first", 1)
    leader.take()
    leader.node.propose("second", 1)
    leader.take()
    leader.node.step(AppendResponse(rid(2), rid(1), Term(1), LogIndex(2), LogIndex(1)))
    assert leader.node.commit_index == 2
    assert leader.take() == []
    leader.node.propose("third", 1)
    assert [message.commit_index for message in appends_to(leader, 2)] == [2]
    leader.node.step(AppendResponse(rid(2), rid(1), Term(1), LogIndex(4), LogIndex(2)))
    notices = [CommitNotice(rid(1), rid(2), Term(1), LogIndex(4))]
    assert leader.take() == notices


def test_the_window_is_bounded_in_bytes_too() -> None:
    group = Group.of(3, RaftSettings(append_bytes_max=100, bytes_in_flight_max=250))
    leader = group.elect(1)
    for number in range(10):
        leader.node.propose(number, 100)
    assert len(appends_to(leader, 2)) == 3


def test_a_follower_without_room_costs_nothing_and_is_sent_all_once_there_is_some() -> None:
    group = Group.of(3, RaftSettings(heartbeats_by_host=True))
    leader = group.elect(1)
    leader.full = {rid(2)}
    reads = 0
    read = leader.log.entries

    def count(low: LogIndex, high: LogIndex, bytes_max: int) -> Sequence[Entry]:
        nonlocal reads
        reads += 1
        return read(low, high, bytes_max)

    for number in range(3):
        leader.node.propose(number, 1)
        group.deliver()
    assert (group[2].node.last_index, group[3].node.commit_index) == (1, 4)
    leader.log.entries = count  # type: ignore[method-assign]
    for _ in range(5):
        leader.node.heartbeat_acknowledged(rid(2), leader.node.term)
        group.deliver()
    assert (reads, group[2].node.last_index) == (0, 1)
    leader.full = set()
    leader.node.heartbeat_acknowledged(rid(2), leader.node.term)
    group.deliver()
    assert (reads, group[2].node.commit_index) == (1, 4)


class Throttle:
    """Lets so much through to one follower, and everything to the others."""

    def __init__(self, held_back: ReplicaId, left: int) -> None:
        self.held_back = held_back
        self.left = left

    def allowance(self, replica: ReplicaId) -> int | None:
        return max(self.left, 0) if replica == self.held_back else None

    def sent(self, replica: ReplicaId, size_bytes: int) -> None:
        assert replica == self.held_back
        self.left -= size_bytes


def test_a_follower_that_a_throttle_holds_back_is_sent_what_it_allows() -> None:
    group = Group.of(3, RaftSettings(heartbeats_by_host=True))
    leader = group.elect(1)
    throttle = Throttle(rid(2), 25)
    leader.node.throttle_by(throttle)
    for number in range(5):
        leader.node.propose(number, 10)
    group.deliver()
    # One entry may go beyond the allowance, so that even a long one passes some time.
    assert (group[2].node.last_index, throttle.left) == (4, -5)
    assert group[3].node.commit_index == 6
    leader.node.heartbeat_acknowledged(rid(2), leader.node.term)
    group.deliver()
    assert group[2].node.last_index == 4
    assert group[2].node.commit_index == 4, "it hears what is committed of what it has"
    throttle.left = 1
    leader.node.entries_arrived()
    group.deliver()
    assert (group[2].node.last_index, throttle.left) == (5, -9)
    leader.node.throttle_by(None)
    group.deliver()
    assert group[2].node.commit_index == 6


def test_a_follower_that_must_be_probed_waits_for_room_too() -> None:
    group = Group.of(3, RaftSettings(heartbeats_by_host=True))
    leader = group.elect(1)
    leader.node.unreachable(rid(2))
    leader.full = {rid(2)}
    leader.node.propose("new", 1)
    assert appends_to(leader, 2) == []
    leader.full = set()
    leader.node.heartbeat_acknowledged(rid(2), leader.node.term)
    group.deliver()
    assert group[2].node.last_index == 2
    assert state_of(leader, 2) is ProgressState.REPLICATE


@pytest.mark.parametrize("is_probed", [False, True])
def test_what_is_not_at_hand_is_sent_when_it_arrives(is_probed: bool) -> None:
    group = Group.of(3, RaftSettings(heartbeats_by_host=True))
    leader = group.elect(1)
    leader.full = {rid(2)}
    leader.node.propose("new", 1)
    group.deliver()
    leader.full = set()
    if is_probed:
        leader.node.unreachable(rid(2))
    asked: list[ReplicaId] = []

    def is_cold(follower: ReplicaId) -> bool:
        asked.append(follower)
        return False

    leader.log.is_warm = is_cold
    leader.node.heartbeat_acknowledged(rid(2), leader.node.term)
    group.deliver()
    assert (group[2].node.last_index, set(asked)) == (1, {rid(2)})
    leader.log.is_warm = lambda _: True
    group.deliver()
    assert group[2].node.last_index == 1, "nobody said that it came"
    leader.node.entries_arrived()
    group.deliver()
    assert (group[2].node.commit_index, state_of(leader, 2)) == (2, ProgressState.REPLICATE)


def test_an_answer_of_the_follower_asks_again_for_what_never_came() -> None:
    group = Group.of(3, RaftSettings(heartbeats_by_host=True))
    leader = group.elect(1)
    leader.full = {rid(2)}
    leader.node.propose("new", 1)
    group.deliver()
    leader.full, leader.log.is_warm = set(), lambda _: False
    leader.node.heartbeat_acknowledged(rid(2), leader.node.term)
    group.deliver()
    leader.log.is_warm = lambda _: True
    leader.node.heartbeat_acknowledged(rid(2), leader.node.term)
    group.deliver()
    assert group[2].node.commit_index == 2


def test_a_lost_append_is_noticed_and_sent_again() -> None:
    group = Group.of(3)
    leader = group.elect(1)
    group.cut = {rid(2)}
    leader.node.propose("lost", 1)
    group.deliver()
    group.cut = set()
    leader.node.propose("fits only after it", 1)
    group.deliver()
    assert group[2].terms == leader.terms


def test_a_lost_acknowledgement_is_noticed_after_a_heartbeat() -> None:
    group = Group.of(3)
    leader = group.elect(1)
    group.accepts = lambda message: not isinstance(message, AppendResponse)
    leader.node.propose("x", 1)
    group.deliver()
    group.accepts = lambda _: True
    group.tick(2)
    assert {status.match_index for status in leader.node.replicas()} == {2}


def test_a_follower_far_apart_is_found_in_few_steps() -> None:
    """One exchange per term, not per entry: both sides skip what can't agree."""
    membership = members(1, 2, 3)
    leader = Member(1, membership, log=MemoryLog(entries(*[1] * 50, *[4] * 200)), term=5)
    other = Member(2, membership, log=MemoryLog(entries(*[1] * 50, *[2] * 80, *[3] * 80)), term=5)
    group = Group(leader, other, Member(3, membership, term=5))
    asked: list[AppendRequest] = []

    def watch(message: object) -> bool:
        if isinstance(message, AppendRequest) and message.to == rid(2):
            asked.append(message)
        return True

    group.accepts = watch
    group.elect(1)
    assert other.terms == leader.terms
    assert len(asked) <= 4


def test_an_unreachable_follower_is_probed_before_it_is_sent_more() -> None:
    group = Group.of(3)
    leader = group.elect(1)
    leader.node.unreachable(rid(2))
    assert state_of(leader, 2) is ProgressState.PROBE
    group.deliver()
    assert state_of(leader, 2) is ProgressState.REPLICATE


def test_a_follower_whose_disk_lost_something_is_filled_again() -> None:
    """It acknowledged more than it has; the leader must not insist on what it was told."""
    group = Group.of(3)
    leader = group.elect(1)
    for number in range(5):
        leader.node.propose(number, 1)
    group.deliver()
    group[2].log = MemoryLog(leader.log.items[:2])
    group[2].log.hard_state = leader.log.hard_state
    group[2].restart()
    leader.node.unreachable(rid(2))
    group.tick(2)
    assert group[2].terms == leader.terms
    assert group[2].node.commit_index == leader.node.commit_index


def lagging_group(settings: RaftSettings | None = None) -> tuple[Group, Member]:
    """Replica 3 missed entries that the leader's log no longer has."""
    group = Group.of(3, settings)
    leader = group.elect(1)
    group.cut = {rid(3)}
    for number in range(10):
        leader.node.propose(number, 1)
        group.deliver()
    group.tick(12)
    leader.log.drop_before(8)
    group.cut = set()
    return group, leader


def test_a_follower_behind_the_log_s_start_gets_a_snapshot_and_then_entries() -> None:
    group, leader = lagging_group()
    group.tick(3)
    assert leader.snapshots_wanted == [rid(3)]
    leader.node.send_snapshot(rid(3), snapshot_of(leader))
    leader.node.propose("after", 1)
    group.tick(2)
    assert state_of(leader, 3) is ProgressState.REPLICATE
    assert group[3].log.last_index == leader.log.last_index
    assert group[3].node.commit_index == leader.node.commit_index


def test_a_snapshot_waits_for_a_throttle_and_counts_for_it() -> None:
    group, leader = lagging_group()
    throttle = Throttle(rid(3), 0)
    leader.node.throttle_by(throttle)
    group.tick(3)
    assert leader.snapshots_wanted == []
    throttle.left = 5  # A probe takes one of them.
    group.tick(3)
    assert leader.snapshots_wanted == [rid(3)]
    left = throttle.left
    leader.node.send_snapshot(rid(3), snapshot_of(leader)._replace(size_bytes=7))
    assert throttle.left == left - 7


def test_a_snapshot_is_not_made_for_a_follower_that_is_not_there() -> None:
    group, leader = lagging_group()
    group.cut = {rid(3)}
    leader.node.unreachable(rid(3))
    group.tick(50)
    assert leader.snapshots_wanted == []


@pytest.mark.parametrize("told", [True, False])
def test_a_snapshot_that_got_lost_is_asked_for_again(told: bool) -> None:
    group, leader = lagging_group(RaftSettings(snapshot_wait_rounds_max=2))
    group.accepts = lambda message: not isinstance(message, InstallSnapshot)
    group.tick(3)
    leader.node.send_snapshot(rid(3), snapshot_of(leader))
    if told:
        leader.node.snapshot_failed(rid(3))
    group.tick(3 if told else 40)
    assert leader.snapshots_wanted.count(rid(3)) >= 2


def test_a_log_that_moved_past_the_window_leads_to_a_snapshot() -> None:
    """The window was full and unanswered while retention took what lies just before it."""
    group = Group.of(3, RaftSettings(appends_in_flight_max=1, append_bytes_max=1))
    leader = group.elect(1)
    group.accepts = lambda message: (
        not isinstance(message, AppendRequest | AppendResponse)
        or (rid(3) not in (message.sender, message.to))
    )
    for number in range(10):
        leader.node.propose(number, 1)
        group.deliver()
    leader.log.drop_before(8)
    group.tick(3)
    group.accepts = lambda _: True
    assert leader.snapshots_wanted == [rid(3)]


def test_gaps_of_a_compacted_log_reach_a_new_replica() -> None:
    group, leader = lagging_group()
    leader.log.make_gap(8, 9)
    group.tick(3)
    first = Snapshot(LogIndex(7), Term(1), leader.node.membership)
    leader.node.send_snapshot(rid(3), first)
    group.tick(3)
    kinds = [item.kind for item in group[3].log.items]
    assert kinds[:3] == [EntryKind.GAP, EntryKind.GAP, EntryKind.DATA]
    assert group[3].log.last_index == leader.log.last_index


def wide(index: int, term: int, span: int) -> Entry:
    return Entry(LogIndex(index), Term(term), EntryKind.DATA, f"{term}.{index}", 1, span)


def test_data_that_covers_several_indices_commits_at_the_last_of_them() -> None:
    group = Group.of(3)
    leader = group.elect(1)
    assert [leader.node.propose(span, 1, span) for span in (5, 1, 3)] == [6, 7, 10]
    group.deliver()
    assert leader.node.commit_index == 10
    assert group[2].log.items == leader.log.items
    assert [item.span for item in group[2].log.entries(LogIndex(1), LogIndex(11), 99)] == [
        1,
        5,
        1,
        3,
    ]


@pytest.mark.parametrize("durable", [True, False])
def test_a_hint_inside_of_an_entry_is_answered_with_the_whole_of_it(durable: bool) -> None:
    """The follower's entries of a term that the leader never saw end inside one of the leader's."""
    membership = members(1, 2, 3)
    log = MemoryLog([wide(4, 1, 4), wide(14, 3, 10)])
    leader = Member(1, membership, log=log, term=6)
    other = Member(2, membership, log=MemoryLog([wide(4, 1, 4), wide(9, 5, 5)]), term=6)
    group = Group(leader, other, Member(3, membership, term=6))
    leader.syncs_at_once = durable
    group.accepts = lambda message: message.to != rid(2) or not isinstance(message, AppendRequest)
    leader.node.campaign()
    for _ in range(4):
        leader.settle()
        leader.sync()
        group.deliver()
    leader.node.propose("x", 1, 4)
    group.accepts = lambda _: True
    group.tick(3)
    leader.sync()
    group.deliver()
    assert leader.node.role is Role.LEADER
    assert other.log.items == leader.log.items


def test_what_a_follower_knows_as_the_beginning_of_a_gap_ends_as_a_gap() -> None:
    membership = members(1, 2, 3)
    gap = Entry(LogIndex(6), Term(1), EntryKind.GAP, None, 0, 6)
    leader = Member(1, membership, log=MemoryLog([wide(4, 1, 4), wide(10, 1, 6)]), term=1)
    other = Member(2, membership, log=MemoryLog([gap]), term=1)
    Group(leader, other, Member(3, membership, term=1)).elect(1)
    assert other.log.last_index == leader.log.last_index
    assert [item.kind for item in other.log.items[:10]] == [EntryKind.GAP] * 10


def test_the_start_of_the_log_travels_like_data() -> None:
    group = Group.of(3)
    leader = group.elect(1)
    assert leader.node.propose_own(EntryKind.LOG_START, "from here") == 2
    assert group[2].node.propose_own(EntryKind.LOG_START, "x") is Refusal.NOT_LEADER
    group.deliver()
    assert group[3].log.items[1][2:4] == (EntryKind.LOG_START, "from here")
    leader.node.transfer(rid(2))
    assert leader.node.propose_own(EntryKind.LOG_START, "x") is Refusal.TRANSFERRING


def test_an_acknowledgement_of_entries_that_do_not_exist_is_a_peer_s_fault() -> None:
    leader = Group.of(3).elect(1)
    with pytest.raises(PeerFault, match="do not exist"):
        leader.node.step(AppendResponse(rid(2), rid(1), Term(1), LogIndex(99), LogIndex(0)))
