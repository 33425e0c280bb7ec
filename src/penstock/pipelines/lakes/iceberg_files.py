"""Iceberg's metadata on disk: each file is durable before a catalog may point to it.

pyiceberg leaves files to the operating system's cache, while SQLite syncs the pointer to them:
after a power failure the catalog would name metadata that is not there.
"""

import contextlib
import os
from types import TracebackType
from typing import Any, Self

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from penstock.pipelines.lakes.durable_files import sync_path

DURABLE_FILES = f"{__name__}.DurableFileIO"


class DurableFileIO(PyArrowFileIO):
    """pyiceberg makes one by its name, from a catalog's properties."""

    def __init__(self, properties: Any) -> None:
        super().__init__(properties)
        self._made: list[str] = []

    def remove_made(self) -> None:
        """What a transaction that came to nothing has left; failing to does no harm."""
        for path in self._made:
            with contextlib.suppress(OSError):
                os.unlink(path)
        self._made.clear()

    def new_output(self, location: str) -> PyArrowFile:
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        self._made.append(path)
        return _DurableFile(fs=self.fs_by_scheme(scheme, netloc), location=location, path=path)


class _DurableFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        return _SyncedStream(self._path, "wb" if overwrite else "xb")


class _SyncedStream:
    """What pyiceberg writes to: it calls no more than these."""

    def __init__(self, path: str, mode: str) -> None:
        self._path = path
        self._file = open(path, mode)  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._discard()

    def write(self, content: bytes) -> int:
        return self._file.write(content)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def close(self) -> None:
        if self._file.closed:
            return
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        except OSError:
            self._discard()
            raise
        sync_path(os.path.dirname(self._path))

    def _discard(self) -> None:
        """Nobody will ever name what could not be written to its end."""
        with contextlib.suppress(OSError):
            # What is still in the buffer is tried once more, and given up.
            self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)
