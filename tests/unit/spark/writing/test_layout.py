"""Proves which columns are written, which types they may have, and what is said of the others."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.writing.errors import InputError
from penstock.spark.writing.layout import InputLayout, input_layout


def schema(*columns: tuple[str, object]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns])  # type: ignore[arg-type]


HEADERS = ArrayType(
    StructType([StructField("key", StringType(), False), StructField("value", BinaryType())]),
    containsNull=False,
)


def test_the_value_alone_is_enough_when_an_option_names_the_topic() -> None:
    found = input_layout(schema(("value", BinaryType())), topic="orders")
    assert found == InputLayout(value=0, topic_name="orders")


def test_columns_are_found_wherever_they_lie_and_others_are_left_out() -> None:
    found = input_layout(
        schema(
            ("offset", IntegerType()),
            ("partition", IntegerType()),
            ("headers", HEADERS),
            ("topic", StringType()),
            ("timestamp", TimestampType()),
            ("value", StringType()),
            ("key", StringType()),
        ),
        topic=None,
    )
    assert found == InputLayout(value=5, key=6, headers=2, partition=1, topic=3)


def test_the_option_wins_over_the_topic_column_whatever_its_type() -> None:
    found = input_layout(schema(("topic", IntegerType()), ("value", StringType())), topic="orders")
    assert found.topic_name == "orders"
    assert found.topic is None


def test_the_timestamp_is_taken_only_on_request() -> None:
    columns = schema(("value", BinaryType()), ("timestamp", TimestampType()))
    assert input_layout(columns, topic="orders").timestamp is None
    assert input_layout(columns, topic="orders", with_timestamp=True).timestamp == 1


@pytest.mark.parametrize(
    ("ddl", "sentence"),
    [
        (
            ("key", StringType()),
            'The DataFrame has no column "value" to write: its columns are key.',
        ),
        (
            ("value", IntegerType()),
            'The column "value" must be of type string or binary, but it is of type int.',
        ),
    ],
)
def test_a_value_that_is_missing_or_of_a_wrong_type_is_told(
    ddl: tuple[str, object], sentence: str
) -> None:
    with pytest.raises(InputError) as refused:
        input_layout(schema(ddl), topic="orders")
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (("key", IntegerType()), "string or binary"),
        (("topic", BinaryType()), "string"),
        (("partition", StringType()), "int"),
        (("headers", StringType()), "array<struct<key:string,value:binary>>"),
        (
            (
                "headers",
                ArrayType(
                    StructType(
                        [StructField("key", StringType()), StructField("value", StringType())]
                    )
                ),
            ),
            "array<struct<key:string,value:binary>>",
        ),
    ],
)
def test_a_column_of_a_wrong_type_is_told(column: tuple[str, object], wanted: str) -> None:
    with pytest.raises(InputError) as refused:
        input_layout(schema(("value", BinaryType()), column, ("topic", StringType())), topic=None)
    assert f'The column "{column[0]}" must be of type {wanted}, but it is of' in str(refused.value)


def test_a_write_without_any_topic_is_told() -> None:
    with pytest.raises(InputError, match='set the option "topic", or give the DataFrame a column'):
        input_layout(schema(("value", BinaryType())), topic=None)


def test_a_timestamp_that_is_asked_for_must_be_there() -> None:
    with pytest.raises(InputError, match='no column "timestamp": its columns are value'):
        input_layout(schema(("value", BinaryType())), topic="orders", with_timestamp=True)
