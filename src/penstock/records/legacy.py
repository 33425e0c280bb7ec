"""Message sets of clients from before record batches (magic 0 and 1), to and from batches.

An old producer's messages are upgraded once, when they arrive, and the log holds nothing but
batches. An old consumer's fetch is downgraded on its way out.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from penstock.model.topic_config import TimestampType
from penstock.records.batch import build_batch, decode_records, parse_header
from penstock.records.compression import DECOMPRESSED_BYTES_MAX, Codec, decompress
from penstock.records.errors import CorruptBatch
from penstock.records.legacy_lz4 import with_right_checksum
from penstock.records.record import Record

Bytes = bytes | bytearray | memoryview

# Offset, size of what follows, CRC, magic, attributes.
_PREFIX = struct.Struct(">qiIbb")
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
# The size does not count itself nor the offset before it; the CRC begins after itself.
_OVERHEAD = 12
_CRC_END = 16
_CODEC_MASK = 0x07
_LOG_APPEND_TIME_BIT = 0x08
_NO_TIMESTAMP = -1
# Clients before record batches know no zstd.
_CODEC_LAST = Codec.LZ4


class _Message(NamedTuple):
    magic: int
    attributes: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    size: int


def upgrade(message_set: Bytes, size_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """One batch of all the messages, numbered from 0, compressed as the messages were."""
    records: list[Record] = []
    codec = Codec.NONE
    room = size_max
    for message in _messages(memoryview(message_set)):
        codec = _codec_of(message)
        if codec is Codec.NONE:
            records.append(_record(message, message.timestamp_ms))
            continue
        inner = _unpack(message, codec, room)
        room -= len(inner)
        records += _inner_records(message, inner)
    if not records:
        raise CorruptBatch("the message set is empty")
    return build_batch(records, codec=codec)


def downgrade(batches: Bytes, magic: int) -> bytes:
    """The records of all batches as uncompressed messages, without headers; markers are left out.

    Uncompressed, because a compressed message of magic 0 would need offsets that are contiguous.
    """
    assert magic in (0, 1)
    out = bytearray()
    view = memoryview(batches)
    while len(view):
        header = parse_header(view)
        if not header.is_control:
            is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
            attributes = _LOG_APPEND_TIME_BIT if is_append_time and magic == 1 else 0
            for record in decode_records(view[: header.size]):
                out += build_message(record, magic=magic, attributes=attributes)
        view = view[header.size :]
    return bytes(out)


def build_message(record: Record, *, magic: int, attributes: int = 0) -> bytes:
    body = bytearray()
    if magic == 1:
        body += _TIMESTAMP.pack(record.timestamp_ms)
    for data in (record.key, record.value):
        body += _LENGTH.pack(-1 if data is None else len(data))
        body += data or b""
    crc = zlib.crc32(body, zlib.crc32(bytes((magic, attributes))))
    size = _PREFIX.size - _OVERHEAD + len(body)
    return _PREFIX.pack(record.offset, size, crc, magic, attributes) + bytes(body)


def _record(message: _Message, timestamp_ms: int) -> Record:
    return Record(timestamp_ms=timestamp_ms, key=message.key, value=message.value)


def _codec_of(message: _Message) -> Codec:
    number = message.attributes & _CODEC_MASK
    if number > _CODEC_LAST:
        raise CorruptBatch(f"old messages do not have codec {number}")
    return Codec(number)


def _unpack(message: _Message, codec: Codec, size_max: int) -> bytes:
    if message.value is None:
        raise CorruptBatch("a compressed message has no value")
    if codec is Codec.LZ4 and message.magic == 0:
        return decompress(codec, with_right_checksum(message.value), size_max)
    return decompress(codec, message.value, size_max)


def _inner_records(wrapper: _Message, inner: bytes) -> Iterator[Record]:
    is_append_time = wrapper.magic == 1 and wrapper.attributes & _LOG_APPEND_TIME_BIT
    for message in _messages(memoryview(inner)):
        if message.attributes & _CODEC_MASK:
            raise CorruptBatch("a compressed message is inside a compressed message")
        if message.magic != wrapper.magic:
            raise CorruptBatch("a message set mixes magic 0 and 1")
        yield _record(message, wrapper.timestamp_ms if is_append_time else message.timestamp_ms)


def _messages(view: memoryview) -> Iterator[_Message]:
    while len(view):
        message = _parse(view)
        yield message
        view = view[message.size :]


def _parse(view: memoryview) -> _Message:
    if len(view) < _PREFIX.size:
        raise CorruptBatch(f"a message is cut off after {len(view)} bytes")
    _, length, crc, magic, attributes = _PREFIX.unpack_from(view)
    end = _OVERHEAD + length
    if magic not in (0, 1):
        raise CorruptBatch(f"the magic byte is {magic}, not 0 or 1")
    if length < _PREFIX.size - _OVERHEAD or end > len(view):
        raise CorruptBatch(f"a message of {length} bytes does not fit")
    if zlib.crc32(view[_CRC_END:end]) != crc:
        raise CorruptBatch("the checksum does not match")
    try:
        position, timestamp_ms = _PREFIX.size, _NO_TIMESTAMP
        if magic == 1:
            (timestamp_ms,) = _TIMESTAMP.unpack_from(view, position)
            position += _TIMESTAMP.size
        key, position = _read_nullable(view[:end], position)
        value, position = _read_nullable(view[:end], position)
    except struct.error:
        raise CorruptBatch("a message is too short for its fields") from None
    if position != end:
        raise CorruptBatch(f"{end - position} bytes follow the value of a message")
    return _Message(magic, attributes, timestamp_ms, key, value, end)


def _read_nullable(view: memoryview, position: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(view, position)
    position += _LENGTH.size
    if length < 0:
        return None, position
    if length > len(view) - position:
        raise CorruptBatch("a field runs past the end of its message")
    return bytes(view[position : position + length]), position + length
