"""A disk in memory that can run full, fail, and lose power with its unsynced writes.

Writes of a file, and changes of a directory, become durable with their sync. At a power loss a file
keeps what a disk may have written back since: a prefix of its writes with the last one torn, or any
of their sectors, old beside new, with zeros where the file grew and nothing came. A directory keeps
some of its changes, in order or not. A sync that fails loses some of what it should have written:
the next one does not write it either, though readers still see it.
"""

import errno
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.storage.file_system import AnyPath, Bytes, write_atomically

# What a disk writes as a whole.
SECTOR_BYTES = 512


class PowerLoss(BaseException):
    """Not an Exception, so that nothing in the code under test can live through it."""


def _apply(target: bytearray, position: int, data: bytes | None) -> None:
    if len(target) < position:
        target.extend(bytes(position - len(target)))
    if data is None:
        del target[position:]
    else:
        target[position : position + len(data)] = data


def _torn(data: bytes, position: int, size: int, chance: random.Random) -> bytes:
    """Part of a write to a file of this size: what was there before stays behind it, and where the
    file grew it ends, or sectors of zeros follow."""
    kept = chance.randint(0, len(data) - 1)
    whole = max(0, kept - (position + kept) % SECTOR_BYTES)
    if chance.random() >= 0.3 or position + whole < size:
        return data[:kept]
    return data[:whole] + bytes(len(data) - whole)


class Inode:
    __slots__ = ("data", "durable", "has_lost", "pending")

    def __init__(self, content: Bytes = b"") -> None:
        self.data = bytearray(content)
        self.durable = bytearray(content)
        # What happened since the last sync: (position, data), or (size, None) for a truncation.
        self.pending: list[tuple[int, bytes | None]] = []
        # Whether a failed sync made readers see what will never be on disk.
        self.has_lost = False

    def change(self, position: int, data: bytes | None) -> None:
        _apply(self.data, position, data)
        self.pending.append((position, data))

    def sync(self) -> None:
        if self.has_lost:
            for position, data in self.pending:
                _apply(self.durable, position, data)
        else:
            self.durable = bytearray(self.data)
        self.pending = []

    def fail_to_sync(self, chance: random.Random) -> None:
        """The kernel takes what it could not write for written, and says so only once."""
        self.durable = self._written_back(chance)
        self.has_lost = self.has_lost or self.durable != self.data
        self.pending = []

    def after_power_loss(self, chance: random.Random, *, in_order: bool) -> "Inode":
        if not self.pending:
            return Inode(self.durable)
        return Inode(self._prefix(chance) if in_order else self._written_back(chance))

    def _prefix(self, chance: random.Random) -> bytearray:
        kept = chance.randint(0, len(self.pending))
        content = bytearray(self.durable)
        for position, data in self.pending[:kept]:
            _apply(content, position, data)
        if kept < len(self.pending):
            position, data = self.pending[kept]
            if data:
                _apply(content, position, _torn(data, position, len(content), chance))
        return content

    def _written_back(self, chance: random.Random) -> bytearray:
        """Each sector as it was at some moment since the last sync, and the size as well."""
        content = bytearray(self.durable)
        sizes, versions = [len(content)], _Versions(content)
        for position, data in self.pending:
            before = len(content)
            _apply(content, position, data)
            sizes.append(len(content))
            first = min(position, before)
            last = max(before, len(content)) if data is None else position + len(data)
            versions.note(content, first, last)
        return versions.some(chance, chance.choice(sizes))


class _Versions:
    """The contents that each sector of a file has had."""

    def __init__(self, content: bytearray) -> None:
        self._first = bytes(content)
        self._later: dict[int, list[bytes]] = {}

    def note(self, content: bytearray, first: int, end: int) -> None:
        for start in range(first - first % SECTOR_BYTES, end, SECTOR_BYTES):
            self._later.setdefault(start, []).append(bytes(content[start : start + SECTOR_BYTES]))

    def some(self, chance: random.Random, size: int) -> bytearray:
        content = bytearray(self._first.ljust(size, b"\0"))
        for start, later in self._later.items():
            chosen = chance.randrange(len(later) + 1)
            if chosen > 0:
                _apply(content, start, later[chosen - 1].ljust(SECTOR_BYTES, b"\0"))
        return content[:size]

    # Where the file grew and the sector was not written back, there are zeros.


Entries = dict[str, Inode | None]
Change = Callable[[Entries], None]


def _link(path: str, inode: Inode | None) -> Change:
    def change(entries: Entries) -> None:
        entries[path] = inode

    return change


def _unlink(path: str) -> Change:
    def change(entries: Entries) -> None:
        entries.pop(path, None)

    return change


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _start_below(directory: str) -> str:
    """How the paths of all that lies below it begin."""
    return directory if directory.endswith("/") else f"{directory}/"


