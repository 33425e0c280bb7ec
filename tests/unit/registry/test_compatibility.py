"""Proves what is compatible, in all three formats, and that bad schemas get a sentence.

What is expected of Avro and JSON Schema was captured from Apicurio 2.6 (but for `into-one-of`, see
tests/soak/test_registry_beside_apicurio.py), and of Protobuf follows from Confluent's documents.
"""

import json
import random
import sys
from typing import Any

import pytest

from penstock.registry import decisions
from penstock.registry.decisions import Config
from penstock.registry.errors import INVALID_SCHEMA, SCHEMA_TOO_LARGE, RegistryError
from penstock.registry.schemas import Used, parse
from tests.soak.registry_requests import INVALID, LEVELS, PAIRS

from .rig import Rig

EXPECTED: dict[str, dict[str, str]] = {
    "AVRO": {
        "same": "BACKWARD FORWARD FULL",
        "added-default": "BACKWARD FORWARD FULL",
        "added": "FORWARD",
        "removed": "BACKWARD",
        "promoted": "BACKWARD",
        "narrowed": "FORWARD",
        "to-string": "BACKWARD FORWARD FULL",
        "float": "BACKWARD",
        "renamed-record": "",
        "made-nullable": "BACKWARD",
        "made-required": "FORWARD",
        "union-more": "BACKWARD",
        "union-less": "FORWARD",
        "array": "BACKWARD",
        "array-wrong": "",
        "map": "BACKWARD",
        "enum-more": "BACKWARD",
        "enum-less": "FORWARD",
        "enum-default": "BACKWARD FORWARD FULL",
        "fixed": "",
        "primitive": "BACKWARD",
        "kind": "",
        "alias": "BACKWARD",
        "recursive": "BACKWARD",
        "recursive-wrong": "",
        "nested": "FORWARD",
    },
    "JSON": {
        "same": "BACKWARD FORWARD FULL",
        "added-open": "FORWARD",
        "added-closed": "BACKWARD",
        "added-required-closed": "",
        "removed-open": "BACKWARD",
        "removed-closed": "FORWARD",
        "required-added": "FORWARD",
        "required-removed": "BACKWARD",
        "integer-to-number": "BACKWARD",
        "number-to-integer": "FORWARD",
        "type-changed": "",
        "closed": "FORWARD",
        "opened": "BACKWARD",
        "max-length-less": "FORWARD",
        "max-length-more": "BACKWARD",
        "minimum-added": "FORWARD",
        "minimum-removed": "BACKWARD",
        "maximum-less": "FORWARD",
        "pattern-added": "FORWARD",
        "enum-more": "BACKWARD",
        "enum-less": "FORWARD",
        "items": "BACKWARD",
        "items-wrong": "",
        "max-items-less": "FORWARD",
        "one-of-more": "BACKWARD",
        "one-of-less": "FORWARD",
        "into-one-of": "BACKWARD",
        "title": "BACKWARD FORWARD FULL",
        "nested": "",
    },
    "PROTOBUF": {
        "same": "BACKWARD FORWARD FULL",
        "added": "BACKWARD FORWARD FULL",
        "removed": "BACKWARD FORWARD FULL",
        "renamed": "BACKWARD FORWARD FULL",
        "widened": "BACKWARD FORWARD FULL",
        "kind": "",
        "signed": "",
        "text-bytes": "BACKWARD FORWARD FULL",
        "repeated": "",
        "message-removed": "FORWARD",
        "message-added": "BACKWARD",
        "named-type": "",
        "one-into-oneof": "BACKWARD FORWARD FULL",
    },
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, pairs in PAIRS.items() for name in pairs]
)
def test_each_level_accepts_what_it_should(kind: str, name: str) -> None:
    old, new = PAIRS[kind][name]
    accepted = []
    for level in LEVELS:
        rig = Rig()
        rig.register("subject", old, kind)
        rig.do(decisions.set_config, None, Config(compatibility=level))
        if not rig.fits("subject", new, kind):
            accepted.append(level)
    assert " ".join(accepted) == EXPECTED[kind][name]


@pytest.mark.parametrize("name", list(INVALID))
def test_what_is_not_a_schema_is_refused(name: str) -> None:
    kind, text = INVALID[name]
    with pytest.raises(RegistryError) as refused:
        parse(kind, text)
    assert refused.value.code == INVALID_SCHEMA
    assert refused.value.message.startswith("Invalid schema: ")


MUTATED = [
    '{"type":"record","name":"a.R","fields":[{"name":"x","type":["null",{"type":"enum",'
    '"name":"E","symbols":["A"]}],"default":null,"aliases":["y"]}]}',
    '{"type":"object","properties":{"a":{"$ref":"#/definitions/x"}},"definitions":{"x":{"items":'
    '[{"type":"string","pattern":"a*"}],"not":{"const":1}}},"required":["a"]}',
    'syntax = "proto3"; package p; message M { map<string, N> m = 1; oneof o { int32 a = 2; } '
    "message N { repeated E e = 1; enum E { Z = 0; } reserved 5 to 9; } }",
]


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_whatever_is_sent_is_a_schema_or_refused(kind: str) -> None:
    """Pieces of good schemas in any order, compared with the good one if they are a schema."""
    chance = random.Random(46)
    good = parse(kind, MUTATED[["AVRO", "JSON", "PROTOBUF"].index(kind)])
    valid = 0
    for _ in range(1_500):
        text = bytearray(chance.choice(MUTATED).encode())
        for _ in range(chance.randint(1, 4)):
            start = chance.randrange(len(text))
            size = chance.randint(0, 12)
            piece = text[chance.randrange(len(text)) :][: chance.randint(0, 12)]
            text[start : start + size] = piece
        try:
            found = parse(kind, text.decode(errors="replace"))
        except RegistryError:
            continue
        valid += 1
        for one, other in ((found, good), (good, found)):
            one.faults_reading(other)
        # What is shown is the same schema again.
        again = parse(kind, found.text)
        assert (again.text, again.normalized) == (found.text, found.normalized)
    assert valid


