"""Arrow arrays of bytes or text, sliced or not, as kernels take them: data, positions, lengths.

Arrow loads pandas, which takes a quarter of a second, as soon as it converts anything from or to
Python or numpy. So arrays are made of buffers and looked at as buffers, here and elsewhere.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.columns.tables import Bytes, Integers

_LARGE = (pa.large_binary(), pa.large_string())


class Pieces(NamedTuple):
    """A length of -1 stands for null."""

    data: Bytes
    position: Integers
    length: Integers


def no_pieces(count: int) -> Pieces:
    """Nothing but nulls."""
    lengths = np.full(count, -1, np.int64)
    return Pieces(np.zeros(0, np.uint8), np.zeros(count, np.int64), lengths)


def pieces(array: pa.Array) -> Pieces:
    """The array's bytes, not copied."""
    if pa.types.is_null(array.type):
        return no_pieces(len(array))
    _, offsets, data = array.buffers()
    bounds = bounds_of(array, offsets)
    lengths = np.diff(bounds)
    if array.null_count:
        lengths[nulls_of(array)] = -1
    whole = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return Pieces(whole, bounds[:-1], lengths)


def nulls_of(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Where the array is null; it must have a bitmap, as one with any null has."""
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    first, skipped = divmod(array.offset, 8)
    is_there = np.unpackbits(bits[first:], count=skipped + len(array), bitorder="little")
    return np.equal(is_there[skipped:], 0)


def binaries_of(data: Bytes, bounds: Integers) -> pa.Array:
    """The pieces of the data between each bound and the next."""
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)


def every_second(count: int) -> pa.Array:
    """The indices 0, 2, 4 and so on."""
    indices = np.arange(0, 2 * count, 2, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(indices)])


def bounds_of(array: pa.Array, offsets: pa.Buffer) -> Integers:
    """Where elements of binaries, texts or lists begin and, last, where they end."""
    if not len(array):
        return np.zeros(1, np.int64)
    width: npt.DTypeLike = np.int64 if array.type in _LARGE else np.int32
    bounds = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
    return bounds.astype(np.int64)
