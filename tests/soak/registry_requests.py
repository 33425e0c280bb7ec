"""A few hundred requests to a schema registry, as a conversation: each may follow from others."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple


class Asked(NamedTuple):
    name: str
    method: str
    path: str
    body: Any = None


def record(name: str, *fields: Any) -> str:
    made = [
        {"name": each[0], "type": each[1]} | ({"default": each[2]} if len(each) > 2 else {})
        for each in fields
    ]
    return json.dumps({"type": "record", "name": name, "fields": made})


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
# Old and new schemas; what each level says about them is compared.
AVRO_PAIRS: dict[str, tuple[Any, Any]] = {
    "same": (record("R", ("a", "int")), record("R", ("a", "int"))),
    "added-default": (record("R", ("a", "int")), record("R", ("a", "int"), ("b", "int", 0))),
    "added": (record("R", ("a", "int")), record("R", ("a", "int"), ("b", "int"))),
    "removed": (record("R", ("a", "int"), ("b", "int")), record("R", ("a", "int"))),
    "promoted": (record("R", ("a", "int")), record("R", ("a", "long"))),
    "narrowed": (record("R", ("a", "long")), record("R", ("a", "int"))),
    "to-string": (record("R", ("a", "bytes")), record("R", ("a", "string"))),
    "float": (record("R", ("a", "long")), record("R", ("a", "float"))),
    "renamed-record": (record("R", ("a", "int")), record("S", ("a", "int"))),
    "made-nullable": (record("R", ("a", "int")), record("R", ("a", ["null", "int"]))),
    "made-required": (record("R", ("a", ["null", "int"])), record("R", ("a", "int"))),
    "union-more": (
        record("R", ("a", ["null", "int"])),
        record("R", ("a", ["null", "int", "string"])),
    ),
    "union-less": (
        record("R", ("a", ["null", "int", "string"])),
        record("R", ("a", ["null", "int"])),
    ),
    "array": ('{"type":"array","items":"int"}', '{"type":"array","items":"long"}'),
    "array-wrong": ('{"type":"array","items":"int"}', '{"type":"array","items":"string"}'),
    "map": ('{"type":"map","values":"int"}', '{"type":"map","values":"double"}'),
    "enum-more": (json.dumps(ENUM), json.dumps(ENUM | {"symbols": ["A", "B", "C"]})),
    "enum-less": (json.dumps(ENUM), json.dumps(ENUM | {"symbols": ["A"]})),
    "enum-default": (json.dumps(ENUM), json.dumps(ENUM | {"symbols": ["A"], "default": "A"})),
    "fixed": ('{"type":"fixed","name":"F","size":4}', '{"type":"fixed","name":"F","size":5}'),
    "primitive": ('"int"', '"long"'),
    "kind": ('"int"', record("R", ("a", "int"))),
    "alias": (
        record("R", ("a", "int")),
        '{"type":"record","name":"R","fields":[{"name":"b","type":"int","aliases":["a"]}]}',
    ),
    "recursive": (
        record("R", ("a", "int"), ("next", ["null", "R"], None)),
        record("R", ("a", "long"), ("next", ["null", "R"], None)),
    ),
    "recursive-wrong": (
        record("R", ("a", "int"), ("next", ["null", "R"], None)),
        record("R", ("a", "string"), ("next", ["null", "R"], None)),
    ),
    "nested": (
        record("R", ("a", json.loads(record("S", ("x", "int"))))),
        record("R", ("a", json.loads(record("S", ("x", "int"), ("y", "int"))))),
    ),
}


def obj(closed: bool = False, required: tuple[str, ...] = (), **properties: Any) -> str:
    made: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        made["required"] = list(required)
    if closed:
        made["additionalProperties"] = False
    return json.dumps(made)


S, I, N = {"type": "string"}, {"type": "integer"}, {"type": "number"}  # noqa: E741
JSON_PAIRS: dict[str, tuple[str, str]] = {
    "same": (obj(a=S), obj(a=S)),
    "added-open": (obj(a=S), obj(a=S, b=S)),
    "added-closed": (obj(True, a=S), obj(True, a=S, b=S)),
    "added-required-closed": (obj(True, a=S), obj(True, ("b",), a=S, b=S)),
    "removed-open": (obj(a=S, b=S), obj(a=S)),
    "removed-closed": (obj(True, a=S, b=S), obj(True, a=S)),
    "required-added": (obj(a=S), obj(False, ("a",), a=S)),
    "required-removed": (obj(False, ("a",), a=S), obj(a=S)),
    "integer-to-number": (obj(a=I), obj(a=N)),
    "number-to-integer": (obj(a=N), obj(a=I)),
    "type-changed": (obj(a=S), obj(a=I)),
    "closed": (obj(a=S), obj(True, a=S)),
    "opened": (obj(True, a=S), obj(a=S)),
    "max-length-less": (obj(a=S | {"maxLength": 9}), obj(a=S | {"maxLength": 3})),
    "max-length-more": (obj(a=S | {"maxLength": 3}), obj(a=S | {"maxLength": 9})),
    "minimum-added": (obj(a=I), obj(a=I | {"minimum": 3})),
    "minimum-removed": (obj(a=I | {"minimum": 3}), obj(a=I)),
    "maximum-less": (obj(a=I | {"maximum": 9}), obj(a=I | {"maximum": 3})),
    "pattern-added": (obj(a=S), obj(a=S | {"pattern": "x"})),
    "enum-more": (obj(a={"enum": ["x"]}), obj(a={"enum": ["x", "y"]})),
    "enum-less": (obj(a={"enum": ["x", "y"]}), obj(a={"enum": ["x"]})),
    "items": (
        '{"type":"array","items":{"type":"integer"}}',
        '{"type":"array","items":{"type":"number"}}',
    ),
    "items-wrong": (
        '{"type":"array","items":{"type":"string"}}',
        '{"type":"array","items":{"type":"number"}}',
    ),
    "max-items-less": ('{"type":"array","maxItems":9}', '{"type":"array","maxItems":3}'),
    "one-of-more": (json.dumps({"oneOf": [S, I]}), json.dumps({"oneOf": [S, I, {"type": "null"}]})),
    "one-of-less": (json.dumps({"oneOf": [S, I]}), json.dumps({"oneOf": [S]})),
    "into-one-of": (json.dumps(S), json.dumps({"oneOf": [S, I]})),
    "title": (json.dumps(S | {"title": "x"}), json.dumps(S | {"title": "y"})),
    "nested": (obj(a=json.loads(obj(b=I))), obj(a=json.loads(obj(b=S)))),
}


def proto(*lines: str) -> str:
    return 'syntax = "proto3";\npackage t;\n' + "\n".join(lines)


def message(*fields: str) -> str:
    return proto("message M {", *(f"  {each};" for each in fields), "}")


PROTOBUF_PAIRS: dict[str, tuple[str, str]] = {
    "same": (message("int32 a = 1"), message("int32 a = 1")),
    "added": (message("int32 a = 1"), message("int32 a = 1", "string b = 2")),
    "removed": (message("int32 a = 1", "string b = 2"), message("int32 a = 1")),
    "renamed": (message("int32 a = 1"), message("int32 b = 1")),
    "widened": (message("int32 a = 1"), message("int64 a = 1")),
    "kind": (message("int32 a = 1"), message("string a = 1")),
    "signed": (message("int32 a = 1"), message("sint32 a = 1")),
    "text-bytes": (message("string a = 1"), message("bytes a = 1")),
    "repeated": (message("int32 a = 1"), message("repeated int32 a = 1")),
    "message-removed": (
        proto("message M {int32 a = 1;}", "message N {int32 a = 1;}"),
        message("int32 a = 1"),
    ),
    "message-added": (
        message("int32 a = 1"),
        proto("message M {int32 a = 1;}", "message N {int32 a = 1;}"),
    ),
    "named-type": (
        proto("message A {int32 x = 1;}", "message B {int32 x = 1;}", "message M {A a = 1;}"),
        proto("message A {int32 x = 1;}", "message B {int32 x = 1;}", "message M {B a = 1;}"),
    ),
    "one-into-oneof": (message("int32 a = 1"), message("oneof o { int32 a = 1; }")),
}


def drafted(schema: str) -> str:
    """Apicurio takes nothing for a JSON Schema that does not say so."""
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#"} | json.loads(schema))


PAIRS = {
    "AVRO": AVRO_PAIRS,
    "JSON": {name: (drafted(old), drafted(new)) for name, (old, new) in JSON_PAIRS.items()},
    "PROTOBUF": PROTOBUF_PAIRS,
}
LEVELS = ("BACKWARD", "FORWARD", "FULL")

INVALID: dict[str, tuple[str, str]] = {
    "not-json": ("AVRO", "{"),
    "no-type": ("AVRO", '{"name":"R"}'),
    "unknown-type": ("AVRO", record("R", ("a", "nope"))),
    "bad-name": ("AVRO", record("1R", ("a", "int"))),
    "field-twice": ("AVRO", record("R", ("a", "int"), ("a", "int"))),
    "bad-default": ("AVRO", record("R", ("a", "int", "x"))),
    "union-twice": ("AVRO", '["int","int"]'),
    "union-nested": ("AVRO", '["int",["string"]]'),
    "enum-twice": ("AVRO", '{"type":"enum","name":"E","symbols":["A","A"]}'),
    "json-text": ("JSON", "{"),
    "json-type": ("JSON", '{"type":"nope"}'),
    "protobuf-text": ("PROTOBUF", "hello"),
    "protobuf-type": ("PROTOBUF", message("Nope a = 1")),
}


def conversation() -> Iterator[Asked]:
    yield Asked("types", "GET", "/schemas/types")
    yield Asked("no subjects", "GET", "/subjects")
    yield Asked("default level", "GET", "/config")
    yield Asked("level", "PUT", "/config", {"compatibility": "BACKWARD"})
    yield from _compatibilities()
    yield from _invalid()
    yield from _lives()
    yield from _settings()
    yield from _references()


def _body(kind: str, schema: str, **others: Any) -> dict[str, Any]:
    return {"schema": schema} | ({} if kind == "AVRO" else {"schemaType": kind}) | others


def _compatibilities() -> Iterator[Asked]:
    for kind, pairs in PAIRS.items():
        for name, (old, new) in pairs.items():
            subject = f"{kind}-{name}".lower()
            yield Asked(f"{subject} old", "POST", f"/subjects/{subject}/versions", _body(kind, old))
            for level in LEVELS:
                path = f"/config/{subject}"
                yield Asked(f"{subject} {level} set", "PUT", path, {"compatibility": level})
                path = f"/compatibility/subjects/{subject}/versions/latest"
                yield Asked(f"{subject} {level}", "POST", path, _body(kind, new))


def _invalid() -> Iterator[Asked]:
    for name, (kind, schema) in INVALID.items():
        path = f"/subjects/invalid-{name}/versions"
        yield Asked(f"invalid {name}", "POST", path, _body(kind, schema))


def _lives() -> Iterator[Asked]:
    one, two = AVRO_PAIRS["added-default"]
    path = "/subjects/life/versions"
    yield Asked("life missing", "GET", path)
    yield Asked("life latest missing", "GET", f"{path}/latest")
    yield Asked("life lookup missing", "POST", "/subjects/life", {"schema": one})
    yield Asked("life delete missing", "DELETE", "/subjects/life")
    yield Asked("life one", "POST", path, {"schema": one})
    yield Asked("life one again", "POST", path, {"schema": one})
    yield Asked("life two", "POST", path, {"schema": two})
    yield Asked("life versions", "GET", path)
    for number in ("1", "2", "3", "latest", "-1", "0", "x", "2147483648"):
        yield Asked(f"life version {number}", "GET", f"{path}/{number}")
        yield Asked(f"life version {number} schema", "GET", f"{path}/{number}/schema")
    yield Asked("life lookup", "POST", "/subjects/life", {"schema": one})
    yield Asked("life lookup other", "POST", "/subjects/life", {"schema": '"int"'})
    yield Asked("life incompatible", "POST", path, {"schema": record("R", ("a", "string"))})
    yield Asked("id missing", "GET", "/schemas/ids/999999")
    yield Asked("id schema missing", "GET", "/schemas/ids/999999/schema")
    yield Asked("id not a number", "GET", "/schemas/ids/x")
    yield Asked("hard first", "DELETE", f"{path}/1?permanent=true")
    yield Asked("soft", "DELETE", f"{path}/1")
    yield Asked("soft again", "DELETE", f"{path}/1")
    yield Asked("after soft", "GET", path)
    yield Asked("after soft deleted", "GET", f"{path}?deleted=true")
    yield Asked("soft version", "GET", f"{path}/1")
    yield Asked("soft version deleted", "GET", f"{path}/1?deleted=true")
    yield Asked("hard", "DELETE", f"{path}/1?permanent=true")
    yield Asked("hard again", "DELETE", f"{path}/1?permanent=true")
    yield Asked("after hard", "GET", f"{path}?deleted=true")
    yield Asked("subject hard first", "DELETE", "/subjects/life?permanent=true")
    yield Asked("subject soft", "DELETE", "/subjects/life")
    yield Asked("subject soft again", "DELETE", "/subjects/life")
    yield Asked("subject gone", "GET", path)
    yield Asked("subject hard", "DELETE", "/subjects/life?permanent=true")
    yield Asked("subject hard again", "DELETE", "/subjects/life?permanent=true")
    yield Asked("delete version missing", "DELETE", "/subjects/nobody/versions/1")
    yield Asked("delete bad version", "DELETE", "/subjects/avro-same/versions/x")
    yield Asked(
        "check missing", "POST", "/compatibility/subjects/nobody/versions/latest", {"schema": one}
    )
    yield Asked(
        "check all missing", "POST", "/compatibility/subjects/nobody/versions", {"schema": one}
    )
    yield Asked(
        "check bad", "POST", "/compatibility/subjects/avro-same/versions/latest", {"schema": "{"}
    )
    yield Asked("register empty", "POST", path, {})
    yield Asked("register type", "POST", path, {"schema": '"int"', "schemaType": "XML"})


def _settings() -> Iterator[Asked]:
    yield Asked("config", "GET", "/config")
    for level in ("NONE", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE", "SOME"):
        yield Asked(f"config {level}", "PUT", "/config", {"compatibility": level})
        yield Asked(f"config after {level}", "GET", "/config")
    yield Asked("config back", "PUT", "/config", {"compatibility": "BACKWARD"})
    yield Asked("subject config missing", "GET", "/config/nobody")
    yield Asked("subject config default", "GET", "/config/nobody?defaultToGlobal=true")
    yield Asked("subject config set", "PUT", "/config/avro-same", {"compatibility": "NONE"})
    yield Asked("subject config", "GET", "/config/avro-same")
    yield Asked("subject config delete", "DELETE", "/config/avro-same")
    yield Asked("subject config deleted", "GET", "/config/avro-same")
    yield Asked("subject config delete again", "DELETE", "/config/avro-same")
    yield Asked("mode", "GET", "/mode")
    yield Asked("contexts", "GET", "/contexts")


def _references() -> Iterator[Asked]:
    inner = record("Inner", ("x", "int"))
    outer = record("Outer", ("inner", "Inner"))
    reference = {"name": "Inner", "subject": "inner", "version": 1}
    yield Asked("reference missing", "POST", "/subjects/outer/versions", {"schema": outer})
    body = {"schema": outer, "references": [reference]}
    yield Asked("reference to nobody", "POST", "/subjects/outer/versions", body)
    yield Asked("inner", "POST", "/subjects/inner/versions", {"schema": inner})
    yield Asked("outer", "POST", "/subjects/outer/versions", body)
    yield Asked("outer again", "POST", "/subjects/outer/versions", body)
    yield Asked("outer shown", "GET", "/subjects/outer/versions/1")
    yield Asked("inner referenced", "GET", "/subjects/inner/versions/1/referencedby")
    yield Asked("outer referenced", "GET", "/subjects/outer/versions/1/referencedby")
    yield Asked("inner held", "DELETE", "/subjects/inner/versions/1")
    common = drafted(json.dumps(S | {"$id": "common.json"}))
    user = drafted(obj(a={"$ref": "common.json"}))
    body = {"schema": common, "schemaType": "JSON"}
    yield Asked("json common", "POST", "/subjects/common/versions", body)
    reference = {"name": "common.json", "subject": "common", "version": 1}
    body = {"schema": user, "schemaType": "JSON", "references": [reference]}
    yield Asked("json user", "POST", "/subjects/user/versions", body)
    yield Asked("json user shown", "GET", "/subjects/user/versions/1")
    body = {"schema": message("int32 x = 1"), "schemaType": "PROTOBUF"}
    yield Asked("proto common", "POST", "/subjects/proto-common/versions", body)
    using = 'syntax = "proto3";\nimport "common.proto";\nmessage U { t.M m = 1; }'
    reference = {"name": "common.proto", "subject": "proto-common", "version": 1}
    body = {"schema": using, "schemaType": "PROTOBUF", "references": [reference]}
    yield Asked("proto user", "POST", "/subjects/proto-user/versions", body)
