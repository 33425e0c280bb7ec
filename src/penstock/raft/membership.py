"""Who belongs to a group, how that may change, and how a change is taken back.

Members change one at a time (Ongaro's dissertation, section 4.1). Two neighbouring sets of voters
differ by at most one, so any majority of the one overlaps any majority of the other, and a plain
majority is the only kind of quorum. A replica uses the newest membership in its log, committed or
not; if that entry is truncated it falls back to the one before. Two rules make it safe: a change
waits until the one before it is committed, and until the leader committed an entry of its own
term (the flaw found in 2015, without which two leaders' changes can pass each other).
"""

from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from penstock.model.ids import LogIndex, ReplicaId


class Membership(NamedTuple):
    """Voters decide; learners only receive the log, until they are promoted."""

    voters: frozenset[ReplicaId]
    learners: frozenset[ReplicaId] = frozenset()

    @property
    def members(self) -> frozenset[ReplicaId]:
        return self.voters | self.learners


class ChangeKind(Enum):
    ADD_LEARNER = auto()
    PROMOTE = auto()
    REMOVE = auto()


class Change(NamedTuple):
    kind: ChangeKind
    replica: ReplicaId


class MembershipStep(NamedTuple):
    """From this index of the log on, this membership holds."""

    index: LogIndex  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    membership: Membership


def changed(membership: Membership, change: Change) -> Membership | None:
    """The membership after `change`, or None where the change makes no sense."""
    voters, learners = membership
    replica = change.replica
    match change.kind:
        case ChangeKind.ADD_LEARNER if replica not in membership.members:
            return Membership(voters, learners | {replica})
        case ChangeKind.PROMOTE if replica in learners:
            return Membership(voters | {replica}, learners - {replica})
        case ChangeKind.REMOVE if replica in membership.members and voters != {replica}:
            return Membership(voters - {replica}, learners - {replica})
        case _:
            return None


class MembershipHistory:
    """The newest committed membership, and those after it that truncation may still take back."""

    __slots__ = ("_steps", "current")

    def __init__(self, steps: Iterable[MembershipStep]) -> None:
        self._steps = list(steps)
        assert self._steps, "a group starts with a membership"
        self.current = self._steps[-1].membership

    @property
    def current_index(self) -> LogIndex:
        return self._steps[-1].index

    def append(self, step: MembershipStep) -> None:
        assert step.index > self._steps[-1].index
        self._steps.append(step)
        self.current = step.membership

    def truncate(self, index: int) -> bool:
        """Forgets the steps from `index` on; says whether another membership holds now."""
        kept = len(self._steps)
        while kept > 0 and self._steps[kept - 1].index >= index:
            kept -= 1
        if kept == len(self._steps):
            return False
        assert kept > 0, "a committed membership can't be truncated"
        del self._steps[kept:]
        self.current = self._steps[-1].membership
        return True

    def commit(self, index: int) -> None:
        """Steps before the newest committed one can't come back."""
        while len(self._steps) > 1 and self._steps[1].index <= index:
            del self._steps[0]

    def replace(self, step: MembershipStep) -> None:
        """A snapshot says what holds; everything known before is part of it."""
        self._steps = [step]
        self.current = step.membership

    def may_campaign(self, replica: ReplicaId) -> bool:
        """Whether `replica` may stand for election.

        One that its newest, uncommitted membership leaves out still may: it can be the only one
        with a log that is fresh enough to finish its own removal (dissertation, section 4.2.2).
        """
        return replica in self.current.voters or (
            len(self._steps) > 1 and replica in self._steps[-2].membership.voters
        )
