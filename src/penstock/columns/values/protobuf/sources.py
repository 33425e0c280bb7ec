"""Where a message's description comes from, and the form in which it travels to the workers."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError, Message

from penstock.columns.values.refusals import DecodeRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSource:
    """A FileDescriptorSet, serialised, and the full name of one message in it."""

    descriptor_set: bytes
    message: str

    def descriptor(self) -> Any:
        """Resolved in a pool of its own: the same file may have another version elsewhere."""
        files = descriptor_pb2.FileDescriptorSet.FromString(self.descriptor_set).file
        pool = descriptor_pool.DescriptorPool()
        for file in _dependencies_first(files):
            pool.Add(file)
        return pool.FindMessageTypeByName(self.message)


def message_source(schema: object, message: str | None) -> MessageSource:
    """From a generated class, or from a descriptor set (bytes, or a file) and a message's name."""
    if isinstance(schema, type) and issubclass(schema, Message):
        descriptor: Any = schema.DESCRIPTOR  # type: ignore[attr-defined]
        files: dict[str, Any] = {}
        _collect(descriptor.file, files)
        packed = descriptor_pb2.FileDescriptorSet(file=files.values()).SerializeToString()
        return _checked(MessageSource(descriptor_set=packed, message=descriptor.full_name))
    if not isinstance(schema, bytes | str | os.PathLike):
        raise DecodeRefused(
            "Protobuf needs schema=, a generated class or a descriptor set as bytes or as a file "
            "(protoc --include_imports --descriptor_set_out)."
        )
    if not message:
        raise DecodeRefused("Protobuf needs message=, the full name of a message in the schema.")
    packed = schema if isinstance(schema, bytes) else _file_bytes(Path(schema))
    return _checked(MessageSource(descriptor_set=packed, message=message.lstrip(".")))


def _collect(file: Any, files: dict[str, Any]) -> None:
    if file.name in files:
        return
    for dependency in file.dependencies:
        _collect(dependency, files)
    copied = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(copied)
    files[file.name] = copied


def _file_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DecodeRefused(
            f"The Protobuf descriptor set {path} can't be read: {error.strerror}."
        ) from error


def _checked(source: MessageSource) -> MessageSource:
    try:
        source.descriptor()
    except DecodeError as error:
        raise DecodeRefused("The schema is not a Protobuf descriptor set.") from error
    except KeyError as error:
        known = ", ".join(_message_names(source.descriptor_set)[:10]) or "none"
        raise DecodeRefused(
            f"The Protobuf schema has no message {source.message!r}; it has: {known}."
        ) from error
    except TypeError as error:
        raise DecodeRefused(
            "The Protobuf descriptor set is not complete (protoc --include_imports adds what "
            f"is imported): {str(error).splitlines()[0].rstrip('.')}."
        ) from error
    return source


def _message_names(descriptor_set: bytes) -> list[str]:
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file
    return [
        f"{file.package}.{each.name}".lstrip(".") for file in files for each in file.message_type
    ]


def _dependencies_first(files: Any) -> list[Any]:
    named = {file.name: file for file in files}
    ordered: dict[str, Any] = {}

    def visit(name: str) -> None:
        # What is missing is left to the pool, which says so.
        if name in ordered or name not in named:
            return
        file = named.pop(name)
        for dependency in file.dependency:
            visit(dependency)
        ordered[name] = file

    for name in list(named):
        visit(name)
    return list(ordered.values())
