"""Answers what doors ask about locks."""

from typing import Any

from penstock.broker.doors import calls
from penstock.broker.doors import lock_calls as asked
from penstock.broker.doors.desk import Desk, Method
from penstock.broker.locks import HeldLock, Lock
from penstock.model.ids import BrokerId


async def at_controller(desk: Desk, _: calls.Call[Any]) -> BrokerId:
    return desk.services.locks.controller


async def acquire(desk: Desk, call: asked.AcquireLock) -> asked.LockOutcome:
    acquired = await desk.services.locks.acquire(call.name, call.owner, call.lease_ms, call.wait_s)
    lock = None if acquired.lock is None else _info(acquired.lock)
    return asked.LockOutcome(is_granted=acquired.is_granted, lock=lock)


async def renew(desk: Desk, call: asked.RenewLock) -> asked.LockInfo:
    return _info(
        await desk.services.locks.renew(call.name, call.owner, call.fencing_token, call.lease_ms)
    )


async def release(desk: Desk, call: asked.ReleaseLock) -> calls.Done:
    await desk.services.locks.release(call.name, call.owner, call.fencing_token)
    return calls.Done()


async def describe(desk: Desk, call: asked.DescribeLock) -> asked.FoundLock:
    found = await desk.services.locks.describe(call.name)
    return asked.FoundLock(lock=None if found is None else _held(found))


async def list_locks(desk: Desk, _: asked.ListLocks) -> asked.LockList:
    return asked.LockList(locks=[_held(each) for each in await desk.services.locks.all()])


def _held(held: HeldLock) -> asked.LockInfo:
    return _info(held.lock, held.left_ms, held.waiters)


def _info(lock: Lock, left_ms: int | None = None, waiters: int = 0) -> asked.LockInfo:
    """Of a lock that was granted or renewed just now, all of its lease is left."""
    return asked.LockInfo(
        name=lock.name,
        owner=lock.owner,
        fencing_token=lock.fencing_token,
        lease_ms=lock.lease_ms,
        left_ms=lock.lease_ms if left_ms is None else left_ms,
        waiters=waiters,
    )


METHODS = (
    Method(asked.AcquireLock, acquire, at_controller),
    Method(asked.RenewLock, renew, at_controller),
    # Decided on any node, once, even if the controller changes meanwhile.
    Method(asked.ReleaseLock, release),
    Method(asked.DescribeLock, describe, at_controller),
    Method(asked.ListLocks, list_locks, at_controller),
)
