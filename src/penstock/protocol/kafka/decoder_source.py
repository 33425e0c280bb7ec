"""Compiles the decoder of one message in one version.

The whole message becomes one function without calls for its nested structs: neighbouring fields
of a fixed width are read by one `unpack_from`, and a length is refused before anything is
allocated when the bytes left in the frame can't hold that much. Reading past the frame's end
raises struct.error or IndexError, which `codec.decode` turns into DecodeError.
"""

from collections.abc import Callable
from struct import Struct, unpack_from
from typing import Any

from penstock.protocol.kafka.layout import Layout, layout_of, size_min
from penstock.protocol.kafka.primitives import (
    check_tag_count,
    continue_varint,
    read_tag,
    refuse_many,
    refuse_null,
    refuse_rest,
    refuse_size,
    refuse_tag,
    skip_tagged_fields,
    uuid_of,
)
from penstock.protocol.kafka.schema import (
    ARRAY,
    NESTED,
    Field,
    Kind,
    Schema,
    bytes_,
    records,
    schema_of,
    string,
    uuid,
)
from penstock.protocol.kafka.source import Source

# Objects cost far more memory than the bytes that ask for them, so their number is bounded too.
# Refusing takes 0.15 s at worst. No honest request comes near; a response lists what we hold.
REQUEST_ELEMENTS_MAX = 100_000
RESPONSE_ELEMENTS_MAX = 5_000_000


def compile_decoder(message_class: type, version: int) -> Callable[..., Any]:
    """A function (buffer, position) that returns an instance and never reads past the buffer."""
    schema = schema_of(message_class)
    return _DecoderWriter(schema, version).write(message_class)


