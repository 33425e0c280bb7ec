"""Proves the helpers that compiled codecs call."""

from uuid import UUID

import pytest

from penstock.protocol.kafka.primitives import (
    DecodeError,
    numbers_packer,
    read_varint,
    uuid_of,
    varint,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (2**31 - 1, b"\xff\xff\xff\xff\x07"),
        (2**32 - 1, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_varints(value: int, encoded: bytes) -> None:
    assert varint(value) == encoded
    assert read_varint(memoryview(b"?" + encoded + b"?"), 1) == (value, 1 + len(encoded))


def test_a_varint_of_six_bytes_is_refused() -> None:
    with pytest.raises(DecodeError):
        read_varint(memoryview(b"\x80\x80\x80\x80\x80\x01"), 0)


def test_a_varint_that_is_cut_short_is_an_index_error_for_the_codec_to_catch() -> None:
    with pytest.raises(IndexError):
        read_varint(memoryview(b"\x80"), 0)


@pytest.mark.parametrize("count", [0, 1, 8, 9, 127, 200])
def test_number_lists(count: int) -> None:
    numbers = list(range(count))
    body = b"".join(number.to_bytes(4, "big") for number in numbers)
    assert numbers_packer("i", False)(numbers) == count.to_bytes(4, "big") + body
    assert numbers_packer("i", True)(numbers) == varint(count + 1) + body


def test_uuids_are_remembered() -> None:
    raw = bytes(range(16))
    assert uuid_of(raw) == UUID(bytes=raw)
    assert uuid_of(raw) is uuid_of(bytes(range(16)))
