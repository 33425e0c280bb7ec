"""A follower keeps what agrees, cuts what does not, and promises only what is durable."""

import pytest

from penstock.model.ids import LogIndex, Term
from penstock.raft.entries import Entry, EntryKind, Snapshot
from penstock.raft.messages import (
    AppendRejection,
    AppendRequest,
    AppendResponse,
    CommitNotice,
    Heartbeat,
    InstallSnapshot,
    Message,
    PeerFault,
)
from tests.unit.raft.groups import Member, entries, entry, members, rid
from tests.unit.raft.memory_log import MemoryLog

THREE = members(1, 2, 3)


def append(
    term: int, previous: tuple[int, int], new: list[Entry], commit_index: int = 0
) -> AppendRequest:
    index, previous_term = previous
    return AppendRequest(
        rid(1),
        rid(2),
        Term(term),
        LogIndex(index),
        Term(previous_term),
        tuple(new),
        LogIndex(commit_index),
    )


def follower(*terms: int, term: int = 5) -> Member:
    return Member(2, THREE, log=MemoryLog(entries(*terms)), term=term)


def acknowledged(messages: list[Message]) -> list[int]:
    return [message.match_index for message in messages if isinstance(message, AppendResponse)]


def test_entries_are_appended_and_acknowledged() -> None:
    member = follower()
    assert acknowledged(member.step(append(5, (0, 0), entries(4, 5)))) == [2]
    assert member.terms == [4, 5]


def test_an_append_is_acknowledged_only_once_it_is_durable() -> None:
    member = follower()
    member.syncs_at_once = False
    assert member.step(append(5, (0, 0), entries(5))) == []
    assert member.step(append(5, (1, 5), [entry(2, 5)])) == []
    member.sync()
    assert acknowledged(member.take()) == [2], "the last acknowledgement stands for both"


def test_a_repeated_append_waits_for_the_sync_of_the_first() -> None:
    member = follower()
    member.syncs_at_once = False
    member.step(append(5, (0, 0), entries(5)))
    assert member.step(append(5, (0, 0), entries(5))) == []
    member.sync()
    assert acknowledged(member.take()) == [1]


def test_a_heartbeat_is_answered_although_the_disk_is_busy() -> None:
    """A slow disk must not look like a dead replica."""
    member = follower()
    member.syncs_at_once = False
    member.step(append(5, (0, 0), entries(5)))
    answers = member.step(Heartbeat(rid(1), rid(2), Term(5), LogIndex(0), 7))
    assert len(answers) == 1


def test_a_late_append_does_not_undo_what_a_later_one_brought() -> None:
    """Truncating without a conflict would drop entries that were acknowledged."""
    member = follower()
    member.step(append(5, (0, 0), entries(5, 5, 5)))
    assert acknowledged(member.step(append(5, (0, 0), entries(5)))) == [1]
    assert member.terms == [5, 5, 5]
    assert member.node.last_index == 3


def test_entries_of_another_term_are_replaced_from_the_first_conflict_on() -> None:
    member = follower(1, 1, 2, 2, 2)
    assert acknowledged(member.step(append(5, (1, 1), entries(1, 1, 4)[1:]))) == [3]
    assert member.terms == [1, 1, 4]


def test_an_append_that_does_not_fit_is_rejected_with_a_hint() -> None:
    member = follower(1, 1, 3, 3)
    (answer,) = member.step(append(5, (4, 2), [entry(5, 5)]))
    assert isinstance(answer, AppendRejection)
    assert (answer.previous_index, answer.hint_index, answer.hint_term) == (4, 2, 1)
    assert member.terms == [1, 1, 3, 3]
    (answer,) = member.step(append(5, (9, 5), [entry(10, 5)]))
    assert isinstance(answer, AppendRejection)
    assert (answer.hint_index, answer.hint_term) == (4, 3)


def test_the_term_before_the_entries_must_agree_not_only_the_index() -> None:
    member = follower(1, 2)
    (answer,) = member.step(append(5, (2, 3), [entry(3, 5)]))
    assert isinstance(answer, AppendRejection)
    assert member.terms == [1, 2]


def test_the_commit_index_stops_at_what_this_append_proves() -> None:
    member = follower(1, 1, 1, 1)
    member.step(append(5, (2, 1), [], commit_index=4))
    assert member.node.commit_index == 2
    member.step(append(5, (2, 1), [entry(3, 5)], commit_index=9))
    assert member.node.commit_index == 3


def test_a_commit_notice_beyond_the_log_is_ignored() -> None:
    member = follower(1, 1)
    member.step(append(5, (2, 1), []))
    member.step(CommitNotice(rid(1), rid(2), Term(5), LogIndex(7)))
    assert member.node.commit_index == 0
    member.step(CommitNotice(rid(1), rid(2), Term(5), LogIndex(2)))
    assert member.node.commit_index == 2