def _at_and_below(entries: Entries, place: str) -> list[str]:
    start = _start_below(place)
    return [path for path in entries if path == place or path.startswith(start)]


class FaultFile:
    __slots__ = ("_disk", "_inode")

    def __init__(self, disk: "FaultFileSystem", inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def fileno(self) -> int:
        raise AssertionError("there is no descriptor behind a simulated file")

    def pread(self, length: int, position: int) -> bytes:
        self._disk.before_read()
        return bytes(self._inode.data[position : position + length])

    def pwrite(self, data: Bytes, position: int) -> None:
        disk, inode, data = self._disk, self._inode, bytes(data)
        if disk.step():
            # The machine dies in the middle of the write.
            inode.change(position, data[: len(data) // 2])
            disk.die()
        if disk.bytes_max is not None:
            missing = position + len(data) - len(inode.data) - disk.room()
            if missing > 0:
                inode.change(position, data[: max(0, len(data) - missing)])
                disk.refusals += 1
                raise OSError(errno.ENOSPC, "No space left on device")
        inode.change(disk.place_of(inode, data, position), data)

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
        disk = self._disk
        disk.act()
        if "sync" in disk.failing:
            self._inode.fail_to_sync(disk.chance)
        disk.fail_if("sync")
        self._inode.sync()

    def close(self) -> None:
        pass


class FaultLock:
    def __init__(self, disk: "FaultFileSystem", path: Path) -> None:
        self._disk, self._path = disk, path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class FaultWholeDisk:
    def __init__(self, disk: "FaultFileSystem") -> None:
        self._disk = disk

    def sync(self) -> None:
        self._disk.sync_everything()

    def close(self) -> None:
        pass


class FaultFileSystem:
    """`steps_left` counts the changes until the power is lost; None never loses it."""

    def __init__(self, *, steps_left: int | None = None, bytes_max: int | None = None) -> None:
        self.steps_left = steps_left
        self.steps = 0
        self.bytes_max = bytes_max
        # Operations ("sync", "sync directory", "truncate", "read") that fail with EIO while they
        # are listed; with "sync" those of directories fail too.
        self.failing: set[str] = set()
        # Counts what was refused, for want of room or because it fails.
        self.refusals = 0
        # How many of the next writes go to a wrong place of their file.
        self.misdirects = 0
        self.locks: set[Path] = set()
        # What nobody can foresee of a disk that fails.
        self.chance = random.Random(0)
        self._is_dead = False
        self._entries: Entries = {"/": None}
        self._durable: Entries = {"/": None}
        self._pending: dict[str, list[Change]] = {}

    # Faults

    def check_alive(self) -> None:
        if self._is_dead:
            raise PowerLoss

    def before_read(self) -> None:
        if self._is_dead:
            raise PowerLoss
        if self.failing:
            self.fail_if("read")

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
            self.refusals += 1
            raise OSError(errno.EIO, "Input/output error")

    def place_of(self, inode: Inode, data: bytes, position: int) -> int:
        """Where a write goes: now and then not where it should."""
        if self.misdirects == 0 or not data:
            return position
        self.misdirects -= 1
        return self.chance.randrange(0, len(inode.data) + 1)

    def used(self) -> int:
        return sum(len(inode.data) for inode in self._entries.values() if inode is not None)

    def room(self) -> int:
        return 2**62 if self.bytes_max is None else max(0, self.bytes_max - self.used())

    def after_power_loss(self, seed: int, *, in_order: bool | None = None) -> "FaultFileSystem":
        """What is found after the power came back; `in_order` says how files were written back."""
        chance = random.Random(seed)
        # Either the changes of a directory survive in order, or any of them do.
        are_in_order = chance.random() < 0.5
        entries = dict(self._durable)
        for changes in self._pending.values():
            kept = changes[: chance.randint(0, len(changes))]
            if not are_in_order:
                kept = [change for change in changes if chance.random() < 0.5]
            for change in kept:
                change(entries)
        if in_order is None:
            in_order = chance.random() < 0.5
        return self._reborn(
            entries, lambda inode: inode.after_power_loss(chance, in_order=in_order)
        )

    def after_kill(self) -> "FaultFileSystem":
        """What is found after the process alone died: the kernel still writes everything."""
        return self._reborn(self._entries, lambda inode: Inode(inode.data))

    def _reborn(self, entries: Entries, revive: Callable[[Inode], Inode]) -> "FaultFileSystem":
        disk = self._empty()
        alive: Entries = {}
        # A directory comes before what lies in it, and what lies in one that is lost is lost too.
        for path in sorted(entries):
            if path == "/" or _parent(path) in alive:
                inode = entries[path]
                alive[path] = None if inode is None else revive(inode)
        disk._entries, disk._durable = alive, dict(alive)
        return disk

    def _empty(self) -> "FaultFileSystem":
        return FaultFileSystem(bytes_max=self.bytes_max)

    def _change(self, directory: str, change: Change) -> None:
        change(self._entries)
        self._pending.setdefault(directory, []).append(change)

    # What a test does to a file behind the broker's back

    def inode(self, path: AnyPath) -> Inode:
        inode = self._entries.get(str(path))
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        return inode

    def damage(self, path: Path, position: int, bits: int = 0x10) -> None:
        inode = self.inode(path)
        inode.data[position] ^= bits
        inode.durable = bytearray(inode.data)

    # The file system's face

    def open(self, path: Path) -> FaultFile:
        self.check_alive()
        return FaultFile(self, self.inode(path))

    def create(self, path: Path) -> FaultFile:
        self.act()
        name = str(path)
        parent = _parent(name)
        if parent not in self._entries:
            raise FileNotFoundError(errno.ENOENT, "No such directory", parent)
        existing = self._entries.get(name)
        if existing is not None:
            existing.change(0, None)
            return FaultFile(self, existing)
        inode = Inode()
        self._change(parent, _link(name, inode))
        return FaultFile(self, inode)

    def exists(self, path: AnyPath) -> bool:
        self.check_alive()
        return str(path) in self._entries

    def is_directory(self, path: Path) -> bool:
        name = str(path)
        return name in self._entries and self._entries[name] is None

    def size(self, path: Path) -> int:
        self.check_alive()
        return len(self.inode(path).data)

    def names(self, path: Path) -> list[str]:
        self.check_alive()
        directory = str(path)
        if directory not in self._entries:
            raise FileNotFoundError(errno.ENOENT, "No such directory", directory)
        start = _start_below(directory)
        length = len(start)
        found = [name[length:] for name in self._entries if name.startswith(start)]
        return sorted(name for name in found if name and "/" not in name)

    def make_directory(self, path: Path) -> list[Path]:
        missing = [parent for parent in (path, *path.parents) if str(parent) not in self._entries]
        for directory in reversed(missing):
            self.act()
            self._change(str(directory.parent), _link(str(directory), None))
        return [directory.parent for directory in missing]

    def rename(self, old: Path, new: Path) -> None:
        self.act()
        source, target = str(old), str(new)
        if source not in self._entries:
            raise FileNotFoundError(errno.ENOENT, "No such file", source)
        moved = self._at_and_below(source)

        def change(entries: Entries) -> None:
            for path, inode in moved.items():
                entries.pop(path, None)
                entries[target + path[len(source) :]] = inode

        self._change(_parent(source), change)

    def _at_and_below(self, place: str) -> Entries:
        if self._entries[place] is not None:
            # Files are renamed all the time, directories hardly ever.
            return {place: self._entries[place]}
        return {path: self._entries[path] for path in _at_and_below(self._entries, place)}

    def remove(self, path: Path) -> None:
        self.act()
        self.inode(path)
        name = str(path)
        self._change(_parent(name), _unlink(name))

    def remove_tree(self, path: Path) -> None:
        self.act()
        name = str(path)

        def change(entries: Entries) -> None:
            for entry in _at_and_below(entries, name):
                del entries[entry]

        self._change(_parent(name), change)

    def sync_directory(self, path: Path) -> None:
        self.act()
        self.fail_if("sync")
        self.fail_if("sync directory")
        for change in self._pending.pop(str(path), ()):
            change(self._durable)

    def whole_disk(self, path: Path, files: int) -> "FaultWholeDisk | None":
        """As if by chance, so that both ways are tried, also with few files."""
        return FaultWholeDisk(self) if self.steps % 2 else None

    def sync_everything(self) -> None:
        """If it fails, what is lost of a file is known to the next sync of that file."""
        self.act()
        self.fail_if("sync")
        self.fail_if("sync directory")
        for inode in self._entries.values():
            if inode is not None:
                inode.sync()
        for directory in list(self._pending):
            for change in self._pending.pop(directory):
                change(self._durable)

    def read(self, path: AnyPath) -> bytes:
        self.before_read()
        return bytes(self.inode(path).data)

    def write_atomically(self, path: Path, data: Bytes) -> None:
        write_atomically(self, path, data)

    def disk_free(self, path: Path) -> int:
        return self.room()

    def lock(self, path: Path) -> FaultLock:
        if path in self.locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked")
        if str(path) not in self._entries:
            self.create(path)
        self.locks.add(path)
        return FaultLock(self, path)
