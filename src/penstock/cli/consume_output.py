"""Writes consumed records to standard output, as lines of text or of JSON."""

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, BinaryIO

from penstock.cli.formats import Format, encode, to_json
from penstock.cli.template import Template, shown_headers

if TYPE_CHECKING:
    from penstock.client.consumer import ConsumedRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """How a record is written; `as_json` lines can be read back by `produce --input json`."""

    as_json: bool = False
    value_format: Format = Format.TEXT
    key_format: Format = Format.TEXT
    # Keys are written in front of values when there is something to divide them.
    key_separator: bytes | None = None
    details: bool = False
    null: bytes = b""
    # Instead of all that: what is written for a record, as kcat's -f says it.
    template: Template | None = None

    def write(self, record: "ConsumedRecord", sink: BinaryIO) -> None:
        if self.template is not None:
            sink.write(self.template.filled(record, self.null))
            return
        sink.write(self._as_json(record) if self.as_json else self._as_text(record))
        sink.write(b"\n")

    def _as_text(self, record: "ConsumedRecord") -> bytes:
        line = self._text(self.value_format, record.value)
        if self.key_separator is not None:
            line = self._text(self.key_format, record.key) + self.key_separator + line
        return _details(record) + line if self.details else line

    def _text(self, form: Format, data: bytes | None) -> bytes:
        return self.null if data is None else encode(form, data)

    def _as_json(self, record: "ConsumedRecord") -> bytes:
        try:
            return self._json_line(record, self.key_format, self.value_format)
        except RecursionError:
            # What can just be read may be nested too deeply to be written inside something else.
            return self._json_line(record, Format.BASE64, Format.BASE64)

    def _json_line(
        self, record: "ConsumedRecord", wanted_key: Format, wanted_value: Format
    ) -> bytes:
        key, key_format = to_json(wanted_key, record.key)
        value, value_format = to_json(wanted_value, record.value)
        content: dict[str, object] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "key": key,
            "value": value,
            "headers": [[name, _header_value(held)] for name, held in record.headers],
        }
        # Said only where `produce` could not guess it.
        if key_format is not Format.TEXT:
            content["key_format"] = key_format
        if value_format is not Format.TEXT:
            content["value_format"] = value_format
        return json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _details(record: "ConsumedRecord") -> bytes:
    headers = shown_headers(record).decode(errors="replace")
    place = f"{record.topic}-{record.partition}@{record.offset}"
    return f"{place} {_time(record.timestamp_ms)} [{headers}] ".encode()


def _time(timestamp_ms: int | None) -> str:
    """As `--from` reads it; a time beyond Python's calendar stays a number."""
    if timestamp_ms is None:
        return "-"
    try:
        at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"@{timestamp_ms}"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _header_value(held: bytes | None) -> object:
    if held is None:
        return None
    try:
        return held.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(held).decode()}
