"""Proves the codec's rules on small declarations: layouts, nulls, tags, bounds."""

import struct as struct_module
from uuid import UUID

import pytest

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.codec import DecodeError, decode, encode
from penstock.protocol.kafka.decoder_source import REQUEST_ELEMENTS_MAX
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.schema import (
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    message,
    nested,
    records,
    schema_of,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)


@struct
class Item:
    number: int = int32("0+")


@struct
class Empty:
    late: int = int32("9+")


@message(ApiKey.METADATA, versions="0-9", flexible="3+")
class SampleRequest:
    """Versions below 3 are old-style; tags and ids come with the flexible ones."""

    flag: bool = boolean("0+")
    name: str | None = string("0+", nullable="1+")
    items: list[Item] | None = array(Item, "0+", nullable="2+")
    cursor: Item | None = nested(Item, "4+", nullable="4+")
    limit: int = int32("3+", default=7, tag=0)
    extra: Item | None = nested(Item, "3+", tag=2)
    identity: UUID = uuid("5+")
    batch: memoryview | bytes | None = records("6+", nullable="6+")


@message(ApiKey.METADATA, versions="0-1", flexible="1+")
class EveryKindResponse:
    a: int = int8("0+")
    b: int = int16("0+")
    c: int = int32("0+")
    d: int = int64("0+")
    e: int = uint16("0+")
    f: int = uint32("0+")
    g: float = float64("0+")
    h: bool = boolean("0+")
    i: UUID = uuid("0+")
    j: str = string("0+")
    k: bytes = bytes_("0+")
    strings: list[str] = array(string, "0+")
    uuids: list[UUID] = array(uuid, "0+")
    numbers: list[int] = array(int64, "0+")
    own: Item | None = nested(Item, "0+")


@message(ApiKey.METADATA, versions="0", flexible=None)
class EmptiesRequest:
    empties: list[Empty] = array(Empty, "0+")


@message(ApiKey.METADATA, versions="0", flexible=None)
class NothingRequest:
    later: int = int32("1+")


def test_old_style_layout() -> None:
    encoded = encode(SampleRequest(flag=True, name="ab", items=[Item(number=5)]), 0)
    assert encoded == b"\x01\x00\x02ab\x00\x00\x00\x01\x00\x00\x00\x05"


def test_flexible_layout() -> None:
    encoded = encode(SampleRequest(flag=True, name="ab", items=[Item(number=5)]), 3)
    assert encoded == b"\x01\x03ab\x02\x00\x00\x00\x05\x00\x00"


def test_nulls() -> None:
    request = SampleRequest(name=None, items=None)
    assert encode(request, 2) == b"\x00\xff\xff\xff\xff\xff\xff"
    assert encode(request, 4) == b"\x00\x00\x00\xff\x00"
    for version in (2, 4):
        assert decode(SampleRequest, version, encode(request, version)) == request


def test_a_null_that_a_version_lacks_is_sent_as_empty() -> None:
    assert encode(SampleRequest(name=None, items=None), 0) == b"\x00\x00\x00\x00\x00\x00\x00"


def test_a_null_that_a_version_lacks_is_refused_when_read() -> None:
    with pytest.raises(DecodeError, match=r"SampleRequest\.name is null"):
        decode(SampleRequest, 0, b"\x00\xff\xff\x00\x00\x00\x00")
    with pytest.raises(DecodeError, match=r"SampleRequest\.items is null"):
        decode(SampleRequest, 1, b"\x00\xff\xff\xff\xff\xff\xff")


def test_every_kind_round_trips() -> None:
    response = EveryKindResponse(
        a=-128, b=-(2**15), c=2**31 - 1, d=-(2**63), e=2**16 - 1, f=2**32 - 1, g=0.5, h=True,
        i=UUID(int=2**128 - 1), j="größe", k=b"\x00\xff", strings=["", "x" * 200],
        uuids=[UUID(int=1), UUID(int=2)], numbers=list(range(300)), own=Item(number=3),
    )  # fmt: skip
    for version in (0, 1):
        assert decode(EveryKindResponse, version, encode(response, version)) == response


def test_fields_that_a_version_lacks_are_left_out_and_read_as_default() -> None:
    request = SampleRequest(name="n", limit=9, identity=UUID(int=1), batch=b"b")
    decoded = decode(SampleRequest, 2, encode(request, 2))
    assert (decoded.limit, decoded.identity, decoded.batch) == (7, UUID(int=0), None)


def test_error_codes_encode_as_numbers() -> None:
    response = EveryKindResponse(b=ErrorCode.UNKNOWN_TOPIC_ID, own=Item())
    assert decode(EveryKindResponse, 0, encode(response, 0)).b == 100


def test_records_are_views_and_bytes_are_copies() -> None:
    frame = bytearray(encode(SampleRequest(batch=b"batch"), 6))
    decoded = decode(SampleRequest, 6, frame)
    assert isinstance(decoded.batch, memoryview)
    assert decoded.batch.obj is frame
    response = bytearray(encode(EveryKindResponse(k=b"kk", own=Item()), 0))
    assert type(decode(EveryKindResponse, 0, response).k) is bytes


