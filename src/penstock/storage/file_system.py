"""The disk as storage sees it: passed in, so that tests and the simulator can replace it.

Nothing in this package calls the operating system except through these protocols.
"""

import contextlib
import errno
import fcntl
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

Bytes: TypeAlias = bytes | bytearray | memoryview
# A start looks at thousands of files once, and to make a Path of each costs more than to look.
AnyPath: TypeAlias = Path | str

TEMPORARY_SUFFIX = ".tmp"

# The kernel takes at most this many buffers in one vectored write (IOV_MAX).
_VECTORS_MAX = 1024
_COPY_BYTES = 1 << 20
# From this many files on, one sync of a whole file system is cheaper than one for each, although it
# waits for what other processes wrote there.
FILES_FOR_ONE_SYNC = 16
# The first Linux whose sync of a whole file system says that something could not be written.
_FIRST_LINUX_WITH_SYNC_ERRORS = (5, 8)


class SyncFailed(OSError):
    """A sync failed: what the disk holds is unknown, and a second sync may lie about it."""


class File(Protocol):
    """An open file, used by position only, so that threads can share it."""

    def fileno(self) -> int: ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes; fewer only where the file ends."""
        ...

    def pwrite(self, data: Bytes, position: int) -> None:
        """Writes all of it, or raises OSError with an unknown part written."""
        ...

    def pwritev(self, parts: Sequence[Bytes], position: int) -> None:
        """Writes all parts one after the other, or raises OSError like `pwrite`."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Returns once the content is on disk; says nothing about the file's directory entry."""
        ...

    def close(self) -> None: ...


class Content(Protocol):
    """What `write_again` needs of a file."""

    def pread(self, length: int, position: int) -> bytes: ...

    def pwritev(self, parts: Sequence[Bytes], position: int) -> None: ...

    def sync(self) -> None: ...


class WholeDisk(Protocol):
    """All files and names in one file system."""

    def sync(self) -> None:
        """Returns once everything is on disk that was written since it was opened, by any process.

        If it fails, nothing is known of any file: each has to be written again and synced."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class FileSystem(Protocol):
    def open(self, path: Path) -> File: ...

    def create(self, path: Path) -> File:
        """A new file, or an existing one emptied."""
        ...

    def exists(self, path: AnyPath) -> bool: ...

    def is_directory(self, path: Path) -> bool: ...

    def size(self, path: Path) -> int: ...

    def names(self, path: Path) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def make_directory(self, path: Path) -> list[Path]:
        """Makes it with its missing parents; returns the directories to sync for it to last."""
        ...

    def rename(self, old: Path, new: Path) -> None: ...

    def remove(self, path: Path) -> None: ...

    def remove_tree(self, path: Path) -> None: ...

    def sync_directory(self, path: Path) -> None:
        """Returns once the names in the directory are on disk."""
        ...

    def whole_disk(self, path: Path, files: int) -> WholeDisk | None:
        """The file system that holds this directory, to be opened before what it should sync is
        written. None where that is not worth it for so few files, not possible, or where a failure
        would go unnoticed."""
        ...

    def read(self, path: AnyPath) -> bytes: ...

    def write_atomically(self, path: Path, data: Bytes) -> None:
        """After a crash the file holds the old content or the new, never a mix; durable."""
        ...

    def disk_free(self, path: Path) -> int: ...

    def lock(self, path: Path) -> Lock:
        """Raises BlockingIOError while another process holds it."""
        ...


def write_atomically(file_system: FileSystem, path: Path, data: Bytes) -> None:
    """On any file system: the content is on disk before its name, the name before the return."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        _write_new(file_system, temporary, data)
        file_system.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            file_system.remove(temporary)
        raise
    file_system.sync_directory(path.parent)


def write_again(file: Content, start: int, end: int) -> None:
    """Brings what a former process wrote to the disk, whatever became of its syncs.

    After a sync that failed, the kernel takes what it could not write for written: readers see it
    until the power goes, and no later sync writes it.
    """
    rewrite(file, start, end)
    file.sync()


def rewrite(file: Content, start: int, end: int) -> None:
    for position in range(start, end, _COPY_BYTES):
        file.pwritev([file.pread(min(_COPY_BYTES, end - position), position)], position)


def _write_new(file_system: FileSystem, path: Path, data: Bytes) -> None:
    file = file_system.create(path)
    try:
        file.pwrite(data, 0)
        file.sync()
    finally:
        file.close()


