"""The kernels that write records and hash keys, compiled; `numpy_writing` has them without.

As in `numba_reading`, what a kernel depends on stands or is repeated in this file.
"""

from typing import Any

import numpy as np

from penstock.columns.numba_compiling import (
    BYTES_READ,
    BYTES_WRITTEN,
    EDITION,
    INTEGERS_READ,
    INTEGERS_WRITTEN,
    copy_bytes,
    inlined,
    kernel,
    table_type,
    types,
)
from penstock.columns.tables import HeaderRows, WrittenRows

assert EDITION == 1

_MURMUR_SEED = np.uint32(0x9747B28C)
_MURMUR_FACTOR = np.uint32(0x5BD1E995)

_ROWS = table_type(
    WrittenRows,
    "key_position key_length value_position value_length headers_position headers_length "
    "timestamp_ms",
)
_HEADER_ROWS = table_type(HeaderRows, "name_position name_length value_position value_length")


@inlined
def _zigzag(value: Any) -> Any:
    return np.uint64((value << np.int64(1)) ^ (value >> np.int64(63)))


@inlined
def _varint_size(value: Any) -> Any:
    unsigned = _zigzag(value)
    size = np.int64(1)
    while unsigned > np.uint64(0x7F):
        unsigned >>= np.uint64(7)
        size += 1
    return size


@inlined
def _write_varint(out: Any, position: Any, value: Any) -> Any:
    unsigned = _zigzag(value)
    while unsigned > np.uint64(0x7F):
        out[position] = np.uint8(unsigned & np.uint64(0x7F) | np.uint64(0x80))
        unsigned >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(unsigned)
    return position + 1


@inlined
def _write_piece(out: Any, position: Any, data: Any, begin: Any, length: Any) -> Any:
    position = _write_varint(out, position, length)
    if length <= 0:
        return position
    copy_bytes(out, position, data, begin, length)
    return position + length


@kernel(
    types.UniTuple(types.int64, 3)(
        INTEGERS_READ,
        types.int64,
        _ROWS,
        BYTES_READ,
        BYTES_READ,
        BYTES_READ,
        BYTES_WRITTEN,
        types.int64,
    )
)
def write(
    chosen: Any,
    first: Any,
    rows: Any,
    key_data: Any,
    value_data: Any,
    headers_data: Any,
    out: Any,
    limit: Any,
) -> Any:
    """Writes records of the chosen rows from `first` on, as many as fit below the limit.

    The first record is written in any case: the caller has made room for it. Returns the fields of
    `Written`.
    """
    base_timestamp = timestamp_max = rows.timestamp_ms[chosen[first]]
    position = np.int64(0)
    index = first
    while index < len(chosen):
        row = chosen[index]
        timestamp = rows.timestamp_ms[row]
        offset_delta, timestamp_delta = index - first, timestamp - base_timestamp
        key_length, value_length = rows.key_length[row], rows.value_length[row]
        headers_length = rows.headers_length[row]
        body = 1 + _varint_size(timestamp_delta) + _varint_size(offset_delta)
        body += _varint_size(key_length) + max(key_length, 0)
        body += _varint_size(value_length) + max(value_length, 0) + headers_length
        if index > first and position + _varint_size(body) + body > limit:
            break
        position = _write_varint(out, position, body)
        out[position] = 0
        position = _write_varint(out, position + 1, timestamp_delta)
        position = _write_varint(out, position, offset_delta)
        position = _write_piece(out, position, key_data, rows.key_position[row], key_length)
        position = _write_piece(out, position, value_data, rows.value_position[row], value_length)
        copy_bytes(out, position, headers_data, rows.headers_position[row], headers_length)
        position += headers_length
        timestamp_max = max(timestamp_max, timestamp)
        index += 1
    return index, position, timestamp_max


@kernel(
    types.int64(
        INTEGERS_READ,
        INTEGERS_READ,
        _HEADER_ROWS,
        BYTES_READ,
        BYTES_READ,
        BYTES_WRITTEN,
        INTEGERS_WRITTEN,
        INTEGERS_WRITTEN,
    )
)
def write_headers(
    firsts: Any,
    counts: Any,
    headers: Any,
    name_data: Any,
    value_data: Any,
    out: Any,
    positions: Any,
    lengths: Any,
) -> Any:
    """Writes the headers of each row as records have them, their number first; returns the end."""
    filled = np.int64(0)
    for row in range(len(counts)):
        positions[row] = filled
        filled = _write_varint(out, filled, counts[row])
        for header in range(firsts[row], firsts[row] + counts[row]):
            filled = _write_piece(
                out, filled, name_data, headers.name_position[header], headers.name_length[header]
            )
            filled = _write_piece(
                out,
                filled,
                value_data,
                headers.value_position[header],
                headers.value_length[header],
            )
        lengths[row] = filled - positions[row]
    return filled


@inlined
def _word(data: Any, position: Any) -> Any:
    return (
        np.uint32(data[position])
        | np.uint32(data[position + 1]) << np.uint32(8)
        | np.uint32(data[position + 2]) << np.uint32(16)
        | np.uint32(data[position + 3]) << np.uint32(24)
    )


@inlined
def _murmur2(data: Any, position: Any, length: Any) -> Any:
    value = np.uint32(_MURMUR_SEED ^ np.uint32(length))
    end = position + length
    while end - position >= 4:
        word = np.uint32(_word(data, position) * _MURMUR_FACTOR)
        word = np.uint32((word ^ word >> np.uint32(24)) * _MURMUR_FACTOR)
        value = np.uint32(np.uint32(value * _MURMUR_FACTOR) ^ word)
        position += 4
    if position < end:
        for index in range(end - position):
            value ^= np.uint32(data[position + index]) << np.uint32(8 * index)
        value = np.uint32(value * _MURMUR_FACTOR)
    value = np.uint32((value ^ value >> np.uint32(13)) * _MURMUR_FACTOR)
    return value ^ value >> np.uint32(15)


@kernel(types.void(BYTES_READ, INTEGERS_READ, INTEGERS_READ, types.uint32[::1]))
def murmur2(data: Any, positions: Any, lengths: Any, hashes: Any) -> None:
    """The hash of each piece, as 32 bits without a sign; of null, that of nothing."""
    for row in range(len(positions)):
        hashes[row] = _murmur2(data, positions[row], max(lengths[row], 0))
