"""Which columns of a DataFrame are written, and whether their types can be.

The rules are those of Spark's Kafka sink: `value` is required; `key`, `headers`, `partition` and
`topic` are taken when they are there; the option `topic` wins over the column; every other column
is left out. Ours alone is `timestamp`, which is taken only when `includeTimestamp` asks for it,
because a DataFrame that was read from a topic has one and does not mean it to be written.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.writing.errors import InputError

HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_BYTES = (StringType(), BinaryType())


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLayout:
    """Where the columns lie in each Arrow batch; None for one that is not written."""

    value: int
    key: int | None = None
    headers: int | None = None
    partition: int | None = None
    timestamp: int | None = None
    # Exactly one of these two is given.
    topic_name: str | None = None
    topic: int | None = None


def input_layout(
    schema: StructType, *, topic: str | None, with_timestamp: bool = False
) -> InputLayout:
    """The layout of a DataFrame with this schema; raises InputError if it can't be written."""
    value = _position(schema, "value", _BYTES)
    if value is None:
        raise InputError(f'The DataFrame has no column "value" to write{_its_columns(schema)}.')
    topic_position = _position(schema, "topic", (StringType(),)) if topic is None else None
    if topic is None and topic_position is None:
        raise InputError(
            'No topic is named: set the option "topic", or give the DataFrame a column "topic".'
        )
    return InputLayout(
        value=value,
        key=_position(schema, "key", _BYTES),
        headers=_position(schema, "headers", (HEADERS,)),
        partition=_position(schema, "partition", (IntegerType(),)),
        timestamp=_timestamp_position(schema) if with_timestamp else None,
        topic_name=topic,
        topic=topic_position,
    )


def _timestamp_position(schema: StructType) -> int:
    position = _position(schema, "timestamp", (TimestampType(),))
    if position is None:
        raise InputError(
            'The option "includeTimestamp" is true, but the DataFrame has no column "timestamp"'
            f"{_its_columns(schema)}."
        )
    return position


def _position(schema: StructType, name: str, allowed: Sequence[DataType]) -> int | None:
    """Where the column is, or None; names are compared with case, as Spark's Kafka sink does."""
    for position, field in enumerate(schema.fields):
        if field.name == name:
            _check_type(field, allowed)
            return position
    return None


def _check_type(field: StructField, allowed: Sequence[DataType]) -> None:
    if any(_same_but_for_nulls(field.dataType, each) for each in allowed):
        return
    wanted = " or ".join(each.simpleString() for each in allowed)
    raise InputError(
        f'The column "{field.name}" must be of type {wanted}, '
        f"but it is of type {field.dataType.simpleString()}."
    )


def _same_but_for_nulls(left: DataType, right: DataType) -> bool:
    """Whether two types are the same, whatever they say about nulls inside."""
    if isinstance(left, ArrayType) and isinstance(right, ArrayType):
        return _same_but_for_nulls(left.elementType, right.elementType)
    if isinstance(left, StructType) and isinstance(right, StructType):
        return left.names == right.names and all(
            _same_but_for_nulls(one.dataType, other.dataType)
            for one, other in zip(left.fields, right.fields, strict=True)
        )
    return left == right


def _its_columns(schema: StructType) -> str:
    return f": its columns are {', '.join(schema.names)}" if schema.names else ""
