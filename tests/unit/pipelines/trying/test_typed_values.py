"""Values in a test case become values of their column's type, or are refused in a sentence."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import types as spark

from penstock.pipelines.trying.typed_values import NotOfType, typed, typed_row

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "kind", "result"),
    [
        (1, spark.DoubleType(), 1.0),
        (1.0, spark.IntegerType(), 1),
        (255, spark.LongType(), 255),
        ("1.50", spark.DecimalType(6, 2), Decimal("1.50")),
        (1.5, spark.DecimalType(6, 2), Decimal("1.50")),
        ("a", spark.StringType(), "a"),
        ("ä", spark.BinaryType(), b"\xc3\xa4"),
        (b"\x00", spark.BinaryType(), b"\x00"),
        ({"a": [1, NOON]}, spark.BinaryType(), b'{"a": [1, "2026-01-01T12:00:00Z"]}'),
        (True, spark.BooleanType(), True),
        ("2026-01-01T12:00:00Z", spark.TimestampType(), NOON),
        ("2026-01-01T13:00:00+01:00", spark.TimestampType(), NOON),
        ("2026-01-01 12:00:00", spark.TimestampType(), NOON),
        (datetime(2026, 1, 1, 12), spark.TimestampType(), NOON),
        ("2026-01-01T12:00:00", spark.TimestampNTZType(), datetime(2026, 1, 1, 12)),
        ("2026-01-01", spark.TimestampType(), datetime(2026, 1, 1, tzinfo=UTC)),
        (date(2026, 1, 1), spark.TimestampType(), datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01", spark.DateType(), date(2026, 1, 1)),
        (90, spark.DayTimeIntervalType(), timedelta(seconds=90)),
        ([1, 2], spark.ArrayType(spark.DoubleType()), [1.0, 2.0]),
        ({"a": 1}, spark.MapType(spark.StringType(), spark.DoubleType()), [("a", 1.0)]),
        (None, spark.StringType(), None),
    ],
)
def test_a_value_becomes_one_of_its_columns_type(
    value: Any, kind: spark.DataType, result: Any
) -> None:
    made = typed(value, kind)
    assert made == result
    assert type(made) is type(result)


@pytest.mark.parametrize(
    ("value", "kind", "sentence"),
    [
        (1.5, spark.IntegerType(), "1.5 is not of type INT."),
        (True, spark.IntegerType(), "True is not of type INT."),
        (300, spark.ByteType(), "300 is not of type TINYINT."),
        ("1", spark.DoubleType(), "'1' is not of type DOUBLE."),
        ("1.234", spark.DecimalType(6, 2), "'1.234' is not of type DECIMAL(6,2)."),
        (12, spark.StringType(), "12 is not a STRING; put it in quotes."),
        (1, spark.BooleanType(), "1 is not of type BOOLEAN."),
        ("noon", spark.TimestampType(), "'noon' is not of type TIMESTAMP."),
        (5, spark.DateType(), "5 is not of type DATE."),
        ("abc", spark.ArrayType(spark.StringType()), "'abc' is not of type ARRAY<STRING>."),
        (1, spark.VariantType(), "Values of the type variant can't be given in a test."),
    ],
)
def test_a_value_that_does_not_fit_is_refused(
    value: Any, kind: spark.DataType, sentence: str
) -> None:
    with pytest.raises(NotOfType) as refused:
        typed(value, kind)
    assert str(refused.value) == sentence


def test_a_row_has_only_the_columns_it_names_and_structs_only_their_fields() -> None:
    window = spark.StructType().add("start", "timestamp").add("end", "timestamp")
    schema = spark.StructType().add("Sensor", "string").add("window", window).add("mean", "double")
    row = typed_row({"sensor": "a", "window": {"start": "2026-01-01T12:00:00Z"}}, schema)
    assert row == {"Sensor": "a", "window": {"start": NOON}}


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"temprature": 1}, "There is no column 'temprature'; did you mean 'temperature'?"),
        ({"zzz": 1}, "There is no column 'zzz'; there are: sensor, temperature."),
        ({"temperature": "x"}, "The column 'temperature': 'x' is not of type DOUBLE."),
    ],
)
def test_a_wrong_column_is_named(row: dict[str, Any], sentence: str) -> None:
    schema = spark.StructType().add("sensor", "string").add("temperature", "double")
    with pytest.raises(NotOfType) as refused:
        typed_row(row, schema)
    assert str(refused.value) == sentence
