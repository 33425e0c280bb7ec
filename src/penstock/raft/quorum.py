"""Majorities: of votes, of acknowledged indices, of replicas heard from."""

from collections.abc import Collection, Iterable
from enum import Enum, auto
from typing import NamedTuple

from penstock.model.ids import NO_END, LogEnd, ReplicaId


def majority(voters: int) -> int:
    return voters // 2 + 1


def quorum_index(matches: Iterable[int]) -> int:
    """The highest index that a majority reached, given one index per voter."""
    ordered = sorted(matches)
    return ordered[len(ordered) - majority(len(ordered))]


def is_quorum(present: Collection[ReplicaId], voters: Collection[ReplicaId]) -> bool:
    """Whether those `present` include a majority of the voters; others in it don't count."""
    return sum(1 for voter in voters if voter in present) >= majority(len(voters))


class Outcome(Enum):
    PENDING = auto()
    WON = auto()
    LOST = auto()


class Ballot(NamedTuple):
    """One voter's answer, and what it says about its log (see `VoteResponse`)."""

    granted: bool
    log_end: LogEnd = NO_END
    lost_end: LogEnd = NO_END

    @property
    def is_in_doubt(self) -> bool:
        return self.lost_end != NO_END


class Stuck(NamedTuple):
    """Why no voter may lead: something that may be committed is on no voter's log any more."""

    # Where the log of `loser` ended before it lost its tail.
    needed: LogEnd
    loser: ReplicaId
    # The longest log that is there, and who holds it.
    longest: LogEnd
    holder: ReplicaId


class VoteTally:
    """The answers of one round of voting; the first answer of each voter stands.

    A voter that lost the tail of its log may have forgotten something committed. Its vote does not
    count towards a majority, but where all voters answer and agree, nothing else is left to ask.
    """

    __slots__ = ("_answers", "_voters")

    def __init__(self, voters: frozenset[ReplicaId]) -> None:
        self._voters = voters
        self._answers: dict[ReplicaId, Ballot] = {}

    def record(self, voter: ReplicaId, ballot: Ballot) -> None:
        if voter in self._voters:
            self._answers.setdefault(voter, ballot)

    @property
    def is_complete(self) -> bool:
        return len(self._answers) == len(self._voters)

    def outcome(self) -> Outcome:
        granted = {voter for voter, ballot in self._answers.items() if ballot.granted}
        in_doubt = {voter for voter, ballot in self._answers.items() if ballot.is_in_doubt}
        if is_quorum(granted - in_doubt, self._voters) or granted == self._voters:
            return Outcome.WON
        if self.is_complete:
            return Outcome.LOST
        undecided = self._voters - self._answers.keys()
        # With somebody in doubt the round goes on: what all others say tells what is missing.
        is_open = in_doubt or is_quorum(granted | undecided, self._voters)
        return Outcome.PENDING if is_open else Outcome.LOST

    def stuck(self, accepted_end: LogEnd) -> Stuck | None:
        """Why nobody can win, after all have answered; None if somebody can."""
        whole = [voter for voter, ballot in self._answers.items() if not ballot.is_in_doubt]
        if not self.is_complete or is_quorum(whole, self._voters):
            return None
        loser = max(self._answers, key=lambda voter: self._answers[voter].lost_end)
        holder = max(self._answers, key=lambda voter: self._answers[voter].log_end)
        needed, longest = self._answers[loser].lost_end, self._answers[holder].log_end
        if max(longest, accepted_end) >= needed:
            return None
        return Stuck(needed, loser, longest, holder)
