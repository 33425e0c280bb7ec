"""Decodes values by the schemas of a registry, each by the one whose id it begins with.

All rows get the type of one schema, the reader's: the newest of a subject, unless one is given. A
value that was written with another schema is brought to it first, by Avro's own rules: fields that
it lacks get their default, and others are left out. So a stream may hold values of many versions.

A value whose id the registry does not know can't be decoded. A registry that can't be reached is
not the value's fault: then the task fails, and Spark tries it again.
"""

import io
import json
from dataclasses import dataclass
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
from fastavro.read import SchemaResolutionError

from penstock.client.registry import NOT_FOUND, RegistryClient, RegistryRefused
from penstock.columns.values.avro.decoder import FRAME_BYTES, AvroFormat
from penstock.columns.values.protobuf.decoder import ProtobufFormat
from penstock.columns.values.protobuf.sources import MessageSource, message_source
from penstock.columns.values.refusals import DecodeRefused
from penstock.columns.values.results import Decoded

# Ids that a decoder remembers; broken values may name any.
IDS_MAX: Final = 10_000
# What one schema may use, with all that these use themselves.
REFERENCES_MAX: Final = 1_000
_MAGIC: Final = 0


def avro_format(url: str, subject: str | None, schema: str | None) -> "RegisteredAvroFormat":
    """Raises DecodeRefused where there is no schema for the rows."""
    if schema is None:
        found = _latest(url, subject, "AVRO", "resolved")
        schema = str(found["schema"])
    return RegisteredAvroFormat(url=url, schema=schema)


def protobuf_format(url: str, subject: str | None, message: str | None) -> ProtobufFormat:
    """By the newest schema alone: Protobuf reads what other versions wrote by itself."""
    source = _message_source(url, _latest(url, subject, "PROTOBUF", "serialized"), message)
    return ProtobufFormat(source=source, framed=True)


def _latest(url: str, subject: str | None, kind: str, form: str) -> dict[str, Any]:
    if not subject:
        raise DecodeRefused("A registry needs subject=, as in 'orders-value', or schema=.")
    try:
        found = RegistryClient(url).version(subject, form=form)
    except RegistryRefused as refused:
        raise DecodeRefused(f"The registry at {url} refused: {refused}") from refused
    if found.get("schemaType", "AVRO") != kind:
        raise DecodeRefused(f"The schema of subject {subject!r} is {found['schemaType']}.")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredAvroFormat:
    """What travels to the workers."""

    url: str
    # The reader's, with all that it uses.
    schema: str

    def open(self) -> "RegisteredAvroDecoder":
        return RegisteredAvroDecoder(self)


