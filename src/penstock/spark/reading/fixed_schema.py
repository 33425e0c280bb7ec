"""A topic has the columns that it has; a schema given by the user may only repeat them."""

from collections.abc import Sequence

from pyspark.sql.types import StructType

from penstock.columns.layout import spark_schema
from penstock.spark.options.errors import OptionError


def check_schema(schema: StructType, columns: Sequence[str]) -> None:
    if _shape(schema) != _wanted(columns):
        raise OptionError(
            "The schema of a topic is fixed and can't be set: choose columns with the option"
            " columns and decode values with penstock.spark.decode; the columns here are"
            f" {spark_schema(columns)}."
        )


def _shape(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def _wanted(columns: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, _SIMPLE_TYPES[name]) for name in columns]


# Spark's short form of the types in `spark_schema`, which can only be parsed inside a session.
_SIMPLE_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
