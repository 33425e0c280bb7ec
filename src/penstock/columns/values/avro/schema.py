"""Reading an Avro schema, from its JSON text or a file that holds it, into the tree of nodes.

Names, references and the general shape are checked by fastavro; here is refused what no DataFrame
can hold: a type within itself, records without fields, decimals that are too long.
"""

import json
import os
from pathlib import Path
from typing import Any

import fastavro

from penstock.columns.values.avro.nodes import (
    Items,
    Kind,
    Leaf,
    Node,
    Pairs,
    Record,
    Union,
    bytes_min,
)
from penstock.columns.values.refusals import DecodeRefused

# Spark's DECIMAL holds this many digits.
PRECISION_MAX = 38

_PRIMITIVES = {
    "null": Kind.NULL,
    "boolean": Kind.BOOLEAN,
    "int": Kind.INT,
    "long": Kind.LONG,
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "bytes": Kind.BYTES,
    "string": Kind.STRING,
}
_LOGICAL = {
    ("int", "date"): Kind.DATE,
    ("long", "timestamp-millis"): Kind.TIMESTAMP_MILLIS,
    ("long", "timestamp-micros"): Kind.TIMESTAMP_MICROS,
    ("long", "local-timestamp-millis"): Kind.LOCAL_TIMESTAMP_MILLIS,
    ("long", "local-timestamp-micros"): Kind.LOCAL_TIMESTAMP_MICROS,
}


def schema_text(schema: object) -> str:
    """The JSON text of what a user gave: text, a path to a file, or the parsed JSON."""
    if isinstance(schema, dict | list):
        return json.dumps(schema)
    if isinstance(schema, os.PathLike):
        return _file_text(Path(schema))
    if not isinstance(schema, str) or not schema.strip():
        raise DecodeRefused(
            "Avro needs schema=, the schema as JSON text or the path of a file that holds it."
        )
    text = schema.strip()
    if text[0] in '{["' or text in _PRIMITIVES:
        return text
    return _file_text(Path(text))


def _file_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DecodeRefused(f"The Avro schema file {path} can't be read: {reason}.") from error


def parse_schema(text: str) -> Node:
    try:
        written = text if text in _PRIMITIVES else json.loads(text)
    except ValueError as error:
        raise DecodeRefused(f"The Avro schema is not valid JSON: {error}.") from error
    named: dict[str, Any] = {}
    try:
        parsed = fastavro.parse_schema(written, named_schemas=named)
    except Exception as error:  # fastavro raises KeyError and TypeError too.
        raise DecodeRefused(f"The Avro schema is not valid: {_reason(error)}.") from error
    return _Reading(named).node(parsed, "", ())


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"the attribute {error} is missing"
    if type(error).__name__ == "UnknownType":
        return f"the type {str(error)!r} is unknown"
    return str(error).rstrip(".").replace("\n", " ")


class _Reading:
    """One pass over a parsed schema; `within` names the types that enclose a place."""

    def __init__(self, named: dict[str, Any]) -> None:
        self.named = named

    def node(self, schema: Any, path: str, within: tuple[str, ...]) -> Node:
        if isinstance(schema, list):
            return self._union(schema, path, within)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return Leaf(path=path, kind=_PRIMITIVES[schema])
            return self.node(self.named[schema], path, within)
        kind = schema["type"]
        match kind:
            case "record" | "error":
                return self._record(schema, path, within)
            case "array":
                return self._items(schema, path, within)
            case "map":
                value = self.node(schema["values"], f"{path}.value".lstrip("."), within)
                return Pairs(path=path, value=value)
            case "enum":
                return Leaf(path=path, kind=Kind.ENUM, symbols=tuple(schema["symbols"]))
            case "fixed":
                return _fixed(schema, path)
            case str() if kind in _PRIMITIVES:
                return _primitive(schema, kind, path)
            case _:
                return self.node(kind, path, within)

    def _record(self, schema: dict[str, Any], path: str, within: tuple[str, ...]) -> Node:
        name = schema["name"]
        if name in within:
            raise DecodeRefused(
                f"The Avro type {name} contains itself, and no column of Spark's can hold that."
            )
        names = [field["name"] for field in schema["fields"]]
        if not names:
            raise DecodeRefused(f"The Avro record {name} has no fields.")
        twice = next((each for each in names if names.count(each) > 1), None)
        if twice is not None:
            raise DecodeRefused(f"The Avro record {name} has the field {twice!r} twice.")
        fields = tuple(
            (each["name"], self.node(each["type"], _below(path, each["name"]), (*within, name)))
            for each in schema["fields"]
        )
        return Record(path=path, fields=fields)

    def _items(self, schema: dict[str, Any], path: str, within: tuple[str, ...]) -> Node:
        item = self.node(schema["items"], _below(path, "element"), within)
        if bytes_min(item) == 0:
            # Nine bytes could claim any number of such items.
            raise DecodeRefused(f"The items of the Avro array {path or 'schema'!r} take no bytes.")
        return Items(path=path, item=item)

    def _union(self, schema: list[Any], path: str, within: tuple[str, ...]) -> Node:
        if not schema or any(isinstance(branch, list) for branch in schema):
            raise DecodeRefused(f"The Avro union at {path or 'the top'!r} is empty or nested.")
        nodes = [self.node(branch, path, within) for branch in schema]
        nulls = [isinstance(node, Leaf) and node.kind is Kind.NULL for node in nodes]
        if sum(nulls) > 1:
            raise DecodeRefused(f"The Avro union at {path or 'the top'!r} has null twice.")
        if all(nulls):
            return Union(path=path, branches=(nodes[0],))
        branches = [None if null else node for node, null in zip(nodes, nulls, strict=True)]
        return Union(path=path, branches=tuple(branches))


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _primitive(schema: dict[str, Any], kind: str, path: str) -> Leaf:
    logical = schema.get("logicalType")
    if kind == "bytes" and logical == "decimal":
        return _decimal(schema, path, None)
    return Leaf(path=path, kind=_LOGICAL.get((kind, str(logical)), _PRIMITIVES[kind]))


def _fixed(schema: dict[str, Any], path: str) -> Leaf:
    size = schema["size"]
    if not isinstance(size, int) or size < 1:
        raise DecodeRefused(f"The Avro fixed {schema['name']} has a size of {size!r}.")
    if schema.get("logicalType") == "decimal":
        return _decimal(schema, path, size)
    return Leaf(path=path, kind=Kind.FIXED, size=size)


def _decimal(schema: dict[str, Any], path: str, size: int | None) -> Leaf:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not 1 <= precision <= PRECISION_MAX:
        raise DecodeRefused(
            f"The Avro decimal {path!r} has a precision of {precision!r}, "
            f"and Spark's go from 1 to {PRECISION_MAX}."
        )
    if not isinstance(scale, int) or not 0 <= scale <= precision:
        raise DecodeRefused(
            f"The Avro decimal {path!r} has a scale of {scale!r}, outside 0 to its precision."
        )
    return Leaf(path=path, kind=Kind.DECIMAL, size=size, precision=precision, scale=scale)
