"""The kernels that read records, column by column in numpy; `numba_reading` has them compiled.

They serve where numba is missing or can't keep what it compiled, and small inputs, for which
loading numba takes longer than the work. Results are the same in every case.
"""

import numpy as np
import numpy.typing as npt

from penstock.columns.arrow_pieces import binaries_of, every_second
from penstock.columns.tables import (
    NO_TIMESTAMP,
    TIMESTAMP_MS_MAX,
    Batches,
    Bytes,
    HeaderRows,
    Integers,
    Offsets,
    Rows,
)
from penstock.records.errors import CorruptBatch
from penstock.records.varint import read_varint

Flags = npt.NDArray[np.bool_]

_VARINT_BYTES_MAX = 10
# This many headers are read of all records at once, one after the other; a record that has more is
# read alone from there on, so that one full of headers does not take a round for each.
_HEADER_ROUNDS = 16


def scan(source: Bytes, batches: Batches, start: int, stop: int, rows: Rows) -> int:
    """Finds all records with offsets in [start, stop); returns how many, or -1 - (bad batch)."""
    begins, found, broken = _find_records(source, batches)
    batch = np.repeat(np.arange(len(found)), found)
    limits = batches.end[batch]
    table, timestamp_delta, offset_delta, is_good = _read_fields(source, begins, limits)
    is_good &= (offset_delta >= 0) & (offset_delta <= batches.last_offset_delta[batch])
    if not is_good.all():
        broken = min(broken, int(batch[np.argmin(is_good)]))
    if broken < len(batches.begin):
        return -1 - broken
    timestamp_type = batches.timestamp_type[batch]
    is_own_time = timestamp_type == 0
    base = np.where(is_own_time, batches.base_timestamp[batch], batches.max_timestamp[batch])
    offset = batches.base_offset[batch] + offset_delta
    timestamp = _microseconds(base, np.where(is_own_time, timestamp_delta, 0))
    is_wanted = (offset >= start) & (offset < stop)
    count = int(np.count_nonzero(is_wanted))
    for target, field in zip(rows, (*table, offset, timestamp, timestamp_type), strict=True):
        target[:count] = field if count == len(field) else field[is_wanted]
    return count


def scan_headers(source: Bytes, positions: Integers, counts: Integers, headers: HeaderRows) -> None:
    """Finds the headers of records that `scan` has found; the table has room for all of them."""
    firsts = np.cumsum(counts) - counts
    position = positions.copy()
    for index in range(min(_HEADER_ROUNDS, int(counts.max(initial=0)))):
        chosen = np.flatnonzero(counts > index)
        targets = firsts[chosen] + index
        ends = np.full(len(chosen), len(source))
        length, after = _read_varints(source, position[chosen], ends)
        headers.name_position[targets] = after
        headers.name_length[targets] = length
        length, after = _read_varints(source, after + length, ends)
        headers.value_position[targets] = after
        headers.value_length[targets] = length
        position[chosen] = after + np.maximum(length, 0)
    for row in np.flatnonzero(counts > _HEADER_ROUNDS).tolist():
        rest = int(counts[row]) - _HEADER_ROUNDS
        found = _read_headers(source, int(position[row]), len(source), rest)
        first = int(firsts[row]) + _HEADER_ROUNDS
        for target, field in zip(headers, np.array(found[:-1]).reshape(-1, 4).T, strict=True):
            target[first : first + rest] = field


def gather(
    source: Bytes,
    positions: Integers,
    lengths: Integers,
    data: Bytes,
    filled: int,
    ends: Offsets,
    valid: Bytes,
) -> int:
    """Copies pieces of the source one after the other; returns where the data ends then.

    Arrow does the copying: the pieces and what is between them are taken for one array of
    binaries, of which every second one is wanted.
    """
    count = len(positions)
    if not count:
        return filled
    sizes = np.maximum(lengths, 0)
    np.greater_equal(lengths, 0, out=valid.view(np.bool_))
    np.cumsum(sizes, out=sizes)
    ends[:] = sizes + filled
    total = int(sizes[-1])
    if total:
        bounds = np.empty(2 * count, np.int64)
        bounds[0::2] = positions
        bounds[1::2] = positions + np.maximum(lengths, 0)
        taken = binaries_of(source, bounds).take(every_second(count))
        data[filled : filled + total] = np.frombuffer(taken.buffers()[2], np.uint8, total)
    return filled + total


def _find_records(source: Bytes, batches: Batches) -> tuple[Integers, Integers, int]:
    """Where records begin, how many each batch has, and the first batch in which they don't fit.

    The one thing that must go step by step: each record's length says where the next begins.
    """
    begins: list[int] = []
    found = np.zeros(len(batches.begin), np.int64)
    for batch, (begin, end, count) in enumerate(
        zip(
            batches.begin.tolist(), batches.end.tolist(), batches.record_count.tolist(), strict=True
        )
    ):
        known = len(begins)
        is_whole = _walk(source[begin:end].tobytes(), begin, count, begins)
        found[batch] = len(begins) - known
        if not is_whole:
            return np.array(begins, np.int64), found, batch
    return np.array(begins, np.int64), found, len(found)


