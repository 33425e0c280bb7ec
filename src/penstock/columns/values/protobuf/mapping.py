"""From a message's descriptor to the columns that hold it."""

from typing import Any

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor

from penstock.columns.values.protobuf.columns import (
    Column,
    EnumNames,
    Field,
    Fields,
    Instant,
    Json,
    Pairs,
    Repeated,
    Scalar,
    Span,
    Wrapped,
)
from penstock.columns.values.refusals import DecodeRefused

_INT = Scalar(arrow_type=pa.int32())
_BIGINT = Scalar(arrow_type=pa.int64())
_UNSIGNED_64 = Scalar(arrow_type=pa.decimal128(20, 0))

SCALARS = {
    FieldDescriptor.TYPE_INT32: _INT,
    FieldDescriptor.TYPE_SINT32: _INT,
    FieldDescriptor.TYPE_SFIXED32: _INT,
    FieldDescriptor.TYPE_UINT32: _BIGINT,
    FieldDescriptor.TYPE_FIXED32: _BIGINT,
    FieldDescriptor.TYPE_INT64: _BIGINT,
    FieldDescriptor.TYPE_SINT64: _BIGINT,
    FieldDescriptor.TYPE_SFIXED64: _BIGINT,
    FieldDescriptor.TYPE_UINT64: _UNSIGNED_64,
    FieldDescriptor.TYPE_FIXED64: _UNSIGNED_64,
    FieldDescriptor.TYPE_FLOAT: Scalar(arrow_type=pa.float32()),
    FieldDescriptor.TYPE_DOUBLE: Scalar(arrow_type=pa.float64()),
    FieldDescriptor.TYPE_BOOL: Scalar(arrow_type=pa.bool_()),
    FieldDescriptor.TYPE_STRING: Scalar(arrow_type=pa.string()),
    FieldDescriptor.TYPE_BYTES: Scalar(arrow_type=pa.binary()),
}
_PACKAGE = "google.protobuf."
WRAPPERS = {
    f"{_PACKAGE}{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
JSON_LIKE = {f"{_PACKAGE}{name}" for name in ("Struct", "Value", "ListValue")}


def message_columns(descriptor: Any) -> Fields:
    """Refuses a message within itself, and one without fields, each with a sentence."""
    columns = _message(descriptor, "", ())
    if not columns.fields:
        raise DecodeRefused(f"The Protobuf message {descriptor.full_name} has no fields.")
    return columns


def _message(descriptor: Any, path: str, within: tuple[str, ...]) -> Fields:
    name = descriptor.full_name
    if name in within:
        raise DecodeRefused(
            f"The Protobuf message {name} contains itself (at {path!r}), "
            "and no column of Spark's can hold that."
        )
    fields = [
        Field(name=field.name, presence=_presence(field), column=column)
        for field in descriptor.fields
        if (column := _column(field, f"{path}.{field.name}".lstrip("."), (*within, name)))
    ]
    blank = message_factory.GetMessageClass(descriptor)()
    return Fields(fields=tuple(fields), blank=blank)


def _presence(field: Any) -> bool:
    return bool(field.has_presence) and not _is_repeated(field)


def _is_repeated(field: Any) -> bool:
    # Newer versions of the library have the one attribute, older ones the other.
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)


def _column(field: Any, path: str, within: tuple[str, ...]) -> Column | None:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key = _single(message.fields_by_name["key"], f"{path}.key", within)
        value = _single(message.fields_by_name["value"], f"{path}.value", within)
        return Pairs(key=key, value=value) if key and value else None
    single = _single(field, path, within)
    return Repeated(item=single) if single and _is_repeated(field) else single


def _single(field: Any, path: str, within: tuple[str, ...]) -> Column | None:
    """None for a message without fields: Spark's files could not store a struct without any."""
    if field.enum_type is not None:
        numbers = field.enum_type.values_by_number
        return EnumNames(names={number: value.name for number, value in numbers.items()})
    message = field.message_type
    if message is None:
        return SCALARS[field.type]
    name = message.full_name
    if name == f"{_PACKAGE}Timestamp":
        return Instant(path=path)
    if name == f"{_PACKAGE}Duration":
        return Span(path=path)
    if name in WRAPPERS:
        return Wrapped(inner=SCALARS[message.fields_by_name["value"].type])
    if name in JSON_LIKE:
        return Json(path=path)
    columns = _message(message, path, within)
    return columns if columns.fields else None
