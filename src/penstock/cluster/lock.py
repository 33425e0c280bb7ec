"""A lock that somebody holds, and what its name, owner and lease may be."""

from typing import Final, NamedTuple

from penstock.model.errors import Reason, Refused
from penstock.model.limits import (
    LOCK_LEASE_MS_MAX,
    LOCK_LEASE_MS_MIN,
    LOCK_NAME_LENGTH_MAX,
    LOCK_OWNER_LENGTH_MAX,
)

# All are in every snapshot of the metadata.
LOCKS_MAX: Final = 10_000
_LEGAL: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:")


class Lock(NamedTuple):
    """A name that somebody holds. One that nobody holds is not stored."""

    name: str
    # Chosen by the client, a different one for everybody who may hold the lock.
    owner: str
    fencing_token: int
    lease_ms: int


def check_name(name: str) -> None:
    if (
        not 1 <= len(name) <= LOCK_NAME_LENGTH_MAX
        or not _LEGAL.issuperset(name)
        or name in (".", "..")
    ):
        detail = (
            f"{name[:LOCK_NAME_LENGTH_MAX]!r} can't be the name of a lock: it must have 1 to "
            f"{LOCK_NAME_LENGTH_MAX} ASCII letters, digits, '.', '_', '-' and ':'."
        )
        raise Refused(Reason.INVALID_REQUEST, detail)


def check_owner(owner: str) -> None:
    if not 1 <= len(owner) <= LOCK_OWNER_LENGTH_MAX or not owner.isprintable():
        detail = f"The owner of a lock must have 1 to {LOCK_OWNER_LENGTH_MAX} printable characters."
        raise Refused(Reason.INVALID_REQUEST, detail)


def check_lease(lease_ms: int) -> None:
    if not LOCK_LEASE_MS_MIN <= lease_ms <= LOCK_LEASE_MS_MAX:
        detail = (
            f"The lease of a lock must be {LOCK_LEASE_MS_MIN:,} to {LOCK_LEASE_MS_MAX:,} ms, not "
            f"{lease_ms:,} ms."
        )
        raise Refused(Reason.INVALID_REQUEST, detail)
