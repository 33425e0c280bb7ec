"""Proves who counts as in sync: anyone who had everything a moment ago, and nobody longer."""

from penstock.model.ids import BrokerId, DirectoryId, LogIndex, ReplicaId
from penstock.raft.membership import Membership
from penstock.raft.node import ReplicaStatus
from penstock.raft.progress import ProgressState
from penstock.replication.in_sync import (
    GRACE_SAMPLES,
    LAG_SAMPLES,
    NO_BOUND,
    InSync,
    held_by,
    index_held_by,
)

ONE, TWO, THREE = (ReplicaId(BrokerId(node), DirectoryId("a")) for node in (1, 2, 3))
VOTERS = frozenset({ONE, TWO, THREE})


def status(replica: ReplicaId, match: int, *, is_active: bool = True) -> ReplicaStatus:
    return ReplicaStatus(replica, True, LogIndex(match), ProgressState.REPLICATE, is_active)


def new() -> InSync:
    in_sync = InSync(ONE)
    in_sync.begin(VOTERS, LogIndex(10))
    return in_sync


def sample(in_sync: InSync, two: int, three: int, last: int) -> bool:
    statuses = [status(TWO, two), status(THREE, three)]
    return in_sync.sample(VOTERS, statuses, LogIndex(last))


def test_a_voter_that_falls_behind_leaves_after_a_while_and_comes_back() -> None:
    in_sync = new()
    assert in_sync.nodes == [1, 2, 3]
    last = 10
    sample(in_sync, last, last, last)
    for count in range(LAG_SAMPLES):
        changed = sample(in_sync, last, 5, last + 10)
        last += 10
        assert changed == (count == LAG_SAMPLES - 1)
    assert in_sync.nodes == [1, 2]
    assert sample(in_sync, last, last, last)
    assert in_sync.nodes == [1, 2, 3]


def test_a_voter_that_never_shows_itself_to_a_new_leader_leaves_soon() -> None:
    in_sync = new()
    for _ in range(GRACE_SAMPLES):
        assert not sample(in_sync, 10, 5, 10)
    assert sample(in_sync, 10, 5, 10)
    assert in_sync.nodes == [1, 2]


def test_one_that_always_has_what_was_there_at_the_last_sample_stays() -> None:
    in_sync = new()
    for last in range(10, 1_000, 10):
        sample(in_sync, last, last, last + 10)
    assert in_sync.nodes == [1, 2, 3]
    assert in_sync.steady_samples(TWO) > 50


def test_one_that_is_not_heard_from_leaves_though_nothing_was_written() -> None:
    in_sync = new()
    for _ in range(LAG_SAMPLES + 2):
        statuses = [status(TWO, 10), status(THREE, 10, is_active=False)]
        in_sync.sample(VOTERS, statuses, LogIndex(10))
    assert in_sync.nodes == [1, 2]
    assert in_sync.steady_samples(THREE) == 0


def test_a_dead_process_leaves_at_once() -> None:
    in_sync = new()
    assert in_sync.drop(BrokerId(2))
    assert not in_sync.drop(BrokerId(2))
    assert in_sync.nodes == [1, 3]
    assert sample(in_sync, 10, 10, 10)
    assert in_sync.nodes == [1, 2, 3]
    in_sync.end()
    assert in_sync.nodes == []


def test_a_learner_is_never_among_them_and_a_new_voter_is_at_once() -> None:
    in_sync = InSync(ONE)
    in_sync.begin({ONE}, LogIndex(10))
    in_sync.sample(frozenset({ONE}), [status(TWO, 10)], LogIndex(10))
    assert in_sync.nodes == [1]
    in_sync.sample(frozenset({ONE, TWO}), [status(TWO, 10)], LogIndex(10))
    assert in_sync.nodes == [1, 2]


def test_what_so_many_hold() -> None:
    statuses = [status(TWO, 5), status(THREE, 8)]
    assert [held_by(count, 10, statuses) for count in (1, 2, 3, 4)] == [10, 8, 5, 0]


class Grown:
    """Of the core: a group of two that has just become one of three or more."""

    stable_index = LogIndex(9)

    def __init__(self, *others: ReplicaStatus, is_committed: bool) -> None:
        self._others = others
        self.membership = Membership(frozenset({ONE, *(other.replica for other in others)}))
        self.is_membership_committed = is_committed

    def replicas(self) -> list[ReplicaStatus]:
        return list(self._others)


def test_a_majority_is_no_answer_until_the_members_that_make_it_are_committed() -> None:
    """What was committed by two of three has two copies, though a majority of four is three."""
    four = ReplicaId(BrokerId(4), DirectoryId("d4"))
    others = (status(TWO, 9), status(THREE, 4), status(four, 0))
    assert index_held_by(3, Grown(*others, is_committed=False)) == 4  # type: ignore[arg-type]
    assert index_held_by(2, Grown(*others, is_committed=False)) == 9  # type: ignore[arg-type]
    assert index_held_by(3, Grown(*others, is_committed=True)) == NO_BOUND  # type: ignore[arg-type]
