"""Rows of several Arrow batches, gathered so that each partition's share fills record batches.

Spark sends Arrow batches of at most ten thousand rows, and a task writes to many partitions: were
each Arrow batch encoded by itself, a hundred partitions would get record batches of a hundred
rows. A slab holds enough rows for all partitions, and no more bytes than a named limit.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.writing.errors import InputError
from penstock.spark.writing.layout import InputLayout

SLAB_BYTES_MIN = 1 << 20
SLAB_BYTES_MAX = 16 << 20

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
# What a record takes beside its key, value and headers: lengths, deltas, attributes.
_RECORD_OVERHEAD_BYTES = 16

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slab:
    """Rows to write, column by column, in the order in which they came."""

    count: int
    value: pa.Array  # binary
    key: pa.Array | None  # binary
    headers: pa.Array | None  # HEADERS_TYPE
    topic: pa.Array | None  # string
    partition: pa.Array | None  # int32
    timestamps_ms: Numbers

    def sizes(self) -> Numbers:
        """About how many bytes each row takes in a record batch; headers are spread evenly."""
        sizes = _lengths(self.value) + _RECORD_OVERHEAD_BYTES
        if self.key is not None:
            sizes += _lengths(self.key)
        if self.headers is not None:
            sizes += self.headers.nbytes // self.count
        return sizes


class SlabTarget:
    """How many bytes make a slab: enough for a full record batch of each partition in use."""

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self.bytes = SLAB_BYTES_MIN

    def note_partitions(self, in_use: int) -> None:
        wanted = in_use * self._batch_bytes
        self.bytes = max(SLAB_BYTES_MIN, min(SLAB_BYTES_MAX, wanted))


def slabs(
    batches: Iterable[pa.RecordBatch],
    layout: InputLayout,
    target: SlabTarget,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> Iterator[Slab]:
    """The rows in slabs of at least the target's size, and the last one with what is left."""
    waiting: list[pa.RecordBatch] = []
    times: list[int] = []
    waiting_bytes = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        waiting.append(batch)
        times.append(now_ms())
        waiting_bytes += batch.nbytes
        if waiting_bytes >= target.bytes:
            yield _slab(waiting, times, layout)
            waiting, times, waiting_bytes = [], [], 0
    if waiting:
        yield _slab(waiting, times, layout)


def _slab(batches: list[pa.RecordBatch], times: list[int], layout: InputLayout) -> Slab:
    counts = [batch.num_rows for batch in batches]
    arrived_ms = np.repeat(np.array(times, np.int64), counts)
    return Slab(
        count=sum(counts),
        value=_column(batches, layout.value, pa.binary()),
        key=_optional(batches, layout.key, pa.binary()),
        headers=_headers(batches, layout.headers),
        topic=_optional(batches, layout.topic, pa.string()),
        partition=_optional(batches, layout.partition, pa.int32()),
        timestamps_ms=_timestamps_ms(batches, layout.timestamp, arrived_ms),
    )


def _column(batches: list[pa.RecordBatch], position: int, wanted: pa.DataType) -> pa.Array:
    """The column in one piece; strings become bytes without a copy, wide offsets are narrowed."""
    parts = [batch.column(position) for batch in batches]
    column = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    return column if column.type == wanted else column.cast(wanted)


def _optional(
    batches: list[pa.RecordBatch], position: int | None, wanted: pa.DataType
) -> pa.Array | None:
    return None if position is None else _column(batches, position, wanted)


def _headers(batches: list[pa.RecordBatch], position: int | None) -> pa.Array | None:
    if position is None:
        return None
    headers = _column(batches, position, HEADERS_TYPE)
    if headers.null_count == len(headers):
        return None
    each = headers.flatten()
    if each.null_count or pc.struct_field(each, "key").null_count:
        raise InputError("A row has a header without a key: every header needs one.")
    return headers


def _timestamps_ms(
    batches: list[pa.RecordBatch], position: int | None, arrived_ms: Numbers
) -> Numbers:
    """The rows' own timestamps where they have one, else when they came."""
    if position is None:
        return arrived_ms
    column = _column(batches, position, pa.timestamp("us", "UTC")).cast(pa.int64())
    given = np.floor_divide(column.fill_null(0).to_numpy(), 1000)
    own = np.asarray(column.is_valid())
    if (given[own] < 0).any():
        raise InputError("A row has a timestamp before 1970, which no record can carry.")
    return np.where(own, given, arrived_ms)


def _lengths(column: pa.Array) -> Numbers:
    """How long each binary is, from its offsets alone; what a null seems to hold counts too."""
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4)
    return np.diff(offsets).astype(np.int64)
