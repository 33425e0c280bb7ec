"""Many records to bytes, quickly: for those who have keys and values by the thousand.

A record is mostly lengths in front of bytes. Nearly all of these are small numbers, so their
encoded forms are looked up instead of computed, and the pieces are joined once.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.records.varint import append_varint

Headers = Sequence[tuple[str, bytes | None]]

# Lengths and deltas below this are looked up.
_KNOWN = 8192


def _varint(value: int) -> bytes:
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


_VARINTS = tuple(map(_varint, range(_KNOWN)))
_NULL = _varint(-1)
_NO_HEADERS = _varint(0)
# The attributes of a record, of which none is defined.
_ATTRIBUTES = b"\0"


class Row(NamedTuple):
    """One record before it has a place: cheaper to make than a Record, of which it is a part."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


def varint(value: int) -> bytes:
    return _VARINTS[value] if 0 <= value < _KNOWN else _varint(value)


def encode_rows(rows: Iterable[Row], base_timestamp: int) -> bytes:
    """The records of a batch, numbered from 0 on, without its header."""
    known, join = _VARINTS, b"".join
    pieces: list[bytes] = []
    append = pieces.append
    for delta, (key, value, headers, timestamp_ms) in enumerate(rows):
        late = timestamp_ms - base_timestamp
        body = join(
            (
                _ATTRIBUTES,
                known[late] if 0 <= late < _KNOWN else _varint(late),
                known[delta] if delta < _KNOWN else _varint(delta),
                _NULL if key is None else varint(len(key)) + key,
                _NULL if value is None else varint(len(value)),
                value or b"",
                encode_headers(headers) if headers else _NO_HEADERS,
            )
        )
        length = len(body)
        append(known[length] if length < _KNOWN else _varint(length))
        append(body)
    return join(pieces)


def encode_headers(headers: Headers) -> bytes:
    pieces = [varint(len(headers))]
    for name, value in headers:
        data = name.encode()
        pieces += (varint(len(data)), data)
        pieces += (_NULL,) if value is None else (varint(len(value)), value)
    return b"".join(pieces)
