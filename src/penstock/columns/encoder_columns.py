"""The columns of rows to write, prepared once for all the partitions that they go to."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.arrow_pieces import bounds_of, no_pieces, nulls_of, pieces
from penstock.columns.kernels import KernelChoice, WritingKernels, writing_choice
from penstock.columns.tables import Bytes, HeaderRows, Integers, WrittenRows

# The most that the lengths of a header's name and value take, and the number of headers.
_LENGTHS_BYTES_MAX = 10
_COUNT_BYTES_MAX = 5


class _Headers(NamedTuple):
    data: Bytes
    position: Integers
    length: Integers


class EncoderColumns:
    """Keys and values as bytes or text, headers as lists of (key, value), timestamps in ms.

    Arrays may be slices. Without keys all keys are null; without headers no row has any, and
    neither has a row whose list is null. A header without a name raises ValueError.
    """

    def __init__(
        self,
        *,
        key: pa.Array | None,
        value: pa.Array,
        headers: pa.Array | None,
        timestamps_ms: Integers,
        kernels: KernelChoice[WritingKernels] | None = None,
    ) -> None:
        self.count = count = len(value)
        assert len(timestamps_ms) == count
        self.kernels = (kernels or writing_choice()).choose(count)
        keys = no_pieces(count) if key is None else pieces(key)
        values = pieces(value)
        written = _written_headers(self.kernels, headers, count)
        self.key_data = keys.data
        self.value_data = values.data
        self.headers_data = written.data
        self.rows = WrittenRows(
            keys.position,
            keys.length,
            values.position,
            values.length,
            written.position,
            written.length,
            np.require(timestamps_ms, np.int64, ["C", "A", "W"]),
        )


def _written_headers(kernels: WritingKernels, headers: pa.Array | None, count: int) -> _Headers:
    if headers is None or headers.null_count == count:
        # One zero serves all rows as their number of headers.
        none = np.zeros(count, np.int64)
        return _Headers(np.zeros(1, np.uint8), none, np.ones(count, np.int64))
    bounds = bounds_of(headers, headers.buffers()[1])
    firsts, counts = bounds[:-1].copy(), np.diff(bounds)
    if headers.null_count:
        counts[nulls_of(headers)] = 0
    names, values = (pieces(field) for field in headers.values.flatten())
    _check_names(names.length, firsts, counts)
    table = HeaderRows(names.position, names.length, values.position, values.length)
    total = int(counts.sum())
    size = len(names.data) + len(values.data) + total * _LENGTHS_BYTES_MAX
    out = np.empty(size + count * _COUNT_BYTES_MAX, np.uint8)
    positions, lengths = np.empty(count, np.int64), np.empty(count, np.int64)
    kernels.write_headers(firsts, counts, table, names.data, values.data, out, positions, lengths)
    return _Headers(out, positions, lengths)


def _check_names(lengths: Integers, firsts: Integers, counts: Integers) -> None:
    if not np.any(lengths < 0):
        return
    before = np.cumsum(counts) - counts
    places = np.repeat(firsts - before, counts) + np.arange(int(counts.sum()))
    if np.any(lengths[places] < 0):
        raise ValueError("The key of a header is null; only its value may be.")
