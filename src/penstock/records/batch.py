"""Kafka's record batch, version 2: its header, its checksum, and its records.

The broker moves batches, never records: it parses the header, checks the CRC and patches the two
fields that the CRC leaves out. Records are decoded only where somebody must look at keys.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.model.topic_config import TimestampType
from penstock.records.checksum import crc32c
from penstock.records.compression import DECOMPRESSED_BYTES_MAX, Codec, compress, decompress
from penstock.records.errors import CorruptBatch as CorruptBatch
from penstock.records.raw_records import (
    RawRecord,
    pick_records,
    read_records,
    scan_records,
)
from penstock.records.record import Record
from penstock.records.rows import Row, encode_rows

HEADER_SIZE = 61
LENGTH_OFFSET_OVERHEAD = 12
MAGIC = 2

# Where the fields lie that are patched or looked at alone.
TERM_POSITION = 12
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
MAX_TIMESTAMP_POSITION = 35

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
# The base timestamp holds the time from which tombstones of this batch may go (KIP-534).
DELETE_HORIZON_BIT = 0x40

SEQUENCE_MODULUS = 2**31
TIMESTAMP_MAX = 2**63 - 1

# Raft's own entries end one offset before they begin, so that all arithmetic on offsets holds.
OWN_OFFSET_DELTA = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_BODY_LENGTH_MIN = HEADER_SIZE - LENGTH_OFFSET_OVERHEAD
_CODECS = tuple(Codec)

assert _HEADER.size == HEADER_SIZE


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return LENGTH_OFFSET_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        number = self.attributes & CODEC_MASK
        if number >= len(_CODECS):
            raise CorruptBatch(f"there is no codec {number}")
        return _CODECS[number]

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def is_own(self) -> bool:
        """Raft's own entry: it is between offsets and holds none (see own_entries.py)."""
        return self.last_offset_delta == OWN_OFFSET_DELTA

    @property
    def is_gap(self) -> bool:
        """Offsets whose records compaction removed; what has a producer still says something."""
        return self.record_count == 0 and self.last_offset_delta >= 0 and self.producer_id < 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & LOG_APPEND_TIME_BIT:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the tombstones of this batch may go; None until compaction has first seen them."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; numbers wrap to 0 after 2^31 - 1."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS


def peek_header(buffer: bytes | bytearray | memoryview) -> BatchHeader:
    """The header that the bytes would be, checked for nothing; they must be enough."""
    return BatchHeader._make(_HEADER.unpack_from(buffer))


def parse_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header at `position`; raises CorruptBatch if no batch can begin there."""
    try:
        # As `_make` does it, without counting the fields again: the struct has as many.
        header = tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))
    except struct.error:
        raise CorruptBatch(
            f"a batch header takes {HEADER_SIZE} bytes, but {max(0, len(buffer) - position)} are"
            " left"
        ) from None
    if header[3] != MAGIC:
        raise CorruptBatch(f"the magic byte is {header[3]}, not {MAGIC}")
    if header[1] < _BODY_LENGTH_MIN or header[6] < 0 or header[12] < 0 or header[0] < 0:
        _check_own(header)
    return header


def _check_own(header: BatchHeader) -> None:
    """A header that can be no producer's: either it is of Raft's own entry, or of nothing."""
    is_possible = header.batch_length >= _BODY_LENGTH_MIN and header.base_offset >= 0
    if not is_possible or not header.is_own or not header.is_control or header.record_count != 0:
        raise CorruptBatch(
            f"impossible header: offset {header[0]}, length {header[1]}, last offset delta "
            f"{header[6]}, {header[12]} records"
        )


def crc_matches(buffer: bytes | bytearray | memoryview, position: int, header: BatchHeader) -> bool:
    """Whether the checksum of the whole batch is right; false if the buffer ends before it."""
    end = position + LENGTH_OFFSET_OVERHEAD + header[1]
    if end > len(buffer):
        return False
    view = memoryview(buffer)[position + ATTRIBUTES_POSITION : end]
    return crc32c(view) == header[4]


def stored_crc(batch: bytes | bytearray | memoryview) -> int:
    """The checksum that the batch carries, of all from its attributes on; whether it is right is
    for others to say."""
    crc: int = _CRC.unpack_from(batch, CRC_POSITION)[0]
    return crc


def stamp(
    buffer: bytearray | memoryview,
    position: int,
    *,
    base_offset: int,
    term: int,
    append_time_ms: int | None = None,
) -> None:
    """Writes offset and term in place; with a time, the batch then carries it for all its records.

    Offset and term lie outside the CRC, so they cost no checksum; the append time does.
    """
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + TERM_POSITION, term)
    if append_time_ms is None:
        return
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, position + ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes | LOG_APPEND_TIME_BIT)
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, append_time_ms)
    (length,) = _INT32.unpack_from(buffer, position + 8)
    end = position + LENGTH_OFFSET_OVERHEAD + length
    crc = crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end])
    _CRC.pack_into(buffer, position + CRC_POSITION, crc)


def check_batch(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header of a batch that a producer sent, after everything about it has been checked."""
    header = parse_header(buffer, position)
    if position + LENGTH_OFFSET_OVERHEAD + header[1] > len(buffer):
        raise CorruptBatch(
            f"the batch takes {header.size} bytes, {len(buffer) - position} are left"
        )
    if header[12] != header[6] + 1 or header[12] == 0:
        raise CorruptBatch(
            f"{header.record_count} records don't fit a last offset delta of "
            f"{header.last_offset_delta}"
        )
    if header[5] & CODEC_MASK >= len(_CODECS):
        raise CorruptBatch(f"there is no codec {header.attributes & CODEC_MASK}")
    if not crc_matches(buffer, position, header):
        raise CorruptBatch("the checksum does not match")
    return header


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    term: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    is_control: bool = False,
) -> bytes:
    """A batch of the records, numbered from `base_offset` on in their order."""
    rows = [Row(each.key, each.value, each.headers, each.timestamp_ms) for each in records]
    return build_row_batch(
        rows,
        base_offset=base_offset,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        term=term,
        timestamp_type=timestamp_type,
        is_control=is_control,
    )


