"""Looks into the logs of a node that does not run, for its operator."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.storage.data_directory import DataDirectory
from penstock.storage.file_system import FileSystem, RealFileSystem

if TYPE_CHECKING:
    # Imported for its types alone: whoever only starts a node need not pay for it.
    from penstock.storage.repair import Damage


def check_log(directory: Path) -> "list[Damage]":
    """All damage in the data directory of a stopped node."""
    from penstock.storage import repair

    return _inspect(directory, repair.check)


def repair_log(directory: Path) -> "list[Damage]":
    """Cuts each damaged log before its first damage; returns what was damaged."""
    from penstock.storage import repair

    return _inspect(directory, repair.cut)


def _inspect(directory: Path, look: "Callable[[Path, FileSystem], list[Damage]]") -> "list[Damage]":
    file_system = RealFileSystem()
    opened = DataDirectory.open_stopped(directory, file_system=file_system)
    try:
        found = [look(log, file_system) for log in opened.log_directories()]
    finally:
        opened.close()
    return [damage for damages in found for damage in damages]
