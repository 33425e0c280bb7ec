"""Tells a full disk from other failures, and says in one sentence what is on it."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.model.errors import Explained

_NUMBERS = (errno.ENOSPC, errno.EDQUOT)
_SQLITE = "database or disk is full"
# How libraries say it that hand on no number: those in Rust, SQLite, and Java.
_TEXTS = (
    "No space left on device",
    "Disk quota exceeded",
    _SQLITE,
    f"os error {errno.ENOSPC}",
    f"os error {errno.EDQUOT}",
)
_CAUSES_MAX = 10


def is_full_disk(error: BaseException | None) -> bool:
    """Whether the failure, or what it came from, is that there was no room."""
    for _ in range(_CAUSES_MAX):
        if error is None or isinstance(error, Explained):
            return False
        if isinstance(error, OSError) and error.errno in _NUMBERS:
            return True
        if says_full_disk(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def is_own_disk_full(error: BaseException) -> bool:
    """Whether it is this machine that had no room, and not one that it asked for something."""
    is_here = isinstance(error, OSError) or _SQLITE in str(error)
    return is_here and is_full_disk(error)


def says_full_disk(text: str) -> bool:
    return any(words in text for words in _TEXTS)


def full_disk_sentence(what: str) -> str:
    return (
        f"The disk of {what} is full: free some space and run the same command again. It continues"
        " where it was."
    )


@contextmanager
def full_disk_explained(
    what: str, refusal: type[Explained], kind: type[Exception] = Exception
) -> Iterator[None]:
    """Raise a refusal that names `what` for a full disk; all else goes through as it is.

    `kind` is OSError where Spark runs inside, whose full disks may be others.
    """
    try:
        yield
    except kind as failure:
        if not is_full_disk(failure):
            raise
        raise refusal(full_disk_sentence(what)) from failure