def test_decoding_may_begin_inside_the_frame() -> None:
    request = SampleRequest(name="n")
    assert decode(SampleRequest, 3, b"header" + encode(request, 3), 6) == request


def test_a_message_without_fields() -> None:
    assert encode(NothingRequest(), 0) == b""
    assert decode(NothingRequest, 0, b"") == NothingRequest()


def test_codecs_are_compiled_once_and_only_when_used() -> None:
    @message(ApiKey.METADATA, versions="0-1", flexible=None)
    class LazyRequest:
        number: int = int32("0+")

    schema = schema_of(LazyRequest)
    assert schema.decoders == {}
    assert schema.encoders == {}
    frame = encode(LazyRequest(number=1), 1)
    decode(LazyRequest, 1, frame)
    decoder = schema.decoders[1]
    decode(LazyRequest, 1, frame)
    assert schema.decoders == {1: decoder}
    assert list(schema.encoders) == [1]


def test_unknown_versions() -> None:
    with pytest.raises(DecodeError, match="no version 10"):
        decode(SampleRequest, 10, b"")
    with pytest.raises(AssertionError, match="no version 10"):
        encode(SampleRequest(), 10)


class TestTaggedFields:
    PREFIX = b"\x00\x01\x01"

    def test_set_ones_are_sent_in_order(self) -> None:
        encoded = encode(SampleRequest(limit=8, extra=Item(number=1)), 3)
        assert encoded == self.PREFIX + b"\x02\x00\x04\0\0\0\x08\x02\x05\0\0\0\x01\0"
        decoded = decode(SampleRequest, 3, encoded)
        assert (decoded.limit, decoded.extra) == (8, Item(number=1))

    def test_defaults_are_not_sent(self) -> None:
        assert encode(SampleRequest(limit=7), 3) == self.PREFIX + b"\x00"

    def test_unknown_ones_are_skipped(self) -> None:
        tags = b"\x03\x00\x04\0\0\0\x08\x01\x02??\x7f\x00"
        assert decode(SampleRequest, 3, self.PREFIX + tags).limit == 8

    def test_unknown_ones_are_skipped_where_none_is_known(self) -> None:
        frame = b"\x00\x01\x02\0\0\0\x05\x01\x09\x03abc\x00"
        assert decode(SampleRequest, 3, frame).items == [Item(number=5)]

    @pytest.mark.parametrize(
        "tags",
        [
            b"\x02" b"\x05\x00" b"\x05\x00",
            b"\x02" b"\x05\x00" b"\x04\x00",
            b"\x02" b"\x00\x04\0\0\0\x08" b"\x00\x04\0\0\0\x08",
            b"\x01" b"\x00\x05\0\0\0\x08\0",
            b"\x01" b"\x00\x03\0\0\x08",
            b"\x01" b"\x05\x09short",
            b"\x01" b"\x05\xff\xff\xff\xff\x0f",
            b"\x01" b"\x80\x80\x80\x80\x80\x01\x00",
            b"\xff\xff\xff\xff\x0f" b"\x05\x00",
            b"\x02" b"\x05\x00",
            b"",
        ],
        ids=[
            "twice unknown", "out of order", "twice known", "too large for its field",
            "too small for its field", "past the end", "past the end by far", "endless varint",
            "too many", "fewer than counted", "missing",
        ],
    )  # fmt: skip
    def test_bad_ones_are_refused(self, tags: bytes) -> None:
        with pytest.raises(DecodeError):
            decode(SampleRequest, 3, self.PREFIX + tags)


class TestBounds:
    def test_a_string_longer_than_the_frame(self) -> None:
        with pytest.raises(DecodeError, match=r"SampleRequest\.name needs 5 bytes but 2 are left"):
            decode(SampleRequest, 0, b"\x00\x00\x05ab")

    def test_an_array_longer_than_the_frame(self) -> None:
        with pytest.raises(DecodeError, match="items needs 8589934588 bytes"):
            decode(SampleRequest, 0, b"\x00\x00\x00\x7f\xff\xff\xff")

    def test_elements_without_bytes_are_counted_as_one_byte_each(self) -> None:
        with pytest.raises(DecodeError, match="empties needs 1000 bytes"):
            decode(EmptiesRequest, 0, struct_module.pack(">i", 1000))

    def test_too_many_elements_in_all(self) -> None:
        count = REQUEST_ELEMENTS_MAX + 1
        frame = b"\x00\x00\x00" + struct_module.pack(">i", count) + bytes(4 * count)
        with pytest.raises(DecodeError, match="too many elements"):
            decode(SampleRequest, 0, frame)

    def test_bytes_after_a_request_are_ignored_as_kafka_ignores_them(self) -> None:
        request = SampleRequest()
        assert decode(SampleRequest, 3, encode(request, 3) + b"??") == request

    def test_text_that_is_not_utf_8(self) -> None:
        with pytest.raises(DecodeError, match="not UTF-8"):
            decode(SampleRequest, 0, b"\x00\x00\x02\xc3\x28\x00\x00\x00\x00")

    def test_a_surrogate_is_not_utf_8(self) -> None:
        with pytest.raises(DecodeError, match="not UTF-8"):
            decode(SampleRequest, 0, b"\x00\x00\x03\xed\xa0\x80\x00\x00\x00\x00")
