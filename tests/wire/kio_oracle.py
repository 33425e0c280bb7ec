"""kio as the oracle: our messages as its entities, its bytes against ours.

kio never decodes mutated bytes here: a bad length aborts the process that it runs in.
"""

import dataclasses
import datetime
import importlib
import importlib.util
import io
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, classify_field
from kio.static.primitive import Records

from penstock.protocol.kafka.schema import schema_of

EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


def is_known(message: type, version: int) -> bool:
    """Whether kio has this version; told without loading its classes, which takes seconds."""
    return importlib.util.find_spec(package_name(message, version)) is not None


def kio_class(message: type, version: int) -> Any:
    """kio's class of the same message and version."""
    side = "request" if message.__name__.endswith("Request") else "response"
    module = importlib.import_module(f"{package_name(message, version)}.{side}")
    return getattr(module, message.__name__)


def package_name(message: type, version: int) -> str:
    api_key = schema_of(message).api_key
    assert api_key is not None
    return f"kio.schema.{api_key_map[api_key]}.v{version}"


def to_kio(message: Any, kio_type: Any) -> Any:
    """The same message as kio's entity; an attribute that only one side has raises."""
    values = {}
    for field in dataclasses.fields(kio_type):
        value = getattr(message, our_name(message, field.name))
        values[field.name] = to_kio_value(value, field)
    return kio_type(**values)


def our_name(message: Any, kio_name: str) -> str:
    # kio turns milliseconds into durations and drops the unit from the name.
    return kio_name if hasattr(message, kio_name) else f"{kio_name}_ms"


def to_kio_value(value: Any, field: Any) -> Any:
    kind = classify_field(field)
    if isinstance(kind, EntityField) and value is None:
        return field.default
    if isinstance(kind, EntityField):
        return to_kio(value, kind.type_)
    if value is None:
        return None
    if isinstance(kind, EntityTupleField):
        return tuple(to_kio(element, kind.type_) for element in value)
    if kind.is_array:
        return tuple(to_kio_scalar(element, field) for element in value)
    return to_kio_scalar(value, field)


def to_kio_scalar(value: Any, field: Any) -> Any:
    match field.metadata["kafka_type"]:
        case "error_code":
            return KioErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else EPOCH + datetime.timedelta(milliseconds=value)
        case "uuid":
            return value if value != UUID(int=0) else None
        case "records":
            return Records(bytes(value))
    return value


def write(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def read(kio_type: Any, encoded: bytes) -> Any:
    entity, size = entity_reader(kio_type)(encoded, 0)
    assert size == len(encoded)
    return entity
