"""Values as they stand in a specification, made into values of a column's type.

A test case says `at: "2026-01-01T00:00:00Z"` and `count: 1`; the column says whether that is a
TIMESTAMP or a STRING, an INT or a DOUBLE. The result is what pyarrow gives for such a column.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from typing import Any

from pyspark.sql import types as spark

INTEGER_BITS: dict[type[spark.DataType], int] = {
    spark.ByteType: 8,
    spark.ShortType: 16,
    spark.IntegerType: 32,
    spark.LongType: 64,
}


class NotOfType(Exception):
    """A value that its column can't hold; the text is one sentence."""


def typed_row(row: Mapping[str, Any], schema: spark.StructType) -> dict[str, Any]:
    """The row with values of the schema's types; only the columns that the row names."""
    result = {}
    for name, value in row.items():
        field = _field(schema, name)
        try:
            result[field.name] = typed(value, field.dataType)
        except NotOfType as problem:
            raise NotOfType(f"The column {field.name!r}: {problem}") from None
    return result


def typed(value: Any, kind: spark.DataType) -> Any:
    """The value as one of that type; of a struct only the fields that are named."""
    if value is None:
        return None
    if isinstance(kind, spark.StructType):
        return _struct(value, kind)
    if isinstance(kind, spark.ArrayType):
        return [typed(item, kind.elementType) for item in _sequence(value, kind)]
    if isinstance(kind, spark.MapType):
        return _pairs(value, kind)
    if type(kind) in INTEGER_BITS:
        return _integer(value, kind)
    convert = CONVERSIONS.get(type(kind))
    if convert is None:
        raise NotOfType(f"Values of the type {kind.simpleString()} can't be given in a test.")
    return convert(value, kind)


def _field(schema: spark.StructType, name: str) -> spark.StructField:
    names = {field.name.lower(): field for field in schema.fields}
    field = names.get(name.lower())
    if field is not None:
        return field
    near = get_close_matches(name.lower(), names, n=1)
    there = f"did you mean {names[near[0]].name!r}?" if near else f"there are: {_named(schema)}."
    raise NotOfType(f"There is no column {name!r}; {there}")


def _named(schema: spark.StructType) -> str:
    return ", ".join(field.name for field in schema.fields)


def _struct(value: Any, kind: spark.StructType) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _refused(value, kind)
    return typed_row(value, kind)


def _sequence(value: Any, kind: spark.DataType) -> Sequence[Any]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise _refused(value, kind)
    return value


def _pairs(value: Any, kind: spark.MapType) -> list[tuple[Any, Any]]:
    if not isinstance(value, Mapping):
        raise _refused(value, kind)
    return [(typed(key, kind.keyType), typed(item, kind.valueType)) for key, item in value.items()]


def _integer(value: Any, kind: spark.DataType) -> int:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole:
        raise _refused(value, kind)
    limit = 1 << INTEGER_BITS[type(kind)] - 1
    if not -limit <= value < limit:
        raise _refused(value, kind)
    return int(value)


def _double(value: Any, kind: spark.DataType) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _refused(value, kind)
    return float(value)


def _decimal(value: Any, kind: spark.DataType) -> Decimal:
    assert isinstance(kind, spark.DecimalType)
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise _refused(value, kind)
    try:
        exact = Decimal(str(value))
        rounded = exact.quantize(Decimal(1).scaleb(-kind.scale))
    except InvalidOperation:
        raise _refused(value, kind) from None
    if rounded != exact or len(rounded.as_tuple().digits) > kind.precision:
        raise _refused(value, kind)
    return rounded


def _boolean(value: Any, kind: spark.DataType) -> bool:
    if not isinstance(value, bool):
        raise _refused(value, kind)
    return value


def _string(value: Any, kind: spark.DataType) -> str:
    if isinstance(value, str):
        return value
    # YAML reads an unquoted 12 as a number and an unquoted 2026-01-01 as a date.
    raise NotOfType(f"{value!r} is not a STRING; put it in quotes.")


def binary(value: Any, kind: spark.DataType | None = None) -> bytes:
    """Text as UTF-8; lists and mappings as JSON, which is what most records hold."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False, default=_json_text).encode()


def _json_text(value: Any) -> str:
    if isinstance(value, datetime):
        return _aware(value).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    raise NotOfType(f"{value!r} can't be written as JSON.")


def _timestamp(value: Any, kind: spark.DataType) -> datetime:
    return _aware(_datetime(value, kind))


def _local_timestamp(value: Any, kind: spark.DataType) -> datetime:
    return _datetime(value, kind).replace(tzinfo=None)


def _datetime(value: Any, kind: spark.DataType) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if not isinstance(value, str):
        raise _refused(value, kind)
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise _refused(value, kind) from None


def _aware(moment: datetime) -> datetime:
    """Without an offset a time is UTC, as it is for the session that tests run in."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _date(value: Any, kind: spark.DataType) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        raise _refused(value, kind) from None


def _duration(value: Any, kind: spark.DataType) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise NotOfType(f"{value!r} is not a number of seconds.")
    return timedelta(seconds=value)


def _refused(value: Any, kind: spark.DataType) -> NotOfType:
    return NotOfType(f"{value!r} is not of type {kind.simpleString().upper()}.")


CONVERSIONS: dict[type[spark.DataType], Callable[[Any, spark.DataType], Any]] = {
    spark.BooleanType: _boolean,
    spark.FloatType: _double,
    spark.DoubleType: _double,
    spark.DecimalType: _decimal,
    spark.StringType: _string,
    spark.BinaryType: binary,
    spark.TimestampType: _timestamp,
    spark.TimestampNTZType: _local_timestamp,
    spark.DateType: _date,
    spark.DayTimeIntervalType: _duration,
}
