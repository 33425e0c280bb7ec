"""A request and its answer, as handlers see them."""

from codecs import getincrementaldecoder
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from penstock.frontdoor.http.limits import BODY_BYTES_MAX, JSON_DEPTH_MAX
from penstock.frontdoor.http.problems import PROBLEM_TYPE, Problem
from penstock.model.limits import KIB

JSON_TYPE = "application/json"
NDJSON_TYPE = "application/x-ndjson"
BINARY_TYPE = "application/octet-stream"
TEXT_TYPE = "text/plain"
QUERY_FIELDS_MAX = 100

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

T = TypeVar("T")
_ENCODER = msgspec.json.Encoder()
# Of a text, decoded at a time.
_TEXT_BYTES = 64 * KIB
_make_utf8_decoder = getincrementaldecoder("utf-8")


class Gone(Exception):
    """The client closed the connection."""


class Cut(Exception):
    """An answer that has begun can't be completed: its connection is closed instead."""


@dataclass(slots=True)
class Answer:
    """What goes back: bytes at once, or piece by piece."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON_TYPE
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: AsyncGenerator[bytes, None] | None = None


def json_answer(content: Any, status: int = 200) -> Answer:
    return Answer(status, _ENCODER.encode(content))


def problem_answer(problem: Problem) -> Answer:
    body = _ENCODER.encode(problem.document)
    return Answer(problem.status, body, PROBLEM_TYPE, problem.headers)


class Request:
    """One request: headers at once, the body when a handler asks for it."""

    __slots__ = (
        "_hold",
        "_query",
        "_scope",
        "headers",
        "held_bytes",
        "method",
        "parameters",
        "path",
        "receive",
    )

    def __init__(
        self, scope: Scope, receive: Receive, hold: Callable[[int], None] = lambda size: None
    ) -> None:
        """`hold` counts bytes of the body, and may refuse them."""
        self._scope = scope
        self._hold = hold
        self.held_bytes = 0
        self.receive = receive
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        # By name in small letters; of several with one name, the last.
        self.headers: dict[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        # What stands in the path for the names in braces.
        self.parameters: Mapping[str, str] = {}
        self._query: dict[str, list[str]] | None = None

    @property
    def content_type(self) -> str:
        """Without its parameters, in small letters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    # Query

    @property
    def query(self) -> Mapping[str, list[str]]:
        if self._query is None:
            self._query = {}
            text = self._scope["query_string"].decode("latin-1")
            try:
                pairs = parse_qsl(
                    text, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX, errors="strict"
                )
            except (ValueError, UnicodeDecodeError):
                raise Problem(400, "The query of the URL can't be read.") from None
            for name, value in pairs:
                self._query.setdefault(name, []).append(value)
        return self._query

    def check_query(self, known: Collection[str]) -> None:
        """A misspelt name must not be ignored: the answer would be to another question."""
        for name in self.query:
            if name not in known:
                names = ", ".join(sorted(known)) or "none"
                raise Problem(400, f"There is no parameter {name!r} here; known are: {names}.")

    def text(self, name: str, default: str | None = None) -> str | None:
        values = self.query.get(name)
        if values is None:
            return default
        if len(values) > 1:
            raise Problem(400, f"The parameter {name!r} is given more than once.")
        return values[0]

    def number(self, name: str, default: int, least: int, most: int) -> int:
        given = self.text(name)
        if given is None:
            return default
        digits = given.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
            raise Problem(400, f"The parameter {name!r} is {given!r}, but must be a whole number.")
        if not least <= int(given) <= most:
            detail = f"The parameter {name!r} is {given}, but must be from {least} to {most}."
            raise Problem(400, detail)
        return int(given)

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """The first is the default."""
        given = self.text(name, choices[0])
        assert given is not None
        if given not in choices:
            detail = (
                f"The parameter {name!r} is {given!r}, but must be one of {', '.join(choices)}."
            )
            raise Problem(400, detail)
        return given

    # Body

    async def body(self) -> bytes:
        """All of it; too much is refused as soon as that is known."""
        announced = self.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > BODY_BYTES_MAX:
            raise too_large()
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Gone
            piece = message.get("body", b"")
            size += len(piece)
            if size > BODY_BYTES_MAX:
                raise too_large()
            self._hold(len(piece))
            self.held_bytes = size
            pieces.append(piece)
            if not message.get("more_body", False):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def gone(self) -> None:
        """Returns when the client has closed the connection; for a request without a body, or
        whose body was read."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def json(self, shape: type[T]) -> T:
        body = await self.body()
        return decode_json(msgspec.json.Decoder(shape), body)


def too_large() -> Problem:
    return Problem(
        413, f"The body is larger than {BODY_BYTES_MAX:,} bytes.", reason="body_too_large"
    )


def decode_json(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    """Raises a Problem that says where the body is wrong."""
    if not body:
        raise Problem(400, "The body is empty.")
    try:
        check_utf8(body)
        return decoder.decode(body)
    except RecursionError:
        raise too_deep() from None
    except msgspec.ValidationError as bad:
        raise Problem(400, f"The body does not fit: {_plain(bad)}.") from None
    except msgspec.DecodeError as bad:
        raise Problem(400, f"The body can't be read as JSON: {_plain(bad)}.") from None
    except UnicodeDecodeError:
        raise Problem(400, "The body can't be read as JSON: it is not UTF-8.") from None


def check_utf8(data: bytes) -> None:
    """Raises UnicodeDecodeError. A text can take four times the memory of its bytes, so only pieces
    are decoded."""
    if data.isascii():
        return
    decode = _make_utf8_decoder().decode
    for start in range(0, len(data), _TEXT_BYTES):
        decode(data[start : start + _TEXT_BYTES])
    decode(b"", final=True)


def too_deep() -> Problem:
    detail = f"The body has more than {JSON_DEPTH_MAX} arrays or objects inside each other."
    return Problem(400, detail, reason="json_too_deep")


def _plain(bad: Exception) -> str:
    text = str(bad)
    return text[:1].lower() + text[1:]
