"""The kernels that write records and hash keys, in numpy and Arrow; see `numba_writing`."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.arrow_pieces import binaries_of, every_second
from penstock.columns.tables import Bytes, HeaderRows, Integers, Written, WrittenRows

_VARINT_BYTES_MAX = 10
# How many rows are looked at first for a batch, which is doubled until they fill it.
_WINDOW_ROWS = 256

_MURMUR_SEED = np.uint32(0x9747B28C)
_MURMUR_FACTOR = np.uint32(0x5BD1E995)
# Longer pieces are hashed one by one: they are few, and rounds over all rows would be many.
_MURMUR_WORDS_MAX = 64


def write(
    chosen: Integers,
    first: int,
    rows: WrittenRows,
    key_data: Bytes,
    value_data: Bytes,
    headers_data: Bytes,
    out: Bytes,
    limit: int,
) -> Written:
    """Writes records of the chosen rows from `first` on, as many as fit below the limit.

    The first record is written in any case: the caller has made room for it.
    """
    window, numbers, sizes = _fitting(chosen, first, rows, limit)
    body, timestamp_delta, offset_delta, key_length, value_length = numbers
    count = len(window)
    prefix = _numbers([body, np.zeros(count, np.int64), timestamp_delta, offset_delta, key_length])
    records = _joined(
        prefix,
        _taken(key_data, rows.key_position[window], key_length),
        _numbers([value_length]),
        _taken(value_data, rows.value_position[window], value_length),
        _taken(headers_data, rows.headers_position[window], rows.headers_length[window]),
    )
    size = int(sizes.sum())
    out[:size] = _data(records)
    return Written(first + count, size, int(rows.timestamp_ms[window].max()))


def _fitting(
    chosen: Integers, first: int, rows: WrittenRows, limit: int
) -> tuple[Integers, list[Integers], Integers]:
    """The rows of the next batch, the numbers that lead their records, and the records' sizes."""
    count = _WINDOW_ROWS
    while True:
        window = chosen[first : first + count]
        numbers = _leading_numbers(window, rows)
        sizes = numbers[0] + _varint_sizes(numbers[0])
        fitting = max(1, int(np.searchsorted(np.cumsum(sizes), limit, side="right")))
        if fitting < len(window) or first + count >= len(chosen):
            return window[:fitting], [number[:fitting] for number in numbers], sizes[:fitting]
        count *= 2


def _leading_numbers(window: Integers, rows: WrittenRows) -> list[Integers]:
    timestamp = rows.timestamp_ms[window]
    timestamp_delta = timestamp - timestamp[0]
    offset_delta = np.arange(len(window))
    key_length, value_length = rows.key_length[window], rows.value_length[window]
    body = 1 + rows.headers_length[window]
    body += np.maximum(key_length, 0) + np.maximum(value_length, 0)
    for number in (timestamp_delta, offset_delta, key_length, value_length):
        body += _varint_sizes(number)
    return [body, timestamp_delta, offset_delta, key_length, value_length]


def write_headers(
    firsts: Integers,
    counts: Integers,
    headers: HeaderRows,
    name_data: Bytes,
    value_data: Bytes,
    out: Bytes,
    positions: Integers,
    lengths: Integers,
) -> int:
    """Writes the headers of each row as records have them, their number first; returns the end."""
    before = np.cumsum(counts) - counts
    places = np.repeat(firsts - before, counts) + np.arange(int(counts.sum()))
    name_length, value_length = headers.name_length[places], headers.value_length[places]
    parts = _joined(
        _numbers([name_length]),
        _taken(name_data, headers.name_position[places], name_length),
        _numbers([value_length]),
        _taken(value_data, headers.value_position[places], value_length),
    )
    # The parts of one row follow each other: its headers are one piece of the joined bytes.
    bounds = _offsets(parts)
    begins, ends = bounds[before], bounds[before + counts]
    sections = _joined(_numbers([counts]), _taken(_data(parts), begins, ends - begins))
    bounds = _offsets(sections)
    positions[:] = bounds[:-1]
    lengths[:] = np.diff(bounds)
    out[: bounds[-1]] = _data(sections)
    return int(bounds[-1])