class RegisteredAvroDecoder:
    def __init__(self, wanted: RegisteredAvroFormat) -> None:
        self._client = RegistryClient(wanted.url)
        self._document = json.loads(wanted.schema)
        self._schema = fastavro.parse_schema(self._document)
        self._decoder = AvroFormat(schema=wanted.schema, header=FRAME_BYTES).open()
        # By the first five bytes of a value: None if it is of the reader's schema, the writer's
        # schema, or why there is none.
        self._writers: dict[bytes, Any] = {}

    def decode(self, values: pa.Array) -> Decoded:
        frames = pc.unique(pc.binary_slice(values, 0, FRAME_BYTES)).to_pylist()
        if all(frame is None or self._writer(frame) is None for frame in frames):
            return self._decoder.decode(values)
        rewritten: list[bytes | None] = []
        reasons: dict[int, str] = {}
        for row, value in enumerate(values.to_pylist()):
            try:
                rewritten.append(None if value is None else self._translated(value))
            except _CantBeRead as bad:
                rewritten.append(None)
                reasons[row] = str(bad)
        found = self._decoder.decode(pa.array(rewritten, pa.binary()))
        if not reasons:
            return found
        errors = found.errors.to_pylist()
        for row, reason in reasons.items():
            errors[row] = reason
        return Decoded(values=found.values, errors=pa.array(errors, pa.string()))

    def _translated(self, value: bytes) -> bytes:
        frame = value[:FRAME_BYTES]
        writer = self._writer(frame)
        if writer is None:
            return value
        if isinstance(writer, str):
            raise _CantBeRead(writer)
        source = io.BytesIO(value[FRAME_BYTES:])
        target = io.BytesIO()
        try:
            found = fastavro.schemaless_reader(source, writer, self._schema)
            fastavro.schemaless_writer(target, self._schema, found)
        except SchemaResolutionError as bad:
            raise _CantBeRead(f"The Avro value does not fit the reader's schema: {bad}.") from None
        except Exception as bad:
            # Of any bytes at all, the library may raise anything.
            kind = type(bad).__name__
            raise _CantBeRead(f"The Avro value can't be read by its own schema ({kind}).") from None
        left = len(value) - FRAME_BYTES - source.tell()
        if left:
            raise _CantBeRead(f"After the Avro value {left} bytes are left.")
        return frame + target.getvalue()

    def _writer(self, frame: bytes) -> Any:
        if len(frame) < FRAME_BYTES or frame[0] != _MAGIC:
            # The decoder itself says what is wrong with it.
            return None
        if frame not in self._writers:
            if len(self._writers) >= IDS_MAX:
                self._writers.clear()
            self._writers[frame] = self._found(int.from_bytes(frame[1:]))
        return self._writers[frame]

    def _found(self, schema_id: int) -> Any:
        try:
            found = self._client.schema(schema_id, "resolved")
        except RegistryRefused as refused:
            if refused.status != NOT_FOUND:
                raise
            return f"The registry has no schema with the id {schema_id}."
        if found.get("schemaType", "AVRO") != "AVRO":
            return f"The schema with the id {schema_id} is {found['schemaType']}, not Avro."
        document = json.loads(found["schema"])
        return None if document == self._document else fastavro.parse_schema(document)


class _CantBeRead(Exception):
    """Why one value can't be decoded, in a sentence."""


def _message_source(url: str, found: dict[str, Any], message: str | None) -> MessageSource:
    """The descriptor of a schema, with those of all that it uses."""
    import base64

    from google.protobuf import descriptor_pb2, descriptor_pool

    client = RegistryClient(url)
    files: dict[str, Any] = {}
    waiting = [("__schema__.proto", found)]
    while waiting:
        name, each = waiting.pop()
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(each["schema"]))
        file.name = name
        files[name] = file
        if len(files) > REFERENCES_MAX:
            raise DecodeRefused(f"The schema uses more than {REFERENCES_MAX} others.")
        for used in each.get("references", []):
            if used["name"] not in files:
                version = client.version(
                    used["subject"], str(used["version"]), "serialized", deleted=True
                )
                waiting.append((used["name"], version))
    for name in {used for file in files.values() for used in file.dependency} - set(files):
        _add_known(descriptor_pool.Default(), name, files)
    if message is None:
        file = files["__schema__.proto"]
        names = [each.name for each in file.message_type]
        if not names:
            raise DecodeRefused("The Protobuf schema has no message.")
        message = f"{file.package}.{names[0]}".lstrip(".")
    packed = descriptor_pb2.FileDescriptorSet(file=files.values()).SerializeToString()
    return message_source(packed, message)


def _add_known(pool: Any, name: str, files: dict[str, Any]) -> None:
    """A file that comes with protobuf itself."""
    import importlib

    from google.protobuf import descriptor_pb2

    try:
        importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        known = pool.FindFileByName(name)
    except (ImportError, KeyError):
        raise DecodeRefused(f"The Protobuf schema imports {name!r}, which is not known.") from None
    copied = descriptor_pb2.FileDescriptorProto()
    known.CopyToProto(copied)
    files[name] = copied
    for each in known.dependencies:
        if each.name not in files:
            _add_known(pool, each.name, files)
