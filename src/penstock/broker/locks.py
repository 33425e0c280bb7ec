"""Locks for clients: a lease that must be renewed, and a fencing token that only grows.

Who holds a lock is in the cluster's metadata. When its lease ends, and who waits for it, is known
to the controller alone and never stored:

- The controller counts a lease by its monotonic clock, from when the lock was stored or renewed. A
  new controller gives every lease its whole time again. The end of a lease is a change of the
  metadata like any other: until it is stored nobody else gets the lock.
- A renewal moves the deadline in the same step in which it looks at the state, and is answered when
  a majority has confirmed that this node was the controller then. It stores nothing.
- Those who wait stand in a line (`lock_lines.py`).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.broker.lock_lines import LockLines
from penstock.broker.share_coordinators import Peers
from penstock.cluster.changes import Change, LockChanged
from penstock.cluster.coordinator import Cluster
from penstock.cluster.lock import Lock as Lock
from penstock.cluster.lock import check_lease, check_name, check_owner
from penstock.cluster.lock_decisions import (
    Acquired,
    decide_acquisition,
    decide_expiry,
    decide_renewal,
)
from penstock.cluster.records import ClusterRecord
from penstock.cluster.state import ClusterState
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId
from penstock.replication.alarm_clock import AlarmClock

# Answered by nodes that can read locks in the metadata.
READS_LOCKS: Final = "locks.read"
READS_LOCKS_S_MAX: Final = 3.0
# How long one question may wait; a client that waits longer asks again, and keeps its place.
WAIT_S_MAX: Final = 5.0
# After a lease has ended and that could not be stored.
EXPIRY_RETRY_MS: Final = 1_000


class HeldLock(NamedTuple):
    """A lock as the controller knows it."""

    lock: Lock
    # Until its lease ends, unless it is renewed.
    left_ms: int
    waiters: int


class Locks:
    def __init__(self, *, cluster: Cluster, peers: Peers, clock: Clock) -> None:
        self._cluster = cluster
        self._peers = peers
        self._clock = clock
        self._lines = LockLines(clock, lambda name: name not in cluster.newest.locks)
        # When leases end, by the names of locks; and of which token the lease is.
        self._ends: AlarmClock[str] = AlarmClock(clock, self._expire)
        self._tokens: dict[str, int] = {}
        peers.serve(READS_LOCKS, _reads_locks)
        cluster.on_change(self._follow)
        cluster.on_controller(self._take_over, self._step_down)
        if cluster.is_controller:
            self._take_over()

    @property
    def controller(self) -> BrokerId:
        """Whom to ask; raises Refused while nobody is known."""
        found = self._cluster.controller_id
        if found < 0:
            raise Refused(Reason.NOT_CONTROLLER, "The cluster has no controller at the moment.")
        return found

    def close(self) -> None:
        self._step_down()

    # Use cases. All but `release` are the controller's, and are refused elsewhere with
    # NOT_CONTROLLER. All but `release` may be repeated when no answer came.

    async def acquire(self, name: str, owner: str, lease_ms: int, wait_s: float = 0.0) -> Acquired:
        """The lock, if it is the owner's turn within `wait_s`; who holds it instead otherwise."""
        check_name(name)
        check_owner(owner)
        check_lease(lease_ms)
        self._check_controller()
        await self._check_all_read_locks()
        if self._holds(name, owner):
            return await self._try(name, owner, lease_ms)
        deadline = self._clock.monotonic() + min(wait_s, WAIT_S_MAX)
        try:
            while await self._lines.wait(name, owner, deadline):
                acquired = await self._try(name, owner, lease_ms)
                if acquired.is_granted:
                    self._lines.leave(name, owner)
                    return acquired
        except BaseException:
            self._lines.leave(name, owner)
            raise
        if wait_s > 0:
            self._lines.keep(name, owner)
        else:
            self._lines.leave(name, owner)
        found = await self.describe(name)
        return Acquired(None if found is None else found.lock, is_granted=False)

    async def renew(self, name: str, owner: str, token: int, lease_ms: int | None = None) -> Lock:
        """Gives the lease its whole time again; raises Refused if it has ended."""
        if lease_ms is not None:
            check_lease(lease_ms)

        def decision(state: ClusterState) -> tuple[Sequence[ClusterRecord], Lock | Refused]:
            records, renewed = decide_renewal(state, name, owner, token, lease_ms)
            if isinstance(renewed, Lock):
                self._lease(renewed)
            return records, renewed

        outcome = await self._cluster.decide_as_controller(decision)
        if isinstance(outcome, Refused):
            raise outcome
        return outcome

    async def release(self, name: str, owner: str, token: int) -> None:
        """Raises Refused if the lock is not held with this token."""
        await self._cluster.release_lock(name, owner, token)

    async def describe(self, name: str) -> HeldLock | None:
        """None if nobody holds it."""
        check_name(name)

        def look(state: ClusterState) -> tuple[Sequence[ClusterRecord], HeldLock | None]:
            lock = state.locks.get(name)
            return [], None if lock is None else self._described(lock)

        return await self._cluster.decide_as_controller(look)

    async def all(self) -> list[HeldLock]:
        """Those that are held, by name."""

        def look(state: ClusterState) -> tuple[Sequence[ClusterRecord], list[HeldLock]]:
            return [], [self._described(state.locks[name]) for name in sorted(state.locks)]

        return await self._cluster.decide_as_controller(look)

    # Inside

    def _described(self, lock: Lock) -> HeldLock:
        ends_at = self._ends.at(lock.name)
        left_s = lock.lease_ms / 1000 if ends_at is None else ends_at - self._clock.monotonic()
        return HeldLock(lock, max(0, int(left_s * 1000)), self._lines.length(lock.name))

    def _check_controller(self) -> None:
        if not self._cluster.is_controller:
            raise Refused(Reason.NOT_CONTROLLER, "This node is not the controller.")

    async def _check_all_read_locks(self) -> None:
        """Before the first lock of a cluster: a node of an earlier release could not go on behind
        it. One that is down is not asked; if it is of an earlier release, it says so and stops."""
        if self._cluster.newest.next_fencing_token > 1:
            return
        for node in self._cluster.alive_brokers():
            try:
                await self._peers.call(node, READS_LOCKS, b"", READS_LOCKS_S_MAX)
            except Refused as refused:
                if refused.reason is not Reason.UNSUPPORTED_VERSION:
                    raise
                detail = f"Node {node} runs an earlier release, without locks: upgrade it first."
                raise Refused(Reason.UNSUPPORTED_VERSION, detail) from refused

    def _holds(self, name: str, owner: str) -> bool:
        held = self._cluster.newest.locks.get(name)
        return held is not None and held.owner == owner

    async def _try(self, name: str, owner: str, lease_ms: int) -> Acquired:
        def decision(state: ClusterState) -> tuple[Sequence[ClusterRecord], Acquired]:
            records, acquired = decide_acquisition(state, name, owner, lease_ms)
            if acquired.lock is not None and acquired.is_granted and not records:
                # It was stored before, so this is a renewal.
                self._lease(acquired.lock)
            return records, acquired

        return await self._cluster.decide_as_controller(decision)

    # Leases

    def _follow(self, change: Change) -> None:
        """What is committed: only from then on anyone may know that the lock is held or free."""
        if not isinstance(change, LockChanged) or not self._cluster.is_controller:
            return
        if change.lock is not None:
            self._lease(change.lock)
            return
        self._ends.cancel(change.name)
        self._tokens.pop(change.name, None)
        self._lines.next_turn(change.name)

    def _lease(self, lock: Lock) -> None:
        self._tokens[lock.name] = lock.fencing_token
        self._ends.set(lock.name, lock.lease_ms)

    def _expire(self, name: str) -> None:
        """Whoever renewed it since, or got it after a release, has another deadline."""
        records = decide_expiry(self._cluster.newest, name, self._tokens[name])
        if records:
            # In case that it can't be stored, as on a full disk. If it is, the alarm is cancelled.
            self._ends.set(name, EXPIRY_RETRY_MS)
            self._cluster.append_as_controller(records)

    def _take_over(self) -> None:
        """Nobody knows how much of each lease is left: it has all of its time again."""
        for lock in self._cluster.newest.locks.values():
            self._lease(lock)

    def _step_down(self) -> None:
        """Leases and lines are the next controller's."""
        self._ends.stop()
        self._tokens = {}
        detail = "This node is not the controller any more."
        self._lines.refuse_all(Refused(Reason.NOT_CONTROLLER, detail))


async def _reads_locks(_: BrokerId, __: bytes) -> bytes:
    return b"yes"
