"""Turns what is typed, piped or read from a file into records to produce."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO

from penstock.cli.failures import CommandFailed
from penstock.cli.formats import BadFormat, Format, decode, from_json, parse_json, to_utf8

LINE_BYTES_MAX = 100 * 1024 * 1024
Header = tuple[str, bytes | None]


class Input(StrEnum):
    """`lines`: a record per line; `json`: an object per line; `whole`: everything is one value."""

    LINES = "lines"
    JSON = "json"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    # Where it was read, if it says so: then it is a copy.
    topic: str | None = None
    # Bytes of input that it was made of, for the progress bar.
    input_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How input is read; what a line says itself beats `key`, `partition` and so on."""

    form: Input = Input.LINES
    value_format: Format = Format.TEXT
    key_format: Format = Format.TEXT
    key_separator: bytes | None = None
    # What stands for a null value, which deletes a key from a compacted topic.
    null: bytes | None = None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    name: str = "standard input"

    def records(self, source: BinaryIO) -> Iterator[NewRecord]:
        """The records in `source`; raises CommandFailed with the line that is wrong."""
        if self.form is Input.WHOLE:
            whole = source.read(LINE_BYTES_MAX + 1)
            yield self._located(1, whole, self._from_whole)
            return
        make = self._from_json if self.form is Input.JSON else self._from_line
        for number, line in enumerate(_lines(source), start=1):
            if self.form is Input.JSON and not line.strip():
                continue
            yield self._located(number, line, make)

    def _located(self, number: int, line: bytes, make: Callable[[bytes], NewRecord]) -> NewRecord:
        try:
            if len(line) > LINE_BYTES_MAX:
                raise BadFormat(f"it is longer than {LINE_BYTES_MAX} bytes")
            return make(line)
        except BadFormat as problem:
            raise CommandFailed(
                f"Line {number} of {self.name} can't be produced: {problem}."
            ) from None

    def _from_whole(self, data: bytes) -> NewRecord:
        return self._record(self._value(data), self.key, len(data))

    def _from_line(self, line: bytes) -> NewRecord:
        text = line.removesuffix(b"\n")
        key = self.key
        if self.key_separator is not None:
            before, separator, text = text.partition(self.key_separator)
            if not separator:
                raise BadFormat(f"the key separator {self.key_separator.decode()!r} is missing")
            key = decode(self.key_format, before)
        return self._record(self._value(text), key, len(line))

    def _value(self, written: bytes) -> bytes | None:
        return None if written == self.null else decode(self.value_format, written)

    def _record(self, value: bytes | None, key: bytes | None, input_bytes: int) -> NewRecord:
        return NewRecord(
            value=value,
            key=key,
            headers=self.headers,
            partition=self.partition,
            timestamp_ms=self.timestamp_ms,
            input_bytes=input_bytes,
        )

    def _from_json(self, line: bytes) -> NewRecord:
        content = _object(line)
        key_format = _format(content.get("key_format"), self.key_format)
        value_format = _format(content.get("value_format"), self.value_format)
        return NewRecord(
            value=_field("value", value_format, content.get("value")),
            key=_field("key", key_format, content["key"]) if "key" in content else self.key,
            headers=_headers(content["headers"]) if "headers" in content else self.headers,
            partition=_number("partition", content.get("partition"), self.partition, 31),
            timestamp_ms=_number("timestamp", content.get("timestamp"), self.timestamp_ms, 63),
            topic=_topic(content.get("topic")),
            input_bytes=len(line),
        )


def _lines(source: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: source.readline(LINE_BYTES_MAX + 1), b"")


def _object(line: bytes) -> dict[str, object]:
    try:
        content = parse_json(line)
    except ValueError as error:
        raise BadFormat(f"it is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise BadFormat("it is not a JSON object with value, key, headers and so on")
    return content


def _field(name: str, form: Format, held: object) -> bytes | None:
    try:
        return from_json(form, held)
    except BadFormat as problem:
        raise BadFormat(f"about its {name}, {problem}") from None


def _format(named: object, otherwise: Format) -> Format:
    if named is None:
        return otherwise
    try:
        return Format(str(named))
    except ValueError:
        raise BadFormat(f"{named!r} is not one of {', '.join(Format)}") from None


def _number(name: str, held: object, otherwise: int | None, bits: int) -> int | None:
    if held is None:
        return otherwise
    if not isinstance(held, int) or isinstance(held, bool) or not 0 <= held < 2**bits:
        raise BadFormat(f"its {name} is not a whole number from 0 to {2**bits - 1}")
    return held


def _topic(held: object) -> str | None:
    return held if isinstance(held, str) else None


def _headers(held: object) -> tuple[Header, ...]:
    """Headers as an object, or as pairs, since a name may occur twice."""
    pairs = list(held.items()) if isinstance(held, dict) else held
    if not isinstance(pairs, list):
        raise BadFormat("its headers are neither an object nor a list of pairs")
    return tuple(_header(pair) for pair in pairs)


def _header(pair: object) -> Header:
    if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
        raise BadFormat("a header is not a pair of a name and a value")
    name, held = pair
    to_utf8(name)
    if isinstance(held, dict) and set(held) == {"base64"}:
        return name, _field(f"header {name}", Format.BASE64, held["base64"])
    return name, _field(f"header {name}", Format.TEXT, held)
