"""Bugs to inject into locks: what runs of nodes with users of locks must notice.

The docstring of each says which rule it breaks.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.broker import locks as broker_locks
from penstock.broker.locks import Locks
from penstock.cluster import lock_decisions
from penstock.cluster.coordinator import Cluster
from penstock.cluster.lock import Lock
from penstock.cluster.lock_decisions import Acquired, decide_acquisition
from penstock.cluster.records import ClusterRecord, FencingTokensTaken, LockStored
from penstock.cluster.state import ClusterState
from penstock.model.errors import Reason, Refused
from tests.sim.mutation import Mutations

ALL = Mutations()
mutation = ALL.add

_records = ClusterState._records
_lease = Locks._lease


@mutation("a token is used again after its lease ended", (broker_locks, "decide_acquisition"))
def counts_what_is_held(
    state: ClusterState, name: str, owner: str, lease_ms: int
) -> tuple[Sequence[ClusterRecord], Acquired]:
    """Whoever stood still for longer than its lease would have the token of the next holder."""
    records, acquired = decide_acquisition(state, name, owner, lease_ms)
    if name in state.locks or acquired.lock is None:
        return records, acquired
    token = 1 + max((lock.fencing_token for lock in state.locks.values()), default=0)
    lock = acquired.lock._replace(fencing_token=token)
    return [LockStored(lock=lock)], Acquired(lock, is_granted=True)


@mutation("a snapshot does not hold the next token", (ClusterState, "_records"))
def forgets_the_counter(self: ClusterState) -> Iterator[ClusterRecord]:
    """A new controller would hand out tokens that were handed out before."""
    for record in _records(self):
        if not isinstance(record, FencingTokensTaken):
            yield record


@mutation("a new controller ends the leases of the last one", (Locks, "_take_over"))
def ends_at_once(self: Locks) -> None:
    """A holder has its lock until its time is over, whoever counts it."""
    for lock in self._cluster.newest.locks.values():
        self._tokens[lock.name] = lock.fencing_token
        self._ends.set(lock.name, 1)


@mutation("any token releases a lock", (lock_decisions, "_held_by"))
def believes_any_token(state: ClusterState, name: str, owner: str, token: int) -> Lock | Refused:
    """A holder whose lease ended must not take the lock from the next one."""
    held = state.locks.get(name)
    return held or Refused(Reason.LOCK_NOT_HELD, "nobody holds it")


@mutation("a lock is granted before it is stored", (Locks, "_try"))
async def grants_early(self: Locks, name: str, owner: str, lease_ms: int) -> Acquired:
    """A controller that fails takes the lock with it, and the next one gives it to others."""
    self._check_controller()
    state = self._cluster.newest
    records, acquired = decide_acquisition(state, name, owner, lease_ms)
    self._cluster.append_as_controller(records)
    return acquired


@mutation("a controller alone says that a lease is renewed", (Cluster, "decide_as_controller"))
async def asks_nobody(self: Cluster, decision: Any) -> Any:
    """One that was replaced does not know that the lease ended elsewhere."""
    if not self.is_controller:
        raise Refused(Reason.NOT_CONTROLLER)
    records, answer = decision(self._host.state)
    if records:
        await self._host.submit(records)
    return answer


@mutation("a renewal does not move the end of a lease", (Locks, "_lease"))
def counts_once(self: Locks, lock: Lock) -> None:
    """A lease that was renewed has its whole time again."""
    if self._tokens.get(lock.name) != lock.fencing_token:
        _lease(self, lock)


@mutation("leases end by the clock on the wall", (Locks, "_lease"))
def wall_clock(self: Locks, lock: Lock) -> None:
    """Clocks are set; time goes on."""
    self._tokens[lock.name] = lock.fencing_token
    offset_s = self._clock.now_ms() / 1000 % 3600 - self._clock.monotonic() % 3600
    self._ends.set_at(lock.name, self._clock.monotonic() + lock.lease_ms / 1000 + offset_s)


@mutation("an owner that asks again gets another token", (broker_locks, "decide_acquisition"))
def stores_again(
    state: ClusterState, name: str, owner: str, lease_ms: int
) -> tuple[Sequence[ClusterRecord], Acquired]:
    """A request that is repeated because its answer was lost takes effect once."""
    held = state.locks.get(name)
    if held is not None and held.owner == owner:
        lock = held._replace(fencing_token=state.next_fencing_token)
        return [LockStored(lock=lock)], Acquired(lock, is_granted=True)
    return decide_acquisition(state, name, owner, lease_ms)
