"""The disk of a simulated machine: the fault-injecting one, with a process that dies with it."""

import errno
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from random import Random

from tests.unit.storage.fault_file_system import Entries, FaultFileSystem, Inode, PowerLoss


def _nobody() -> None:
    """No process runs on the disk."""


def _start_below(directory: Path) -> str:
    """How the paths of all that lies below it begin."""
    text = str(directory)
    return text if text.endswith("/") else f"{text}/"


def _at_and_below(entries: Entries, place: Path) -> list[Path]:
    text, start = str(place), _start_below(place)
    return [path for path in entries if (name := str(path)) == text or name.startswith(start)]


class Drive(FaultFileSystem):
    """`steps_left` counts down to a death in the middle of a change; `on_death` hears of it.

    Does what the slow one does, and looks for what lies where by text: a run asks all the time,
    and paths take long to compare.
    """

    def __init__(self, *, bytes_max: int | None = None) -> None:
        super().__init__(bytes_max=bytes_max)
        self.on_death: Callable[[], None] = _nobody

    def die(self) -> None:
        self._is_dead = True
        self.on_death()
        raise PowerLoss

    def stop(self) -> None:
        """The process that used it is gone; whatever of it is left can do nothing more."""
        self._is_dead = True

    def reborn(self, random: Random, *, lost_power: bool) -> "Drive":
        """What the next process finds: everything written, or after a power loss less.

        What a killed process had not synced is there, and can still go with the power.
        """
        drive = Drive(bytes_max=self.bytes_max)
        if lost_power:
            found = self.after_power_loss(random.getrandbits(32))
            drive._entries, drive._durable = found._entries, found._durable
        else:
            drive._entries, drive._durable = self._entries, self._durable
            drive._pending = self._pending
        return drive

    def _reborn(self, entries: Entries, revive: Callable[[Inode], Inode]) -> "Drive":
        drive = Drive(bytes_max=self.bytes_max)
        alive: Entries = {}
        # A directory comes before what lies in it, so its own fate is known by then.
        for path in sorted(entries, key=attrgetter("parts")):
            parent = path.parent
            if parent in alive or parent == path:
                inode = entries[path]
                alive[path] = None if inode is None else revive(inode)
        drive._entries, drive._durable = alive, dict(alive)
        return drive

    def names(self, path: Path) -> list[str]:
        self.check_alive()
        if path not in self._entries:
            raise FileNotFoundError(errno.ENOENT, "No such directory", str(path))
        start = _start_below(path)
        length = len(start)
        found = [name[length:] for name in map(str, self._entries) if name.startswith(start)]
        return sorted(name for name in found if name and "/" not in name)

    def _at_and_below(self, place: Path) -> Entries:
        if self._entries[place] is not None:
            return {place: self._entries[place]}
        return {path: self._entries[path] for path in _at_and_below(self._entries, place)}

    def remove_tree(self, path: Path) -> None:
        self.act()

        def change(entries: Entries) -> None:
            for entry in _at_and_below(entries, path):
                del entries[entry]

        self._change(path.parent, change)

    def rename(self, old: Path, new: Path) -> None:
        """As the slow one, but does not look through the whole disk for what lies below a file."""
        inode = self._entries.get(old)
        if inode is None:
            super().rename(old, new)
            return
        self.act()

        def change(entries: Entries) -> None:
            entries.pop(old, None)
            entries[new] = inode

        self._change(old.parent, change)

    def used(self) -> int:
        return sum(len(inode.data) for inode in self._entries.values() if inode is not None)

    def empty_out(self) -> None:
        """There is room again."""
        self.bytes_max = None

    def files(self, suffix: str) -> list[Path]:
        return sorted(
            path
            for path, inode in self._entries.items()
            if inode is not None and path.name.endswith(suffix)
        )

    def flip_bit(self, path: Path, random: Random) -> None:
        """What a disk may do to what it was given long ago."""
        self.damage(path, random.randrange(len(self.inode(path).data)))
