"""One Parquet file while it is written: its checksum, its size and what its columns hold."""

import contextlib
import hashlib
import io
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.pipelines.lakes.lake_table import ColumnStatistics

# As many columns as Delta's own writer looks at; receipts stay small for tables of any width.
STATISTICS_COLUMNS_MAX = 32
# Longer texts give no bounds that are worth their room in a table's log.
STATISTICS_TEXT_MAX = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Encodings:
    """For rows of which it is known what their columns are like; else pyarrow tries."""

    dictionary: tuple[str, ...] | None = None
    """The columns whose values repeat; None: each column, until its dictionary is too large."""
    delta: tuple[str, ...] = ()
    """Columns of numbers and times that mostly ascend; none of them is in `dictionary`."""

    def settings(self) -> dict[str, Any]:
        """As pyarrow's writer takes them."""
        return {
            "use_dictionary": True if self.dictionary is None else list(self.dictionary),
            "column_encoding": dict.fromkeys(self.delta, "DELTA_BINARY_PACKED") or None,
        }


class ParquetFile:
    """Takes row groups in order; `close` makes it durable, `discard` removes it."""

    def __init__(self, path: str, schema: pa.Schema, encodings: Encodings) -> None:
        self.path = path
        self.rows = 0
        self._schema = schema
        self._file = _HashingFile(path)
        self._metadata: list[Any] = []
        self._floats = [field.name for field in schema if pa.types.is_floating(field.type)]
        self._with_nan: set[str] = set()
        self._writer = pq.ParquetWriter(
            self._file,
            schema,
            compression="zstd",
            version="2.6",
            write_page_checksum=True,
            metadata_collector=self._metadata,
            **encodings.settings(),
        )

    @property
    def size(self) -> int:
        """Bytes that have reached the file so far."""
        return self._file.size

    @property
    def sha256(self) -> str:
        return self._file.digest.hexdigest()

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """The batches become one row group."""
        table = pa.Table.from_batches(list(batches), self._schema)
        self._note_nan(table)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self.rows += table.num_rows

    def close(self) -> dict[str, ColumnStatistics]:
        """Bring everything to the disk; says what is in each plain column."""
        self._writer.close()
        self._file.finish()
        return _statistics(self._metadata[0], self._schema, self._with_nan)

    def discard(self) -> None:
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def _note_nan(self, table: pa.Table) -> None:
        for name in self._floats:
            if name not in self._with_nan and pc.any(pc.is_nan(table.column(name))).as_py():
                self._with_nan.add(name)


class _HashingFile(io.RawIOBase):
    """A new file that knows the checksum of what went into it: Parquet never goes back."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        self.digest = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, content: Any) -> int:
        view = memoryview(content).cast("B")
        self.digest.update(view)
        left = view
        while left:
            left = left[os.write(self._descriptor, left) :]
        self.size += len(view)
        return len(view)

    def finish(self) -> None:
        os.fsync(self._descriptor)
        self.close()

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


def _statistics(metadata: Any, schema: pa.Schema, with_nan: set[str]) -> dict[str, Any]:
    """By column; of plain columns at the top alone, since no reader asks for others."""
    found: dict[str, ColumnStatistics] = {}
    places = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    for field in schema:
        if pa.types.is_nested(field.type) or field.name not in places:
            continue
        if len(found) == STATISTICS_COLUMNS_MAX:
            break
        statistics = _column_statistics(metadata, places[field.name], field.name in with_nan)
        if statistics is not None:
            found[field.name] = statistics
    return found


def _column_statistics(metadata: Any, place: int, has_nan: bool) -> ColumnStatistics | None:
    nulls = 0
    bounds: list[tuple[Any, Any]] = []
    are_bounds_known = True
    for index in range(metadata.num_row_groups):
        column = metadata.row_group(index).column(place)
        statistics = column.statistics
        if statistics is None or not statistics.has_null_count:
            return None
        nulls += statistics.null_count
        if statistics.null_count == column.num_values:
            continue
        group = _bounds(statistics)
        if group is None:
            are_bounds_known = False
        else:
            bounds.append(group)
    if not bounds or not are_bounds_known:
        return ColumnStatistics(nulls=nulls)
    # Parquet leaves NaN out of its bounds, but Spark sorts it after every other number.
    greatest = None if has_nan else max(bound[1] for bound in bounds)
    return ColumnStatistics(nulls=nulls, least=min(bound[0] for bound in bounds), greatest=greatest)


def _bounds(statistics: Any) -> tuple[Any, Any] | None:
    if not statistics.has_min_max:
        return None
    try:
        least, greatest = statistics.min, statistics.max
    except (ValueError, OverflowError):
        # A date that Python can't hold.
        return None
    if isinstance(least, bytes | bool):
        return None
    if isinstance(least, str) and max(len(least), len(greatest)) > STATISTICS_TEXT_MAX:
        return None
    return least, greatest
