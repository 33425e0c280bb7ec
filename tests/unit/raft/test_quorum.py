"""Majorities are more than half, of the voters and of nobody else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import NO_END, LogEnd
from penstock.raft.quorum import (
    Ballot,
    Outcome,
    Stuck,
    VoteTally,
    is_quorum,
    majority,
    quorum_index,
)
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
        tally.record(rid(number), Ballot(granted))
        outcomes.append(tally.outcome())
    assert outcomes == [Outcome.PENDING] * 4 + [Outcome.LOST]


def tally_of(*ballots: Ballot) -> VoteTally:
    tally = VoteTally(frozenset(map(rid, range(1, len(ballots) + 1))))
    for number, ballot in enumerate(ballots, start=1):
        tally.record(rid(number), ballot)
    return tally


WHOLE = Ballot(True, LogEnd(3, 10))
DOUBTFUL = Ballot(True, LogEnd(3, 8), LogEnd(3, 9))


def test_votes_in_doubt_make_no_majority_but_all_votes_together_win() -> None:
    tally = VoteTally(frozenset(map(rid, (1, 2, 3))))
    tally.record(rid(1), WHOLE)
    tally.record(rid(2), DOUBTFUL)
    assert tally.outcome() is Outcome.PENDING
    tally.record(rid(3), DOUBTFUL)
    assert tally.outcome() is Outcome.WON


def test_one_refusal_ends_an_election_that_needs_all_votes() -> None:
    refusal = DOUBTFUL._replace(granted=False)
    assert tally_of(WHOLE, DOUBTFUL, refusal).outcome() is Outcome.LOST


def test_a_majority_without_doubt_needs_nobody_else() -> None:
    assert tally_of(WHOLE, WHOLE, DOUBTFUL._replace(granted=False)).outcome() is Outcome.WON


def test_a_group_is_stuck_when_no_log_reaches_as_far_as_one_did() -> None:
    refusal = Ballot(False, LogEnd(3, 8), LogEnd(3, 12))
    tally = tally_of(WHOLE, DOUBTFUL, refusal)
    assert tally.stuck(NO_END) == Stuck(LogEnd(3, 12), rid(3), LogEnd(3, 10), rid(1))
    assert tally.stuck(LogEnd(3, 11)) is not None
    assert tally.stuck(LogEnd(3, 12)) is None


@pytest.mark.parametrize(
    "ballots",
    [
        # The longest log is that of another voter, which can win.
        (WHOLE, DOUBTFUL, Ballot(False, LogEnd(3, 8), LogEnd(3, 10))),
        # Two without doubt can elect one of them.
        (WHOLE, WHOLE, Ballot(False, LogEnd(3, 8), LogEnd(9, 99))),
    ],
)
def test_a_group_is_not_stuck_while_somebody_can_win(ballots: tuple[Ballot, ...]) -> None:
    assert tally_of(*ballots).stuck(NO_END) is None


def test_a_group_is_not_called_stuck_before_all_have_answered() -> None:
    tally = VoteTally(frozenset(map(rid, (1, 2, 3))))
    tally.record(rid(1), DOUBTFUL._replace(granted=False))
    tally.record(rid(2), DOUBTFUL._replace(granted=False))
    assert tally.outcome() is Outcome.PENDING
    assert tally.stuck(NO_END) is None
