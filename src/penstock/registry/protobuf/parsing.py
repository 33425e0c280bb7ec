"""Reads a Protobuf schema: the text of a .proto file, or a descriptor in base64."""

import base64
import binascii
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from antlr4.error.ErrorListener import ErrorListener
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError
from proto_schema_parser import ast
from proto_schema_parser.generator import Generator
from proto_schema_parser.parser import Parser

from penstock.registry.errors import SCHEMA_TOO_LARGE, RegistryError, invalid_schema
from penstock.registry.protobuf.comparing import faults_reading
from penstock.registry.protobuf.descriptors import to_descriptor
from penstock.registry.protobuf.texts import to_text
from penstock.registry.schemas import Fault, Used

SERIALIZED: Final = "serialized"
# Of a file's text: the parser takes about 30 microseconds for each byte.
TEXT_BYTES_MAX: Final = 200_000
# The name of the file itself, which nobody imports.
_OWN: Final = "__schema__.proto"
# What every schema may import, beside what it refers to.
_WELL_KNOWN: Final = (
    "any",
    "api",
    "descriptor",
    "duration",
    "empty",
    "field_mask",
    "source_context",
    "struct",
    "timestamp",
    "type",
    "wrappers",
)


class ProtobufSchema:
    __slots__ = ("descriptor", "normalized", "text")

    def __init__(self, file: ast.File, descriptor: FileDescriptor) -> None:
        self.descriptor = descriptor
        self.text = _sized(Generator().generate(file))
        # From the descriptor: names of types in full, elements in one order. But a descriptor has
        # no options that programs define, and they must not be lost.
        self.normalized = self.text
        if not _has_own_options(file):
            self.normalized = Generator().generate(to_text(self._resolved()))

    def faults_reading(self, old: "ProtobufSchema") -> list[Fault]:
        return faults_reading(self.descriptor, old.descriptor)

    def formatted(self, form: str) -> str:
        if form != SERIALIZED:
            return self.text
        found = self._resolved()
        found.ClearField("name")
        return base64.b64encode(found.SerializeToString()).decode()

    def _resolved(self) -> FileDescriptorProto:
        found = FileDescriptorProto()
        self.descriptor.CopyToProto(found)
        return found


def parse(text: str, used: Sequence[Used]) -> ProtobufSchema:
    pool = descriptor_pool.DescriptorPool()
    _add_well_known(pool)
    for each in used:
        if each.name not in _well_known():
            _add(pool, to_descriptor(_read(each.text), each.name))
    file = _read(text)
    return ProtobufSchema(file, _add(pool, to_descriptor(file, _OWN)))


def _read(text: str) -> ast.File:
    """The elements of a file, without comments."""
    descriptor = _decoded(text)
    if descriptor is not None:
        return to_text(descriptor)
    _sized(text)
    listener = _Listener()

    def listen(source: Any) -> None:
        source.removeErrorListeners()
        source.addErrorListener(listener)

    try:
        file = Parser(setup_lexer=listen, setup_parser=listen).parse(text)
    except (AttributeError, TypeError, ValueError) as bad:
        raise invalid_schema(f"it is not Protobuf ({bad}).") from None
    _strip(file.file_elements)
    return file


def _sized(text: str) -> str:
    size = len(text.encode(errors="replace"))
    if size > TEXT_BYTES_MAX:
        detail = f"Schema is too large: {size:,} bytes, where {TEXT_BYTES_MAX:,} are allowed."
        raise RegistryError(SCHEMA_TOO_LARGE, detail)
    return text


class _Listener(ErrorListener):  # type: ignore[misc]
    def syntaxError(  # noqa: N802
        self, recognizer: Any, symbol: Any, line: int, column: int, message: str, error: Any
    ) -> None:
        raise invalid_schema(f"line {line}, column {column + 1}: {message[:300]}.")


def _decoded(text: str) -> FileDescriptorProto | None:
    """The descriptor, if the text is one: no .proto file is base64."""
    stripped = text.strip()
    if not stripped or any(each in stripped for each in '{};"'):
        return None
    try:
        return FileDescriptorProto.FromString(base64.b64decode(stripped, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None


def _strip(elements: list[Any]) -> None:
    waiting = [elements]
    while waiting:
        each = waiting.pop()
        each[:] = [one for one in each if not isinstance(one, ast.Comment)]
        waiting += [
            one.elements for one in each if isinstance(getattr(one, "elements", None), list)
        ]


def _has_own_options(file: ast.File) -> bool:
    waiting: list[Any] = [file.file_elements]
    while waiting:
        for each in waiting.pop():
            if isinstance(each, ast.Option) and each.name.startswith("("):
                return True
            inner = (getattr(each, name, None) for name in ("elements", "options"))
            waiting += [found for found in inner if isinstance(found, list)]
    return False


def _add(pool: descriptor_pool.DescriptorPool, file: FileDescriptorProto) -> FileDescriptor:
    for name in file.dependency:
        try:
            pool.FindFileByName(name)
        except KeyError:
            raise invalid_schema(f"the import '{name}' is not among its references.") from None
    try:
        pool.AddSerializedFile(file.SerializeToString())
        return pool.FindFileByName(file.name)
    except (TypeError, KeyError, ValueError) as bad:
        raise _refused(bad) from None


def _refused(bad: Exception) -> RegistryError:
    words = str(bad).replace("Couldn't build proto file into descriptor pool: ", "").strip(" .")
    return invalid_schema(f"{words[:500]}.")


def _well_known() -> frozenset[str]:
    return frozenset(f"google/protobuf/{name}.proto" for name in _WELL_KNOWN)


@cache
def _well_known_files() -> tuple[bytes, ...]:
    """In an order in which each comes after what it imports."""
    import importlib

    found: dict[str, bytes] = {}

    def add(file: FileDescriptor) -> None:
        if file.name not in found:
            for each in file.dependencies:
                add(each)
            found[file.name] = file.serialized_pb

    for name in _WELL_KNOWN:
        add(importlib.import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR)
    return tuple(found.values())


def _add_well_known(pool: descriptor_pool.DescriptorPool) -> None:
    for each in _well_known_files():
        pool.AddSerializedFile(each)
