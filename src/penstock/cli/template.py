"""What `penstock consume --format` writes for each record, in the words of kcat's -f."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli.formats import BadFormat

if TYPE_CHECKING:
    from penstock.client.consumer import ConsumedRecord

Part = bytes | Callable[["ConsumedRecord"], bytes | None]

TOKENS_HELP = (
    "%s value, %S its length, %R the length as 4 bytes, %k key, %K its length, %t topic, "
    "%p partition, %o offset, %T time in milliseconds, %h headers, %% a percent sign"
)
_NO_LENGTH = -1
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_PIECE = re.compile(
    r"%(?P<token>.)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.)|(?P<text>[^%\\]+)", re.S
)


def _length(data: bytes | None) -> int:
    return _NO_LENGTH if data is None else len(data)


def _number(number: int | None) -> bytes:
    return b"%d" % (_NO_LENGTH if number is None else number)


def shown_headers(record: "ConsumedRecord") -> bytes:
    return b",".join(name.encode() + b"=" + (held or b"") for name, held in record.headers)


_TOKENS: dict[str, Callable[["ConsumedRecord"], bytes | None]] = {
    "s": lambda record: record.value,
    "S": lambda record: _number(_length(record.value)),
    "R": lambda record: _length(record.value).to_bytes(4, "big", signed=True),
    "k": lambda record: record.key,
    "K": lambda record: _number(_length(record.key)),
    "t": lambda record: record.topic.encode(),
    "p": lambda record: _number(record.partition),
    "o": lambda record: _number(record.offset),
    "T": lambda record: _number(record.timestamp_ms),
    "h": shown_headers,
}


@dataclass(frozen=True, slots=True)
class Template:
    """Constant bytes, and what takes its bytes out of a record."""

    parts: tuple[Part, ...]

    def filled(self, record: "ConsumedRecord", null: bytes) -> bytes:
        """Nothing is added: a template that wants lines ends in \\n, as with kcat."""
        pieces = (part if isinstance(part, bytes) else part(record) for part in self.parts)
        return b"".join(null if piece is None else piece for piece in pieces)


def parse_template(text: str) -> Template:
    """Raises BadFormat for a token that is not known, or one that is cut off."""
    parts: list[Part] = []
    position = 0
    while position < len(text):
        found = _PIECE.match(text, position)
        if found is None:
            raise BadFormat(f"it ends in {text[position:]!r}, which is only half a token")
        parts.append(_part(found))
        position = found.end()
    return Template(tuple(parts))


def _part(found: "re.Match[str]") -> Part:
    token, escape = found["token"], found["escape"]
    if token == "%":
        return b"%"
    if token is not None:
        if token not in _TOKENS:
            raise BadFormat(f"there is no %{token}; there are {TOKENS_HELP}")
        return _TOKENS[token]
    if found["hex"] is not None:
        return bytes.fromhex(found["hex"])
    if escape is not None:
        if escape not in _ESCAPES:
            raise BadFormat(rf"there is no \{escape}; there are \n, \r, \t, \0, \\ and \xNN")
        return _ESCAPES[escape]
    return str(found["text"]).encode("utf-8", "surrogateescape")
