"""Joins the rows of many record batches to Arrow batches of a good size."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.columns.arrow_layout import arrow_schema
from penstock.columns.column_builders import (
    BinaryColumn,
    ColumnBuilder,
    ConstantColumn,
    HeadersColumn,
    IntegerColumn,
    TimestampColumn,
)
from penstock.columns.kernels import ReadingKernels
from penstock.columns.tables import Bytes, Integers, Rows


class Assembly:
    """Holds rows until they fill an Arrow batch; none has more rows or bytes than allowed.

    The bytes are those of keys, values and headers, as far as these columns are wanted. A single
    record that is larger than a whole batch may be gets one of its own.
    """

    def __init__(
        self, *, topic: str, partition: int, columns: Sequence[str], rows_max: int, bytes_max: int
    ) -> None:
        self._schema = arrow_schema(columns)
        self._builders = [_builder(name, topic, partition) for name in columns]
        self._sized = [
            Rows._fields.index(field)
            for name, field in (
                ("key", "key_length"),
                ("value", "value_length"),
                ("headers", "headers_length"),
            )
            if name in columns
        ]
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._count = 0
        self._bytes = 0

    def add(
        self, kernels: ReadingKernels, source: Bytes, rows: Rows, count: int
    ) -> Iterator[pa.RecordBatch]:
        """Takes the first `count` rows, whose bytes lie in the source; gives what became full."""
        totals = self._running_totals(rows, count)
        begin = before = 0
        while begin < count:
            end = self._fitting(totals, begin, before)
            if end > begin:
                self._append(kernels, source, rows.cut(begin, end))
                begin = end
                self._bytes += int(totals[end - 1]) - before
                before = int(totals[end - 1])
            if begin < count or self._count == self._rows_max:
                yield self._take()

    def finish(self) -> Iterator[pa.RecordBatch]:
        if self._count:
            yield self._take()

    def _running_totals(self, rows: Rows, count: int) -> Integers:
        sizes = np.zeros(count, np.int64)
        for field in self._sized:
            sizes += np.maximum(rows[field][:count], 0)
        return np.cumsum(sizes, out=sizes)

    def _fitting(self, totals: Integers, begin: int, before: int) -> int:
        """Up to which row the rows from `begin` on still fit: beyond it if nothing else is held."""
        room = before + self._bytes_max - self._bytes
        end = min(
            int(np.searchsorted(totals, room, side="right")),
            begin + self._rows_max - self._count,
            len(totals),
        )
        return max(end, begin if self._count else begin + 1)

    def _append(self, kernels: ReadingKernels, source: Bytes, rows: Rows) -> None:
        for builder in self._builders:
            builder.append(kernels, source, rows)
        self._count += len(rows.offset)

    def _take(self) -> pa.RecordBatch:
        arrays = [builder.take(self._count) for builder in self._builders]
        if arrays:
            taken = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        else:
            taken = pa.RecordBatch.from_struct_array(pa.array([{}] * self._count, pa.struct([])))
        self._count = self._bytes = 0
        return taken


def _builder(name: str, topic: str, partition: int) -> ColumnBuilder:
    match name:
        case "key" | "value":
            return BinaryColumn(f"{name}_position", f"{name}_length")
        case "topic":
            return ConstantColumn(topic)
        case "partition":
            return ConstantColumn(partition)
        case "offset":
            return IntegerColumn("offset", pa.int64())
        case "timestamp":
            return TimestampColumn()
        case "timestampType":
            return IntegerColumn("timestamp_type", pa.int32())
        case "headers":
            return HeadersColumn()
    raise AssertionError(f"there is no column {name}")
