"""The reference page of the gRPC door, from the comments of its .proto."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

from penstock.frontdoor.grpc import limits, messages
from penstock.frontdoor.grpc.statuses import REASONS_BY_CODE

PROTO = Path(messages.__file__).with_name("penstock_v1.proto")
# Numbers of fields in the description of a file: of its messages, enums and services, of a
# service's methods, and of an enum's values.
_MESSAGES, _ENUMS, _SERVICES, _PARTS = 4, 5, 6, 2
_TYPES = {
    descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE: "double",
    descriptor_pb2.FieldDescriptorProto.TYPE_INT32: "int32",
    descriptor_pb2.FieldDescriptorProto.TYPE_INT64: "int64",
    descriptor_pb2.FieldDescriptorProto.TYPE_BOOL: "bool",
    descriptor_pb2.FieldDescriptorProto.TYPE_STRING: "string",
    descriptor_pb2.FieldDescriptorProto.TYPE_BYTES: "bytes",
}

HEAD = """\
# gRPC

What a node answers on its gRPC listener. [Use gRPC](../how-to/use-grpc.md) shows it by examples.
The interface is one file, `penstock_v1.proto`, which is part of the installed package
(`penstock/frontdoor/grpc`). It imports nothing, so every gRPC toolchain compiles it as it is.

"""

SERVICES_HEAD = """
A node also answers `grpc.health.v1.Health` (`SERVING` when it is ready, for the node as `""` and
for each service) and server reflection, so tools such as `grpcurl` need no file. Records that wait
for a time have the headers `penstock.deliver.at` or `penstock.deliver.after`, as in [Use
queues](../how-to/use-queues.md).

## Services
"""

ERRORS_HEAD = """
## Errors

| status | reasons (`reason` of the ErrorInfo) |
|---|---|
"""

LIMITS_HEAD = """
A message that is compressed is refused with `UNIMPLEMENTED`. A node that stops ends streams with
`UNAVAILABLE` and the reason `STOPPING`.

## Limits

Sizes are in bytes, times in seconds. Beyond a limit, a call fails with `RESOURCE_EXHAUSTED` or
`INVALID_ARGUMENT`, a stream waits, and a connection is closed.

| name | value |
|---|---|
"""


def page() -> str:
    file = _described()
    comments = {
        tuple(each.path): each.leading_comments.strip()
        for each in file.source_code_info.location
        if each.leading_comments
    }
    # The comment of the file is in front of its `syntax`.
    intro = "\n".join(line.strip() for line in comments.get((12,), "").splitlines())
    parts = [HEAD, intro, "\n", SERVICES_HEAD]
    for index, service in enumerate(file.service):
        parts += _service(service, comments, (_SERVICES, index))
    parts.append("\n## Messages\n")
    for index, message in enumerate(file.message_type):
        parts += _message(message, comments, (_MESSAGES, index))
    for index, enum in enumerate(file.enum_type):
        parts += _enum(enum, comments, (_ENUMS, index))
    parts.append(ERRORS_HEAD)
    for code, reasons in REASONS_BY_CODE.items():
        parts.append(f"| `{code.name}` | {', '.join(f'`{each.name}`' for each in reasons)} |\n")
    parts.append(LIMITS_HEAD)
    named = {name: value for name, value in vars(limits).items() if name.isupper()}
    del named["KIB"], named["MIB"]
    parts += [f"| `{name}` | {value:,} |\n" for name, value in named.items()]
    return "".join(parts)


def _described() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "described"
        options = [f"-I{PROTO.parent}", f"--descriptor_set_out={out}", "--include_source_info"]
        assert protoc.main(["protoc", *options, PROTO.name]) == 0
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]


def _service(service: Any, comments: Any, path: tuple[int, ...]) -> Iterator[str]:
    yield f"\n### {service.name}\n\n{_text(comments, path)}\n\n"
    yield "| method | request | reply | |\n|---|---|---|---|\n"
    for index, method in enumerate(service.method):
        request, reply = _name(method.input_type), _name(method.output_type)
        asked = f"stream of `{request}`" if method.client_streaming else f"`{request}`"
        told = f"stream of `{reply}`" if method.server_streaming else f"`{reply}`"
        text = _text(comments, (*path, _PARTS, index))
        yield f"| `{method.name}` | {asked} | {told} | {text} |\n"


def _message(message: Any, comments: Any, path: tuple[int, ...]) -> Iterator[str]:
    yield f"\n### {message.name}\n"
    if text := _text(comments, path):
        yield f"\n{text}\n"
    if message.field:
        yield "\n| field | type | |\n|---|---|---|\n"
    maps = {each.name: each for each in message.nested_type}
    for index, field in enumerate(message.field):
        text = _text(comments, (*path, _PARTS, index))
        yield f"| `{field.name}` | {_type(field, maps)} | {text} |\n"


def _enum(enum: Any, comments: Any, path: tuple[int, ...]) -> Iterator[str]:
    yield f"\n### {enum.name}\n\n| value | |\n|---|---|\n"
    for index, value in enumerate(enum.value):
        yield f"| `{value.name}` | {_text(comments, (*path, _PARTS, index))} |\n"


def _type(field: Any, maps: dict[str, Any]) -> str:
    name = _name(field.type_name)
    if name in maps:
        key, value = maps[name].field
        return f"map of {_TYPES[key.type]} to {_TYPES[value.type]}"
    kind = f"`{name}`" if name else _TYPES[field.type]
    if field.label == descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {kind}"
    if field.proto3_optional:
        return f"optional {kind}"
    return f"one of {kind}" if field.HasField("oneof_index") else kind


def _name(full: str) -> str:
    return full.rpartition(".")[2]


def _text(comments: Any, path: tuple[int, ...]) -> str:
    return " ".join(comments.get(path, "").split())
