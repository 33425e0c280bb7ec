"""What a schema is, whatever its format, and how its format is found."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import md5
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec

from penstock.registry.errors import (
    SCHEMA_TOO_LARGE,
    MissingLibrary,
    RegistryError,
    invalid_schema,
)

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
TYPES: Final = (JSON, PROTOBUF, AVRO)
# In bytes of UTF-8: a schema is one record of the topic, with its key and what goes with it.
SCHEMA_BYTES_MAX: Final = 900_000
# Parsed schemas that are kept, because the next request is often about the same; a large one takes
# many times its text.
PARSED_MAX: Final = 500
KEPT_LENGTH_MAX: Final = 20_000


class Reference(msgspec.Struct, frozen=True):
    """A schema that another one uses, under the name by which it does."""

    name: str
    subject: str
    version: int


class Content(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What has an id: two subjects with the same content have the same id."""

    schemaType: str = AVRO  # noqa: N815
    schema: str
    references: tuple[Reference, ...] = ()
    # What clients' rules use; the registry keeps it and looks into it only to find a version.
    metadata: dict[str, Any] | None = None
    ruleSet: dict[str, Any] | None = None  # noqa: N815

    def digest(self) -> bytes:
        """The same for the same content, whoever computes it."""
        return md5(_ORDERED.encode(self), usedforsecurity=False).digest()


def guid_of(digest: bytes) -> str:
    return str(UUID(bytes=digest))


_ORDERED = msgspec.json.Encoder(order="sorted")


class Fault(msgspec.Struct, frozen=True):
    """One reason why data of one schema can't be read by another."""

    kind: str
    description: str
    detail: str = ""

    def __str__(self) -> str:
        extra = f", additionalInfo:'{self.detail}'" if self.detail else ""
        return f"{{errorType:'{self.kind}', description:'{self.description}'{extra}}}"


class Parsed(Protocol):
    """A schema that was read and found valid."""

    @property
    def text(self) -> str:
        """As it is stored and shown."""
        ...

    @property
    def normalized(self) -> str:
        """The same for all ways to write the same schema."""
        ...

    def faults_reading(self, old: Any) -> list[Fault]:
        """Why a reader with this schema can't read what a writer with the old one wrote."""
        ...

    def formatted(self, form: str) -> str:
        """As clients ask for it: "resolved" of Avro, "serialized" of Protobuf."""
        ...


@dataclass(frozen=True, slots=True)
class Used:
    """A schema that another one refers to, found: what it uses itself comes before it."""

    name: str
    text: str


def _avro() -> Callable[[str, Sequence[Used]], Parsed]:
    from penstock.registry.avro.parsing import parse

    return parse


def _json() -> Callable[[str, Sequence[Used]], Parsed]:
    from penstock.registry.json_schema.parsing import parse

    return parse


def _protobuf() -> Callable[[str, Sequence[Used]], Parsed]:
    from penstock.registry.protobuf.parsing import parse

    return parse


# Imported when they are asked for: each has a library of its own.
_PARSERS: Final[Mapping[str, Callable[[], Callable[[str, Sequence[Used]], Parsed]]]] = {
    AVRO: _avro,
    JSON: _json,
    PROTOBUF: _protobuf,
}


def parse(kind: str, text: str, used: tuple[Used, ...] = ()) -> Parsed:
    """Raises RegistryError for what is not a valid schema. May take long: not for an event loop."""
    length = len(text) + sum(len(each.text) for each in used)
    return (_parse_kept if length <= KEPT_LENGTH_MAX else _parse)(kind, text, used)


def _parse(kind: str, text: str, used: tuple[Used, ...]) -> Parsed:
    try:
        return _PARSERS[kind]()(text, used)
    except ImportError as missing:
        raise MissingLibrary(f"A schema of the type {kind}") from missing
    except RecursionError:
        raise invalid_schema("it is nested too deeply.") from None


_parse_kept = lru_cache(maxsize=PARSED_MAX)(_parse)


def check_size(text: str) -> None:
    size = len(text.encode(errors="replace"))
    if size > SCHEMA_BYTES_MAX:
        detail = f"Schema is too large: {size:,} bytes, where {SCHEMA_BYTES_MAX:,} are allowed."
        raise RegistryError(SCHEMA_TOO_LARGE, detail)
