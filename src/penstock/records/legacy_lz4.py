"""LZ4 frames of magic 0, whose header checksum the first Kafka clients computed wrongly.

They hashed the frame's magic number too (KAFKA-3160). Decoders refuse that, so the right checksum
is put in its place before decoding.
"""

from penstock.records.errors import CorruptBatch

_MAGIC_BYTES = 4
_FLAGS_POSITION = 4
_CONTENT_SIZE_FLAG = 0x08
_DICTIONARY_FLAG = 0x01

_MASK = 2**32 - 1
_PRIME_1 = 2654435761
_PRIME_2 = 2246822519
_PRIME_3 = 3266489917
_PRIME_4 = 668265263
_PRIME_5 = 374761393


def with_right_checksum(frame: bytes) -> bytes:
    if len(frame) <= _FLAGS_POSITION:
        raise CorruptBatch("an LZ4 frame is cut off")
    flags = frame[_FLAGS_POSITION]
    # Two bytes of flags, then what the flags announce, then the checksum.
    position = _FLAGS_POSITION + 2
    position += 8 if flags & _CONTENT_SIZE_FLAG else 0
    position += 4 if flags & _DICTIONARY_FLAG else 0
    if len(frame) <= position:
        raise CorruptBatch("an LZ4 frame is cut off")
    checksum = (xxh32_short(frame[_MAGIC_BYTES:position]) >> 8) & 0xFF
    return frame[:position] + bytes((checksum,)) + frame[position + 1 :]


def xxh32_short(data: bytes) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes: all that a frame's header can have."""
    assert len(data) < 16
    value = (_PRIME_5 + len(data)) & _MASK
    whole = len(data) // 4 * 4
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        value = _rotate_left((value + word * _PRIME_3) & _MASK, 17) * _PRIME_4 & _MASK
    for byte in data[whole:]:
        value = _rotate_left((value + byte * _PRIME_5) & _MASK, 11) * _PRIME_1 & _MASK
    value = (value ^ value >> 15) * _PRIME_2 & _MASK
    value = (value ^ value >> 13) * _PRIME_3 & _MASK
    return value ^ value >> 16


def _rotate_left(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
