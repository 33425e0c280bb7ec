"""Reads an Avro schema, and writes it as Avro's own library does."""

from collections.abc import Sequence
from typing import Any, Final

from fastavro import parse_schema
from fastavro.schema import SchemaParseException, UnknownType

from penstock.registry.avro.comparing import faults_reading
from penstock.registry.avro.nodes import PRIMITIVES, Builder, Field, Node
from penstock.registry.errors import invalid_schema
from penstock.registry.json_text import compact, compact_sorted, read_json
from penstock.registry.schemas import Fault, Used

RESOLVED: Final = "resolved"


class AvroSchema:
    __slots__ = ("_used", "node", "normalized", "text")

    def __init__(self, node: Node, used: frozenset[str]) -> None:
        """`used` are the names that other schemas define."""
        self.node = node
        self._used = used
        self.text = compact(Writer(used).write(node, ""))
        self.normalized = compact(Writer(used, is_normal=True).write(node, ""))

    def faults_reading(self, old: "AvroSchema") -> list[Fault]:
        return faults_reading(self.node, old.node)

    def formatted(self, form: str) -> str:
        if form != RESOLVED:
            return self.text
        return compact(Writer(frozenset()).write(self.node, ""))


def parse(text: str, used: Sequence[Used]) -> AvroSchema:
    builder = Builder()
    known: dict[str, Any] = {}
    for each in used:
        builder.build(_checked(read_json(each.text), known))
    names = frozenset(builder.names)
    stripped = text.strip()
    # A primitive may be written without quotation marks.
    schema = stripped if stripped in PRIMITIVES else read_json(text)
    return AvroSchema(builder.build(_checked(schema, known)), names)


def _checked(schema: Any, known: dict[str, Any]) -> Any:
    """What the library finds wrong with names, defaults and logical types."""
    try:
        parse_schema(schema, named_schemas=known)
    except UnknownType as bad:
        raise invalid_schema(f"the type '{bad.name}' is not defined.") from None
    except SchemaParseException as bad:
        raise invalid_schema(f"{str(bad).rstrip('.')}.") from None
    except (KeyError, TypeError, ValueError, AttributeError) as bad:
        raise invalid_schema(f"it is not an Avro schema ({type(bad).__name__}: {bad}).") from None
    return schema


class Writer:
    """Nodes to JSON. Each name is defined where it comes first, and used by its name from then on.

    In the normal form, names are always full and properties are sorted.
    """

    def __init__(self, known: frozenset[str], *, is_normal: bool = False) -> None:
        self._known = set(known)
        self._is_normal = is_normal

    def write(self, node: Node, namespace: str) -> Any:
        if node.kind == "union":
            return [self.write(branch, namespace) for branch in node.branches]
        if node.name:
            return self._write_named(node, namespace)
        if node.kind in PRIMITIVES and not node.properties:
            return node.kind
        written: dict[str, Any] = {"type": node.kind}
        if node.inner is not None:
            key = "items" if node.kind == "array" else "values"
            written[key] = self.write(node.inner, namespace)
        return written | self._properties(node.properties)

    def _write_named(self, node: Node, namespace: str) -> Any:
        if node.name in self._known:
            is_near = node.namespace == namespace and node.short_name not in PRIMITIVES
            return node.short_name if is_near and not self._is_normal else node.name
        self._known.add(node.name)
        written: dict[str, Any] = {"type": node.kind}
        if self._is_normal:
            written["name"] = node.name
        else:
            written["name"] = node.short_name
            if node.namespace != namespace:
                written["namespace"] = node.namespace
        if node.doc is not None:
            written["doc"] = node.doc
        if node.kind == "enum":
            written["symbols"] = node.symbols
            if node.default_symbol is not None:
                written["default"] = node.default_symbol
        elif node.kind == "fixed":
            written["size"] = node.size
        else:
            written["fields"] = [self._field(each, node.namespace) for each in node.fields]
        written |= self._properties(node.properties)
        if node.aliases:
            written["aliases"] = [self._alias(each, node) for each in node.aliases]
        return written

    def _alias(self, alias: str, node: Node) -> str:
        space, _, short = alias.rpartition(".")
        return alias if self._is_normal or space != node.namespace else short

    def _field(self, field: Field, namespace: str) -> dict[str, Any]:
        written: dict[str, Any] = {
            "name": field.name,
            "type": self.write(field.kind, namespace),
        }
        if field.doc is not None:
            written["doc"] = field.doc
        if field.has_default:
            written["default"] = field.default
        if field.order != "ascending":
            written["order"] = field.order
        if field.aliases:
            written["aliases"] = field.aliases
        return written | self._properties(field.properties)

    def _properties(self, properties: dict[str, Any]) -> dict[str, Any]:
        if not self._is_normal:
            return properties
        ordered: dict[str, Any] = read_json(compact_sorted(properties))
        return ordered
