"""The parsed text of a .proto file as the descriptor that protobuf itself works with.

Names of types stay as they are written: protobuf's pool finds what they mean, or refuses them.
Options that a program defines (in parentheses) are left out; the text of a schema keeps them.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)
from proto_schema_parser import ast

from penstock.registry.errors import RegistryError, invalid_schema

SCALARS: Final = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}
_LABELS: Final = {
    ast.FieldCardinality.REQUIRED: FieldDescriptorProto.LABEL_REQUIRED,
    ast.FieldCardinality.OPTIONAL: FieldDescriptorProto.LABEL_OPTIONAL,
    ast.FieldCardinality.REPEATED: FieldDescriptorProto.LABEL_REPEATED,
}
_FIELD_NUMBER_MAX: Final = 2**29 - 1
_ENUM_NUMBER_MAX: Final = 2**31 - 1


def to_descriptor(file: ast.File, name: str) -> FileDescriptorProto:
    """Raises RegistryError for what no descriptor can say."""
    if file.edition is not None:
        raise invalid_schema(
            f"it is written in edition {file.edition}; proto2 and proto3 are known."
        )
    syntax = file.syntax or "proto2"
    if syntax not in ("proto2", "proto3"):
        raise invalid_schema(f"the syntax {syntax!r} is unknown.")
    made = FileDescriptorProto(name=name)
    if syntax == "proto3":
        made.syntax = syntax
    builder = _Builder(is_proto3=syntax == "proto3")
    for each in file.file_elements:
        if isinstance(each, ast.Package):
            made.package = each.name
        elif isinstance(each, ast.Import):
            if each.public:
                made.public_dependency.append(len(made.dependency))
            made.dependency.append(each.name)
        elif isinstance(each, ast.Option):
            _set_option(made.options, each)
        elif isinstance(each, ast.Message):
            builder.message(made.message_type.add(), each)
        elif isinstance(each, ast.Enum):
            builder.enum(made.enum_type.add(), each)
        elif isinstance(each, ast.Extension):
            builder.extension(made.extension, each)
        elif isinstance(each, ast.Service):
            _service(made.service.add(), each)
    return made


class _Builder:
    def __init__(self, *, is_proto3: bool) -> None:
        self._is_proto3 = is_proto3

    def message(self, made: DescriptorProto, message: ast.Message) -> None:
        made.name = message.name
        # Fields that are `optional` in proto3 get a oneof each, behind all others.
        alone: list[FieldDescriptorProto] = []
        for each in message.elements:
            if isinstance(each, ast.Field):
                field = self.field(made.field.add(), each)
                if field.proto3_optional:
                    alone.append(field)
            elif isinstance(each, ast.MapField):
                self._map(made, each)
            elif isinstance(each, ast.Group):
                raise _group(each)
            elif isinstance(each, ast.OneOf):
                self._oneof(made, each)
            elif isinstance(each, ast.Message):
                self.message(made.nested_type.add(), each)
            elif isinstance(each, ast.Enum):
                self.enum(made.enum_type.add(), each)
            elif isinstance(each, ast.Extension):
                self.extension(made.extension, each)
            elif isinstance(each, ast.Option):
                _set_option(made.options, each)
            elif isinstance(each, ast.Reserved):
                _add_ranges(made.reserved_range, each.ranges, _FIELD_NUMBER_MAX, 1)
                made.reserved_name.extend(each.names)
            elif isinstance(each, ast.ExtensionRange):
                _add_ranges(made.extension_range, each.ranges, _FIELD_NUMBER_MAX, 1)
        for field in alone:
            field.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add().name = f"_{field.name}"

    def field(self, made: FieldDescriptorProto, field: ast.Field) -> FieldDescriptorProto:
        made.name, made.number = field.name, field.number
        made.label = _LABELS[field.cardinality or ast.FieldCardinality.OPTIONAL]
        if self._is_proto3 and field.cardinality is ast.FieldCardinality.OPTIONAL:
            made.proto3_optional = True
        _set_type(made, field.type)
        _field_options(made, field.options)
        return made

    def _oneof(self, made: DescriptorProto, oneof: ast.OneOf) -> None:
        index = len(made.oneof_decl)
        made.oneof_decl.add().name = oneof.name
        for each in oneof.elements:
            if isinstance(each, ast.Field):
                self.field(made.field.add(), each).oneof_index = index
            elif isinstance(each, ast.Group):
                raise _group(each)

    def _map(self, made: DescriptorProto, field: ast.MapField) -> None:
        entry = made.nested_type.add()
        entry.name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_"))
        entry.name += "Entry"
        entry.options.map_entry = True
        for name, number, kind in (("key", 1, field.key_type), ("value", 2, field.value_type)):
            inner = entry.field.add(name=name, number=number)
            inner.label = FieldDescriptorProto.LABEL_OPTIONAL
            _set_type(inner, kind)
        outer = made.field.add(name=field.name, number=field.number)
        outer.label = FieldDescriptorProto.LABEL_REPEATED
        outer.type, outer.type_name = FieldDescriptorProto.TYPE_MESSAGE, entry.name
        _field_options(outer, field.options)

    def enum(self, made: EnumDescriptorProto, enum: ast.Enum) -> None:
        made.name = enum.name
        for each in enum.elements:
            if isinstance(each, ast.EnumValue):
                value = made.value.add(name=each.name, number=each.number)
                for option in each.options:
                    _set_option(value.options, option)
            elif isinstance(each, ast.Option):
                _set_option(made.options, each)
            elif isinstance(each, ast.EnumReserved):
                _add_ranges(made.reserved_range, each.ranges, _ENUM_NUMBER_MAX, 0)
                made.reserved_name.extend(each.names)

    def extension(self, fields: Any, extension: ast.Extension) -> None:
        for each in extension.elements:
            if isinstance(each, ast.Field):
                self.field(fields.add(), each).extendee = extension.typeName
            elif isinstance(each, ast.Group):
                raise _group(each)


def _group(group: ast.Group) -> RegistryError:
    """The parser's own printer forgets whether there are many of it."""
    return invalid_schema(f"the group '{group.name}' is not supported: use a message instead.")


