"""Zigzag variable-length integers, as records use them."""

from penstock.records.errors import CorruptBatch

_BYTES_MAX = 10
_UNSIGNED_MAX = 2**64 - 1


def append_varint(out: bytearray, value: int) -> None:
    unsigned = ((value << 1) ^ (value >> 63)) & _UNSIGNED_MAX
    while unsigned > 0x7F:
        out.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    out.append(unsigned)


def read_varint(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    """The value and the position after it."""
    try:
        byte = buffer[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        return _read_long_varint(buffer, position)
    except IndexError:
        raise CorruptBatch("a number runs past the end of the records") from None


def _read_long_varint(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    unsigned = 0
    for index in range(_BYTES_MAX):
        byte = buffer[position + index]
        unsigned |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if unsigned > _UNSIGNED_MAX:
                break
            return (unsigned >> 1) ^ -(unsigned & 1), position + index + 1
    raise CorruptBatch("a number is longer than 64 bits")
