"""What kernels are given and what they fill: tables of equally long arrays, one per field.

The files of compiled kernels repeat the order of the fields: the cache of compiled code notices a
change there only, and a kernel that was compiled for another order must not be taken from it.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Integers: TypeAlias = npt.NDArray[np.int64]
Offsets: TypeAlias = npt.NDArray[np.int32]

# Stands for a timestamp that microseconds of 64 bits can't hold. No multiple of a thousand,
# so no timestamp of a record comes to it.
NO_TIMESTAMP = -(2**63)
# How far from the epoch a timestamp in milliseconds may be, to be held in microseconds.
TIMESTAMP_MS_MAX = (2**63 - 1) // 1000

# Length, attributes, two deltas, the lengths of key and value, the number of headers: one byte
# each at least.
RECORD_BYTES_MIN = 7


class Batches(NamedTuple):
    """Record batches whose decompressed records lie in one buffer."""

    begin: Integers
    end: Integers
    record_count: Integers
    base_offset: Integers
    last_offset_delta: Integers
    base_timestamp: Integers
    max_timestamp: Integers
    # As in the column: 0 is the producer's time, 1 the broker's, which all records then share.
    timestamp_type: Integers


class Rows(NamedTuple):
    """Where the parts of each record lie in the buffer; a length below zero stands for null."""

    key_position: Integers
    key_length: Integers
    value_position: Integers
    value_length: Integers
    # The bytes from the first header's name to the end of the record.
    headers_position: Integers
    headers_length: Integers
    headers_count: Integers
    offset: Integers
    timestamp: Integers
    timestamp_type: Integers

    def cut(self, begin: int, end: int) -> "Rows":
        return Rows(*(field[begin:end] for field in self))


class HeaderRows(NamedTuple):
    """Where name and value of each header lie in the buffer."""

    name_position: Integers
    name_length: Integers
    value_position: Integers
    value_length: Integers


def empty_rows(capacity: int) -> Rows:
    return Rows(*np.empty((len(Rows._fields), capacity), np.int64))


def empty_header_rows(capacity: int) -> HeaderRows:
    return HeaderRows(*np.empty((len(HeaderRows._fields), capacity), np.int64))


class WrittenRows(NamedTuple):
    """Where the parts of rows to write lie, each part in a buffer of its own."""

    key_position: Integers
    key_length: Integers
    value_position: Integers
    value_length: Integers
    # The headers of a row in the form that a record has, their number included.
    headers_position: Integers
    headers_length: Integers
    timestamp_ms: Integers


class Written(NamedTuple):
    """What one batch took: the rows up to `next_row`, in this many bytes."""

    next_row: int
    size: int
    timestamp_ms_max: int
