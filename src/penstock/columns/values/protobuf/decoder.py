"""Protobuf values of a column: each parsed, then all turned into Arrow a field at a time."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.message import DecodeError

from penstock.columns.values.protobuf.columns import Unholdable
from penstock.columns.values.protobuf.mapping import message_columns
from penstock.columns.values.protobuf.sources import MessageSource
from penstock.columns.values.results import Decoded

# Magic byte and schema id; the numbers that say which message of the schema it is come after.
HEADER_BYTES = 5
VARINT_BYTES_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufFormat:
    source: MessageSource
    framed: bool = False

    def open(self) -> "ProtobufDecoder":
        return ProtobufDecoder(self)


class ProtobufDecoder:
    def __init__(self, wanted: ProtobufFormat) -> None:
        descriptor = wanted.source.descriptor()
        self._name = descriptor.full_name
        self._framed = wanted.framed
        self._class = message_factory.GetMessageClass(descriptor)
        self._columns = message_columns(descriptor)
        self._required = _has_required(descriptor, set())

    def decode(self, values: pa.Array) -> Decoded:
        reasons: list[str | None] = [None] * len(values)
        messages = self._parsed(values.to_pylist(), reasons)
        decoded = self._array(messages, reasons, 0)
        return Decoded(values=decoded, errors=pa.array(reasons, pa.string()))

    def _parsed(self, values: list[bytes | None], reasons: list[str | None]) -> list[Any]:
        parse, framed, required = self._class.FromString, self._framed, self._required
        messages: list[Any] = []
        for row, value in enumerate(values):
            if value is None:
                messages.append(None)
                continue
            try:
                message = parse(_unframed(value) if framed else value)
                if required and not message.IsInitialized():
                    missing = ", ".join(message.FindInitializationErrors())
                    raise Unholdable(f"The Protobuf message {self._name} does not have {missing}.")
            except DecodeError:
                reasons[row] = f"The value is not a Protobuf message {self._name}."
                message = None
            except Unholdable as error:
                reasons[row] = str(error)
                message = None
            messages.append(message)
        return messages

    def _array(self, messages: list[Any], reasons: list[str | None], start: int) -> pa.Array:
        """A message that can't be held is found by halving, so that good batches pay nothing."""
        try:
            return self._columns.array(messages)
        except (Unholdable, ValueError, ArithmeticError, pa.ArrowException) as error:
            if len(messages) == 1:
                reasons[start] = self._reason(error)
                return self._columns.array([None])
        half = len(messages) // 2
        first = self._array(messages[:half], reasons, start)
        return pa.concat_arrays([first, self._array(messages[half:], reasons, start + half)])

    def _reason(self, error: Exception) -> str:
        if isinstance(error, Unholdable):
            return str(error)
        # Depending on the library's version such a string comes out as bytes, or not at all.
        if isinstance(error, UnicodeError) or "utf8" in str(error):
            return f"A string in the Protobuf message {self._name} is not valid UTF-8."
        return f"A field of the Protobuf message {self._name} does not fit its column."


def _has_required(descriptor: Any, seen: set[str]) -> bool:
    """Whether parsing must be followed by a check, because the library does not make it."""
    if descriptor.full_name in seen:
        return False
    seen.add(descriptor.full_name)
    for field in descriptor.fields:
        required = getattr(field, "is_required", None)
        if required or (required is None and field.label == field.LABEL_REQUIRED):
            return True
        if field.message_type is not None and _has_required(field.message_type, seen):
            return True
    return False


def _unframed(value: bytes) -> bytes:
    """What follows the header and the list of message numbers, which begins with its length."""
    if len(value) <= HEADER_BYTES:
        raise Unholdable("The Protobuf value is shorter than its header.")
    if value[0] != 0:
        raise Unholdable("The header of the Protobuf value does not start with a zero byte.")
    count, position = _varint(value, HEADER_BYTES)
    for _ in range(count >> 1):
        _, position = _varint(value, position)
    return value[position:]


def _varint(value: bytes, position: int) -> tuple[int, int]:
    number = 0
    for n, byte in enumerate(value[position : position + VARINT_BYTES_MAX]):
        number |= (byte & 127) << 7 * n
        if byte < 128:
            return number, position + n + 1
    raise Unholdable("The list of message numbers in the header of the Protobuf value is cut.")