def _service(made: ServiceDescriptorProto, service: ast.Service) -> None:
    made.name = service.name
    for each in service.elements:
        if isinstance(each, ast.Method):
            method = made.method.add(name=each.name)
            method.input_type, method.output_type = each.input_type.type, each.output_type.type
            method.client_streaming = each.input_type.stream
            method.server_streaming = each.output_type.stream


def _set_type(made: FieldDescriptorProto, name: str) -> None:
    if name in SCALARS:
        made.type = SCALARS[name]
    else:
        # Whether it is a message or an enum, the pool finds out.
        made.type_name = name


def _field_options(made: FieldDescriptorProto, options: Iterable[ast.Option]) -> None:
    for option in options:
        if option.name == "default":
            made.default_value = _plain(option.value)
        elif option.name == "json_name":
            made.json_name = _plain(option.value)
        else:
            _set_option(made.options, option)


def _set_option(options: Any, option: ast.Option) -> None:
    """Those that protobuf itself knows and that are simple; others do not matter here."""
    known = options.DESCRIPTOR.fields_by_name.get(option.name)
    if known is None or known.is_repeated or known.message_type is not None:
        return
    value: Any = option.value
    try:
        if known.enum_type is not None:
            value = known.enum_type.values_by_name[_plain(value)].number
        setattr(options, option.name, value)
    except (KeyError, TypeError, ValueError):
        detail = f"the option '{option.name}' can't be {_plain(option.value)!r}."
        raise invalid_schema(detail) from None


def _plain(value: Any) -> str:
    if isinstance(value, ast.Identifier):
        return value.name
    return str(value).lower() if isinstance(value, bool) else str(value)


def _add_ranges(made: Any, ranges: Iterable[str], most: int, beyond: int) -> None:
    """Of messages, ends are not included; of enums, they are."""
    for start, end in _pairs(ranges, most):
        made.add(start=start, end=end + beyond)


def _pairs(ranges: Iterable[str], most: int) -> Iterator[tuple[int, int]]:
    for each in ranges:
        first, _, last = each.partition(" to ")
        try:
            start = int(first, 0)
            end = most if last.strip() == "max" else int(last, 0) if last else start
        except ValueError:
            raise invalid_schema(f"{each!r} is not a range of numbers.") from None
        yield start, end
