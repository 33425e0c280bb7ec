"""What is registered: a state machine over the records of `_schemas`.

`apply` is the only mutator, and every node that replays the same records has the same state.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from penstock.registry.errors import invalid_schema
from penstock.registry.records import (
    ConfigKey,
    ConfigValue,
    DeleteSubjectValue,
    Entry,
    ModeKey,
    ModeValue,
    NoopValue,
    SchemaKey,
    SchemaValue,
)
from penstock.registry.schemas import Content, Reference, Used, guid_of

LEVEL: Final = "BACKWARD"
MODE: Final = "READWRITE"
FIRST_ID: Final = 1
# Of one schema, with those that they refer to themselves.
REFERENCES_MAX: Final = 1_000


class Schema(msgspec.Struct, frozen=True):
    """A content and its id. Versions share it."""

    id: int
    digest: bytes
    content: Content


class Version(msgspec.Struct, frozen=True):
    subject: str
    number: int
    schema: Schema
    is_deleted: bool = False


class State:
    def __init__(self) -> None:
        # By subject and number; numbers ascend.
        self.subjects: dict[str, dict[int, Version]] = {}
        self.configs: dict[str | None, ConfigValue] = {}
        self.modes: dict[str | None, str] = {}
        # Where the next record is expected.
        self.next_offset = 0
        self.next_id = FIRST_ID
        # Of the texts of all schemas, each once.
        self.text_length = 0
        self._by_id: dict[int, Schema] = {}
        self._by_digest: dict[bytes, Schema] = {}
        # How many versions have an id, and which versions refer to one.
        self._uses: dict[int, dict[tuple[str, int], None]] = {}
        self._referring: dict[tuple[str, int], dict[tuple[str, int], None]] = {}

    # Changing

    def apply(self, entry: Entry, offset: int) -> None:
        """Takes the record at an offset."""
        self.next_offset = offset + 1
        key, value = entry.key, entry.value
        if isinstance(key, SchemaKey):
            self._remove(key.subject, key.version)
            if isinstance(value, SchemaValue):
                self._add(key, value)
        elif isinstance(key, ConfigKey):
            self.configs.pop(key.subject, None)
            if isinstance(value, ConfigValue):
                self.configs[key.subject] = value
        elif isinstance(key, ModeKey):
            self.modes.pop(key.subject, None)
            if isinstance(value, ModeValue):
                self.modes[key.subject] = value.mode
        elif isinstance(value, DeleteSubjectValue):
            self._delete_up_to(value)
        elif isinstance(value, NoopValue):
            self.next_id = max(self.next_id, value.nextId)

    def _add(self, key: SchemaKey, value: SchemaValue) -> None:
        schema = self._schema(value)
        place = key.subject, key.version
        versions = self.subjects.setdefault(key.subject, {})
        is_last = not versions or key.version > next(reversed(versions))
        versions[key.version] = Version(*place, schema, bool(value.deleted))
        if not is_last:
            self.subjects[key.subject] = dict(sorted(versions.items()))
        self._uses.setdefault(schema.id, {})[place] = None
        for each in schema.content.references:
            self._referring.setdefault((each.subject, each.version), {})[place] = None
        self.next_id = max(self.next_id, value.id + 1)

    def _schema(self, value: SchemaValue) -> Schema:
        content = Content(
            schemaType=value.schemaType,
            schema=value.schema,
            references=value.references,
            metadata=value.metadata,
            ruleSet=value.ruleSet,
        )
        digest = content.digest()
        known = self._by_id.get(value.id)
        if known is not None and known.digest == digest:
            return known
        schema = Schema(value.id, digest, content)
        # The first one keeps the id, should another registry have given it twice.
        self._by_id.setdefault(value.id, schema)
        self._by_digest.setdefault(digest, schema)
        self.text_length += len(content.schema)
        return schema

    def _remove(self, subject: str, number: int) -> None:
        versions = self.subjects.get(subject, {})
        version = versions.pop(number, None)
        if version is None:
            return
        if not versions:
            del self.subjects[subject]
        schema, place = version.schema, (subject, number)
        uses = self._uses[schema.id]
        uses.pop(place, None)
        for each in schema.content.references:
            self._referring.get((each.subject, each.version), {}).pop(place, None)
        if not uses:
            del self._uses[schema.id]
            self._by_id.pop(schema.id, None)
            self.text_length -= len(schema.content.schema)
        if self._by_digest.get(schema.digest) == schema and not uses:
            del self._by_digest[schema.digest]

    def _delete_up_to(self, value: DeleteSubjectValue) -> None:
        versions = self.subjects.get(value.subject, {})
        for number, version in versions.items():
            if number <= value.version:
                versions[number] = msgspec.structs.replace(version, is_deleted=True)

    # Finding

    def find_id(self, schema_id: int) -> Schema | None:
        return self._by_id.get(schema_id)

    def find_digest(self, digest: bytes) -> Schema | None:
        return self._by_digest.get(digest)

    def find_guid(self, guid: str) -> Schema | None:
        try:
            return self._by_digest.get(bytes.fromhex(guid.replace("-", "")))
        except ValueError:
            return None

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        found = self.subjects.get(subject, {}).values()
        return [each for each in found if deleted or not each.is_deleted]

    def versions_of_id(self, schema_id: int) -> Iterator[Version]:
        for subject, number in self._uses.get(schema_id, ()):
            yield self.subjects[subject][number]

    def referring(self, subject: str, number: int) -> Iterator[Version]:
        """The versions whose schema refers to this one."""
        for place in self._referring.get((subject, number), ()):
            yield self.subjects[place[0]][place[1]]

    def level(self, subject: str) -> str:
        for key in (subject, None):
            found = self.configs.get(key)
            if found is not None and found.compatibilityLevel is not None:
                return found.compatibilityLevel
        return LEVEL

    def normalizes(self, subject: str) -> bool:
        for key in (subject, None):
            found = self.configs.get(key)
            if found is not None and found.normalize is not None:
                return found.normalize
        return False

    def mode(self, subject: str) -> str:
        # One mode stands above those of subjects.
        overall = self.modes.get(None, MODE)
        return overall if overall == "READONLY_OVERRIDE" else self.modes.get(subject, overall)

    def guid(self, schema: Schema) -> str:
        return guid_of(schema.digest)

    # References

    def used_by(self, references: tuple[Reference, ...]) -> tuple[Used, ...]:
        """The schemas that these refer to, and those that they use, each before who uses it.

        Raises RegistryError for one that is not there, for a cycle, and for too many."""
        found: dict[tuple[str, int], Used] = {}
        # An explicit stack, since references may be nested deeply; False: still to be looked into.
        stack = [(each, False) for each in reversed(references)]
        open_places: set[tuple[str, int]] = set()
        while stack:
            reference, is_seen = stack.pop()
            place = reference.subject, reference.version
            if is_seen:
                open_places.discard(place)
                found.setdefault(place, Used(reference.name, self._text(reference)))
                continue
            if place in found:
                continue
            if place in open_places:
                raise invalid_schema(f"{_named(place)} refers to itself, through others.")
            if len(found) + len(open_places) >= REFERENCES_MAX:
                raise invalid_schema(f"it uses more than {REFERENCES_MAX} other schemas.")
            open_places.add(place)
            stack.append((reference, True))
            inner = self._version(reference).schema.content.references
            stack += [(each, False) for each in reversed(inner)]
        return tuple(found.values())

    def _text(self, reference: Reference) -> str:
        return self._version(reference).schema.content.schema

    def _version(self, reference: Reference) -> Version:
        versions: Mapping[int, Version] = self.subjects.get(reference.subject, {})
        found = versions.get(reference.version)
        if found is None:
            raise invalid_schema(
                f"No schema reference found for subject '{reference.subject}' and version "
                f"{reference.version}."
            )
        return found


def _named(place: tuple[str, int]) -> str:
    return f"version {place[1]} of subject '{place[0]}'"
