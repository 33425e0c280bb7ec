"""Proves that every way from one set of members to another is safe, and comes to its end."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import BrokerId, DirectoryId, ReplicaId
from penstock.raft.membership import Change, ChangeKind, Membership, changed
from penstock.replication.reconcile import Wanted, is_reconciled, next_change, successors


def replica(node: int, directory: str = "a") -> ReplicaId:
    return ReplicaId(BrokerId(node), DirectoryId(directory))


def group(*voters: ReplicaId, learners: tuple[ReplicaId, ...] = ()) -> Membership:
    return Membership(frozenset(voters), frozenset(learners))


ONE, TWO, THREE, FOUR = (replica(node) for node in (1, 2, 3, 4))


def test_who_is_missing_learns_first_and_votes_when_caught_up() -> None:
    wanted = Wanted((ONE, TWO))
    assert next_change(group(ONE), wanted, ONE, lambda _: False) == (ChangeKind.ADD_LEARNER, TWO)
    learning = group(ONE, learners=(TWO,))
    assert next_change(learning, wanted, ONE, lambda _: False) is None
    assert next_change(learning, wanted, ONE, lambda _: True) == (ChangeKind.PROMOTE, TWO)


def test_nobody_goes_before_all_who_come_vote() -> None:
    wanted = Wanted((ONE, TWO, FOUR))
    before = group(ONE, TWO, THREE, learners=(FOUR,))
    assert next_change(before, wanted, ONE, lambda _: False) is None
    after = group(ONE, TWO, THREE, FOUR)
    assert next_change(after, wanted, ONE, lambda _: False) == (ChangeKind.REMOVE, THREE)


def test_a_replaced_directory_goes_first_because_it_can_never_come_back() -> None:
    reborn = replica(3, "b")
    change = next_change(group(ONE, TWO, THREE), Wanted((ONE, TWO, reborn)), ONE, lambda _: True)
    assert change == Change(ChangeKind.REMOVE, THREE)


def test_a_leader_never_removes_itself_but_hands_over() -> None:
    wanted = Wanted((TWO, THREE))
    assert next_change(group(ONE, TWO, THREE), wanted, ONE, lambda _: True) is None
    assert successors(group(ONE, TWO, THREE), wanted, ONE) == [TWO, THREE]
    assert successors(group(ONE, TWO), wanted, ONE) == []


def test_only_the_preferred_leader_is_handed_over_to_by_one_that_may_stay() -> None:
    wanted = Wanted((TWO, ONE, THREE))
    assert successors(group(ONE, TWO, THREE), wanted, ONE) == [TWO]
    assert successors(group(ONE, THREE), wanted, ONE) == []
    assert successors(group(ONE, TWO, THREE), wanted, TWO) == []


def test_a_voter_that_is_to_learn_only_leaves_and_comes_back() -> None:
    wanted = Wanted((ONE, TWO), (THREE,))
    change = next_change(group(ONE, TWO, THREE), wanted, ONE, lambda _: True)
    assert change == Change(ChangeKind.REMOVE, THREE)
    change = next_change(group(ONE, TWO), wanted, ONE, lambda _: True)
    assert change == Change(ChangeKind.ADD_LEARNER, THREE)


replicas = st.builds(replica, st.integers(1, 6), st.sampled_from("ab"))


@given(
    st.sets(replicas, min_size=1, max_size=5),
    st.lists(replicas, min_size=1, max_size=5, unique_by=lambda found: found.node),
)
def test_it_always_ends_where_it_should(start: set[ReplicaId], voters: list[ReplicaId]) -> None:
    wanted = Wanted(tuple(voters))
    membership = Membership(frozenset(start))
    leader = min(start)
    for _ in range(40):
        change = next_change(membership, wanted, leader, lambda _: True)
        if change is None:
            heirs = successors(membership, wanted, leader)
            if not heirs:
                break
            leader = heirs[0]
            continue
        after = changed(membership, change)
        assert after is not None
        assert leader in after.voters
        membership = after
    assert is_reconciled(membership, wanted)
    assert leader == voters[0]
