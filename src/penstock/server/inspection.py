"""Looks into the logs of a node that does not run, for its operator."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from penstock.model.ids import LogEnd
from penstock.storage.data_directory import DataDirectory
from penstock.storage.file_system import FileSystem, RealFileSystem

if TYPE_CHECKING:
    # Imported for its types alone: anyone who only starts a node need not pay for it.
    from penstock.storage.repair import Damage, MissingTail

T = TypeVar("T")


def check_log(directory: Path) -> "list[Damage]":
    """All damage in the data directory of a stopped node."""
    from penstock.storage import repair

    return _inspect(directory, repair.check)


def repair_log(directory: Path) -> "list[Damage]":
    """Cuts each damaged log before its first damage; returns what was damaged."""
    from penstock.storage import repair

    return _inspect(directory, repair.cut)


def missing_tails(directory: Path) -> "list[MissingTail]":
    """The logs of a stopped node that could not lead because another copy once reached further."""
    from penstock.storage import repair

    return _inspect(directory, lambda log, disk: _one_or_none(repair.missing_tail(log, disk)))


def trust_logs(directory: Path, given_up: Mapping[Path, LogEnd]) -> None:
    """From their node's next start on these logs may lead without what is before an end."""
    from penstock.storage import repair

    def trust(log: Path, disk: FileSystem) -> list[None]:
        if log in given_up:
            repair.accept(log, given_up[log], disk)
        return []

    _inspect(directory, trust)


def _one_or_none(found: T | None) -> list[T]:
    return [] if found is None else [found]


def _inspect(directory: Path, look: Callable[[Path, FileSystem], list[T]]) -> list[T]:
    """What `look` finds in the logs of a node that does not run and is kept from starting."""
    file_system = RealFileSystem()
    opened = DataDirectory.open_stopped(directory, file_system=file_system)
    try:
        found = [look(log, file_system) for log in opened.log_directories()]
    finally:
        opened.close()
    return [each for some in found for each in some]
