"""Proves both headers in old and flexible versions, against kio and against bad bytes."""

import io
import struct

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.catalogue import EXCHANGES
from penstock.protocol.kafka.headers import (
    FLEXIBLE_FROM,
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from penstock.protocol.kafka.primitives import DecodeError
from penstock.protocol.kafka.schema import schema_of


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "größe"])
@pytest.mark.parametrize(("version", "kio_header"), [(8, KioHeaderV1), (9, KioHeaderV2)])
def test_request_header_equals_kio(
    client_id: str | None, version: int, kio_header: type[KioHeaderV1] | type[KioHeaderV2]
) -> None:
    buffer = io.BytesIO()
    entity = kio_header(
        request_api_key=i16(0),
        request_api_version=i16(version),
        correlation_id=i32(77),
        client_id=client_id,
    )
    entity_writer(kio_header)(buffer, entity)  # type: ignore[arg-type]
    encoded = encode_request_header(ApiKey.PRODUCE, version, 77, client_id)
    assert encoded == buffer.getvalue()
    expected = RequestHeader(0, version, 77, client_id)
    assert decode_request_header(memoryview(encoded + b"body")) == (expected, len(encoded))


def test_unknown_tagged_fields_of_a_header_are_skipped() -> None:
    frame = struct.pack(">hhih", 0, 9, 1, -1) + b"\x01\x05\x02??" + b"body"
    _, position = decode_request_header(memoryview(frame))
    assert frame[position:] == b"body"


def test_header_of_an_unknown_api_or_a_future_version() -> None:
    """The door can still answer: UNSUPPORTED_VERSION for ApiVersions, a close for the rest."""
    frame = struct.pack(">hhih", 999, 3, 5, -1) + b"???"
    assert decode_request_header(memoryview(frame)) == (RequestHeader(999, 3, 5, None), 10)
    frame = encode_request_header(ApiKey.API_VERSIONS, 99, 5, "new")
    header, position = decode_request_header(memoryview(frame))
    assert (header.api_version, position) == (99, len(frame))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00" * 9,
        struct.pack(">hhih", 0, 8, 1, 5) + b"abc",
        struct.pack(">hhih", 0, 8, 1, 32767),
        struct.pack(">hhih", 0, 8, 1, 2) + b"\xc3\x28",
        struct.pack(">hhih", 0, 9, 1, -1),
        struct.pack(">hhih", 0, 9, 1, -1) + b"\x01",
        struct.pack(">hhih", 0, 9, 1, -1) + b"\x01\x00\x05ab",
        struct.pack(">hhih", 0, 9, 1, -1) + b"\xff\xff\xff\xff\x0f",
    ],
)
def test_bad_request_headers(frame: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_request_header(memoryview(frame))


@pytest.mark.parametrize(
    ("api_key", "version", "encoded"),
    [
        (ApiKey.PRODUCE, 8, b"\x00\x00\x00\x4d"),
        (ApiKey.PRODUCE, 9, b"\x00\x00\x00\x4d\x00"),
        (ApiKey.API_VERSIONS, 4, b"\x00\x00\x00\x4d"),
        (ApiKey.OFFSET_DELETE, 0, b"\x00\x00\x00\x4d"),
    ],
)
def test_response_header(api_key: ApiKey, version: int, encoded: bytes) -> None:
    assert encode_response_header(api_key, version, 77) == encoded
    decoded = decode_response_header(api_key, version, memoryview(encoded + b"body"))
    assert decoded == (77, len(encoded))


def test_short_response_headers() -> None:
    with pytest.raises(DecodeError):
        decode_response_header(ApiKey.PRODUCE, 8, memoryview(b"\0\0\0"))
    with pytest.raises(DecodeError):
        decode_response_header(ApiKey.PRODUCE, 9, memoryview(b"\0\0\0\0"))


def test_the_table_of_flexible_versions_is_what_the_messages_declare() -> None:
    declared = {int(key): schema_of(one.request).flexible_from for key, one in EXCHANGES.items()}
    assert declared == FLEXIBLE_FROM
