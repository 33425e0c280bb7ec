"""Keys and values between JSON and bytes."""

import base64
import binascii
from array import array
from itertools import accumulate
from typing import Any, Final

import msgspec
from msgspec import Raw, UnsetType

from penstock.frontdoor.http.limits import JSON_DEPTH_MAX, RECORDS_PER_REQUEST_MAX
from penstock.frontdoor.http.messages import Encoding, Header, NewRecord
from penstock.frontdoor.http.problems import Problem
from penstock.frontdoor.http.requests import decode_json, too_deep
from penstock.model.delivery_headers import DELIVER_AFTER, DELIVER_AT, moment_ms
from penstock.model.limits import KIB
from penstock.records.rows import Headers

_NULL: Final = b"null"
# What each bracket does to the depth, as a signed byte; nothing else does.
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_STEPS: Final = bytes(set(range(256)) - set(b"[{]}"))
# Of JSON that is looked at in pieces, so that it takes no memory to speak of.
_LOOK_BYTES: Final = 64 * KIB
_TEXT: Final = msgspec.json.Decoder(str)
_ANY: Final = msgspec.json.Decoder(Raw)
_ENCODE: Final = msgspec.json.Encoder().encode
_format = msgspec.json.format


# Many of them


def check_count(body: bytes, field: str | None = None) -> None:
    """Refuses an array, the body or what is in a field of it, that has more elements than records
    may be in a request. They are counted before any of them takes memory, where there may be so
    many; they must be objects then."""
    if body.count(b",") < RECORDS_PER_REQUEST_MAX:
        return
    left = RECORDS_PER_REQUEST_MAX

    class Element(msgspec.Struct):
        def __post_init__(self) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise too_many()

    shape: Any = list[Element]
    if field is not None:
        shape = msgspec.defstruct("Body", [(field, shape)])
    decode_json(msgspec.json.Decoder(shape), body)


def too_many() -> Problem:
    detail = f"The body has more than {RECORDS_PER_REQUEST_MAX:,} records."
    return Problem(413, detail, reason="too_many")


# To bytes


def value_bytes(record: NewRecord, index: int) -> bytes | None:
    raw = _given(record.value)
    if raw == _NULL:
        return None
    if record.encoding == "json":
        return compact(raw)
    return _stored(raw, record.encoding, "value", index)


def key_bytes(record: NewRecord, index: int) -> bytes | None:
    raw = _given(record.key)
    if raw == _NULL:
        return None
    if record.key_encoding == "json":
        return compact(raw)
    return _stored(raw, record.key_encoding, "key", index)


def _given(raw: Raw | UnsetType) -> bytes:
    return _NULL if isinstance(raw, UnsetType) else bytes(raw)


def compact(raw: bytes) -> bytes:
    """JSON text without the spaces between its parts; numbers stay as they were written."""
    if raw.count(b"[") + raw.count(b"{") > JSON_DEPTH_MAX:
        check_depth(raw)
    found: bytes = _format(raw, indent=-1)
    return found


def check_depth(raw: bytes) -> None:
    # Each quote that is left begins or ends a string.
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    depth = is_string = 0
    for start in range(0, len(plain), _LOOK_BYTES):
        pieces = plain[start : start + _LOOK_BYTES].split(b'"')
        outside = b"".join(pieces[is_string::2])
        is_string ^= (len(pieces) - 1) & 1
        steps = array("b", outside.translate(_STEPS, _NO_STEPS))
        if max(accumulate(steps, initial=depth)) > JSON_DEPTH_MAX:
            raise too_deep()
        depth += sum(steps)


def _stored(raw: bytes, encoding: Encoding, what: str, index: int) -> bytes:
    try:
        text = _TEXT.decode(raw)
    except msgspec.MsgspecError:
        word = "key_encoding" if what == "key" else "encoding"
        detail = (
            f"The {what} of record {index} must be a string, because its {word} is {encoding!r}; "
            f'"{word}": "json" takes any JSON value.'
        )
        raise Problem(400, detail) from None
    if encoding == "text":
        return text.encode()
    return from_base64(text, f"The {what} of record {index}")


def from_base64(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Problem(400, f"{what} is not base64.") from None


def header_pairs(headers: "dict[str, str | None] | list[Header]", index: int) -> Headers:
    if isinstance(headers, dict):
        return [
            (name, None if value is None else value.encode()) for name, value in headers.items()
        ]
    return [(each.name, _header_value(each, index)) for each in headers]


def delivery_headers(delay_ms: int | None, deliver_at: int | str | None, what: str) -> Headers:
    """What tells queues to deliver a record later."""
    if delay_ms is not None and deliver_at is not None:
        raise Problem(400, f"{what} has both delay_ms and deliver_at: give one of them.")
    if delay_ms is not None:
        return [(DELIVER_AFTER, str(delay_ms).encode())]
    if deliver_at is None:
        return []
    text = str(deliver_at)
    if isinstance(deliver_at, str) and not text.isdigit() and moment_ms(text) is None:
        detail = f"{what} is to be delivered at {text!r}, which is neither milliseconds since 1970"
        raise Problem(400, f"{detail} nor a time with an offset as in RFC 3339.")
    return [(DELIVER_AT, text.encode())]


def _header_value(header: Header, index: int) -> bytes | None:
    if header.value is None:
        return None
    if header.encoding == "text":
        return header.value.encode()
    return from_base64(header.value, f"The header {header.name!r} of record {index}")


# From bytes


def shown(data: bytes | None, asked: str) -> tuple[Raw, Encoding]:
    """Bytes as JSON in the encoding that was asked for, or the first of json, text and base64
    that fits them."""
    if data is None:
        return Raw(_NULL), "json"
    if asked in ("auto", "json") and _is_json(data):
        return Raw(data), "json"
    return shown_text(data, "auto" if asked == "json" else asked)


def shown_text(data: bytes | None, asked: str) -> tuple[Raw, Encoding]:
    """As `shown`, but for what is text rather than JSON, as keys are."""
    if data is None:
        return Raw(_NULL), "text"
    if asked != "base64":
        try:
            return Raw(_ENCODE(data.decode())), "text"
        except UnicodeDecodeError:
            pass
    return Raw(_ENCODE(base64.b64encode(data).decode())), "base64"


def _is_json(data: bytes) -> bool:
    """Whether the bytes can stand in an answer as they are. The text null can't: it would read as
    no value."""
    try:
        data.decode()
        if data.count(b"[") + data.count(b"{") > JSON_DEPTH_MAX:
            check_depth(data)
        _ANY.decode(data)
    except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError, Problem):
        return False
    return data.strip() != _NULL and b"\n" not in data and b"\r" not in data


def shown_headers(headers: Headers) -> list[Header]:
    return [_shown_header(name, value) for name, value in headers]


def _shown_header(name: str, value: bytes | None) -> Header:
    if value is None:
        return Header(name)
    try:
        return Header(name, value.decode())
    except UnicodeDecodeError:
        return Header(name, base64.b64encode(value).decode(), "base64")
