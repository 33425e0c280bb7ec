"""A bounded set of open segment files: a node has far more segments than descriptors.

A segment keeps a `CachedFile` for life; the descriptor behind it comes and goes. A pinned file is
never closed, so bytes that are on their way to a socket stay readable even after their segment
was deleted or replaced.

The event loop reads through these files too, so nobody touches the disk while it holds their lock:
a thread that hangs in making a file would take the loop with it.
"""

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from penstock.model.limits import MIB
from penstock.storage.file_system import Bytes, File, FileSystem
from penstock.storage.index_cache import IndexCache

INDEX_BYTES_MAX = 64 * MIB


class FileGone(OSError):
    """The file was deleted or replaced since the caller looked it up: look it up again."""


class OpenFiles:
    """Closes the file that was used least recently when too many are open."""

    def __init__(
        self, file_system: FileSystem, open_max: int, index_bytes_max: int = INDEX_BYTES_MAX
    ) -> None:
        assert open_max > 0
        self.file_system = file_system
        self.indexes = IndexCache(index_bytes_max)
        self._open_max = open_max
        # Guards this order and all the files' fields: the loop and the workers share them.
        self._lock = Lock()
        self._open: OrderedDict[CachedFile, None] = OrderedDict()

    def file(self, path: Path) -> "CachedFile":
        return CachedFile(self, path)

    @property
    def open_count(self) -> int:
        return len(self._open)

    def _pin(self, file: "CachedFile", *, create: bool = False) -> File:
        opened = self._pin_open(file)
        if opened is not None:
            return opened
        return self._adopt(
            file, self.file_system.create(file.path) if create else self._open_file(file)
        )

    def _pin_open(self, file: "CachedFile") -> File | None:
        """None if it is to be opened first."""
        with self._lock:
            if file._file is None:
                if file._is_gone:
                    raise FileGone(f"{file.path} is gone")
                return None
            self._open.move_to_end(file)
            file._pins += 1
            return file._file

    def _open_file(self, file: "CachedFile") -> File:
        path = file.path
        while True:
            try:
                return self.file_system.open(path)
            except FileNotFoundError:
                if file._is_gone:
                    raise FileGone(f"{path} is gone") from None
                # Nobody else ever has its old name, so it has the new one by now.
                moved_to = file._moving_to or file.path
                if moved_to == path:
                    raise
                path = moved_to

    def _adopt(self, file: "CachedFile", opened: File) -> File:
        """Pins what was just opened, or what another thread opened meanwhile."""
        with self._lock:
            is_gone = file._is_gone and file._file is None
            if is_gone or file._file is not None:
                surplus: File | None = opened
            else:
                file._file = opened
                surplus = None
            if not is_gone:
                assert file._file is not None
                opened = file._file
                file._pins += 1
                self._open[file] = None
                self._open.move_to_end(file)
                surplus = surplus or self._take_oldest()
        _close(surplus)
        if is_gone:
            raise FileGone(f"{file.path} is gone")
        return opened

    def _take_oldest(self) -> File | None:
        """If too many are open: the one to close."""
        if len(self._open) > self._open_max:
            for file in self._open:
                if file._pins == 0:
                    return self._take(file)
        return None

    def _unpin(self, file: "CachedFile") -> None:
        closing = None
        with self._lock:
            assert file._pins > 0
            file._pins -= 1
            if file._pins == 0 and (file._is_gone or len(self._open) > self._open_max):
                closing = self._take(file)
        if closing is not None:
            closing.close()

    def _retire(self, file: "CachedFile") -> None:
        with self._lock:
            file._is_gone = True
            closing = self._take(file) if file._pins == 0 else None
        _close(closing)

    def _release(self, file: "CachedFile") -> None:
        with self._lock:
            closing = self._take(file) if file._pins == 0 else None
        _close(closing)

    def _move(self, file: "CachedFile", path: Path) -> None:
        file._moving_to = path
        try:
            self.file_system.rename(file.path, path)
            file.path = path
        finally:
            file._moving_to = None

    def _take(self, file: "CachedFile") -> File | None:
        """Its descriptor, which nobody else will use or close."""
        self._open.pop(file, None)
        taken, file._file = file._file, None
        return taken


def _close(file: File | None) -> None:
    if file is not None:
        file.close()


class CachedFile:
    """One file of the set; opened when used, and kept open at least while it is pinned."""

    __slots__ = ("_file", "_is_gone", "_moving_to", "_open_files", "_pins", "path")

    def __init__(self, open_files: OpenFiles, path: Path) -> None:
        self.path = path
        self._open_files = open_files
        self._file: File | None = None
        self._pins = 0
        self._is_gone = False
        # The name that it has from some moment of a move on.
        self._moving_to: Path | None = None

    def pin(self) -> File:
        """Opens it, if need be, and gives what is open until `unpin`."""
        return self._open_files._pin(self)

    def unpin(self) -> None:
        self._open_files._unpin(self)

    def create(self) -> None:
        """Makes the file on disk, empty."""
        self._open_files._pin(self, create=True)
        self._open_files._unpin(self)

    def fileno(self) -> int:
        """Valid only while the caller holds a pin."""
        assert self._file is not None
        return self._file.fileno()

    def pread(self, length: int, position: int) -> bytes:
        file = self._open_files._pin(self)
        try:
            return file.pread(length, position)
        finally:
            self._open_files._unpin(self)

    def pwritev(self, parts: Sequence[Bytes], position: int) -> None:
        file = self._open_files._pin(self)
        try:
            file.pwritev(parts, position)
        finally:
            self._open_files._unpin(self)

    def truncate(self, size: int) -> None:
        file = self._open_files._pin(self)
        try:
            file.truncate(size)
        finally:
            self._open_files._unpin(self)

    def sync(self) -> None:
        file = self._open_files._pin(self)
        try:
            file.sync()
        finally:
            self._open_files._unpin(self)

    def size(self) -> int:
        file = self._open_files._pin(self)
        try:
            return file.size()
        finally:
            self._open_files._unpin(self)

    def move(self, path: Path) -> None:
        """Renames the file; nobody can open it under its old name by mistake."""
        self._open_files._move(self, path)

    def retire(self) -> None:
        """The file is deleted or replaced: those who hold a pin go on, nobody else opens it."""
        self._open_files._retire(self)

    def release(self) -> None:
        """Closes the descriptor now, if nobody uses it."""
        self._open_files._release(self)
