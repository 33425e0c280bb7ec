"""Iceberg's metadata on disk: each file is durable before a catalog may point to it.

pyiceberg leaves files to the operating system's cache, while SQLite syncs the pointer to them:
after a power failure the catalog would name metadata that is not there.
"""

import os
from types import TracebackType
from typing import Any, Self

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from penstock.pipelines.lakes.durable_files import sync_path

DURABLE_FILES = f"{__name__}.DurableFileIO"


class DurableFileIO(PyArrowFileIO):
    """pyiceberg makes one by its name, from a catalog's properties."""

    def new_output(self, location: str) -> PyArrowFile:
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
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
        self.close()

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
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        sync_path(os.path.dirname(self._path))
