"""Majorities are more than half, of the voters and of nobody else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.raft.quorum import Outcome, VoteTally, is_quorum, majority, quorum_index
from tests.unit.raft.groups import rid


@pytest.mark.parametrize(("voters", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4)])
def test_a_majority_is_more_than_half(voters: int, needed: int) -> None:
    assert majority(voters) == needed


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7))
def test_the_quorum_index_is_the_highest_that_a_majority_reached(matches: list[int]) -> None:
    reached = [
        index
        for index in range(10)
        if sum(match >= index for match in matches) >= majority(len(matches))
    ]
    assert quorum_index(matches) == max(reached)


def test_only_voters_count() -> None:
    voters = frozenset({rid(1), rid(2), rid(3)})
    assert not is_quorum({rid(1), rid(7), rid(8)}, voters)
    assert is_quorum({rid(1), rid(3)}, voters)


def test_an_election_is_decided_as_soon_as_it_can_be() -> None:
    tally = VoteTally(frozenset(map(rid, range(1, 6))))
    outcomes = []
    for number, granted in ((1, True), (2, False), (2, True), (3, False), (4, False)):
        tally.record(rid(number), granted)
        outcomes.append(tally.outcome())
    assert outcomes == [Outcome.PENDING] * 4 + [Outcome.LOST]
