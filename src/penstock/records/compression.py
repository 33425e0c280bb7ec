"""The codecs that a batch may be compressed with, bounded against decompression bombs.

cramjam is imported where it is used: most processes never look into a compressed batch.
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from penstock.records.errors import CorruptBatch

# What one batch may grow to: producers are held to far smaller batches, so only a bomb is larger.
DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024

_GUESS_BYTES_MIN = 64 * 1024
_GUESS_FACTOR = 6
# How cramjam says that the buffer was too small; anything else means that the data is bad.
_OUT_OF_ROOM = "whole buffer"
# zlib's way to say: gzip header and trailer around a window of 2^15.
_GZIP_WINDOW_BITS = 31
# The framing of the xerial snappy library, which Java clients write: a magic, two versions, then
# blocks, each with its length before it.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
_ZSTD_LEVEL = 3
_LZ4_LEVEL = 4


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: bytes | bytearray | memoryview) -> bytes:
    import cramjam

    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data))
        case Codec.SNAPPY:
            return _compress_xerial(memoryview(data))
        case Codec.LZ4:
            return compress_lz4(data)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


def compress_lz4(data: bytes | bytearray | memoryview, level: int = _LZ4_LEVEL) -> bytes:
    """A frame whose blocks stand alone: Kafka's Java client refuses linked ones, the usual kind."""
    import cramjam

    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def decompress(
    codec: Codec,
    data: bytes | bytearray | memoryview,
    size_max: int = DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """The data unpacked; raises CorruptBatch if it is bad or larger than `size_max`."""
    if codec is Codec.NONE:
        return bytes(data)
    import cramjam

    match codec:
        case Codec.GZIP:
            return _decompress_gzip(data, size_max)
        case Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), size_max)
        case Codec.LZ4:
            return _decompress_into(cramjam.lz4.decompress_into, data, size_max)
        case Codec.ZSTD:
            return _decompress_into(cramjam.zstd.decompress_into, data, size_max)


def _decompress_into(
    unpack: Callable[[Any, bytearray], int], data: bytes | bytearray | memoryview, size_max: int
) -> bytes:
    import cramjam

    # The frame's own word on its size can't be trusted and is often missing, so a likely size is
    # tried first, then larger ones.
    size = min(size_max, max(_GUESS_BYTES_MIN, len(data) * _GUESS_FACTOR))
    while True:
        out = bytearray(size)
        try:
            length = unpack(data, out)
            return bytes(memoryview(out)[:length])
        except cramjam.DecompressionError as error:
            if size == size_max or _OUT_OF_ROOM not in str(error):
                raise CorruptBatch(f"records don't decompress: {error}") from None
        size = min(size_max, size * _GUESS_FACTOR)


def _decompress_gzip(data: bytes | bytearray | memoryview, size_max: int) -> bytes:
    """All members of a gzip stream: some clients write more than one."""
    parts: list[bytes] = []
    room = size_max
    rest: bytes | bytearray | memoryview = data
    while True:
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            # One more than the room, since zlib takes a limit of zero as none at all.
            part = member.decompress(rest, room + 1)
        except zlib.error as error:
            raise CorruptBatch(f"records don't decompress: {error}") from None
        room -= len(part)
        if room < 0:
            raise CorruptBatch(f"records decompress to more than {size_max} bytes")
        if not member.eof:
            raise CorruptBatch("records don't decompress: the gzip stream ends early")
        parts.append(part)
        rest = member.unused_data
        if not rest:
            return b"".join(parts)


def _compress_xerial(data: memoryview) -> bytes:
    import cramjam

    out = bytearray(_XERIAL_HEADER)
    for position in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(data[position : position + _XERIAL_BLOCK_BYTES])
        out += len(block).to_bytes(4, "big")
        out += bytes(block)
    return bytes(out)


def _decompress_snappy(data: memoryview, size_max: int) -> bytes:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, size_max)
    parts: list[bytes] = []
    room = size_max
    position = len(_XERIAL_HEADER)
    while position < len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if length > len(data) - position:
            raise CorruptBatch("a snappy block runs past the end of the records")
        part = _decompress_snappy_block(data[position : position + length], room)
        room -= len(part)
        parts.append(part)
        position += length
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, size_max: int) -> bytes:
    import cramjam

    try:
        # The announced length is only trusted after it has met the bound.
        if cramjam.snappy.decompress_raw_len(block) > size_max:
            raise CorruptBatch(f"records decompress to more than {size_max} bytes")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"records don't decompress: {error}") from None
