"""Locks as doors offer them. A wait may be long: it is made of short questions to the broker, so
that a client that goes away stops waiting, and the wait follows a change of the controller."""

from collections.abc import Callable
from typing import Final

from penstock.broker.doors.lock_calls import (
    AcquireLock,
    DescribeLock,
    ListLocks,
    LockInfo,
    ReleaseLock,
    RenewLock,
)
from penstock.frontdoor.remote.broker import Broker
from penstock.model.errors import Reason, Refused

LEASE_MS: Final = 30_000
WAIT_MS_MAX: Final = 10 * 60 * 1_000
# Of one question, less than what the broker allows.
QUESTION_S: Final = 3.0


class Locks:
    """All raise Refused: with LOCK_HELD if the lock can't be had, with LOCK_NOT_HELD if it is not,
    or not any more, the caller's."""

    def __init__(self, broker: Broker, now_s: Callable[[], float]) -> None:
        self._broker = broker
        self._now_s = now_s

    async def acquire(
        self, name: str, owner: str, lease_ms: int = LEASE_MS, wait_ms: int = 0
    ) -> LockInfo:
        """Waits up to `wait_ms` for its turn. May be repeated when no answer came: an owner that
        has the lock already gets the same token, and its lease is renewed."""
        if not 0 <= wait_ms <= WAIT_MS_MAX:
            detail = f"A wait for a lock must be 0 to {WAIT_MS_MAX:,} ms, not {wait_ms:,} ms."
            raise Refused(Reason.INVALID_REQUEST, detail)
        deadline = self._now_s() + wait_ms / 1000
        while True:
            wait_s = max(0.0, min(QUESTION_S, deadline - self._now_s()))
            call = AcquireLock(name=name, owner=owner, lease_ms=lease_ms, wait_s=wait_s)
            outcome = await self._broker.ask(call)
            if outcome.is_granted and outcome.lock is not None:
                return outcome.lock
            if self._now_s() >= deadline:
                raise Refused(Reason.LOCK_HELD, _held(name, outcome.lock))

    async def renew(
        self, name: str, owner: str, fencing_token: int, lease_ms: int | None = None
    ) -> LockInfo:
        """The lease has its whole time again, counted from before this was asked."""
        call = RenewLock(name=name, owner=owner, fencing_token=fencing_token, lease_ms=lease_ms)
        return await self._broker.ask(call)

    async def release(self, name: str, owner: str, fencing_token: int) -> None:
        await self._broker.ask(ReleaseLock(name=name, owner=owner, fencing_token=fencing_token))

    async def describe(self, name: str) -> LockInfo | None:
        """None if nobody holds it."""
        return (await self._broker.ask(DescribeLock(name=name))).lock

    async def list(self) -> list[LockInfo]:
        """Those that somebody holds, by name."""
        return (await self._broker.ask(ListLocks())).locks


def _held(name: str, lock: LockInfo | None) -> str:
    if lock is None:
        return f"Others wait for the lock {name} already."
    return f"The lock {name} is held by {lock.owner!r} with token {lock.fencing_token}."
