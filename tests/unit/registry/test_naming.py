"""Proves what each format calls the records that a schema describes."""

import json

import pytest

from penstock.registry.naming import record_names

PROTOBUF = """
syntax = "proto3";
// package wrong; message Comment {
package shop.v1;
/* message Hidden { } */
option note = "message Quoted {";
message Order {
  enum State { NEW = 0; }
  message Line { string item = 1; }
  oneof more { string a = 2; }
  Line line = 3;
}
message Other {}
"""


@pytest.mark.parametrize(
    ("kind", "schema", "names"),
    [
        ("AVRO", {"type": "record", "name": "Order", "fields": []}, {"Order"}),
        ("AVRO", {"type": "record", "name": "Order", "namespace": "shop"}, {"shop.Order"}),
        ("AVRO", {"type": "enum", "name": "a.State", "namespace": "shop"}, {"a.State"}),
        ("AVRO", "string", set()),
        ("AVRO", [{"type": "record", "name": "A"}], set()),
        ("AVRO", {"type": "record", "name": 7}, set()),
        ("JSON", {"title": "Order", "type": "object"}, {"Order"}),
        ("JSON", {"type": "object"}, set()),
        ("JSON", True, set()),
    ],
)
def test_json_text_says_its_name(kind: str, schema: object, names: set[str]) -> None:
    assert record_names(kind, json.dumps(schema)) == names


def test_protobuf_has_the_names_of_all_its_messages() -> None:
    assert record_names("PROTOBUF", PROTOBUF) == {
        "shop.v1.Order",
        "shop.v1.Order.Line",
        "shop.v1.Other",
    }


def test_what_can_not_be_read_has_no_name() -> None:
    assert record_names("AVRO", "{") == frozenset()
    assert record_names("JSON", "[" * 100_000) == frozenset()
    assert record_names("PROTOBUF", "}}}") == frozenset()