# What a platform has is looked up once: this is called for every write.
_FULL_SYNC: int = getattr(fcntl, "F_FULLFSYNC", 0)
if _FULL_SYNC:

    def _sync_content(descriptor: int) -> None:
        # On macOS fsync leaves the data in the drive's cache.
        fcntl.fcntl(descriptor, _FULL_SYNC)

elif hasattr(os, "fdatasync"):

    def _sync_content(descriptor: int) -> None:
        os.fdatasync(descriptor)

else:

    def _sync_content(descriptor: int) -> None:
        os.fsync(descriptor)


class RealFile:
    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def pread(self, length: int, position: int) -> bytes:
        data = os.pread(self._descriptor, length, position)
        if len(data) == length or not data:
            return data
        return self._read_rest(data, length, position)

    def _read_rest(self, data: bytes, length: int, position: int) -> bytes:
        parts = [data]
        have = len(data)
        while have < length:
            part = os.pread(self._descriptor, length - have, position + have)
            if not part:
                break
            parts.append(part)
            have += len(part)
        return b"".join(parts)

    def pwrite(self, data: Bytes, position: int) -> None:
        written, size = os.pwrite(self._descriptor, data, position), len(data)
        while written < size:
            left = memoryview(data)[written:]
            written += os.pwrite(self._descriptor, left, position + written)

    def pwritev(self, parts: Sequence[Bytes], position: int) -> None:
        if len(parts) == 1 or not hasattr(os, "pwritev"):
            self.pwrite(parts[0] if len(parts) == 1 else b"".join(parts), position)
            return
        for first in range(0, len(parts), _VECTORS_MAX):
            some = parts[first : first + _VECTORS_MAX]
            length = sum(map(len, some))
            written = os.pwritev(self._descriptor, some, position)
            if written < length:
                # A short write is rare (a full disk, a signal), so the rest may cost a copy.
                self.pwrite(memoryview(b"".join(some))[written:], position + written)
            position += length

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        _sync_content(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class RealWholeDisk:
    __slots__ = ("_descriptor",)

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def sync(self) -> None:
        # Imported here because few starts have so much to sync.
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
        if library.syncfs(self._descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def close(self) -> None:
        os.close(self._descriptor)


def can_sync_whole_disks(release: str) -> bool:
    """Whether this release of the kernel can, and says so when it fails."""
    if not sys.platform.startswith("linux"):
        return False
    numbers = re.match(r"(\d+)\.(\d+)", release)
    if numbers is None:
        return False
    return (int(numbers[1]), int(numbers[2])) >= _FIRST_LINUX_WITH_SYNC_ERRORS


class RealLock:
    """Held through a descriptor, so that the kernel lets go of it when the process dies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.close(self._descriptor)


class RealFileSystem:
    def open(self, path: Path) -> RealFile:
        try:
            return RealFile(os.open(path, os.O_RDWR))
        except OSError as error:
            # A disk that became read-only still serves readers.
            if error.errno not in (errno.EROFS, errno.EACCES):
                raise
            return RealFile(os.open(path, os.O_RDONLY))

    def create(self, path: Path) -> RealFile:
        return RealFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644))

    def exists(self, path: AnyPath) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: Path) -> bool:
        return os.path.isdir(path)

    def size(self, path: Path) -> int:
        return os.stat(path).st_size

    def names(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: Path) -> list[Path]:
        to_sync: list[Path] = []
        self._make_with_parents(path, to_sync)
        return to_sync

    def _make_with_parents(self, path: Path, to_sync: list[Path]) -> None:
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
            return
        except FileNotFoundError:
            if path.parent == path:
                raise
            self._make_with_parents(path.parent, to_sync)
            # Another thread may have made it since.
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)
        to_sync.append(path.parent)

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        os.unlink(path)

    def remove_tree(self, path: Path) -> None:
        # Imported here because few starts remove anything.
        from shutil import rmtree

        rmtree(path)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def whole_disk(self, path: Path, files: int) -> RealWholeDisk | None:
        is_worth_it = files >= FILES_FOR_ONE_SYNC and can_sync_whole_disks(os.uname().release)
        return RealWholeDisk(path) if is_worth_it else None

    def read(self, path: AnyPath) -> bytes:
        file = RealFile(os.open(path, os.O_RDONLY))
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def write_atomically(self, path: Path, data: Bytes) -> None:
        write_atomically(self, path, data)

    def disk_free(self, path: Path) -> int:
        state = os.statvfs(path)
        return state.f_bavail * state.f_frsize

    def lock(self, path: Path) -> RealLock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(descriptor)
            raise
        return RealLock(descriptor)
