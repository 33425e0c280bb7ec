"""Keys and values as text: how bytes are written down, and how what is written becomes bytes."""

import base64
import binascii
import json
from enum import StrEnum


class Format(StrEnum):
    """`text` takes bytes as they are, `json` is text that must be JSON."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"


class BadFormat(ValueError):
    """What was written down is not in the format that was announced."""


def decode(form: Format, written: bytes) -> bytes:
    """The bytes of a key or value from the way it was written; raises BadFormat."""
    try:
        if form is Format.HEX:
            return bytes.fromhex(written.decode("ascii"))
        if form is Format.BASE64:
            return base64.b64decode(written.strip(), validate=True)
        if form is Format.JSON:
            parse_json(written)
    except (ValueError, binascii.Error) as error:
        raise BadFormat(f"it is not {form}: {error}") from None
    return written


def parse_json(written: bytes) -> object:
    """What JSON says; raises ValueError, also for what is nested deeper than Python can read."""
    try:
        return json.loads(written)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def encode(form: Format, data: bytes) -> bytes:
    """A key or value written down; what is not JSON is written as it is."""
    if form is Format.HEX:
        return data.hex().encode()
    if form is Format.BASE64:
        return base64.b64encode(data)
    if form is Format.JSON:
        try:
            return json.dumps(parse_json(data), ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            return data
    return data


def to_json(form: Format, data: bytes | None) -> tuple[object, Format]:
    """A key or value inside a line of JSON, and the format that could hold it."""
    if data is None:
        return None, form
    try:
        if form is Format.JSON and (held := parse_json(data)) is not None:
            return held, form
        if form is Format.TEXT:
            return data.decode(), form
    except ValueError:
        # Bytes that are not text would be lost.
        return _as_base64(data)
    # JSON's null stands for a key or value that is not there at all, and not for these bytes.
    return _as_base64(data) if form is Format.JSON else (encode(form, data).decode(), form)


def _as_base64(data: bytes) -> tuple[object, Format]:
    """Which holds anything."""
    return base64.b64encode(data).decode(), Format.BASE64


def from_json(form: Format, held: object) -> bytes | None:
    """The bytes of a key or value that a line of JSON holds; raises BadFormat."""
    if held is None:
        return None
    if form is Format.JSON:
        return _written(held)
    if isinstance(held, str):
        return decode(form, to_utf8(held))
    if form is Format.TEXT and isinstance(held, int | float | dict | list):
        # Numbers, true, false and structures have only one sensible text: their JSON.
        return _written(held)
    raise BadFormat(f"it must be a string in {form}")


def to_utf8(text: str) -> bytes:
    """The bytes of a string out of JSON, which may hold half a character as \\ud800 does."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadFormat(
            f"it is not text: {error.object[error.start]!r} is not a character"
        ) from None


def _written(held: object) -> bytes:
    try:
        return json.dumps(held, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        # Half a character can be written only as it was read, which is by its number.
        return json.dumps(held, separators=(",", ":")).encode()
