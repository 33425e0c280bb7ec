"""The layout of columns is Spark's own, in its schema language as well as in Arrow."""

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.columns.arrow_layout import arrow_schema
from penstock.columns.layout import COLUMNS, spark_schema

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_SPARK_SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(_HEADER)),
    ]
)


def test_the_arrow_schema_is_the_one_that_spark_asks_for() -> None:
    expected = to_arrow_schema(_SPARK_SCHEMA, timezone="UTC")
    assert arrow_schema(COLUMNS).equals(expected, check_metadata=True)


def test_the_text_of_the_schema_names_sparks_types() -> None:
    simple = _SPARK_SCHEMA.simpleString().removeprefix("struct<").removesuffix(">")
    ours = spark_schema(COLUMNS).replace("`", "").lower()
    # What Spark prints as a timestamp is the one with local time zone.
    ours = ours.replace("timestamp_ltz", "timestamp").replace("timestamptype ", "timestampType ")
    assert ours.replace(", ", ",").replace(": ", ":").replace(" ", ":") == simple


def test_the_text_of_the_schema_means_the_same_under_all_settings_of_a_session() -> None:
    """As TIMESTAMP does not under spark.sql.timestampType, and `key` where keywords are kept."""
    assert spark_schema(("key", "timestamp", "headers")) == (
        "`key` BINARY, `timestamp` TIMESTAMP_LTZ, "
        "`headers` ARRAY<STRUCT<`key`: STRING, `value`: BINARY>>"
    )


def test_columns_come_in_the_order_asked_for() -> None:
    assert spark_schema(("offset", "key")) == "`offset` BIGINT, `key` BINARY"
    assert arrow_schema(("offset", "key")).names == ["offset", "key"]