def test_committed_but_not_yet_durable_entries_can_not_be_applied() -> None:
    member = follower()
    member.syncs_at_once = False
    member.node.step(append(5, (0, 0), entries(5, 5), commit_index=2))
    ready = member.node.ready()
    assert ready is not None
    assert (ready.commit_index, ready.apply_index) == (2, 0)
    assert ready.write is not None
    member.log.carry_out(ready.write)
    member.node.persisted(ready.write.number)
    ready = member.node.ready()
    assert ready is not None
    assert ready.apply_index == 2


def test_an_old_append_below_the_commit_index_brings_only_its_news() -> None:
    member = follower(1, 1, 1)
    member.step(append(5, (3, 1), [], commit_index=3))
    member.log.drop_before(3)
    assert acknowledged(member.step(append(5, (0, 0), entries(1, 1, 1, 5)))) == [4]
    assert acknowledged(member.step(append(5, (0, 0), entries(1)))) == [3]
    assert member.node.last_index == 4


@pytest.mark.parametrize("bad", [[entry(3, 5)], [entry(2, 5), entry(4, 5)], [entry(2, 6)]], ids=str)
def test_entries_that_can_not_follow_are_a_peer_s_fault(bad: list[Entry]) -> None:
    member = follower(1)
    with pytest.raises(PeerFault):
        member.node.step(append(5, (1, 1), bad))
    assert member.node.last_index == 1


def gap(first: int, last: int, term: int) -> Entry:
    return Entry(LogIndex(last), Term(term), EntryKind.GAP, None, 0, last - first + 1)


def test_gaps_are_stored_with_their_terms() -> None:
    member = follower()
    member.step(append(5, (0, 0), [gap(1, 4, 1), gap(5, 6, 3), entry(7, 5)]))
    assert member.terms == [1, 1, 1, 1, 3, 3, 5]
    assert member.node.last_index == 7


def test_a_gap_does_not_replace_entries_that_agree_with_it() -> None:
    member = follower(1, 1, 1)
    assert acknowledged(member.step(append(5, (0, 0), [gap(1, 3, 1), entry(4, 5)]))) == [4]
    assert [item.kind for item in member.log.items] == [EntryKind.DATA] * 4


def test_a_gap_is_cut_where_the_own_log_differs() -> None:
    member = follower(1, 1, 2, 2)
    member.step(append(5, (0, 0), [gap(1, 4, 1), entry(5, 5)]))
    assert member.terms == [1, 1, 1, 1, 5]
    assert [item.kind for item in member.log.items][:4] == [EntryKind.DATA] * 2 + [
        EntryKind.GAP
    ] * 2


def install(index: int, term: int) -> InstallSnapshot:
    snapshot = Snapshot(LogIndex(index), Term(term), members(1, 2, 3, learners=(4,)), "state")
    return InstallSnapshot(rid(1), rid(2), Term(5), snapshot)


def test_a_snapshot_replaces_a_log_that_is_behind() -> None:
    member = follower(1, 1)
    member.syncs_at_once = False
    assert member.step(install(10, 3)) == []
    assert (member.node.commit_index, member.node.last_index) == (10, 10)
    member.step(append(5, (10, 3), [entry(11, 5)]))
    member.sync()
    assert acknowledged(member.take()) == [11]
    assert (member.log.first_index, member.log.last_index) == (11, 11)
    assert member.node.membership == members(1, 2, 3, learners=(4,))


def test_a_snapshot_of_what_is_committed_already_takes_nothing_away() -> None:
    """Going back would drop acknowledged entries and the state built from them."""
    member = follower(1, 1, 1, 1)
    member.step(append(5, (4, 1), [], commit_index=4))
    member.log.drop_before(4)
    assert acknowledged(member.step(install(2, 1))) == [4]
    assert (member.node.commit_index, member.node.last_index, member.terms) == (4, 4, [1])


def test_a_snapshot_that_the_log_covers_only_commits() -> None:
    member = follower(1, 1, 1, 1)
    assert acknowledged(member.step(install(3, 1))) == [3]
    assert (member.node.commit_index, member.terms) == (3, [1, 1, 1, 1])


def test_a_write_that_a_truncation_overtook_proves_nothing_about_the_new_entries() -> None:
    member = follower(1)
    member.syncs_at_once = False
    member.step(append(5, (1, 1), entries(1, 5, 5, 5)[1:]))
    first = member.writes.pop()
    member.node.step(append(6, (2, 5), [entry(3, 6)])._replace(sender=rid(3)))
    member.settle()
    member.log.carry_out(first)
    member.node.persisted(first.number)
    assert member.node.stable_index == 2
    assert acknowledged(member.take()) == []
    member.sync()
    assert (acknowledged(member.take()), member.terms) == ([3], [1, 5, 6])
