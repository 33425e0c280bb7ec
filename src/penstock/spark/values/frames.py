"""What the formats share about DataFrames: checking columns, and adding the two that result."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type

from penstock.columns.values.arrays import struct_array
from penstock.columns.values.refusals import DecodeRefused
from penstock.columns.values.results import ValueFormat, decoded_type

VALUE_FIELD = "value"
ERROR_FIELD = "error"
# What a decoder returns for each row before it is taken apart into the two columns.
SCRATCH = "__penstock_decoded"


def quoted(name: str) -> Column:
    """The column of exactly that name, whatever dots are in it."""
    return sf.col("`" + name.replace("`", "``") + "`")


def check_columns(frame: DataFrame, *, column: str, into: str, error: str) -> None:
    """The column is there, and the new names replace nothing; Spark compares names without case."""
    names = {name.lower() for name in frame.columns}
    if column.lower() not in names:
        raise DecodeRefused(
            f"The DataFrame has no column {column!r}; it has: {', '.join(frame.columns)}."
        )
    for new in (into, error):
        if new.lower() in names:
            raise DecodeRefused(
                f"The DataFrame already has a column {new!r}; give into= and error= other names."
            )
    if into.lower() == error.lower():
        raise DecodeRefused(f"into= and error= both name the column {into!r}.")


def column_type(frame: DataFrame, column: str) -> spark.DataType:
    return frame.select(quoted(column)).schema.fields[0].dataType


def require_binary(frame: DataFrame, column: str, what: str) -> None:
    found = column_type(frame, column)
    if not isinstance(found, spark.BinaryType):
        raise DecodeRefused(
            f"{what} is decoded from BINARY, and the column {column!r} is {found.simpleString()}."
        )


def with_columns(
    frame: DataFrame, scratch: Column, *, into: tuple[str, Column], error: tuple[str, Column]
) -> DataFrame:
    """The frame and two columns more, which are taken from `scratch` (see `scratch_field`)."""
    decoded = frame.withColumn(SCRATCH, once(scratch))
    kept = [quoted(name) for name in frame.columns]
    return decoded.select(*kept, into[1].alias(into[0]), error[1].alias(error[0]))


def scratch_field(name: str) -> Column:
    return sf.col(SCRATCH)[name]


def once(expression: Column) -> Column:
    """The same, but never evaluated twice.

    A filter on what is decoded (`decode_error IS NULL`) would be moved below the decoding,
    together with a second copy of it. Spark moves nothing past an expression that depends on
    chance, so it is made to.
    """
    return sf.when(~sf.isnan(sf.rand(0)), expression)


def decoded_spark_type(wanted: ValueFormat) -> spark.DataType:
    return from_arrow_type(decoded_type(wanted), prefer_timestamp_ntz=True)


def with_decoded(
    frame: DataFrame,
    value: Column,
    wanted: ValueFormat,
    into: str,
    error: str,
) -> DataFrame:
    """Decoded in Python, whole Arrow batches at a time."""

    def decode_batches(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        decoder = wanted.open()
        for batch in batches:
            found = decoder.decode(batch)
            parts = [found.values, found.errors]
            yield struct_array((VALUE_FIELD, ERROR_FIELD), parts, len(batch), None)

    fields = [
        spark.StructField(VALUE_FIELD, decoded_spark_type(wanted)),
        spark.StructField(ERROR_FIELD, spark.StringType()),
    ]
    # The annotations of the function tell Spark that it works on an iterator of arrays.
    decoding: Any = arrow_udf(decode_batches, spark.StructType(fields))  # type: ignore[call-overload]
    return with_columns(
        frame,
        decoding(value),
        into=(into, scratch_field(VALUE_FIELD)),
        error=(error, scratch_field(ERROR_FIELD)),
    )
