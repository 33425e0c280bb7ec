"""A disk in memory that can run full, fail, and lose power with its unsynced writes.

Writes of a file, and changes of a directory, become durable with their sync. At a power loss each
file keeps some prefix of what was written since (its last write possibly torn or turned to zeros),
and each directory some of its changes, in order or not.
"""

import errno
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.storage.file_system import TEMPORARY_SUFFIX, Bytes


class PowerLoss(BaseException):
    """Not an Exception, so that nothing in the code under test can live through it."""


class Inode:
    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        # What happened since the last sync: (position, data), or (size, None) for a truncation.
        self.pending: list[tuple[int, bytes | None]] = []

    def apply(self, target: bytearray, position: int, data: bytes | None) -> None:
        if len(target) < position:
            target.extend(bytes(position - len(target)))
        if data is None:
            del target[position:]
        else:
            target[position : position + len(data)] = data

    def change(self, position: int, data: bytes | None) -> None:
        self.apply(self.data, position, data)
        self.pending.append((position, data))

    def sync(self) -> None:
        self.durable = bytearray(self.data)
        self.pending = []

    def after_power_loss(self, chance: random.Random) -> "Inode":
        kept = chance.randint(0, len(self.pending))
        content = bytearray(self.durable)
        for position, data in self.pending[:kept]:
            self.apply(content, position, data)
        if kept < len(self.pending):
            position, data = self.pending[kept]
            if data:
                torn = data[: chance.randint(0, len(data) - 1)]
                padding = len(data) - len(torn) if chance.random() < 0.3 else 0
                self.apply(content, position, torn + bytes(padding))
        return self._new(content)

    def after_kill(self) -> "Inode":
        return self._new(self.data)

    def _new(self, content: bytearray) -> "Inode":
        inode = Inode()
        inode.data, inode.durable = bytearray(content), bytearray(content)
        return inode


Entries = dict[Path, Inode | None]
Change = Callable[[Entries], None]


def _link(path: Path, inode: Inode | None) -> Change:
    def change(entries: Entries) -> None:
        entries[path] = inode

    return change


def _unlink(path: Path) -> Change:
    def change(entries: Entries) -> None:
        entries.pop(path, None)

    return change


