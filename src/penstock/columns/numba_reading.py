"""The kernels that read records, compiled; `numpy_reading` has the same without a compiler.

What a kernel depends on stands or is repeated in this file, because the cache of compiled code
knows only whether the kernel's own file has changed. Signatures are fixed: one compilation each,
whether an array is writable or not. No kernel reads or writes outside its arrays, whatever the
bytes say.
"""

from typing import Any

import numpy as np

from penstock.columns.numba_compiling import (
    BYTES_READ,
    BYTES_WRITTEN,
    EDITION,
    INTEGERS_READ,
    copy_bytes,
    inlined,
    kernel,
    table_type,
    types,
)
from penstock.columns.tables import Batches, HeaderRows, Rows

assert EDITION == 1

# Kept equal to `tables`: a constant from there would be frozen into the cache unnoticed.
_NO_TIMESTAMP = -(2**63)
_TIMESTAMP_MS_MAX = (2**63 - 1) // 1000

_BATCHES = table_type(
    Batches,
    "begin end record_count base_offset last_offset_delta base_timestamp max_timestamp "
    "timestamp_type",
)
_ROWS = table_type(
    Rows,
    "key_position key_length value_position value_length headers_position headers_length "
    "headers_count offset timestamp timestamp_type",
)
_HEADER_ROWS = table_type(HeaderRows, "name_position name_length value_position value_length")


@inlined
def _read_varint(source: Any, position: Any, end: Any) -> Any:
    """The number and the position after it; a position of -1 says that there is none."""
    unsigned = np.uint64(0)
    shift = np.uint64(0)
    while position < end and shift < np.uint64(64):
        byte = np.uint64(source[position])
        position += 1
        unsigned |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            if shift == np.uint64(63) and byte > np.uint64(1):
                break
            return np.int64(unsigned >> np.uint64(1)) ^ -np.int64(unsigned & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@inlined
def _read_length(source: Any, position: Any, end: Any) -> Any:
    """A length that fits before the end, or one below zero; and the position after it."""
    length, position = _read_varint(source, position, end)
    if position >= 0 and length > end - position:
        return np.int64(0), np.int64(-1)
    return length, position


@inlined
def _skip_headers(source: Any, position: Any, end: Any, count: Any) -> Any:
    """Whether exactly this many headers lie up to the end."""
    for _ in range(count):
        length, position = _read_length(source, position, end)
        if position < 0 or length < 0:
            return False
        position += length
        length, position = _read_length(source, position, end)
        if position < 0:
            return False
        position += max(length, 0)
    return position == end


@inlined
def _microseconds(base: Any, delta: Any) -> Any:
    milliseconds = base + delta
    has_wrapped = (base ^ milliseconds) & (delta ^ milliseconds) < 0
    if has_wrapped or milliseconds > _TIMESTAMP_MS_MAX or milliseconds < -_TIMESTAMP_MS_MAX:
        return np.int64(_NO_TIMESTAMP)
    return milliseconds * 1000


@inlined
def _scan_record(source: Any, position: Any, limit: Any, rows: Any, row: Any) -> Any:
    """Fills the row and returns the record's deltas and end; an end of -1: it is malformed."""
    bad = (np.int64(0), np.int64(0), np.int64(-1))
    length, position = _read_length(source, position, limit)
    if position < 0 or length < 1:
        return bad
    end = position + length
    timestamp_delta, position = _read_varint(source, position + 1, end)
    if position < 0:
        return bad
    offset_delta, position = _read_varint(source, position, end)
    if position < 0:
        return bad
    length, position = _read_length(source, position, end)
    if position < 0:
        return bad
    rows.key_position[row] = position
    rows.key_length[row] = length
    length, position = _read_length(source, position + max(length, 0), end)
    if position < 0:
        return bad
    rows.value_position[row] = position
    rows.value_length[row] = length
    count, position = _read_varint(source, position + max(length, 0), end)
    if position < 0 or count < 0 or count > (end - position) // 2:
        return bad
    if not _skip_headers(source, position, end, count):
        return bad
    rows.headers_position[row] = position
    rows.headers_length[row] = end - position
    rows.headers_count[row] = count
    return timestamp_delta, offset_delta, end


@kernel(types.int64(BYTES_READ, _BATCHES, types.int64, types.int64, _ROWS))
def scan(source: Any, batches: Any, start: Any, stop: Any, rows: Any) -> Any:
    """Finds all records with offsets in [start, stop); returns how many, or -1 - (bad batch)."""
    row = 0
    for batch in range(len(batches.begin)):
        position = batches.begin[batch]
        end = batches.end[batch]
        for _ in range(batches.record_count[batch]):
            timestamp_delta, offset_delta, position = _scan_record(source, position, end, rows, row)
            if position < 0 or offset_delta < 0 or offset_delta > batches.last_offset_delta[batch]:
                return -1 - batch
            offset = batches.base_offset[batch] + offset_delta
            if offset < start or offset >= stop:
                continue
            rows.offset[row] = offset
            if batches.timestamp_type[batch] == 0:
                base, delta = batches.base_timestamp[batch], timestamp_delta
            else:
                base, delta = batches.max_timestamp[batch], np.int64(0)
            rows.timestamp[row] = _microseconds(base, delta)
            rows.timestamp_type[row] = batches.timestamp_type[batch]
            row += 1
        if position != end:
            return -1 - batch
    return row


@kernel(types.void(BYTES_READ, INTEGERS_READ, INTEGERS_READ, _HEADER_ROWS))
def scan_headers(source: Any, positions: Any, counts: Any, headers: Any) -> None:
    """Finds the headers of records that `scan` has found; the table has room for all of them."""
    header = 0
    end = len(source)
    for row in range(len(positions)):
        position = positions[row]
        for _ in range(counts[row]):
            length, position = _read_varint(source, position, end)
            headers.name_position[header] = position
            headers.name_length[header] = length
            length, position = _read_varint(source, position + length, end)
            headers.value_position[header] = position
            headers.value_length[header] = length
            position += max(length, 0)
            header += 1


@kernel(
    types.int64(
        BYTES_READ,
        INTEGERS_READ,
        INTEGERS_READ,
        BYTES_WRITTEN,
        types.int64,
        types.int32[::1],
        BYTES_WRITTEN,
    )
)
def gather(
    source: Any, positions: Any, lengths: Any, data: Any, filled: Any, ends: Any, valid: Any
) -> Any:
    """Copies pieces of the source one after the other; returns where the data ends then."""
    for row in range(len(positions)):
        length = lengths[row]
        valid[row] = length >= 0
        if length > 0:
            copy_bytes(data, filled, source, positions[row], length)
            filled += length
        ends[row] = filled
    return filled
