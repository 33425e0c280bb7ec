"""What a leader changes next so that its group becomes the one that is wanted. Pure.

One change at a time, in an order that never makes the group weaker than it must be: first those go
whose data directory was replaced, since they can never come back; then who is missing is added as
a learner and promoted once caught up; only when all wanted voters vote do the others go.
"""

from collections.abc import Callable
from typing import NamedTuple

from penstock.model.ids import ReplicaId
from penstock.raft.membership import Change, ChangeKind, Membership


class Wanted(NamedTuple):
    """In order: the first voter is the preferred leader."""

    voters: tuple[ReplicaId, ...]
    learners: tuple[ReplicaId, ...] = ()

    @property
    def members(self) -> tuple[ReplicaId, ...]:
        return (*self.voters, *self.learners)


def is_reconciled(membership: Membership, wanted: Wanted) -> bool:
    return membership.voters == frozenset(wanted.voters) and membership.learners == frozenset(
        wanted.learners
    )


def next_change(
    membership: Membership,
    wanted: Wanted,
    own: ReplicaId,
    is_caught_up: Callable[[ReplicaId], bool],
) -> Change | None:
    """None when nothing can be done now, or nothing is left to do."""
    return (
        _remove_replaced(membership, wanted, own)
        or _add(membership, wanted)
        or _promote(membership, wanted, is_caught_up)
        or _remove_unwanted(membership, wanted, own)
    )


def successors(membership: Membership, wanted: Wanted, own: ReplicaId) -> list[ReplicaId]:
    """Who should lead instead of this leader, the best first; nobody if it leads rightly."""
    if wanted.voters and own == wanted.voters[0]:
        return []
    voting = [replica for replica in wanted.voters if replica in membership.voters]
    if own in voting:
        return voting[:1] if voting[0] == wanted.voters[0] else []
    return voting if len(voting) == len(wanted.voters) else []


def _remove_replaced(membership: Membership, wanted: Wanted, own: ReplicaId) -> Change | None:
    wanted_nodes = {replica.node for replica in wanted.members}
    for replica in sorted(membership.members - frozenset(wanted.members) - {own}):
        if replica.node in wanted_nodes and membership.voters != {replica}:
            return Change(ChangeKind.REMOVE, replica)
    return None


def _add(membership: Membership, wanted: Wanted) -> Change | None:
    for replica in wanted.members:
        if replica not in membership.members:
            return Change(ChangeKind.ADD_LEARNER, replica)
    return None


def _promote(
    membership: Membership, wanted: Wanted, is_caught_up: Callable[[ReplicaId], bool]
) -> Change | None:
    for replica in wanted.voters:
        if replica in membership.learners and is_caught_up(replica):
            return Change(ChangeKind.PROMOTE, replica)
    return None


def _remove_unwanted(membership: Membership, wanted: Wanted, own: ReplicaId) -> Change | None:
    if not membership.voters >= frozenset(wanted.voters):
        return None
    surplus_voters = membership.voters - frozenset(wanted.voters)
    surplus_learners = membership.learners - frozenset(wanted.learners)
    for replica in (*sorted(surplus_learners), *sorted(surplus_voters)):
        # A leader that goes hands over first: its successor removes it.
        if replica != own and membership.voters != {replica}:
            return Change(ChangeKind.REMOVE, replica)
    return None
