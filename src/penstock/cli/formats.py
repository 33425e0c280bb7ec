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
            json.loads(written)
    except (ValueError, binascii.Error) as error:
        raise BadFormat(f"it is not {form}: {error}") from None
    return written


def encode(form: Format, data: bytes) -> bytes:
    """A key or value written down; what is no JSON is written as it is."""
    if form is Format.HEX:
        return data.hex().encode()
    if form is Format.BASE64:
        return base64.b64encode(data)
    if form is Format.JSON:
        try:
            return json.dumps(json.loads(data), ensure_ascii=False).encode()
        except ValueError:
            return data
    return data


def to_json(form: Format, data: bytes | None) -> tuple[object, Format]:
    """A key or value inside a line of JSON, and the format that could hold it."""
    if data is None:
        return None, form
    try:
        if form is Format.JSON:
            return json.loads(data), form
        if form is Format.TEXT:
            return data.decode(), form
    except ValueError:
        # Bytes that are no text would be lost; base64 holds anything.
        return base64.b64encode(data).decode(), Format.BASE64
    return encode(form, data).decode(), form


def from_json(form: Format, held: object) -> bytes | None:
    """The bytes of a key or value that a line of JSON holds; raises BadFormat."""
    if held is None:
        return None
    if form is Format.JSON:
        return json.dumps(held, ensure_ascii=False, separators=(",", ":")).encode()
    if isinstance(held, str):
        return decode(form, held.encode())
    if form is Format.TEXT and isinstance(held, int | float | dict | list):
        # Numbers, true, false and structures have only one sensible text: their JSON.
        return json.dumps(held, ensure_ascii=False, separators=(",", ":")).encode()
    raise BadFormat(f"it must be a string in {form}")
