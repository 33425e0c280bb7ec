"""A descriptor as the parsed text of a .proto file: clients may register either."""

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)
from proto_schema_parser import ast

from penstock.registry.errors import invalid_schema
from penstock.registry.protobuf.descriptors import SCALARS

_NAMES: Final = {number: name for name, number in SCALARS.items()}
_CARDINALITIES: Final = {
    FieldDescriptorProto.LABEL_REQUIRED: ast.FieldCardinality.REQUIRED,
    FieldDescriptorProto.LABEL_OPTIONAL: ast.FieldCardinality.OPTIONAL,
    FieldDescriptorProto.LABEL_REPEATED: ast.FieldCardinality.REPEATED,
}
_FIELD_NUMBER_END: Final = 2**29
_ENUM_NUMBER_MAX: Final = 2**31 - 1


def to_text(file: FileDescriptorProto) -> ast.File:
    writer = _Writer(is_proto3=file.syntax == "proto3")
    elements: list[Any] = []
    if file.package:
        elements.append(ast.Package(file.package))
    public = set(file.public_dependency)
    elements += [
        ast.Import(name, public=index in public) for index, name in enumerate(file.dependency)
    ]
    elements += _options(file.options)
    elements += [writer.message(each) for each in file.message_type]
    elements += [_enum(each) for each in file.enum_type]
    elements += writer.extensions(file.extension)
    elements += [_service(each) for each in file.service]
    return ast.File(syntax=file.syntax or "proto2", file_elements=elements)


class _Writer:
    def __init__(self, *, is_proto3: bool) -> None:
        self._is_proto3 = is_proto3

    def message(self, message: DescriptorProto) -> ast.Message:
        return ast.Message(message.name, self._elements(message))

    def _elements(self, message: DescriptorProto) -> list[Any]:
        inner = {each.name: each for each in message.nested_type}
        # What is written as a part of a field.
        hidden: set[str] = set()
        oneofs = [ast.OneOf(each.name) for each in message.oneof_decl]
        elements: list[Any] = list(_options(message.options, without=("map_entry",)))
        for field in message.field:
            made = self._field(field, inner, hidden)
            if not field.HasField("oneof_index") or field.proto3_optional:
                elements.append(made)
                continue
            oneof = oneofs[field.oneof_index]
            if not oneof.elements:
                elements.append(oneof)
            if isinstance(made, ast.Field):
                made.cardinality = None
                oneof.elements.append(made)
        elements += [self.message(each) for each in message.nested_type if each.name not in hidden]
        elements += [_enum(each) for each in message.enum_type]
        elements += self.extensions(message.extension)
        if message.extension_range:
            elements.append(ast.ExtensionRange(list(_ranges(message.extension_range))))
        if message.reserved_range:
            elements.append(ast.Reserved(ranges=list(_ranges(message.reserved_range))))
        if message.reserved_name:
            elements.append(ast.Reserved(names=list(message.reserved_name)))
        return elements

    def _field(
        self, field: FieldDescriptorProto, inner: dict[str, DescriptorProto], hidden: set[str]
    ) -> ast.Field | ast.MapField:
        nested = inner.get(field.type_name.rpartition(".")[2])
        if nested is not None and nested.options.map_entry:
            hidden.add(nested.name)
            key, value = nested.field
            kinds = _type(key), _type(value)
            return ast.MapField(field.name, field.number, *kinds, _field_options(field))
        cardinality = self._cardinality(field)
        if field.type == FieldDescriptorProto.TYPE_GROUP:
            raise invalid_schema(f"the group '{field.name}' is not supported.")
        return ast.Field(field.name, field.number, _type(field), cardinality, _field_options(field))

    def _cardinality(self, field: FieldDescriptorProto) -> ast.FieldCardinality | None:
        if self._is_proto3 and field.label == FieldDescriptorProto.LABEL_OPTIONAL:
            return ast.FieldCardinality.OPTIONAL if field.proto3_optional else None
        return _CARDINALITIES[field.label]

    def extensions(self, fields: Any) -> Iterator[ast.Extension]:
        for field in fields:
            yield ast.Extension(field.extendee, [self._field(field, {}, set())])  # type: ignore[list-item]


def _type(field: FieldDescriptorProto) -> str:
    return str(field.type_name or _NAMES[field.type])


def _enum(enum: EnumDescriptorProto) -> ast.Enum:
    elements: list[Any] = list(_options(enum.options))
    elements += [
        ast.EnumValue(each.name, each.number, list(_options(each.options))) for each in enum.value
    ]
    if enum.reserved_range:
        ranges = [
            _range(each.start, each.end, each.end == _ENUM_NUMBER_MAX)
            for each in enum.reserved_range
        ]
        elements.append(ast.EnumReserved(ranges=ranges))
    if enum.reserved_name:
        elements.append(ast.EnumReserved(names=list(enum.reserved_name)))
    return ast.Enum(enum.name, elements)


def _service(service: ServiceDescriptorProto) -> ast.Service:
    methods: list[Any] = [
        ast.Method(
            each.name,
            ast.MessageType(each.input_type, each.client_streaming),
            ast.MessageType(each.output_type, each.server_streaming),
        )
        for each in service.method
    ]
    return ast.Service(service.name, methods)


def _ranges(ranges: Any) -> Iterator[str]:
    for each in ranges:
        yield _range(each.start, each.end - 1, each.end == _FIELD_NUMBER_END)


def _range(start: int, end: int, is_open: bool) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if is_open else end}"


def _field_options(field: FieldDescriptorProto) -> list[ast.Option]:
    options = []
    if field.HasField("default_value"):
        options.append(ast.Option("default", _default(field)))
    if field.HasField("json_name") and field.json_name != _json_name(field.name):
        options.append(ast.Option("json_name", field.json_name))
    return [*options, *_options(field.options)]


def _default(field: FieldDescriptorProto) -> Any:
    is_text = field.type in (FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES)
    return field.default_value if is_text else ast.Identifier(field.default_value)


def _json_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _options(options: Any, without: tuple[str, ...] = ()) -> Iterator[ast.Option]:
    """Those that protobuf itself knows and that are simple."""
    for known, value in options.ListFields():
        if known.is_extension or known.is_repeated or known.message_type or known.name in without:
            continue
        if known.enum_type is not None:
            value = ast.Identifier(known.enum_type.values_by_number[value].name)
        yield ast.Option(known.name, value)
