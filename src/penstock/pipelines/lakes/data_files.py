"""Writes rows to Parquet files, one set per partition of a table, within a bounded memory.

Pure pyarrow: it runs in Spark's tasks. Rows wait in memory until there are enough of them for a row
group, so that a table with many partitions does not get a file per batch of rows.
"""

import contextlib
import os
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import pyarrow as pa

from penstock.pipelines.lakes.durable_files import make_folders, sync_path
from penstock.pipelines.lakes.lake_table import DataFile
from penstock.pipelines.lakes.parquet_file import Encodings, ParquetFile
from penstock.pipelines.lakes.partition_folders import Partition, column_of, split

FILE_ROWS_MAX = 10_000_000
FILE_BYTES_MAX = 256 * 1024 * 1024
ROW_GROUP_BYTES_MAX = 32 * 1024 * 1024
ROW_GROUP_ROWS_MAX = 1024 * 1024
WAITING_BYTES_MAX = 64 * 1024 * 1024
OPEN_FILES_MAX = 32
# What a piece of a batch takes besides its values, per column: without it, a million pieces of one
# row each would count as nothing.
_PIECE_BYTES_PER_COLUMN = 512


class DataFileWriter:
    """Files `<root>/<folder>/<partition>/<name>-….parquet`; an exception inside removes them.

    `partition_by` names columns, or Iceberg's `day(column)` and its like. The columns are kept in
    the files unless `keeps_partition_columns` says otherwise, which Delta's readers expect.
    Rows of a partition keep their order, from one file to the next.
    """

    def __init__(
        self,
        root: str,
        folder: str,
        schema: pa.Schema,
        partition_by: Sequence[str] = (),
        *,
        keeps_partition_columns: bool = True,
        name: str = "part",
        rows_max: int = FILE_ROWS_MAX,
        bytes_max: int = FILE_BYTES_MAX,
        waiting_bytes_max: int = WAITING_BYTES_MAX,
        encodings: Encodings | None = None,
    ) -> None:
        self._root = root
        self._folder = folder
        self._name = name
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._waiting_bytes_max = waiting_bytes_max
        self._encodings = encodings or Encodings()
        self._partition_by = tuple(partition_by)
        self._schema = schema.remove_metadata()
        gone = set() if keeps_partition_columns else {column_of(text) for text in partition_by}
        self._kept = [name for name in schema.names if name not in gone]
        self._file_schema = pa.schema([self._schema.field(name) for name in self._kept])
        self._shares: dict[Partition, _Share] = {}
        self._waiting_bytes = 0
        # In the order of their last use.
        self._open: dict[_Share, ParquetFile] = {}
        self._finished: list[DataFile] = []
        self._made_folders: set[str] = set()
        self._opened = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.discard()

    @property
    def waiting_bytes(self) -> int:
        """Rows that have come and are in no file yet."""
        return self._waiting_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows, whose columns must be the schema's."""
        assert batch.schema.equals(self._schema), f"{batch.schema} is not {self._schema}"
        for partition, rows in split(batch, self._partition_by):
            share = self._shares.get(partition)
            if share is None:
                share = self._shares[partition] = _Share(partition)
            self._take(share, rows.select(self._kept))
        if self._waiting_bytes > self._waiting_bytes_max:
            self._write_largest()

    def close(self) -> list[DataFile]:
        """Everything is on the disk when this returns, in the order in which it was finished."""
        for share in list(self._shares.values()):
            self._write_waiting(share)
            self._finish(share)
        for folder in self._made_folders:
            sync_path(folder)
        return self._finished

    def discard(self) -> None:
        """Remove every file, as if nothing had been written."""
        for file in self._open.values():
            file.discard()
        self._open.clear()
        for finished in self._finished:
            _remove(f"{self._root}/{finished.path}")
        self._finished.clear()
        self._shares.clear()

    def _take(self, share: "_Share", rows: pa.RecordBatch) -> None:
        """Let rows wait, cut where a file is full."""
        while rows.num_rows:
            room = self._rows_max - share.rows_in_file - share.waiting_rows
            piece = rows.slice(0, room)
            rows = rows.slice(piece.num_rows)
            self._waiting_bytes += share.add(piece)
            if piece.num_rows == room:
                self._write_waiting(share)
                self._finish(share)
            elif share.is_row_group:
                self._write_waiting(share)

    def _write_largest(self) -> None:
        """Write until half of the room is free again; small partitions wait on."""
        waiting = sorted(self._shares.values(), key=lambda share: share.waiting_bytes, reverse=True)
        for share in waiting:
            if self._waiting_bytes <= self._waiting_bytes_max // 2:
                break
            self._write_waiting(share)
        self._shares = {
            partition: share
            for partition, share in self._shares.items()
            if share.waiting or share in self._open
        }

    def _write_waiting(self, share: "_Share") -> None:
        if not share.waiting:
            return
        file = self._file(share)
        file.write(share.waiting)
        share.rows_in_file = file.rows
        self._waiting_bytes -= share.clear()
        if file.size >= self._bytes_max:
            self._finish(share)

    def _file(self, share: "_Share") -> ParquetFile:
        file = self._open.pop(share, None)
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._finish(next(iter(self._open)))
            file = self._open_file(share.partition)
        self._open[share] = file
        return file

    def _open_file(self, partition: Partition) -> ParquetFile:
        folder = f"{self._folder}/{partition.folder}" if partition.names else self._folder
        absolute = f"{self._root}/{folder}"
        if absolute not in self._made_folders:
            make_folders(self._root, folder)
            self._made_folders.add(absolute)
        # Counted, so that names sort as files were begun; random, so that each attempt has its own.
        self._opened += 1
        name = f"{self._name}-{self._opened:05d}-{uuid.uuid4().hex[:16]}.parquet"
        return ParquetFile(f"{absolute}/{name}", self._file_schema, self._encodings)

    def _finish(self, share: "_Share") -> None:
        file = self._open.pop(share, None)
        if file is None:
            return
        share.rows_in_file = 0
        try:
            statistics = file.close()
        except BaseException:
            file.discard()
            raise
        partition = share.partition
        self._finished.append(
            DataFile(
                path=file.path.removeprefix(f"{self._root}/"),
                rows=file.rows,
                size=file.size,
                sha256=file.sha256,
                partition=dict(zip(partition.names, partition.values, strict=True)),
                statistics=statistics,
            )
        )


class _Share:
    """What waits for the file of one partition."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_bytes: int = 0
        self.waiting_rows: int = 0
        self.rows_in_file: int = 0

    @property
    def is_row_group(self) -> bool:
        return self.waiting_bytes >= ROW_GROUP_BYTES_MAX or self.waiting_rows >= ROW_GROUP_ROWS_MAX

    def add(self, rows: pa.RecordBatch) -> int:
        size: int = rows.nbytes + _PIECE_BYTES_PER_COLUMN * rows.num_columns
        self.waiting.append(rows)
        self.waiting_bytes += size
        self.waiting_rows += rows.num_rows
        return size

    def clear(self) -> int:
        size = self.waiting_bytes
        self.waiting = []
        self.waiting_bytes = self.waiting_rows = 0
        return size


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