def test_avro_is_written_as_by_its_own_library() -> None:
    text = (
        '{"namespace": "a", "name": "R", "type": "record", "aliases": ["Q", "b.P"], "doc": "d", '
        '"p": 1, "fields": [{"type": {"type": "string"}, "name": "x", "order": "descending", '
        '"doc": "e"}, {"name": "y", "type": {"type": "enum", "name": "b.E", "symbols": ["A"], '
        '"default": "A"}}, {"name": "z", "type": ["b.E", "R"], "default": "A"}, {"name": "w", '
        '"type": {"type": "long", "logicalType": "timestamp-millis"}, "q": {"k": 1}}]}'
    )
    assert parse("AVRO", text).text == (
        '{"type":"record","name":"R","namespace":"a","doc":"d","fields":[{"name":"x","type":'
        '"string","doc":"e","order":"descending"},{"name":"y","type":{"type":"enum","name":"E",'
        '"namespace":"b","symbols":["A"],"default":"A"}},{"name":"z","type":["b.E","R"],"default"'
        ':"A"},{"name":"w","type":{"type":"long","logicalType":"timestamp-millis"},"q":{"k":1}}],'
        '"p":1,"aliases":["Q","b.P"]}'
    )


def test_alternatives_without_end_are_bounded() -> None:
    """Each level has twice as many alternatives as the one above; all of them differ."""

    def tower(depth: int, leaf: str) -> Any:
        if not depth:
            return {"type": leaf}
        return {
            "anyOf": [
                {"type": "object", "properties": {name: tower(depth - 1, leaf)}}
                for name in ("a", "b")
            ]
        }

    old, new = (parse("JSON", json.dumps(tower(9, leaf))) for leaf in ("string", "integer"))
    assert new.faults_reading(old)
    fields = [{"name": "left", "type": "N0"}, {"name": "right", "type": "N0"}]
    records: list[Any] = [
        {"type": "record", "name": "N0", "fields": [{"name": "x", "type": "int"}]}
    ]
    for level in range(1, 60):
        used = [each | {"type": f"N{level - 1}"} for each in fields]
        records.append({"type": "record", "name": f"N{level}", "fields": used})
    changed = [json.loads(json.dumps(records[0]).replace("int", "string")), *records[1:]]
    old, new = (
        parse(
            "AVRO",
            json.dumps(each[-1]),
            tuple(Used(one["name"], json.dumps(one)) for one in each[:-1]),
        )
        for each in (records, changed)
    )
    assert len(new.faults_reading(old)) < 200


def test_protobuf_options_of_programs_are_kept() -> None:
    text = 'syntax = "proto3"; import "google/protobuf/descriptor.proto"; message M { int32 a = 1 '
    text += '[(own) = "x"]; } extend google.protobuf.FieldOptions { string own = 5000; }'
    found = parse("PROTOBUF", text)
    assert '(own) = "x"' in found.text
    assert '(own) = "x"' in found.normalized


def test_protobuf_comes_back_from_its_descriptor() -> None:
    text = (
        'syntax = "proto2"; package p; import public "google/protobuf/any.proto"; '
        "option java_package = 'x'; message M { required int32 a = 1 [default = 5]; "
        "optional string s = 2 [default = 'q', json_name = 'other']; repeated E e = 3 "
        "[packed = true]; map<int32, M> m = 4; oneof o { bytes b = 5; google.protobuf.Any c = 6; } "
        "extensions 100 to max; reserved 50, 60 to 70; reserved 'old'; enum E { option "
        "allow_alias = true; Z = 0; Y = 0; reserved 9; } } extend M { optional int32 x = 100; } "
        "service S { rpc F (M) returns (stream M); }"
    )
    first = parse("PROTOBUF", text)
    again = parse("PROTOBUF", first.formatted("serialized"))
    assert again.normalized == first.normalized
    assert again.formatted("serialized") == first.formatted("serialized")
    assert not again.faults_reading(first)


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_a_missing_library_is_named(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("avro", "json_schema", "protobuf"):
        monkeypatch.setitem(sys.modules, f"penstock.registry.{name}.parsing", None)
    with pytest.raises(RegistryError, match=r"penstock-mq\[registry\]") as refused:
        parse(kind, f'"{kind}-without"')
    assert refused.value.status == 501


def test_protobuf_that_would_take_long_is_refused() -> None:
    with pytest.raises(RegistryError) as refused:
        parse("PROTOBUF", 'syntax = "proto3"; ' + ";" * 200_000)
    assert refused.value.code == SCHEMA_TOO_LARGE