class FaultFile:
    def __init__(self, disk: "FaultFileSystem", inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def fileno(self) -> int:
        raise AssertionError("there is no descriptor behind a simulated file")

    def pread(self, length: int, position: int) -> bytes:
        self._disk.check_alive()
        return bytes(self._inode.data[position : position + length])

    def pwrite(self, data: Bytes, position: int) -> None:
        data = bytes(data)
        if self._disk.step():
            # The machine dies in the middle of the write.
            self._inode.change(position, data[: len(data) // 2])
            self._disk.die()
        grows = position + len(data) - len(self._inode.data)
        room = self._disk.room()
        if grows > room:
            self._inode.change(position, data[: max(0, len(data) - (grows - room))])
            raise OSError(errno.ENOSPC, "No space left on device")
        self._inode.change(position, data)

    def pwritev(self, parts: Sequence[Bytes], position: int) -> None:
        self.pwrite(b"".join(parts), position)

    def size(self) -> int:
        self._disk.check_alive()
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._disk.act()
        self._disk.fail_if("truncate")
        self._inode.change(size, None)

    def sync(self) -> None:
        self._disk.act()
        self._disk.fail_if("sync")
        self._inode.sync()

    def close(self) -> None:
        pass


class FaultLock:
    def __init__(self, disk: "FaultFileSystem", path: Path) -> None:
        self._disk, self._path = disk, path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class FaultFileSystem:
    """`steps_left` counts the changes until the power is lost; None never loses it."""

    def __init__(self, *, steps_left: int | None = None, bytes_max: int | None = None) -> None:
        self.steps_left = steps_left
        self.steps = 0
        self.bytes_max = bytes_max
        # Operations ("sync", "sync directory", "truncate") that fail with EIO while they are
        # listed; with "sync" those of directories fail too.
        self.failing: set[str] = set()
        self.locks: set[Path] = set()
        self._is_dead = False
        root: Entries = {Path("/"): None}
        self._entries: Entries = root
        self._durable: Entries = dict(root)
        self._pending: dict[Path, list[Change]] = {}

    # Faults

    def check_alive(self) -> None:
        if self._is_dead:
            raise PowerLoss

    def step(self) -> bool:
        """Counts a change; True if the power goes with it."""
        self.check_alive()
        self.steps += 1
        if self.steps_left is None:
            return False
        self.steps_left -= 1
        return self.steps_left < 0

    def die(self) -> None:
        self._is_dead = True
        raise PowerLoss

    def act(self) -> None:
        if self.step():
            self.die()

    def fail_if(self, operation: str) -> None:
        if operation in self.failing:
            raise OSError(errno.EIO, "Input/output error")

    def room(self) -> int:
        if self.bytes_max is None:
            return 2**62
        used = sum(len(inode.data) for inode in self._entries.values() if inode is not None)
        return max(0, self.bytes_max - used)

    def after_power_loss(self, seed: int) -> "FaultFileSystem":
        """What is found after the power came back."""
        chance = random.Random(seed)
        # Either the changes of a directory survive in order, or any of them do.
        in_order = chance.random() < 0.5
        entries = dict(self._durable)
        for changes in self._pending.values():
            kept = changes[: chance.randint(0, len(changes))]
            if not in_order:
                kept = [change for change in changes if chance.random() < 0.5]
            for change in kept:
                change(entries)
        return self._reborn(entries, lambda inode: inode.after_power_loss(chance))

    def after_kill(self) -> "FaultFileSystem":
        """What is found after the process alone died: the kernel still writes everything."""
        return self._reborn(self._entries, Inode.after_kill)

    def _reborn(self, entries: Entries, revive: Callable[[Inode], Inode]) -> "FaultFileSystem":
        disk = FaultFileSystem(bytes_max=self.bytes_max)
        # What lies in a directory that was lost is lost too.
        alive: Entries = {
            path: None if inode is None else revive(inode)
            for path, inode in sorted(entries.items())
            if all(parent in entries for parent in path.parents)
        }
        disk._entries, disk._durable = alive, dict(alive)
        return disk

    def _change(self, directory: Path, change: Change) -> None:
        change(self._entries)
        self._pending.setdefault(directory, []).append(change)

    # What a test does to a file behind the broker's back

    def inode(self, path: Path) -> Inode:
        inode = self._entries.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        return inode

    def damage(self, path: Path, position: int) -> None:
        inode = self.inode(path)
        inode.data[position] ^= 0x10
        inode.durable = bytearray(inode.data)

    # The file system's face

    def open(self, path: Path) -> FaultFile:
        self.check_alive()
        return FaultFile(self, self.inode(path))

    def create(self, path: Path) -> FaultFile:
        self.act()
        if path.parent not in self._entries:
            raise FileNotFoundError(errno.ENOENT, "No such directory", str(path.parent))
        existing = self._entries.get(path)
        if existing is not None:
            existing.change(0, None)
            return FaultFile(self, existing)
        inode = Inode()
        self._change(path.parent, _link(path, inode))
        return FaultFile(self, inode)

    def exists(self, path: Path) -> bool:
        self.check_alive()
        return path in self._entries

    def is_directory(self, path: Path) -> bool:
        return path in self._entries and self._entries[path] is None

    def size(self, path: Path) -> int:
        self.check_alive()
        return len(self.inode(path).data)

    def names(self, path: Path) -> list[str]:
        self.check_alive()
        if path not in self._entries:
            raise FileNotFoundError(errno.ENOENT, "No such directory", str(path))
        return sorted(entry.name for entry in self._entries if entry.parent == path != entry)

    def make_directory(self, path: Path) -> list[Path]:
        missing = [parent for parent in (path, *path.parents) if parent not in self._entries]
        for directory in reversed(missing):
            self.act()
            self._change(directory.parent, _link(directory, None))
        return [directory.parent for directory in missing]

    def rename(self, old: Path, new: Path) -> None:
        self.act()
        if old not in self._entries:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(old))
        moved = self._at_and_below(old)

        def change(entries: Entries) -> None:
            for path, inode in moved.items():
                entries.pop(path, None)
                entries[new / path.relative_to(old)] = inode

        self._change(old.parent, change)

    def _at_and_below(self, place: Path) -> Entries:
        if self._entries[place] is not None:
            # Files are renamed all the time, directories hardly ever.
            return {place: self._entries[place]}
        return {
            path: inode
            for path, inode in self._entries.items()
            if path == place or place in path.parents
        }

    def remove(self, path: Path) -> None:
        self.act()
        self.inode(path)
        self._change(path.parent, _unlink(path))

    def remove_tree(self, path: Path) -> None:
        self.act()

        def change(entries: Entries) -> None:
            for entry in [entry for entry in entries if entry == path or path in entry.parents]:
                del entries[entry]

        self._change(path.parent, change)

    def sync_directory(self, path: Path) -> None:
        self.act()
        self.fail_if("sync")
        self.fail_if("sync directory")
        for change in self._pending.pop(path, []):
            change(self._durable)

    def read(self, path: Path) -> bytes:
        self.check_alive()
        return bytes(self.inode(path).data)

    def write_atomically(self, path: Path, data: Bytes) -> None:
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        file = self.create(temporary)
        try:
            file.pwrite(data, 0)
            file.sync()
            self.rename(temporary, path)
        except OSError:
            self.remove(temporary)
            raise
        self.sync_directory(path.parent)

    def disk_free(self, path: Path) -> int:
        return self.room()

    def lock(self, path: Path) -> FaultLock:
        if path in self.locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked")
        if path not in self._entries:
            self.create(path)
        self.locks.add(path)
        return FaultLock(self, path)