def build_row_batch(
    rows: Sequence[Row],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    term: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    is_control: bool = False,
) -> bytes:
    """As `build_batch`, for those who have rows."""
    assert rows
    base_timestamp = rows[0].timestamp_ms
    payload = encode_rows(rows, base_timestamp)
    is_append_time = timestamp_type is TimestampType.LOG_APPEND_TIME
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=term,
        magic=MAGIC,
        crc=0,
        attributes=codec
        | (LOG_APPEND_TIME_BIT if is_append_time else 0)
        | (CONTROL_BIT if is_control else 0),
        last_offset_delta=len(rows) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(row.timestamp_ms for row in rows),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(rows),
    )
    return seal(header, compress(codec, payload))


def seal(header: BatchHeader, payload: bytes) -> bytes:
    """The batch of this header and (compressed) payload, with the length and CRC made to fit."""
    length = _BODY_LENGTH_MIN + len(payload)
    crc = crc32c(payload, crc32c(_AFTER_CRC.pack(*header[5:])))
    return _HEADER.pack(*header._replace(batch_length=length, crc=crc)) + payload


def batch_payload(
    batch: bytes | bytearray | memoryview,
    header: BatchHeader,
    size_max: int = DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """The records of a batch as bytes, decompressed."""
    return decompress(header.codec, memoryview(batch)[HEADER_SIZE : header.size], size_max)


def scan_batch(payload: bytes, header: BatchHeader) -> Iterator[RawRecord]:
    """The records in the payload; raises CorruptBatch at one that can't be of this batch.

    A producer can send any numbers: an offset beside the batch would stand for somebody else's
    record, and a time of more than 64 bits fits into no answer.
    """
    base_timestamp, last_offset_delta = header.base_timestamp, header.last_offset_delta
    for raw in scan_records(payload, header.record_count):
        timestamp_ms = base_timestamp + raw.timestamp_delta
        if not 0 <= raw.offset_delta <= last_offset_delta or abs(timestamp_ms) > TIMESTAMP_MAX:
            raise _not_of_batch(raw.offset_delta, last_offset_delta)
        yield raw


def _not_of_batch(delta: int, last_delta: int) -> CorruptBatch:
    if not 0 <= delta <= last_delta:
        return CorruptBatch(f"a record is {delta} offsets after its batch's first")
    return CorruptBatch("the timestamp of a record is longer than 64 bits")


def keep_records(
    batch: bytes | bytearray | memoryview,
    header: BatchHeader,
    wanted: Sequence[tuple[int, int]],
) -> bytes:
    """The batch with only those of its records whose offsets are wanted, given as first and last
    ones in order. As after compaction: they keep their offsets, and the batch spans as many as
    before. Raises CorruptBatch."""
    payload = batch_payload(batch, header)
    base, last_delta = header.base_offset, header.last_offset_delta
    deltas = [
        delta
        for first, last in wanted
        for delta in range(max(0, first - base), min(last - base, last_delta) + 1)
    ]
    pieces = None
    if header.record_count == last_delta + 1:
        pieces = pick_records(payload, header.record_count, deltas)
    if pieces is None:
        chosen = frozenset(deltas)
        pieces = [
            payload[raw.start : raw.end]
            for raw in scan_batch(payload, header)
            if raw.offset_delta in chosen
        ]
    if not pieces:
        # Nothing is compressed then either.
        attributes = header.attributes & ~CODEC_MASK
        return seal(header._replace(attributes=attributes, record_count=0), b"")
    return seal(header._replace(record_count=len(pieces)), compress(header.codec, b"".join(pieces)))


def decode_records(
    batch: bytes | bytearray | memoryview, size_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """The records of the batch that begins the buffer; raises CorruptBatch where they are bad."""
    header = parse_header(batch)
    if header.size > len(batch):
        raise CorruptBatch(f"the batch takes {header.size} bytes, {len(batch)} are left")
    payload = batch_payload(batch, header, size_max)
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    base_offset, last_delta = header.base_offset, header.last_offset_delta
    base_timestamp = header.base_timestamp
    for later_ms, delta, key, value, headers in read_records(payload, header.record_count):
        timestamp_ms = base_timestamp + later_ms
        if not 0 <= delta <= last_delta or not -TIMESTAMP_MAX <= timestamp_ms <= TIMESTAMP_MAX:
            raise _not_of_batch(delta, last_delta)
        yield Record(
            offset=base_offset + delta,
            timestamp_ms=header.max_timestamp if is_append_time else timestamp_ms,
            key=key,
            value=value,
            headers=headers,
        )
