"""Builds one Arrow column from the rows of many record batches: rows are appended, then taken out.

Buffers are made for as much as the last Arrow batch took, so that they seldom have to grow.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.columns.arrow_layout import HEADER_TYPE, HEADERS_TYPE, TIMESTAMP_TYPE
from penstock.columns.kernels import ReadingKernels
from penstock.columns.tables import (
    NO_TIMESTAMP,
    Bytes,
    Integers,
    Offsets,
    Rows,
    empty_header_rows,
)

_GROWTH = 2
_BYTES_MIN = 4096
_ROWS_MIN = 64


class ColumnBuilder(Protocol):
    def append(self, kernels: ReadingKernels, source: Bytes, rows: Rows) -> None: ...

    def take(self, count: int) -> pa.Array:
        """All `count` rows that were appended since the last call."""
        ...


class Binaries:
    """Pieces of bytes one after the other, as Arrow lays them out."""

    def __init__(self) -> None:
        self._bytes = _BYTES_MIN
        self._rows = _ROWS_MIN
        self._renew()

    def _renew(self) -> None:
        self.count = 0
        self._filled = 0
        self._data: Bytes = np.empty(self._bytes, np.uint8)
        self._offsets: Offsets = np.empty(self._rows + 1, np.int32)
        self._offsets[0] = 0
        self._valid: Bytes = np.empty(self._rows, np.uint8)

    def append(
        self, kernels: ReadingKernels, source: Bytes, positions: Integers, lengths: Integers
    ) -> None:
        begin, end = self.count, self.count + len(positions)
        self._reserve(end, self._filled + int(np.maximum(lengths, 0).sum()))
        ends, valid = self._offsets[begin + 1 : end + 1], self._valid[begin:end]
        self._filled = kernels.gather(
            source, positions, lengths, self._data, self._filled, ends, valid
        )
        self.count = end

    def _reserve(self, rows: int, size: int) -> None:
        if size > len(self._data):
            self._data = _grown(self._data, self._filled, size)
        if rows > len(self._valid):
            self._valid = _grown(self._valid, self.count, rows)
            self._offsets = _grown(self._offsets, self.count + 1, len(self._valid) + 1)

    def take(self, arrow_type: pa.DataType) -> pa.Array:
        validity, null_count = validity_of(self._valid[: self.count])
        offsets = pa.py_buffer(self._offsets[: self.count + 1])
        data = pa.py_buffer(self._data[: self._filled])
        taken = pa.Array.from_buffers(arrow_type, self.count, [validity, offsets, data], null_count)
        self._bytes = max(_BYTES_MIN, self._filled)
        self._rows = max(_ROWS_MIN, self.count)
        self._renew()
        return taken


class BinaryColumn:
    """The keys, or the values."""

    def __init__(self, position_field: str, length_field: str) -> None:
        self._position = Rows._fields.index(position_field)
        self._length = Rows._fields.index(length_field)
        self._binaries = Binaries()

    def append(self, kernels: ReadingKernels, source: Bytes, rows: Rows) -> None:
        self._binaries.append(kernels, source, rows[self._position], rows[self._length])

    def take(self, count: int) -> pa.Array:
        return self._binaries.take(pa.binary())


class IntegerColumn:
    """A field of the rows as it is, in Arrow's type."""

    def __init__(self, field: str, arrow_type: pa.DataType) -> None:
        self._field = Rows._fields.index(field)
        self._type = arrow_type
        self._parts: list[npt.NDArray[Any]] = []

    def append(self, kernels: ReadingKernels, source: Bytes, rows: Rows) -> None:
        # Copied, since the table of rows is filled again.
        self._parts.append(rows[self._field].astype(_width(self._type)))

    def take(self, count: int) -> pa.Array:
        parts, self._parts = self._parts, []
        values = parts[0] if len(parts) == 1 else np.concatenate(parts)
        validity, null_count = self._nulls(values)
        return pa.Array.from_buffers(
            self._type, count, [validity, pa.py_buffer(values)], null_count
        )

    def _nulls(self, values: npt.NDArray[Any]) -> tuple[pa.Buffer | None, int]:
        return None, 0


class TimestampColumn(IntegerColumn):
    """Microseconds; null where a record's timestamp is further away than they reach."""

    def __init__(self) -> None:
        super().__init__("timestamp", TIMESTAMP_TYPE)

    def _nulls(self, values: npt.NDArray[Any]) -> tuple[pa.Buffer | None, int]:
        return validity_of((values != NO_TIMESTAMP).view(np.uint8))


class ConstantColumn:
    """The same in every row: built once, then handed out in slices."""

    def __init__(self, value: str | int) -> None:
        self._value = value
        self._built = self._build(0)

    def append(self, kernels: ReadingKernels, source: Bytes, rows: Rows) -> None:
        pass

    def take(self, count: int) -> pa.Array:
        if count > len(self._built):
            self._built = self._build(count)
        return self._built[:count]

    def _build(self, count: int) -> pa.Array:
        if isinstance(self._value, int):
            numbers = pa.py_buffer(np.full(count, self._value, np.int32))
            return pa.Array.from_buffers(pa.int32(), count, [None, numbers])
        text = self._value.encode()
        offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(len(text)))
        return pa.Array.from_buffers(
            pa.string(), count, [None, offsets, pa.py_buffer(text * count)]
        )


class HeadersColumn:
    """Lists of headers in the order of the record; null where a record has none, as in Spark."""

    def __init__(self) -> None:
        self._names = Binaries()
        self._values = Binaries()
        self._counts: list[Integers] = []

    def append(self, kernels: ReadingKernels, source: Bytes, rows: Rows) -> None:
        counts = rows.headers_count
        self._counts.append(counts.copy())
        total = int(counts.sum())
        if not total:
            return
        headers = empty_header_rows(total)
        kernels.scan_headers(source, rows.headers_position, counts, headers)
        self._names.append(kernels, source, headers.name_position, headers.name_length)
        self._values.append(kernels, source, headers.value_position, headers.value_length)

    def take(self, count: int) -> pa.Array:
        counts = np.concatenate(self._counts)
        self._counts = []
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        validity, null_count = validity_of((counts > 0).view(np.uint8))
        names = _as_text(self._names.take(pa.binary()))
        values = self._values.take(pa.binary())
        pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE))
        return pa.Array.from_buffers(
            HEADERS_TYPE, count, [validity, pa.py_buffer(offsets)], null_count, 0, [pairs]
        )


def validity_of(valid: Bytes) -> tuple[pa.Buffer | None, int]:
    """Arrow's bitmap of what is there, and how much is not; no bitmap if all is there."""
    null_count = len(valid) - int(np.count_nonzero(valid))
    if not null_count:
        return None, 0
    return pa.py_buffer(np.packbits(valid, bitorder="little")), null_count


def _as_text(names: pa.Array) -> pa.Array:
    """Text of the bytes; what is not UTF-8 becomes replacement characters, as Java has it."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [name.as_py().decode(errors="replace") for name in names]
        return pa.array(texts, pa.string())


def _grown(array: Any, filled: int, size: int) -> Any:
    larger = np.empty(max(size, len(array) * _GROWTH), array.dtype)
    larger[:filled] = array[:filled]
    return larger


def _width(arrow_type: pa.DataType) -> type[np.generic]:
    return np.int32 if arrow_type.bit_width == 32 else np.int64
