"""Protobuf messages for tests, described in code so that no compiler is needed."""

from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

FieldProto = descriptor_pb2.FieldDescriptorProto
WELL_KNOWN = (any_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
REPEATED = FieldProto.LABEL_REPEATED
TYPES = {
    name: getattr(FieldProto, f"TYPE_{name.upper()}")
    for name in (
        *("int32", "sint32", "sfixed32", "uint32", "fixed32"),
        *("int64", "sint64", "sfixed64", "uint64", "fixed64"),
        *("float", "double", "bool", "string", "bytes"),
    )
}


def add(message: Any, name: str, kind: str, **more: Any) -> Any:
    """A field; `kind` is a scalar's name or, with a dot, that of a message or (with !) an enum."""
    field = message.field.add(name=name, number=len(message.field) + 1, label=1)
    if kind in TYPES:
        field.type = TYPES[kind]
    else:
        field.type = FieldProto.TYPE_ENUM if kind.startswith("!") else FieldProto.TYPE_MESSAGE
        field.type_name = kind.lstrip("!")
    for option, value in more.items():
        setattr(field, option, value)
    return field


def add_optional(message: Any, name: str, kind: str) -> None:
    """A field of proto3 that knows whether it was set."""
    message.oneof_decl.add(name=f"_{name}")
    add(message, name, kind, proto3_optional=True, oneof_index=len(message.oneof_decl) - 1)


def add_map(message: Any, name: str, key: str, value: str) -> None:
    entry = message.nested_type.add(name=f"{name.title()}Entry")
    entry.options.map_entry = True
    add(entry, "key", key)
    add(entry, "value", value)
    add(message, name, f".sample.{message.name}.{entry.name}", label=REPEATED)


def sample_file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="sample.proto", package="sample", syntax="proto3"
    )
    file.dependency.extend(module.DESCRIPTOR.name for module in WELL_KNOWN)
    suit = file.enum_type.add(name="Suit")
    for number, name in enumerate(("SPADES", "HEARTS")):
        suit.value.add(name=name, number=number)
    point = file.message_type.add(name="Point")
    add(point, "x", "int32")
    add(point, "label", "string")
    _fill_sample(file.message_type.add(name="Sample"))
    node = file.message_type.add(name="Node")
    add(node, "next", ".sample.Node")
    file.message_type.add(name="Nothing")
    return file


def _fill_sample(sample: Any) -> None:
    # Oneofs that are made for optional fields must come after the real ones.
    sample.oneof_decl.add(name="choice")
    for kind in TYPES:
        add(sample, f"a_{kind}", kind)
    add(sample, "suit", "!.sample.Suit")
    add(sample, "point", ".sample.Point")
    add(sample, "numbers", "int64", label=REPEATED)
    add(sample, "points", ".sample.Point", label=REPEATED)
    add(sample, "suits", "!.sample.Suit", label=REPEATED)
    add_map(sample, "counts", "string", "int32")
    add_map(sample, "places", "int64", ".sample.Point")
    add(sample, "one_text", "string", oneof_index=0)
    add(sample, "one_point", ".sample.Point", oneof_index=0)
    add(sample, "at", ".google.protobuf.Timestamp")
    add(sample, "during", ".google.protobuf.Duration")
    add(sample, "wrapped", ".google.protobuf.Int32Value")
    add(sample, "free", ".google.protobuf.Struct")
    add(sample, "nothing", ".google.protobuf.Empty")
    add_optional(sample, "maybe", "int32")


def old_file() -> Any:
    """Proto2: required fields, and strings that nobody checks while parsing."""
    file = descriptor_pb2.FileDescriptorProto(name="old.proto", package="old", syntax="proto2")
    message = file.message_type.add(name="Old")
    add(message, "needed", "int32", label=FieldProto.LABEL_REQUIRED)
    add(message, "text", "string")
    add(message, "level", "int32", default_value="5")
    return file


def descriptor_set(file: Any) -> bytes:
    files = [_copy(module) for module in WELL_KNOWN] if file.dependency else []
    # In the wrong order, which a reader has to cope with.
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file, *files]).SerializeToString())


def _copy(module: Any) -> Any:
    copied = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(copied)
    return copied


def message_class(file: Any, name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for module in WELL_KNOWN if file.dependency else ():
        pool.Add(_copy(module))
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
