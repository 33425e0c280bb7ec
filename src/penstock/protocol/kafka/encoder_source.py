"""Compiles the encoder of one message in one version.

The encoder appends pieces; neighbouring fields of a fixed width are packed into one. A field that
the version lacks is left out. A null in a version that can't express it becomes empty, which is
what Kafka's own brokers send to old clients.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any

from penstock.protocol.kafka.layout import Layout, layout_of
from penstock.protocol.kafka.primitives import (
    append_tagged_fields,
    numbers_packer,
    varint,
)
from penstock.protocol.kafka.schema import (
    ARRAY,
    NESTED,
    Field,
    Kind,
    Schema,
    records,
    schema_of,
    string,
    uuid,
)
from penstock.protocol.kafka.source import Source


def compile_encoder(message_class: type, version: int) -> Callable[..., Any]:
    """A function (message, append) that appends the message's pieces in order."""
    schema = schema_of(message_class)
    return _EncoderWriter(schema, version).write(message_class)


class _EncoderWriter:
    def __init__(self, schema: Schema, version: int) -> None:
        self.version = version
        self.flexible = version >= schema.flexible_from
        self.source = Source("encode(message, append)")
        self.source.namespace.update(append_tagged_fields=append_tagged_fields, varint=varint)
        # What takes the pieces; another list while the value of a tagged field is made.
        self.append = "append"
        # Struct codes and expressions that wait to be packed together.
        self.codes: list[str] = []
        self.expressions: list[str] = []

    def write(self, message_class: type) -> Callable[..., Any]:
        self.struct(message_class, "message")
        self.flush()
        return self.source.compile("encode")

    # Structs and their tagged fields

    def struct(self, struct_class: type, instance: str) -> None:
        layout = layout_of(schema_of(struct_class), self.version)
        for field in layout.ordinary:
            self.value(field, f"{instance}.{field.name}")
        if not self.flexible:
            return
        if layout.tagged:
            self.tagged_section(layout, instance)
        else:
            # A pad byte is the zero that says: no tagged fields.
            self.codes.append("x")

    def tagged_section(self, layout: Layout, instance: str) -> None:
        self.flush()
        conditions = [self.is_set(field, instance) for field in layout.tagged]
        with self.source.block(f"if {' or '.join(conditions)}:"):
            fields = self.source.name("fields")
            self.source.line(f"{fields} = []")
            for field, condition in zip(layout.tagged, conditions, strict=True):
                with self.source.block(f"if {condition}:"):
                    self.tagged_field(field, f"{instance}.{field.name}", fields)
            self.source.line(f"append_tagged_fields({self.append}, {fields})")
        with self.source.block("else:"):
            self.piece(repr(b"\0"))

    def is_set(self, field: Field, instance: str) -> str:
        attribute = f"{instance}.{field.name}"
        if field.default is ...:
            return attribute
        if field.default is None:
            return f"{attribute} is not None"
        return f"{attribute} != {self.source.constant('default', field.default)}"

    def tagged_field(self, field: Field, attribute: str, fields: str) -> None:
        pieces = self.source.name("pieces")
        self.source.line(f"{pieces} = []")
        outer, self.append = self.append, f"{pieces}.append"
        self.value(field, attribute)
        self.flush()
        self.append = outer
        self.source.line(f"{fields}.append(({field.tag}, {pieces}))")

    # Values

    def value(self, field: Field, attribute: str) -> None:
        nullable = field.nullable_in(self.version)
        if field.kind is NESTED:
            self.nested(field.element, nullable, attribute)
            return
        if field.kind.size:
            self.fixed(field.kind, attribute)
            return
        variable = self.source.name("v")
        empty = "" if nullable or field.nullable is None else f" or {_EMPTY[field.kind.name]}"
        self.source.line(f"{variable} = {attribute}{empty}")
        if not nullable:
            self.sized(field, variable)
            return
        self.flush()
        with self.source.block(f"if {variable} is None:"):
            self.piece(repr(self.null_length(field.kind)))
        with self.source.block("else:"):
            self.sized(field, variable)
            self.flush()

    def fixed(self, kind: Kind, expression: str) -> None:
        self.codes.append(kind.format)
        self.expressions.append(f"{expression}.bytes" if kind is uuid else expression)

    def sized(self, field: Field, variable: str) -> None:
        if field.kind is ARRAY:
            self.array(field.element, variable)
        else:
            self.bytes_like(field.kind, variable)

    def bytes_like(self, kind: Kind, variable: str) -> None:
        if kind is string:
            self.source.line(f"{variable} = {variable}.encode()")
        self.length(f"len({variable})", "h" if kind is string else "i")
        self.flush()
        self.piece(variable)

    def nested(self, struct_class: type, nullable: bool, attribute: str) -> None:
        variable = self.source.name("o")
        self.source.line(f"{variable} = {attribute}")
        if not nullable:
            self.struct(struct_class, variable)
            return
        self.flush()
        with self.source.block(f"if {variable} is None:"):
            self.piece(repr(b"\xff"))
        with self.source.block("else:"):
            self.codes.append("b")
            self.expressions.append("1")
            self.struct(struct_class, variable)
            self.flush()

    def array(self, element: Any, variable: str) -> None:
        if isinstance(element, Kind) and element.size and element is not uuid:
            self.flush()
            pack = self.source.constant("pack", numbers_packer(element.format, self.flexible))
            self.piece(f"{pack}({variable})")
            return
        self.length(f"len({variable})", "i")
        self.flush()
        item = self.source.name("m")
        with self.source.block(f"for {item} in {variable}:"):
            if not isinstance(element, Kind):
                self.struct(element, item)
            elif element.size:
                self.fixed(element, item)
            else:
                self.bytes_like(element, item)
            self.flush()

    # Lengths and pieces

    def length(self, expression: str, code: str) -> None:
        if not self.flexible:
            self.codes.append(code)
            self.expressions.append(expression)
            return
        self.flush()
        self.piece(f"varint({expression} + 1)")

    def null_length(self, kind: Kind) -> bytes:
        if self.flexible:
            return b"\0"
        return b"\xff\xff" if kind is string else b"\xff\xff\xff\xff"

    def piece(self, expression: str) -> None:
        assert not self.codes, "pieces keep the order of the fields"
        self.source.line(f"{self.append}({expression})")

    def flush(self) -> None:
        """Packs what is pending into one piece."""
        if not self.codes:
            return
        if self.expressions:
            pack = self.source.constant("pack", Struct(">" + "".join(self.codes)).pack)
            expression = f"{pack}({', '.join(self.expressions)})"
        else:
            expression = repr(bytes(len(self.codes)))
        self.codes.clear()
        self.expressions.clear()
        self.piece(expression)


_EMPTY = {"string": '""', "bytes": 'b""', records.name: 'b""', ARRAY.name: "()"}
