"""Values as programs have them, and as records hold them: bytes.

Text is stored as UTF-8. Everything else that JSON can say is stored as compact JSON: the same bytes
that the HTTP door stores for it. JSON has no NaN and no infinities: they become null.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from penstock.client.errors import ClientError

# What a record can be made of: bytes, text, None (a tombstone where a topic is compacted), or
# anything that becomes JSON: dicts, lists, numbers, dataclasses, times, UUIDs.
Value: TypeAlias = Any
# By name, or as pairs, since a name may occur twice.
Headers: TypeAlias = Mapping[str, Value] | Iterable[tuple[str, Value]]

_encode = msgspec.json.Encoder(order=None).encode
_decode = msgspec.json.Decoder().decode


def to_bytes(value: Value) -> bytes | None:
    """Raises ClientError for what has no JSON."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise ClientError(f"This text can't be stored as UTF-8: {error}.") from None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    try:
        return _encode(value)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        reason = str(error).rstrip(".")
        raise ClientError(f"A value can't be stored as JSON: {reason}.") from None


def to_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, to_bytes(value)) for name, value in pairs]


def as_text(value: bytes | None) -> str | None:
    """Raises ClientError for what is not UTF-8."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError as error:
        raise ClientError(f"The value is not UTF-8: {error}.") from None


def as_json(value: bytes | None) -> Any:
    """Raises ClientError for what is not JSON."""
    try:
        return None if value is None else _decode(value)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ClientError(f"The value is not JSON: {str(error).rstrip('.')}.") from None
