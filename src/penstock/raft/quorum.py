"""Majorities: of votes, of acknowledged indices, of replicas heard from."""

from collections.abc import Collection, Iterable
from enum import Enum, auto

from penstock.model.ids import ReplicaId


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


class VoteTally:
    """The answers of one round of voting; the first answer of each voter stands."""

    __slots__ = ("_answers", "_voters")

    def __init__(self, voters: frozenset[ReplicaId]) -> None:
        self._voters = voters
        self._answers: dict[ReplicaId, bool] = {}

    def record(self, voter: ReplicaId, granted: bool) -> None:
        self._answers.setdefault(voter, granted)

    def outcome(self) -> Outcome:
        granted = {voter for voter, answer in self._answers.items() if answer}
        if is_quorum(granted, self._voters):
            return Outcome.WON
        undecided = self._voters - self._answers.keys()
        return Outcome.PENDING if is_quorum(granted | undecided, self._voters) else Outcome.LOST
