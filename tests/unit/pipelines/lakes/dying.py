"""A process that ends before any one of the changes that it makes to a folder, and what lasts."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

# All by which names and contents change or become durable.
CHANGES = ("link", "replace", "unlink", "fsync")


def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is only to be seen by others, and not to outlast a power cut, need not reach a disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def noted_syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of what was brought to the disk, as it happens."""
    synced: list[str] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return synced


class Crash(BaseException):
    """Stands for the end of the process."""


@contextmanager
def dying_at(monkeypatch: pytest.MonkeyPatch, change: int) -> Iterator[None]:
    """Ends before the change of that number, counted from 0: after the one before it."""
    made = 0

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal made
            made += 1
            if made > change:
                # Nor is anything put in order on the way out.
                raise Crash
            return real(*arguments, **named)

        return call

    with monkeypatch.context() as patched:
        for name in CHANGES:
            patched.setattr(os, name, dying(getattr(os, name)))
        yield
