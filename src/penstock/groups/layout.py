"""Reads and writes the primitive types of Kafka's coordinator records."""

import struct
from collections.abc import Iterable, Mapping
from uuid import UUID

from penstock.records.batch import CorruptBatch

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")

LENGTH_OF_NULL = -1


def write_string(text: str | None) -> bytes:
    if text is None:
        return _INT16.pack(LENGTH_OF_NULL)
    data = text.encode()
    return _INT16.pack(len(data)) + data


def write_bytes(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


# Flexible versions: lengths are varints, one more than the length, and 0 stands for null.


def write_varint(number: int) -> bytes:
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def write_compact_string(text: str | None) -> bytes:
    if text is None:
        return write_varint(0)
    data = text.encode()
    return write_varint(len(data) + 1) + data


def write_compact_bytes(data: bytes) -> bytes:
    return write_varint(len(data) + 1) + data


def write_compact_array(items: Iterable[bytes]) -> bytes:
    parts = list(items)
    return write_varint(len(parts) + 1) + b"".join(parts)


def write_tagged_fields(fields: Mapping[int, bytes]) -> bytes:
    """The end of a flexible structure: optional fields by their tags."""
    parts = [write_varint(len(fields))]
    for tag, data in sorted(fields.items()):
        parts += (write_varint(tag), write_varint(len(data)), data)
    return b"".join(parts)


class Reader:
    """Walks through one key or value; whatever does not fit raises CorruptBatch.

    From its first flexible version on, a value has compact lengths and tagged fields.
    """

    __slots__ = ("_data", "_flexible", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self._flexible = False

    def expect_flexible(self) -> None:
        self._flexible = True

    def int8(self) -> int:
        return self._number(_INT8)

    def uuid(self) -> UUID:
        return UUID(bytes=self._take(16))

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise CorruptBatch("a group record has no text where it must have one")
        return text

    def nullable_string(self) -> str | None:
        length = self._unsigned_varint() - 1 if self._flexible else self.int16()
        if length == LENGTH_OF_NULL:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise CorruptBatch(f"a group record holds text that is not UTF-8: {error}") from error

    def bytes_(self) -> bytes:
        return self._take(self._length())

    def nullable_bytes(self) -> bytes | None:
        length = self._length()
        return None if length == LENGTH_OF_NULL else self._take(length)

    def array_length(self) -> int:
        length = self._length()
        # Each element takes at least a byte, so a length beyond the rest is a lie.
        if not 0 <= length <= len(self._data) - self._position:
            raise CorruptBatch(f"a group record announces {length} elements")
        return length

    def end_of_struct(self) -> dict[int, bytes]:
        """The tagged fields of a flexible version, for whoever knows one of them."""
        if not self._flexible:
            return {}
        fields = {}
        for _ in range(self._unsigned_varint()):
            tag = self._unsigned_varint()
            fields[tag] = self._take(self._unsigned_varint())
        return fields

    def _length(self) -> int:
        return self._unsigned_varint() - 1 if self._flexible else self.int32()

    def _number(self, kind: struct.Struct) -> int:
        data = self._take(kind.size)
        number: int = kind.unpack(data)[0]
        return number

    def _unsigned_varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise CorruptBatch("a group record holds a varint that does not end")

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise CorruptBatch(f"a group record ends at {len(self._data)} bytes, not at {end}")
        data = self._data[self._position : end]
        self._position = end
        return data
