"""The records of `_schemas`, in the layout that registries share.

A key is JSON with its kind, the subject and a version of the layout ("magic"). Others know the same
kinds. A hard delete is a record without a value. A NOOP has no meaning for others; here its value
says which ids were given away, so that an id whose last version was deleted is not given twice.
"""

from typing import Any, Final

import msgspec

from penstock.registry.schemas import AVRO, Reference

TOPIC: Final = "_schemas"


class SchemaKey(msgspec.Struct, frozen=True, tag="SCHEMA", tag_field="keytype"):
    subject: str
    version: int
    magic: int = 1


class ConfigKey(msgspec.Struct, frozen=True, tag="CONFIG", tag_field="keytype"):
    # None: of all subjects.
    subject: str | None = None
    magic: int = 0


class ModeKey(msgspec.Struct, frozen=True, tag="MODE", tag_field="keytype"):
    subject: str | None = None
    magic: int = 0


class DeleteSubjectKey(msgspec.Struct, frozen=True, tag="DELETE_SUBJECT", tag_field="keytype"):
    subject: str
    magic: int = 0


class ClearSubjectKey(msgspec.Struct, frozen=True, tag="CLEAR_SUBJECT", tag_field="keytype"):
    """Others write it when a deleted subject is registered again; it says nothing here."""

    subject: str
    magic: int = 0


class NoopKey(msgspec.Struct, frozen=True, tag="NOOP", tag_field="keytype"):
    magic: int = 0


Key = SchemaKey | ConfigKey | ModeKey | DeleteSubjectKey | ClearSubjectKey | NoopKey


class SchemaValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One version of a subject."""

    subject: str
    version: int
    id: int
    schemaType: str = AVRO  # noqa: N815
    references: tuple[Reference, ...] = ()
    metadata: dict[str, Any] | None = None
    ruleSet: dict[str, Any] | None = None  # noqa: N815
    schema: str
    # Always written: others look for it.
    deleted: bool | None = None


class ConfigValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    subject: str | None = None
    compatibilityLevel: str | None = None  # noqa: N815
    normalize: bool | None = None


class ModeValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    subject: str | None = None
    mode: str


class DeleteSubjectValue(msgspec.Struct, frozen=True, kw_only=True):
    """All versions up to this one are deleted, but can still be looked up."""

    subject: str
    version: int


class NoopValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    nextId: int = 0  # noqa: N815


Value = SchemaValue | ConfigValue | ModeValue | DeleteSubjectValue | NoopValue


class Entry(msgspec.Struct, frozen=True):
    """One record; without a value, what the key stands for is gone."""

    key: Key
    value: Value | None = None


class UnknownRecord(Exception):
    """A record that somebody else wrote, in a layout that is not this one."""


_KEYS: Final = msgspec.json.Decoder(Key)
_VALUES: Final[dict[type, Any]] = {
    SchemaKey: msgspec.json.Decoder(SchemaValue),
    ConfigKey: msgspec.json.Decoder(ConfigValue),
    ModeKey: msgspec.json.Decoder(ModeValue),
    DeleteSubjectKey: msgspec.json.Decoder(DeleteSubjectValue),
}
_NOOPS: Final = msgspec.json.Decoder(NoopValue)
_ENCODER: Final = msgspec.json.Encoder()


def encode(entry: Entry) -> tuple[bytes, bytes | None]:
    value = None if entry.value is None else _ENCODER.encode(entry.value)
    return _ENCODER.encode(entry.key), value


def decode(key: bytes | None, value: bytes | None) -> Entry:
    """Raises UnknownRecord."""
    try:
        found = _KEYS.decode(key or b"")
        if isinstance(found, NoopKey):
            return Entry(found, _noop(value))
        decoder = _VALUES.get(type(found))
        if value is None or decoder is None:
            return Entry(found)
        return Entry(found, decoder.decode(value))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as bad:
        raise UnknownRecord(str(bad)) from None


def _noop(value: bytes | None) -> NoopValue | None:
    """Others may write anything, or nothing."""
    try:
        return None if value is None else _NOOPS.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