class _DecoderWriter:
    def __init__(self, schema: Schema, version: int) -> None:
        self.version = version
        self.flexible = version >= schema.flexible_from
        self.message_name = schema.name
        self.source = Source("decode(buffer, p)")
        self.source.namespace.update(_HELPERS)
        # Fields of a fixed width that were named but not yet read: (variable, struct code, size).
        self.pending: list[tuple[str, str, int]] = []
        self.pending_uuids: list[str] = []

    def write(self, message_class: type) -> Callable[..., Any]:
        is_request = self.message_name.endswith("Request")
        budget = REQUEST_ELEMENTS_MAX if is_request else RESPONSE_ELEMENTS_MAX
        self.source.line("end = len(buffer)")
        self.source.line(f"budget = {budget}")
        variable = self.struct(message_class, self.message_name)
        self.flush()
        # Kafka ignores what follows a request, and librdkafka relies on it: its Metadata request
        # for all topics ends in bytes that belong to nothing.
        wrong = "p > end" if is_request else "p != end"
        self.source.line(f"if {wrong}: refuse_rest({self.message_name!r}, end - p)")
        self.source.line(f"return {variable}")
        return self.source.compile("decode")

    # Structs and their tagged fields

    def struct(self, struct_class: type, path: str) -> str:
        """Reads all fields of a struct; the name of the variable that holds the instance."""
        layout = layout_of(schema_of(struct_class), self.version)
        variables = {
            field.name: self.value(field, f"{path}.{field.name}") for field in layout.ordinary
        }
        if self.flexible:
            variables |= self.tagged_section(layout, path)
        self.flush()
        return self.instance(struct_class, layout, variables)

    def instance(self, struct_class: type, layout: Layout, variables: dict[str, str]) -> str:
        variable = self.source.name("o")
        class_name = self.source.constant(struct_class.__name__, struct_class)
        self.source.line(f"{variable} = new({class_name})")
        for name, value in variables.items():
            self.source.line(f"{variable}.{name} = {value}")
        for field in layout.absent:
            self.source.line(f"{variable}.{field.name} = {self.default(field)}")
        return variable

    def default(self, field: Field) -> str:
        if field.default is ...:
            return "[]"
        if isinstance(field.default, (int, str, bytes, type(None))):
            return repr(field.default)
        return self.source.constant("default", field.default)

    def tagged_section(self, layout: Layout, path: str) -> dict[str, str]:
        count = self.fixed("n", "B", 1)
        self.flush()
        if not layout.tagged:
            with self.source.block(f"if {count}:"):
                self.spend(count)
                self.source.line(f"p = skip_tagged_fields(buffer, p, {count}, end)")
            return {}
        variables = {field.name: self.source.name("v") for field in layout.tagged}
        for field in layout.tagged:
            self.source.line(f"{variables[field.name]} = {self.default(field)}")
        with self.source.block(f"if {count}:"):
            self.tagged_fields(layout.tagged, variables, count, path)
        return variables

    def tagged_fields(
        self, fields: list[Field], variables: dict[str, str], count: str, path: str
    ) -> None:
        tag, size, tag_end = (self.source.name(prefix) for prefix in ("tag", "size", "e"))
        self.spend(count)
        self.source.line(f"check_tag_count({count})")
        self.source.line(f"{tag} = -1")
        with self.source.block(f"for _ in range({count}):"):
            self.source.line(f"{tag}, {size}, p = read_tag(buffer, p, end, {tag})")
            self.source.line(f"{tag_end} = p + {size}")
            keyword = "if"
            for field in fields:
                with self.source.block(f"{keyword} {tag} == {field.tag}:"):
                    value = self.value(field, f"{path}.{field.name}")
                    self.flush()
                    self.source.line(f"{variables[field.name]} = {value}")
                keyword = "elif"
            with self.source.block("else:"):
                self.source.line(f"p = {tag_end}")
            self.source.line(f"if p != {tag_end}: refuse_tag({path!r}, {tag})")

    # Values

    def value(self, field: Field, path: str) -> str:
        nullable = field.nullable_in(self.version)
        if field.kind is ARRAY:
            return self.array(field.element, nullable, path)
        if field.kind is NESTED:
            return self.nested(field.element, nullable, path)
        return self.scalar(field.kind, nullable, path)

    def scalar(self, kind: Kind, nullable: bool, path: str) -> str:
        if not kind.size:
            return self.sized(kind, nullable, path)
        variable = self.fixed("v", kind.format, kind.size)
        if kind is uuid:
            self.pending_uuids.append(variable)
        return variable

    def sized(self, kind: Kind, nullable: bool, path: str) -> str:
        """A string, bytes or records: a length and that many bytes."""
        variable = self.source.name("v")
        length = self.length("h" if kind is string else "i")
        with self.source.block(f"if {self.present(length)}:"):
            self.source.line(f"e = p + {self.count(length)}")
            self.source.line(f"if e > end: refuse_size({path!r}, e - p, end - p)")
            self.source.line(f"{variable} = {_SLICES[kind]}")
            self.source.line("p = e")
        self.null(variable, nullable, path)
        return variable

    def nested(self, struct_class: type, nullable: bool, path: str) -> str:
        if not nullable:
            return self.struct(struct_class, path)
        variable = self.source.name("v")
        presence = self.fixed("n", "b", 1)
        self.flush()
        with self.source.block(f"if {presence} >= 0:"):
            self.source.line(f"{variable} = {self.struct(struct_class, path)}")
        self.null(variable, nullable, path)
        return variable

    def array(self, element: Any, nullable: bool, path: str) -> str:
        variable = self.source.name("v")
        length = self.length("i")
        with self.source.block(f"if {self.present(length)}:"):
            if self.flexible:
                self.source.line(f"{length} -= 1")
            self.check_count(length, size_min(element, self.version, self.flexible), path)
            self.elements(element, variable, length, path)
        self.null(variable, nullable, path)
        return variable

    def check_count(self, count: str, element_size_min: int, path: str) -> None:
        least = f"{count} * {element_size_min}"
        self.source.line(f"if {least} > end - p: refuse_size({path!r}, {least}, end - p)")
        self.spend(count)

    def spend(self, count: str) -> None:
        self.source.line(f"budget -= {count}")
        self.source.line("if budget < 0: refuse_many()")

    def elements(self, element: Any, variable: str, count: str, path: str) -> None:
        if isinstance(element, Kind) and element.size and element is not uuid:
            code = f'f">{{{count}}}{element.format}"'
            self.source.line(f"{variable} = list(unpack_from({code}, buffer, p))")
            self.source.line(f"p += {count} * {element.size}")
            return
        self.source.line(f"{variable} = []")
        with self.source.block(f"for _ in range({count}):"):
            if isinstance(element, Kind):
                value = self.scalar(element, False, path)
            else:
                value = self.struct(element, path)
            self.flush()
            self.source.line(f"{variable}.append({value})")

    # Lengths

    def length(self, code: str) -> str:
        """Reads a length together with the fixed fields before it."""
        if not self.flexible:
            variable = self.fixed("n", code, 2 if code == "h" else 4)
            self.flush()
            return variable
        variable = self.fixed("n", "B", 1)
        self.flush()
        self.source.line(
            f"if {variable} > 127: {variable}, p = continue_varint(buffer, p, {variable})"
        )
        return variable

    def present(self, length: str) -> str:
        # A compact length is one more than the length, and zero for null.
        return length if self.flexible else f"{length} >= 0"

    def count(self, length: str) -> str:
        return f"{length} - 1" if self.flexible else length

    def null(self, variable: str, nullable: bool, path: str) -> None:
        with self.source.block("else:"):
            if nullable:
                self.source.line(f"{variable} = None")
            else:
                self.source.line(f"refuse_null({path!r})")

    # Runs of fixed fields

    def fixed(self, prefix: str, code: str, size: int) -> str:
        variable = self.source.name(prefix)
        self.pending.append((variable, code, size))
        return variable

    def flush(self) -> None:
        """Reads all pending fields at once."""
        if not self.pending:
            return
        variables, codes, sizes = zip(*self.pending, strict=True)
        self.pending.clear()
        if codes == ("B",):
            self.source.line(f"{variables[0]} = buffer[p]")
        else:
            unpack = self.source.constant("unpack", Struct(">" + "".join(codes)).unpack_from)
            self.source.line(f"{', '.join(variables)}, = {unpack}(buffer, p)")
        self.source.line(f"p += {sum(sizes)}")
        for variable in self.pending_uuids:
            self.source.line(f"{variable} = uuid_of({variable})")
        self.pending_uuids.clear()


_SLICES = {
    string: 'str(buffer[p:e], "utf-8")',
    bytes_: "bytes(buffer[p:e])",
    records: "buffer[p:e]",
}

# The names that compiled decoders may use.
_HELPERS = {
    "check_tag_count": check_tag_count,
    "continue_varint": continue_varint,
    "new": object.__new__,
    "read_tag": read_tag,
    "refuse_many": refuse_many,
    "refuse_null": refuse_null,
    "refuse_rest": refuse_rest,
    "refuse_size": refuse_size,
    "refuse_tag": refuse_tag,
    "skip_tagged_fields": skip_tagged_fields,
    "unpack_from": unpack_from,
    "uuid_of": uuid_of,
}
