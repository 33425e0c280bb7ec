"""The pieces that compiled codecs call: lengths, tagged fields, ids, runs of numbers."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct, pack
from typing import NoReturn
from uuid import UUID

Append = Callable[[bytes], None]

# A varint of 32 bits takes at most five bytes.
VARINT_BYTES_MAX = 5
# Lists of up to this many numbers are packed by a prepared format: replica lists are short.
PREPARED_COUNT_MAX = 8
UUIDS_REMEMBERED_MAX = 4_096
# Of one struct; counts up to here take one byte.
TAGGED_FIELDS_MAX = 0x7F


class DecodeError(ValueError):
    """The peer sent bytes that are not the message they claim to be."""


def refuse_size(path: str, size: int, left: int) -> NoReturn:
    raise DecodeError(f"{path} needs {size} bytes but {left} are left")


def refuse_null(path: str) -> NoReturn:
    raise DecodeError(f"{path} is null")


def refuse_many() -> NoReturn:
    raise DecodeError("the message has too many elements")


def refuse_tag(path: str, tag: int) -> NoReturn:
    raise DecodeError(f"{path}: tag {tag} is not of the size that it claims")


def refuse_rest(path: str, left: int) -> NoReturn:
    raise DecodeError(f"{left} bytes follow the {path}" if left > 0 else f"{path} is cut short")


def continue_varint(buffer: bytes | memoryview, position: int, first: int) -> tuple[int, int]:
    """The value that began with the byte `first`, and the position after its last byte."""
    value = first & 0x7F
    for shift in range(7, 7 * VARINT_BYTES_MAX, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise DecodeError("a varint is longer than five bytes")


def read_varint(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    return continue_varint(buffer, position + 1, first)


def varint(value: int) -> bytes:
    if value < 0x80:
        return SHORT_VARINTS[value]
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


SHORT_VARINTS = tuple(bytes((value,)) for value in range(0x80))


def skip_tagged_fields(buffer: memoryview, position: int, count: int, end: int) -> int:
    """Passes over fields that this version of ours does not know, in ascending order of tags."""
    check_tag_count(count)
    tag_before = -1
    for _ in range(count):
        tag, size, position = read_tag(buffer, position, end, tag_before)
        position += size
        tag_before = tag
    return position


def check_tag_count(first_byte: int) -> None:
    """A count that needs a second byte is not an honest one: no struct has even ten tags."""
    if first_byte > TAGGED_FIELDS_MAX:
        raise DecodeError("a struct has too many tagged fields")


def read_tag(buffer: memoryview, position: int, end: int, tag_before: int) -> tuple[int, int, int]:
    """A tagged field's tag and size, and where its value begins."""
    tag, position = read_varint(buffer, position)
    size, position = read_varint(buffer, position)
    if tag <= tag_before:
        raise DecodeError(f"tag {tag} follows tag {tag_before}")
    if position + size > end:
        raise DecodeError(f"tag {tag} claims {size} bytes but {end - position} are left")
    return tag, size, position


def append_tagged_fields(append: Append, fields: Sequence[tuple[int, list[bytes]]]) -> None:
    append(varint(len(fields)))
    for tag, pieces in fields:
        value = b"".join(pieces)
        append(varint(tag))
        append(varint(len(value)))
        append(value)


@lru_cache(maxsize=UUIDS_REMEMBERED_MAX)
def uuid_of(raw: bytes) -> UUID:
    """Topic ids come with every request, and building a UUID costs ten times this look-up."""
    return UUID(bytes=raw)


@lru_cache(maxsize=64)
def numbers_packer(code: str, compact: bool) -> Callable[[Sequence[int]], bytes]:
    """Packs a list of numbers of one struct code together with its length."""
    length_code = "B" if compact else "i"
    shift = 1 if compact else 0
    prepared = tuple(
        Struct(f">{length_code}{count}{code}").pack for count in range(PREPARED_COUNT_MAX + 1)
    )

    def pack_numbers(numbers: Sequence[int]) -> bytes:
        count = len(numbers)
        if count <= PREPARED_COUNT_MAX:
            return prepared[count](count + shift, *numbers)
        length = varint(count + 1) if compact else pack(">i", count)
        return length + pack(f">{count}{code}", *numbers)

    return pack_numbers
