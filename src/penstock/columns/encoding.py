"""Rows of Arrow columns to record batches, ready for a producer."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

import cramjam
import numpy as np
import numpy.typing as npt

from penstock.columns.encoder_columns import EncoderColumns as EncoderColumns
from penstock.columns.tables import Integers, WrittenRows
from penstock.records.batch import HEADER_SIZE, LENGTH_OFFSET_OVERHEAD, MAGIC, BatchHeader
from penstock.records.compression import (
    DECOMPRESSED_BYTES_MAX,
    Codec,
    compress,
    compress_lz4,
)

# Length, attributes, the two deltas and the lengths of key and value take no more than this.
_RECORD_OVERHEAD_MAX = 5 + 1 + 10 + 5 + 5 + 5
_RECORDS_BYTES_MAX = 2**31 - 1 - HEADER_SIZE

_HEADER = struct.Struct(">qiibIhiqqqhii")
# Cramjam's own default for LZ4 is six times slower, for a few percent; Kafka's clients choose this.
_LZ4_LEVEL = 1


class RecordTooLarge(ValueError):
    """A record is larger than any batch can be."""


class EncodedBatch(NamedTuple):
    """A batch at offset 0, without a producer; its checksum is still to be made."""

    data: bytearray
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here


class Encoder:
    """Cuts rows into batches of at most `batch_bytes_max` bytes, counted before compression.

    A record that is larger than that gets a batch of its own.
    """

    def __init__(self, *, codec: Codec, level: int | None = None, batch_bytes_max: int) -> None:
        self._codec = codec
        self._level = level
        # What unpacks to more is taken for a bomb by its readers.
        self._record_bytes_max = (
            _RECORDS_BYTES_MAX if codec is Codec.NONE else DECOMPRESSED_BYTES_MAX
        )
        records_bytes_max = max(0, batch_bytes_max - HEADER_SIZE)
        self._records_bytes_max = min(records_bytes_max, self._record_bytes_max)

    def encode(
        self, columns: EncoderColumns, rows: npt.NDArray[np.integer]
    ) -> Iterator[EncodedBatch]:
        """The rows with these indices, in the order given, which is that of one partition."""
        chosen = np.require(rows, np.int64, ["C", "A"])
        assert not len(chosen) or (chosen.min() >= 0 and chosen.max() < columns.count)
        sizes = _sizes_max(columns.rows, chosen)
        remaining = int(sizes.sum())
        first = 0
        while first < len(chosen):
            # Room for one record of any size, or for a whole batch.
            capacity = max(int(sizes[first]), min(remaining, self._records_bytes_max))
            if capacity > self._record_bytes_max:
                raise RecordTooLarge(
                    f"A record of {capacity} bytes is larger than a record batch can be."
                )
            batch = self._encode_next(columns, chosen, first, capacity)
            remaining -= int(sizes[first : first + batch.count].sum())
            first += batch.count
            yield batch

    def _encode_next(
        self, columns: EncoderColumns, chosen: Integers, first: int, capacity: int
    ) -> EncodedBatch:
        data = bytearray(HEADER_SIZE + capacity)
        next_row, size, timestamp_max = columns.kernels.write(
            chosen,
            first,
            columns.rows,
            columns.key_data,
            columns.value_data,
            columns.headers_data,
            np.frombuffer(data, np.uint8, offset=HEADER_SIZE),
            self._records_bytes_max,
        )
        count = next_row - first
        if self._codec is Codec.NONE:
            del data[HEADER_SIZE + size :]
        else:
            packed = self._compressed(memoryview(data)[HEADER_SIZE : HEADER_SIZE + size])
            data = bytearray(HEADER_SIZE) + packed
        base_timestamp = int(columns.rows.timestamp_ms[chosen[first]])
        self._write_header(data, count, base_timestamp, timestamp_max)
        return EncodedBatch(data, count)

    def _compressed(self, records: memoryview) -> bytes:
        match self._codec:
            case Codec.LZ4:
                level = _LZ4_LEVEL if self._level is None else self._level
                return compress_lz4(records, level)
            case Codec.ZSTD if self._level is not None:
                return bytes(cramjam.zstd.compress(records, level=self._level))
            case Codec.GZIP if self._level is not None:
                return bytes(cramjam.gzip.compress(records, level=self._level))
        return compress(self._codec, records)

    def _write_header(
        self, data: bytearray, count: int, base_timestamp: int, max_timestamp: int
    ) -> None:
        header = BatchHeader(
            base_offset=0,
            batch_length=len(data) - LENGTH_OFFSET_OVERHEAD,
            leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=int(self._codec),
            last_offset_delta=count - 1,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=count,
        )
        _HEADER.pack_into(data, 0, *header)


def _sizes_max(rows: WrittenRows, chosen: Integers) -> Integers:
    """What each record takes at most, since its deltas are not known yet."""
    sizes = rows.headers_length[chosen] + _RECORD_OVERHEAD_MAX
    sizes += np.maximum(rows.key_length[chosen], 0)
    sizes += np.maximum(rows.value_length[chosen], 0)
    return sizes