def murmur2(
    data: Bytes, positions: Integers, lengths: Integers, hashes: npt.NDArray[np.uint32]
) -> None:
    """The hash of each piece, as 32 bits without a sign; of null, that of nothing."""
    lengths = np.maximum(lengths, 0)
    words = lengths // 4
    value = _MURMUR_SEED ^ lengths.astype(np.uint32)
    for index in range(int(words[words <= _MURMUR_WORDS_MAX].max(initial=0))):
        chosen = np.flatnonzero((words > index) & (words <= _MURMUR_WORDS_MAX))
        value[chosen] = _mixed(value[chosen], _words(data, positions[chosen] + 4 * index))
    for row in np.flatnonzero(words > _MURMUR_WORDS_MAX).tolist():
        begin = int(positions[row])
        values = value[row : row + 1]
        for word in data[begin : begin + 4 * int(words[row])].copy().view("<u4"):
            values[:] = _mixed(values, np.full(1, word, np.uint32))
    _mix_tails(data, positions + 4 * words, lengths % 4, value)
    value = (value ^ value >> np.uint32(13)) * _MURMUR_FACTOR
    hashes[:] = value ^ value >> np.uint32(15)


def _words(data: Bytes, positions: Integers) -> npt.NDArray[np.uint32]:
    word = data[positions].astype(np.uint32)
    for index in range(1, 4):
        word |= data[positions + index].astype(np.uint32) << np.uint32(8 * index)
    return word


def _mixed(value: npt.NDArray[np.uint32], word: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    word = word * _MURMUR_FACTOR
    word = (word ^ word >> np.uint32(24)) * _MURMUR_FACTOR
    return value * _MURMUR_FACTOR ^ word


def _mix_tails(
    data: Bytes, positions: Integers, lengths: Integers, value: npt.NDArray[np.uint32]
) -> None:
    for index in range(3):
        chosen = np.flatnonzero(lengths > index)
        value[chosen] ^= data[positions[chosen] + index].astype(np.uint32) << np.uint32(8 * index)
    chosen = np.flatnonzero(lengths > 0)
    value[chosen] *= _MURMUR_FACTOR


def _zigzag(values: Integers) -> npt.NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def _varint_sizes(values: Integers) -> Integers:
    unsigned = _zigzag(values)
    sizes = np.ones(len(values), np.int64)
    for index in range(1, _VARINT_BYTES_MAX):
        is_longer = unsigned >= np.uint64(1) << np.uint64(7 * index)
        if not is_longer.any():
            break
        sizes += is_longer
    return sizes


def _numbers(columns: list[Integers]) -> pa.Array:
    """For each row the varints of all columns, one after the other."""
    sizes = [_varint_sizes(column) for column in columns]
    ends = np.concatenate(([0], np.cumsum(sum(sizes))))
    data = np.empty(int(ends[-1]), np.uint8)
    position = ends[:-1].copy()
    for column, size in zip(columns, sizes, strict=True):
        unsigned = _zigzag(column)
        for index in range(int(size.max(initial=0))):
            chosen = np.flatnonzero(size > index) if index else slice(None)
            byte = (unsigned[chosen] >> np.uint64(7 * index)).astype(np.uint8) & 0x7F
            byte |= np.where(size[chosen] > index + 1, np.uint8(0x80), np.uint8(0))
            data[position[chosen] + index] = byte
        position += size
    return binaries_of(data, ends)


def _taken(data: Bytes, positions: Integers, lengths: Integers) -> pa.Array:
    """The pieces of the data, null as nothing; Arrow copies them.

    Pieces that follow each other are, with what is between them, one array of binaries, of which
    every second one is wanted.
    """
    count = len(positions)
    if not count:
        return binaries_of(data, np.zeros(1, np.int64))
    bounds = np.empty(2 * count, np.int64)
    bounds[0::2] = positions
    bounds[1::2] = positions + np.maximum(lengths, 0)
    if np.any(bounds[1:] < bounds[:-1]):
        ends = bounds[1::2].tolist()
        pieces = zip(positions.tolist(), ends, strict=True)
        joined = b"".join(data[begin:end].tobytes() for begin, end in pieces)
        sizes = np.concatenate(([0], np.cumsum(np.maximum(lengths, 0))))
        return binaries_of(np.frombuffer(joined, np.uint8), sizes)
    return binaries_of(data, bounds).take(every_second(count))


def _joined(*columns: pa.Array) -> pa.Array:
    nothing = binaries_of(np.zeros(0, np.uint8), np.zeros(2, np.int64))[0]
    return pc.binary_join_element_wise(*columns, nothing)


def _offsets(binaries: pa.Array) -> Integers:
    return np.frombuffer(binaries.buffers()[1], np.int64, len(binaries) + 1)


def _data(binaries: pa.Array) -> Bytes:
    size = int(_offsets(binaries)[-1])
    data = binaries.buffers()[2]
    return np.frombuffer(data, np.uint8, size) if size else np.empty(0, np.uint8)
