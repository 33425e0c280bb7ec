"""Proves that Avro schemas are taken from text or file, and refused with one sentence each."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.columns.values.avro.decoder import AvroFormat
from penstock.columns.values.avro.schema import parse_schema, schema_text
from penstock.spark.values import DecodeRefused
from penstock.spark.values.frames import decoded_spark_type
from tests.unit.columns.values.avro_rows import record


def test_text_file_path_and_parsed_json_mean_the_same(tmp_path: Path) -> None:
    schema = record(a="int")
    file = tmp_path / "sample.avsc"
    file.write_text(json.dumps(schema))
    for given in (json.dumps(schema), str(file), file, schema):
        kind = decoded_spark_type(AvroFormat(schema=schema_text(given)))
        assert kind.simpleString() == "struct<a:int>"


def test_the_name_of_a_primitive_is_a_schema() -> None:
    assert decoded_spark_type(AvroFormat(schema=schema_text("long"))).simpleString() == "bigint"
    assert decoded_spark_type(AvroFormat(schema=schema_text('"long"'))).simpleString() == "bigint"


NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}
REFUSED: list[tuple[Any, str]] = [
    ("{", "The Avro schema is not valid JSON"),
    (json.dumps(record(a="unheard")), "the type 'unheard' is unknown"),
    (json.dumps({"type": "array"}), "the attribute 'items' is missing"),
    (json.dumps({"type": "enum", "name": "E", "symbols": ["A", "A"]}), "must be unique"),
    (json.dumps(NODE), "The Avro type Node contains itself"),
    (json.dumps(record()), "The Avro record Sample has no fields."),
    (json.dumps({"type": "array", "items": "null"}), "take no bytes"),
    (json.dumps(["null", "null"]), "has null twice"),
    (json.dumps([["null"]]), "is empty or nested"),
    (json.dumps({"type": "fixed", "name": "F", "size": 0}), "has a size of 0"),
    (
        json.dumps({"type": "bytes", "logicalType": "decimal", "precision": 39}),
        "has a precision of 39",
    ),
    (
        json.dumps({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 4}),
        "scale must be less than or equal to the precision",
    ),
    ("/nowhere/to/be/found.avsc", "can't be read: No such file or directory."),
    ("", "Avro needs schema="),
    (None, "Avro needs schema="),
    (5, "Avro needs schema="),
]


@pytest.mark.parametrize(("schema", "sentence"), REFUSED)
def test_a_schema_that_cannot_be_used_is_refused(schema: Any, sentence: str) -> None:
    with pytest.raises(DecodeRefused) as refused:
        parse_schema(schema_text(schema))
    assert sentence in str(refused.value)
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)


def test_a_field_given_twice_is_refused() -> None:
    schema = {
        "type": "record",
        "name": "Sample",
        "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}],
    }
    with pytest.raises(DecodeRefused, match="has the field 'a' twice"):
        parse_schema(json.dumps(schema))
