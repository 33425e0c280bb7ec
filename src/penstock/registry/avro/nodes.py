"""An Avro schema as a tree of types, in which names are resolved."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.registry.errors import RegistryError, invalid_schema

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_OF_SCHEMA: Final = frozenset(
    {"type", "name", "namespace", "doc", "aliases", "fields", "symbols", "items", "values", "size"}
)
_OF_FIELD: Final = frozenset({"name", "type", "doc", "default", "order", "aliases"})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_ORDERS: Final = ("ascending", "descending", "ignore")


@dataclass(slots=True, eq=False)
class Field:
    name: str
    kind: "Node"
    doc: str | None
    has_default: bool
    default: Any
    order: str
    aliases: list[str]
    properties: dict[str, Any]


@dataclass(slots=True, eq=False)
class Node:
    """One type. A name that is used again is the same node, so a recursive type has a cycle."""

    kind: str
    # Full, of records, enums and fixed.
    name: str = ""
    doc: str | None = None
    aliases: list[str] = field(default_factory=list)
    properties: dict[str, Any] = field(default_factory=dict)
    fields: list[Field] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    default_symbol: str | None = None
    size: int = 0
    # Items of an array, values of a map.
    inner: "Node | None" = None
    branches: list["Node"] = field(default_factory=list)

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def content(self) -> "Node":
        assert self.inner is not None
        return self.inner


class Builder:
    """Reads JSON into nodes; what one schema names, the following ones may use."""

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}

    def build(self, schema: Any, namespace: str = "") -> Node:
        if isinstance(schema, str):
            return self._named(schema, namespace)
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if isinstance(schema, dict):
            return self._object(schema, namespace)
        raise _bad(f"{schema!r} is not a type")

    def _named(self, name: str, namespace: str) -> Node:
        if name in PRIMITIVES:
            return Node(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            raise _bad(f"the type {full!r} is not defined")
        return found

    def _union(self, schema: list[Any], namespace: str) -> Node:
        node = Node("union")
        seen: set[str] = set()
        for each in schema:
            branch = self.build(each, namespace)
            if branch.kind == "union":
                raise _bad("a union is directly inside another one")
            what = branch.name or branch.kind
            if what in seen:
                raise _bad(f"a union has the type {what!r} twice")
            seen.add(what)
            node.branches.append(branch)
        return node

    def _object(self, schema: dict[str, Any], namespace: str) -> Node:
        kind = schema.get("type")
        if isinstance(kind, dict | list):
            # {"type": {"type": ...}} is written by some tools; the inner one counts.
            return self.build(kind, namespace)
        if not isinstance(kind, str):
            raise _bad("a schema has no 'type'")
        properties = _others(schema, _OF_SCHEMA | ({"default"} if kind == "enum" else set()))
        if kind in PRIMITIVES:
            return Node(kind, properties=properties)
        if kind == "array":
            return Node(kind, inner=self._inner(schema, "items", namespace), properties=properties)
        if kind == "map":
            return Node(kind, inner=self._inner(schema, "values", namespace), properties=properties)
        if kind in NAMED:
            return self._definition(kind, schema, namespace, properties)
        return self._named(kind, namespace)

    def _inner(self, schema: dict[str, Any], key: str, namespace: str) -> Node:
        if key not in schema:
            raise _bad(f"an {schema['type']} has no '{key}'")
        return self.build(schema[key], namespace)

    def _definition(
        self, kind: str, schema: dict[str, Any], namespace: str, properties: dict[str, Any]
    ) -> Node:
        name = full_name(schema, namespace)
        if name in self.names:
            raise _bad(f"the type {name!r} is defined twice")
        node = Node(kind, name, _text(schema, "doc"), properties=properties)
        node.aliases = [
            each if "." in each or not node.namespace else f"{node.namespace}.{each}"
            for each in _texts(schema, "aliases")
        ]
        self.names[name] = node
        if kind == "enum":
            self._fill_enum(node, schema)
        elif kind == "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise _bad(f"the size of {name!r} is {size!r}")
            node.size = size
        else:
            self._fill_record(node, schema)
        return node

    def _fill_enum(self, node: Node, schema: dict[str, Any]) -> None:
        node.symbols = _texts(schema, "symbols")
        if "symbols" not in schema:
            raise _bad(f"the enum {node.name!r} has no symbols")
        for symbol in node.symbols:
            if not _NAME.fullmatch(symbol):
                raise _bad(f"the symbol {symbol!r} of {node.name!r} is not a name")
        if len(set(node.symbols)) != len(node.symbols):
            raise _bad(f"the enum {node.name!r} has a symbol twice")
        node.default_symbol = _text(schema, "default")
        if node.default_symbol is not None and node.default_symbol not in node.symbols:
            raise _bad(f"the default of {node.name!r} is not one of its symbols")

    def _fill_record(self, node: Node, schema: dict[str, Any]) -> None:
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise _bad(f"the record {node.name!r} has no fields")
        seen: set[str] = set()
        for each in fields:
            made = self._field(each, node)
            if made.name in seen:
                raise _bad(f"the record {node.name!r} has the field {made.name!r} twice")
            seen.add(made.name)
            node.fields.append(made)

    def _field(self, schema: Any, record: Node) -> Field:
        if not isinstance(schema, dict) or not isinstance(schema.get("name"), str):
            raise _bad(f"a field of {record.name!r} has no name")
        name = schema["name"]
        if not _NAME.fullmatch(name):
            raise _bad(f"the field {name!r} of {record.name!r} is not a name")
        if "type" not in schema:
            raise _bad(f"the field {name!r} of {record.name!r} has no type")
        order = schema.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            raise _bad(f"the order of the field {name!r} is {order!r}")
        return Field(
            name=name,
            kind=self.build(schema["type"], record.namespace),
            doc=_text(schema, "doc"),
            has_default="default" in schema,
            default=schema.get("default"),
            order=order.lower(),
            aliases=_texts(schema, "aliases"),
            properties=_others(schema, _OF_FIELD),
        )


def full_name(schema: Mapping[str, Any], namespace: str) -> str:
    name = schema.get("name")
    if not isinstance(name, str):
        raise _bad(f"a {schema.get('type')} has no name")
    given = schema.get("namespace")
    if given is not None and not isinstance(given, str):
        raise _bad(f"the namespace of {name!r} is not a text")
    if "." not in name:
        space = namespace if given is None else given
        name = f"{space}.{name}" if space else name
    for part in name.split("."):
        if not _NAME.fullmatch(part):
            raise _bad(f"{name!r} is not a name")
    return name


def _others(schema: Mapping[str, Any], known: frozenset[str] | set[str]) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name not in known}


def _text(schema: Mapping[str, Any], key: str) -> str | None:
    found = schema.get(key)
    return found if isinstance(found, str) else None


def _texts(schema: Mapping[str, Any], key: str) -> list[str]:
    found = schema.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise _bad(f"the {key} of {schema.get('name')!r} are not a list of texts")
    return found


def _bad(detail: str) -> RegistryError:
    return invalid_schema(f"{detail}.")
