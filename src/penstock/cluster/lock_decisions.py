"""Decides who gets a lock, and when a lease ends.

A fencing token is handed out once: tokens come from one counter of the cluster that never goes
back, and the counter is stored together with the lock. So a name may be forgotten as soon as it is
free, and its next holder has a greater token all the same.

Time is not known here. A lease ends when the controller stores that it did (`decide_expiry`), so in
the order of the log no two holders of a name overlap.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.cluster.lock import LOCKS_MAX, Lock
from penstock.cluster.records import (
    ClusterRecord,
    FencingTokensTaken,
    LockRemoved,
    LockStored,
)
from penstock.cluster.state import ClusterState
from penstock.model.errors import Reason, Refused


class Acquired(NamedTuple):
    """Who holds the lock after a request for it, and whether that is the one who asked."""

    # None if nobody holds it yet, because others are first in the line.
    lock: Lock | None
    is_granted: bool


# A refusal is an answer like any other: it may only leave after the state that it was decided on
# turned out to be the newest. A controller that was replaced knows nothing of later holders.
Decision = tuple[Sequence[ClusterRecord], Lock | Refused]


def decide_acquisition(
    state: ClusterState, name: str, owner: str, lease_ms: int
) -> tuple[Sequence[ClusterRecord], Acquired]:
    """An owner that has the lock already keeps its token: it asks again because it got no answer,
    or to renew its lease."""
    held = state.locks.get(name)
    if held is not None and held.owner == owner:
        records, lock = _with_lease(held, lease_ms)
        return records, Acquired(lock, is_granted=True)
    if held is not None:
        return [], Acquired(held, is_granted=False)
    if len(state.locks) >= LOCKS_MAX:
        detail = f"{LOCKS_MAX:,} locks are held, and there can't be more."
        raise Refused(Reason.POLICY_VIOLATION, detail)
    lock = Lock(name, owner, state.next_fencing_token, lease_ms)
    taken = FencingTokensTaken(next_fencing_token=lock.fencing_token + 1)
    return [taken, LockStored(lock=lock)], Acquired(lock, is_granted=True)


def decide_renewal(
    state: ClusterState, name: str, owner: str, token: int, lease_ms: int | None
) -> Decision:
    """Mostly nothing is stored: when a lease ends is known to the controller alone."""
    held = _held_by(state, name, owner, token)
    return _with_lease(held, lease_ms or held.lease_ms) if isinstance(held, Lock) else ([], held)


def decide_release(state: ClusterState, name: str, owner: str, token: int) -> Decision:
    held = _held_by(state, name, owner, token)
    return ([LockRemoved(name=name)] if isinstance(held, Lock) else []), held


def decide_expiry(state: ClusterState, name: str, token: int) -> Sequence[ClusterRecord]:
    held = state.locks.get(name)
    return [LockRemoved(name=name)] if held is not None and held.fencing_token == token else []


def _with_lease(held: Lock, lease_ms: int) -> tuple[Sequence[ClusterRecord], Lock]:
    if held.lease_ms == lease_ms:
        return [], held
    lock = held._replace(lease_ms=lease_ms)
    return [LockStored(lock=lock)], lock


def _held_by(state: ClusterState, name: str, owner: str, token: int) -> Lock | Refused:
    held = state.locks.get(name)
    if held is None or (held.owner, held.fencing_token) != (owner, token):
        now = "nobody holds it" if held is None else f"token {held.fencing_token} holds it"
        detail = f"The lock {name} is not held by {owner!r} with token {token}: {now}."
        return Refused(Reason.LOCK_NOT_HELD, detail)
    return held
