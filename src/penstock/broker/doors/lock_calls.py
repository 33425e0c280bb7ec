"""The calls of doors about locks; `calls.py` says how they travel."""

from penstock.broker.doors.calls import Answer, Call, Done, declare


class LockInfo(Answer):
    """A lock that somebody holds."""

    name: str
    owner: str
    fencing_token: int
    lease_ms: int
    # Until the lease ends, as the controller counts it, unless it is renewed.
    left_ms: int
    # How many wait for it.
    waiters: int = 0


class LockOutcome(Answer):
    """The lock, if it was granted. Otherwise who holds it; nobody, if others are first in line."""

    is_granted: bool
    lock: LockInfo | None = None


class AcquireLock(Call[LockOutcome]):
    """Of an owner that has the lock already, it renews the lease. A wait that is longer than
    `WAIT_S_MAX` of the broker is cut; whoever asks again soon has the same place in the line."""

    name: str
    owner: str
    lease_ms: int
    wait_s: float = 0.0


class RenewLock(Call[LockInfo]):
    """Refused with LOCK_NOT_HELD if the lease has ended."""

    name: str
    owner: str
    fencing_token: int
    # None keeps what it was.
    lease_ms: int | None = None


class ReleaseLock(Call[Done]):
    """Refused with LOCK_NOT_HELD if the lock is not held with this token, or not any more."""

    name: str
    owner: str
    fencing_token: int


class FoundLock(Answer):
    lock: LockInfo | None = None


class DescribeLock(Call[FoundLock]):
    name: str


class LockList(Answer):
    locks: list[LockInfo]


class ListLocks(Call[LockList]):
    """Those that somebody holds, by name."""


declare(dict(globals()))
