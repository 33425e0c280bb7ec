"""One process at a time: a lock on a file, which ends with its process however that ends."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.pipelines.archives.refusals import ArchiveRefused


@contextmanager
def only_one(path: Path, refusal: str) -> Iterator[None]:
    """`refusal` is the sentence for the second one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArchiveRefused(refusal) from None
        yield
