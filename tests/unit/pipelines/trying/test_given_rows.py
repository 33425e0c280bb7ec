"""Rows that a case gives to a source are typed, and completed with what a topic adds."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import types as spark

from penstock.pipelines.specification.model import (
    Case,
    Decoding,
    FileSource,
    TopicSource,
    ValueFormat,
)
from penstock.pipelines.specification.problems import Place, SpecificationRefused
from penstock.pipelines.trying.given_rows import GivenRows, given_rows

PLACE = Place("iot.yaml", 40)
HEADER = spark.StructType().add("key", "string").add("value", "binary")
RAW = (
    spark.StructType()
    .add("key", "binary")
    .add("value", "binary")
    .add("topic", "string")
    .add("partition", "integer")
    .add("offset", "long")
    .add("timestamp", "timestamp")
    .add("timestampType", "integer")
    .add("headers", spark.ArrayType(HEADER))
)
DECODED = (
    spark.StructType()
    .add("sensor", "string")
    .add("temperature", "double")
    .add("key", "binary")
    .add("offset", "long")
)
SOURCE = TopicSource(
    name="readings",
    options={"subscribe": "temperatures,others"},
    decoding=Decoding(format=ValueFormat.JSON, keep=("key", "offset"), place=PLACE),
    place=PLACE,
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def given(*batches: list[dict[str, Any]], decoded: spark.StructType = DECODED) -> GivenRows:
    rows = {"readings": tuple(tuple(batch) for batch in batches)}
    case = Case(name="hot", given=rows, expected={}, place=PLACE)
    return given_rows(case, SOURCE, RAW, decoded)


def test_decoded_rows_get_the_kept_columns_of_a_topic() -> None:
    rows = given([{"sensor": "a", "temperature": 1}], [{"sensor": "b", "key": "k"}])
    assert rows.is_decoded
    assert rows.schema == DECODED
    assert rows.batches == (
        ({"offset": 0, "sensor": "a", "temperature": 1.0},),
        ({"offset": 1, "sensor": "b", "key": b"k"},),
    )


def test_records_are_completed_and_will_be_decoded() -> None:
    headers = {"trace": "1"}
    rows = given([{"key": "k", "value": {"sensor": "a"}, "headers": headers}, {"value": "{"}])
    assert not rows.is_decoded
    assert rows.schema == RAW
    first, second = rows.batches[0]
    assert first["value"] == b'{"sensor": "a"}'
    assert first["headers"] == [{"key": "trace", "value": b"1"}]
    assert (first["topic"], first["partition"], first["offset"]) == ("temperatures", 0, 0)
    assert second == {
        "topic": "temperatures",
        "partition": 0,
        "offset": 1,
        "timestamp": EPOCH + timedelta(milliseconds=1),
        "timestampType": 0,
        "value": b"{",
    }


def test_a_field_named_value_makes_decoded_rows_and_not_records() -> None:
    decoded = spark.StructType().add("value", "double").add("offset", "long")
    assert given([{"value": 1}], decoded=decoded).is_decoded


def test_of_avro_the_bytes_are_needed() -> None:
    avro = replace(SOURCE, decoding=Decoding(format=ValueFormat.AVRO, schema="x", place=PLACE))
    rows = {"readings": (({"value": b"a"}, {"value": {"sensor": "a"}}),)}
    case = Case(name="hot", given=rows, expected={}, place=PLACE)
    with pytest.raises(SpecificationRefused, match="row 2: a value in avro is given as bytes"):
        given_rows(case, avro, RAW, DECODED)


def test_a_field_of_the_value_is_not_filled_in_for_the_record() -> None:
    """Here `timestamp` is decoded, and only `key` and `offset` are the record's."""
    decoded = spark.StructType().add("timestamp", "string").add("key", "binary")
    decoded = decoded.add("offset", "long")
    decoding = Decoding(format=ValueFormat.JSON, place=PLACE)
    rows = {"readings": (({"timestamp": None},),)}
    case = Case(name="hot", given=rows, expected={}, place=PLACE)
    found = given_rows(case, replace(SOURCE, decoding=decoding), RAW, decoded)
    assert found.batches == (({"offset": 0, "timestamp": None},),)


def test_a_source_that_is_not_named_has_no_rows() -> None:
    case = Case(name="hot", given={}, expected={}, place=PLACE)
    rows = given_rows(case, SOURCE, RAW, DECODED)
    assert rows.batches == ()


def test_rows_of_files_are_taken_as_they_are() -> None:
    source = FileSource(name="readings", path="x", format="csv", schema="", place=PLACE)
    case = Case(name="hot", given={"readings": (({"sensor": "a"},),)}, expected={}, place=PLACE)
    assert given_rows(case, source, DECODED, DECODED).batches == (({"sensor": "a"},),)


@pytest.mark.parametrize(
    ("batches", "sentence"),
    [
        (
            [[{"sensor": "a"}], [{"sensor": "a"}, {"sensor": 1}]],
            "readings, micro-batch 2, row 2: The column 'sensor': 1 is not a STRING; put it in"
            " quotes.",
        ),
        (
            [[{"sensr": "a"}]],
            "readings, row 1: There is no column 'sensr'; did you mean 'sensor'?",
        ),
        (
            [[{"value": "x", "headers": "h"}]],
            "readings, row 1: Headers must be a mapping or a list of {key, value}, not 'h'.",
        ),
        (
            [[{"value": "x"}, {"sensor": "a"}]],
            "readings: either all rows are records with a value, or none is; a value may be given"
            " as a mapping, which becomes JSON.",
        ),
    ],
)
def test_wrong_rows_are_named_with_their_case(
    batches: list[list[dict[str, Any]]], sentence: str
) -> None:
    with pytest.raises(SpecificationRefused) as refused:
        given(*batches)
    assert str(refused.value) == f"iot.yaml:40: The test 'hot': {sentence}"