def _walk(payload: bytes, begin: int, count: int, begins: list[int]) -> bool:
    """Appends where each record begins; says whether this many records fill the payload exactly."""
    position = 0
    append = begins.append
    try:
        for _ in range(count):
            append(begin + position)
            byte = payload[position]
            # Nearly all lengths take one byte or two, so these are read in place.
            if byte < 0x80:
                unsigned, position = byte, position + 1
            elif (second := payload[position + 1]) < 0x80:
                unsigned, position = byte & 0x7F | second << 7, position + 2
            else:
                length, position = read_varint(payload, position)
                unsigned = length << 1
                if length < 0:
                    break
            if unsigned & 1:
                break
            position += unsigned >> 1
    except (IndexError, CorruptBatch):
        begins.pop()
        return False
    return position == len(payload)


def _read_fields(
    source: Bytes, begins: Integers, limits: Integers
) -> tuple[tuple[Integers, ...], Integers, Integers, Flags]:
    """The fields of `Rows` up to the headers, both deltas, and which records are well formed."""
    length, position = _read_lengths(source, begins, limits)
    is_good = (position >= 0) & (length >= 1)
    ends = np.where(is_good, position + length, -1)
    timestamp_delta, position = _read_varints(source, position + 1, ends)
    offset_delta, position = _read_varints(source, position, ends)
    key_length, key_position = _read_lengths(source, position, ends)
    position = _after(key_position, key_length)
    value_length, value_position = _read_lengths(source, position, ends)
    position = _after(value_position, value_length)
    count, position = _read_varints(source, position, ends)
    is_good &= (position >= 0) & (count >= 0) & (count <= (ends - position) // 2)
    is_good &= _have_headers(source, position, ends, np.where(is_good, count, 0))
    headers = (position, ends - position, count)
    table = (key_position, key_length, value_position, value_length, *headers)
    return table, timestamp_delta, offset_delta, is_good


def _have_headers(source: Bytes, positions: Integers, ends: Integers, counts: Integers) -> Flags:
    """Which records have exactly this many headers up to their ends."""
    position = positions.copy()
    for index in range(min(_HEADER_ROUNDS, int(counts.max(initial=0)))):
        chosen = np.flatnonzero((counts > index) & (position >= 0))
        limits = ends[chosen]
        length, after = _read_lengths(source, position[chosen], limits)
        after[length < 0] = -1
        length, after = _read_lengths(source, _after(after, length), limits)
        position[chosen] = _after(after, length)
    for row in np.flatnonzero((counts > _HEADER_ROUNDS) & (position >= 0)).tolist():
        rest = int(counts[row]) - _HEADER_ROUNDS
        position[row] = _read_headers(source, int(position[row]), int(ends[row]), rest)[-1]
    return np.equal(position, ends)


def _read_headers(source: Bytes, begin: int, end: int, count: int) -> list[int]:
    """The four fields of each header, and at last the position after all, or -1."""
    data = source[begin:end].tobytes()
    position = 0
    found: list[int] = []
    try:
        for _ in range(count):
            for is_name in (True, False):
                length, position = read_varint(data, position)
                if length > len(data) - position or (is_name and length < 0):
                    return [-1]
                found += (begin + position, length)
                position += max(0, length)
    except CorruptBatch:
        return [-1]
    found.append(begin + position)
    return found


def _after(positions: Integers, lengths: Integers) -> Integers:
    return np.where(positions >= 0, positions + np.maximum(lengths, 0), -1)


def _read_lengths(source: Bytes, positions: Integers, ends: Integers) -> tuple[Integers, Integers]:
    """Lengths that fit before the ends, or below zero; and the positions after them, or -1."""
    length, after = _read_varints(source, positions, ends)
    after[length > ends - after] = -1
    return length, after


def _read_varints(source: Bytes, positions: Integers, ends: Integers) -> tuple[Integers, Integers]:
    """The numbers and the positions after them; a position of -1 says that there is none."""
    is_inside = (positions >= 0) & (positions < ends)
    after = np.where(is_inside, positions + 1, -1)
    byte = source[np.where(is_inside, positions, 0)] if len(source) else np.zeros(0, np.uint8)
    unsigned = (byte & 0x7F).astype(np.uint64)
    chosen = np.flatnonzero(is_inside & (byte >= 0x80))
    for index in range(1, _VARINT_BYTES_MAX):
        if not len(chosen):
            break
        chosen = _read_next_byte(source, ends, index, chosen, unsigned, after)
    after[chosen] = -1
    values = (unsigned >> np.uint64(1)).astype(np.int64) ^ -(unsigned & np.uint64(1)).astype(
        np.int64
    )
    return values, after


def _read_next_byte(
    source: Bytes,
    ends: Integers,
    index: int,
    chosen: Integers,
    unsigned: npt.NDArray[np.uint64],
    after: Integers,
) -> Integers:
    """Takes one more byte of the chosen numbers; returns those that go on after it."""
    position = after[chosen]
    is_inside = position < ends[chosen]
    after[chosen[~is_inside]] = -1
    chosen, position = chosen[is_inside], position[is_inside]
    byte = source[position]
    unsigned[chosen] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * index)
    after[chosen] = position + 1
    if index == _VARINT_BYTES_MAX - 1:
        # Only one bit of the last byte is left of 64.
        after[chosen[byte > 1]] = -1
        return chosen[:0]
    return chosen[byte >= 0x80]


def _microseconds(base: Integers, delta: Integers) -> Integers:
    milliseconds = base + delta
    has_wrapped = (base ^ milliseconds) & (delta ^ milliseconds) < 0
    is_outside = (milliseconds > TIMESTAMP_MS_MAX) | (milliseconds < -TIMESTAMP_MS_MAX)
    return np.where(has_wrapped | is_outside, NO_TIMESTAMP, milliseconds * 1000)
