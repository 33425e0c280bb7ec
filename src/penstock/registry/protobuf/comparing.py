"""Whether a reader's Protobuf schema can read what a writer with another one wrote.

Messages are told apart by name, and fields by number. The kinds of faults are Confluent's.
"""

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

from penstock.registry.schemas import Fault

FAULTS_MAX: Final = 100
# Types that are the same on the wire, as far as the same values go.
_GROUPS: Final = (
    (
        FieldDescriptor.TYPE_INT32,
        FieldDescriptor.TYPE_UINT32,
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_UINT64,
        FieldDescriptor.TYPE_BOOL,
        FieldDescriptor.TYPE_ENUM,
    ),
    (FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SINT64),
    (FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32),
    (FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64),
    (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES),
    (FieldDescriptor.TYPE_FLOAT,),
    (FieldDescriptor.TYPE_DOUBLE,),
    (FieldDescriptor.TYPE_MESSAGE,),
    (FieldDescriptor.TYPE_GROUP,),
)
_GROUP_OF: Final = {kind: index for index, kinds in enumerate(_GROUPS) for kind in kinds}
_NAMED: Final = (
    FieldDescriptor.TYPE_MESSAGE,
    FieldDescriptor.TYPE_GROUP,
    FieldDescriptor.TYPE_ENUM,
)
# Of these, the last of several values counts, so that one may become many and back.
_LAST_COUNTS: Final = (
    FieldDescriptor.TYPE_STRING,
    FieldDescriptor.TYPE_BYTES,
    FieldDescriptor.TYPE_MESSAGE,
)


def faults_reading(reader: FileDescriptor, writer: FileDescriptor) -> list[Fault]:
    return list(Comparison().compare(reader, writer))[:FAULTS_MAX]


class Comparison:
    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()

    def compare(self, reader: FileDescriptor, writer: FileDescriptor) -> Iterator[Fault]:
        if reader.package != writer.package:
            what = f"is in the package '{reader.package}', not '{writer.package}'"
            yield _fault("PACKAGE_CHANGED", "#/", what)
        for name, message in writer.message_types_by_name.items():
            found = reader.message_types_by_name.get(name)
            yield from self._message(found, message, f"#/{name}")

    def _message(self, reader: Descriptor | None, writer: Descriptor, path: str) -> Iterator[Fault]:
        if reader is None:
            yield _fault("MESSAGE_REMOVED", path, "is missing")
            return
        pair = reader.full_name, writer.full_name
        if pair in self._seen:
            return
        self._seen.add(pair)
        for name, nested in writer.nested_types_by_name.items():
            if not nested.GetOptions().map_entry:
                found = reader.nested_types_by_name.get(name)
                yield from self._message(found, nested, f"{path}/{name}")
        yield from self._fields(reader, writer, path)
        yield from _oneofs(reader, writer, path)

    def _fields(self, reader: Descriptor, writer: Descriptor, path: str) -> Iterator[Fault]:
        for number, written in writer.fields_by_number.items():
            field = reader.fields_by_number.get(number)
            place = f"{path}/{number}"
            if field is not None:
                yield from self._field(field, written, place)
            elif written.is_required:
                yield _fault("REQUIRED_FIELD_REMOVED", place, "lacks a field that was required")
        for number, field in reader.fields_by_number.items():
            if field.is_required and number not in writer.fields_by_number:
                yield _fault("REQUIRED_FIELD_ADDED", f"{path}/{number}", "has a new required field")

    def _field(
        self, reader: FieldDescriptor, writer: FieldDescriptor, path: str
    ) -> Iterator[Fault]:
        if _GROUP_OF[reader.type] != _GROUP_OF[writer.type]:
            is_scalar = reader.type not in _NAMED and writer.type not in _NAMED
            kind = "FIELD_SCALAR_KIND_CHANGED" if is_scalar else "FIELD_KIND_CHANGED"
            yield _fault(kind, path, "has another type of field")
            return
        if reader.is_repeated != writer.is_repeated and reader.type not in _LAST_COUNTS:
            yield _fault("FIELD_NUMERIC_LABEL_CHANGED", path, "has one value instead of many")
        if reader.message_type is None or writer.message_type is None:
            return
        is_map = [each.message_type.GetOptions().map_entry for each in (reader, writer)]
        if is_map[0] != is_map[1] or (
            not is_map[0] and reader.message_type.full_name != writer.message_type.full_name
        ):
            yield _fault("FIELD_NAMED_TYPE_CHANGED", path, "has another type of message")
            return
        yield from self._message(reader.message_type, writer.message_type, path)


def _oneofs(reader: Descriptor, writer: Descriptor, path: str) -> Iterator[Fault]:
    read, written = _members(reader), _members(writer)
    for name, numbers in written.items():
        for number in sorted(numbers - set(reader.fields_by_number)):
            if name in read:
                yield _fault("ONEOF_FIELD_REMOVED", f"{path}/{name}/{number}", "lacks a field")
    for name, numbers in read.items():
        # Fields that could be set together, and now can't.
        moved = {each for each in numbers if each in writer.fields_by_number}
        moved -= written.get(name, set())
        if moved and name in written:
            place = f"{path}/{name}"
            yield _fault("FIELD_MOVED_TO_EXISTING_ONEOF", place, "has a field in a oneof now")
        elif len(moved) > 1 and not any(moved <= each for each in written.values()):
            place = f"{path}/{name}"
            yield _fault("MULTIPLE_FIELDS_MOVED_TO_ONEOF", place, "has fields in a oneof now")


def _members(message: Descriptor) -> dict[str, set[int]]:
    """The numbers of the fields of each oneof that somebody wrote."""
    found: dict[str, set[int]] = {}
    oneof: Any
    for oneof in message.oneofs:
        fields = list(oneof.fields)
        is_synthetic = len(fields) == 1 and oneof.name == f"_{fields[0].name}"
        if not is_synthetic:
            found[oneof.name] = {field.number for field in fields}
    return found


def _fault(kind: str, path: str, what: str) -> Fault:
    return Fault(kind, f'The new schema at path "{path}" {what}', path)
