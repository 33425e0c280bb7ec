"""What requests change: each decision is a few records, or a refusal.

Work that may take long (parsing and comparing) is not done here but asked for: a decision that
needs some is a generator, which yields the work and gets its result. Whoever drives it may do that
in a thread, while the state does not change (frontdoor/remote/registry.py).
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from penstock.registry import errors
from penstock.registry.errors import RegistryError, not_permitted
from penstock.registry.records import (
    ConfigKey,
    ConfigValue,
    DeleteSubjectKey,
    DeleteSubjectValue,
    Entry,
    ModeKey,
    ModeValue,
    NoopKey,
    NoopValue,
    SchemaKey,
    SchemaValue,
)
from penstock.registry.schemas import (
    AVRO,
    TYPES,
    Content,
    Fault,
    Parsed,
    Reference,
    Used,
    check_size,
    parse,
)
from penstock.registry.state import Schema, State, Version

LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
IMPORT: Final = "IMPORT"
READWRITE: Final = "READWRITE"
MODES: Final = (READWRITE, "READONLY", "READONLY_OVERRIDE", IMPORT)
SUBJECT_LENGTH_MAX: Final = 1_000
ID_MAX: Final = 2**31 - 1
# Of all schemas together: every node that serves the registry has them in memory.
TEXT_LENGTH_MAX: Final = 256 * 1024 * 1024
LATEST: Final = "latest"
# Of one schema in a request.
REFERENCES_MAX: Final = 200

T = TypeVar("T")
Work = Callable[[], Any]
Deciding = Generator[Work, Any, T]


class Request(msgspec.Struct, kw_only=True):
    """A schema, as clients send it."""

    schema: str | None = None
    schemaType: str | None = None  # noqa: N815
    references: list[Reference] | None = None
    metadata: dict[str, Any] | None = None
    ruleSet: dict[str, Any] | None = None  # noqa: N815
    # Only in the mode IMPORT.
    id: int | None = None
    version: int | None = None


class Change(msgspec.Struct):
    """The records to write, as one batch, and what the request is answered when they are."""

    entries: list[Entry]
    answer: Any


class Registered(msgspec.Struct, frozen=True):
    id: int
    version: int
    guid: str


# Registering


def register(state: State, subject: str, request: Request, *, normalize: bool) -> Deciding[Change]:
    check_subject(subject)
    normalize = normalize or state.normalizes(subject)
    content, parsed, used = yield from read_request(state, request, normalize)
    is_import = request.id is not None and request.id >= 0
    found = find_version(state, subject, content, deleted=False)
    if found is not None and (not is_import or found.schema.id == request.id):
        return Change([], _registered(state, found.schema, found.number))
    _check_mode(state, subject, is_import)
    if state.text_length + len(content.schema) > TEXT_LENGTH_MAX:
        message = f"The registry is full: its schemas have {state.text_length:,} characters."
        raise RegistryError(errors.STORE_FAILED, message)
    if is_import:
        return _imported(state, subject, content, request)
    faults = yield from compatibility_faults(state, subject, request_kind(request), parsed, used)
    if faults:
        details = ", ".join(faults)
        message = (
            "Schema being registered is incompatible with an earlier schema for subject "
            f'"{subject}", details: [{details}]'
        )
        raise RegistryError(errors.INCOMPATIBLE, message)
    schema = state.find_digest(content.digest()) or Schema(state.next_id, content.digest(), content)
    if schema.id > ID_MAX:
        raise RegistryError(errors.STORE_FAILED, "All ids of schemas are given away.")
    number = _next_number(state, subject)
    return Change([_version_entry(subject, number, schema)], _registered(state, schema, number))


def _registered(state: State, schema: Schema, number: int) -> Registered:
    return Registered(schema.id, number, state.guid(schema))


def _next_number(state: State, subject: str) -> int:
    return max(state.subjects.get(subject, {}), default=0) + 1


def _check_mode(state: State, subject: str, is_import: bool) -> None:
    mode = state.mode(subject)
    if mode.startswith("READONLY"):
        raise not_permitted(f"Subject {subject} is in read-only mode")
    if is_import and mode != IMPORT:
        raise not_permitted(f"Subject {subject} is not in import mode")
    if not is_import and mode == IMPORT:
        raise not_permitted(f"Subject {subject} is in import mode: give the schema an id")


def _imported(state: State, subject: str, content: Content, request: Request) -> Change:
    """A schema with the id that it has elsewhere; what it is compatible with was decided there."""
    assert request.id is not None
    if not 0 < request.id <= ID_MAX:
        raise RegistryError(errors.ID_TAKEN, f"{request.id} is not an id of a schema.")
    known = state.find_id(request.id)
    if known is not None and known.digest != content.digest():
        detail = f"Overwrite new schema with id {request.id} is not permitted."
        raise RegistryError(errors.ID_TAKEN, detail)
    number = request.version if request.version and request.version > 0 else None
    if number is None:
        number = _next_number(state, subject)
    elif number > ID_MAX:
        raise invalid_version(number)
    taken = state.subjects.get(subject, {}).get(number)
    if taken is not None and taken.schema.id != request.id:
        raise not_permitted(f"Subject {subject} has another schema as version {number}")
    schema = known or Schema(request.id, content.digest(), content)
    return Change([_version_entry(subject, number, schema)], _registered(state, schema, number))


def _version_entry(subject: str, number: int, schema: Schema, *, deleted: bool = False) -> Entry:
    content = schema.content
    value = SchemaValue(
        subject=subject,
        version=number,
        id=schema.id,
        schemaType=content.schemaType,
        references=content.references,
        metadata=content.metadata,
        ruleSet=content.ruleSet,
        schema=content.schema,
        deleted=deleted,
    )
    return Entry(SchemaKey(subject, number), value)


# Reading requests


def check_subject(subject: str) -> None:
    if subject.startswith(":") or not subject or len(subject) > SUBJECT_LENGTH_MAX:
        why = "there is only the default context" if subject.startswith(":.") else "not a name"
        message = f"The specified subject '{subject[:100]}' is not a valid subject: {why}."
        raise RegistryError(errors.INVALID_SUBJECT, message)
    if any(ord(each) < 32 or 0xD800 <= ord(each) < 0xE000 for each in subject):
        message = "The specified subject has control characters, which no subject may have."
        raise RegistryError(errors.INVALID_SUBJECT, message)


def request_kind(request: Request) -> str:
    kind = request.schemaType or AVRO
    if kind not in TYPES:
        raise errors.invalid_schema(f"the schema type {kind!r} is unknown; there are {TYPES}.")
    return kind


def read_request(
    state: State, request: Request, normalize: bool
) -> Deciding[tuple[Content, Parsed, tuple[Used, ...]]]:
    """The content that a request would have in the registry; raises RegistryError."""
    kind = request_kind(request)
    if not request.schema:
        raise errors.invalid_schema("it is empty.")
    check_size(request.schema)
    references = _numbered(state, request.references or [])
    used = state.used_by(references)
    parsed: Parsed = yield partial(parse, kind, request.schema, used)
    content = Content(
        schemaType=kind,
        schema=parsed.normalized if normalize else parsed.text,
        references=tuple(sorted(references, key=lambda each: each.name))
        if normalize
        else references,
        metadata=request.metadata,
        ruleSet=request.ruleSet,
    )
    check_size(content.schema)
    return content, parsed, used


def _numbered(state: State, references: Sequence[Reference]) -> tuple[Reference, ...]:
    """-1 is the latest version now."""
    if len(references) > REFERENCES_MAX:
        raise errors.invalid_schema(f"it has more than {REFERENCES_MAX} references.")
    names = {each.name for each in references}
    if len(names) != len(references):
        raise errors.invalid_schema("two references have the same name.")
    found = []
    for each in references:
        if each.version == -1:
            versions = state.versions(each.subject)
            number = versions[-1].number if versions else -1
            each = Reference(each.name, each.subject, number)
        found.append(each)
    return tuple(found)


def find_version(state: State, subject: str, content: Content, *, deleted: bool) -> Version | None:
    """The newest version of a subject with this content."""
    digest = content.digest()
    for version in reversed(state.versions(subject, deleted=deleted)):
        if version.schema.digest == digest:
            return version
    return None


def find_number(state: State, subject: str, number: str, *, deleted: bool = False) -> Version:
    """A version by its number, "latest" or -1; raises RegistryError."""
    if subject not in state.subjects:
        check_subject(subject)
        raise errors.no_subject(subject)
    versions = state.versions(subject, deleted=deleted)
    if number in (LATEST, "-1"):
        if not versions:
            raise errors.no_subject(subject)
        return versions[-1]
    if not (number.isascii() and number.isdigit()) or not 0 < int(number) <= ID_MAX:
        raise invalid_version(number)
    if not versions:
        raise errors.no_subject(subject)
    version = state.subjects[subject].get(int(number))
    if version is None or (version.is_deleted and not deleted):
        raise errors.no_version(number)
    return version


def invalid_version(number: object) -> RegistryError:
    return RegistryError(
        errors.INVALID_VERSION,
        f"The specified version '{number}' is not a valid version id. Allowed values are between "
        '[1, 2^31-1] and the string "latest"',
    )


# Compatibility


def compatibility_faults(
    state: State,
    subject: str,
    kind: str,
    parsed: Parsed,
    used: tuple[Used, ...],
    against: Sequence[Version] | None = None,
) -> Deciding[list[str]]:
    """What is wrong with a schema as the next version of a subject, in Confluent's words."""
    level = state.level(subject)
    if against is None:
        versions = state.versions(subject)
        against = versions if level.endswith("_TRANSITIVE") else versions[-1:]
    if level == "NONE":
        return []
    for version in reversed(against):
        content = version.schema.content
        texts: list[str]
        if content.schemaType != kind:
            texts = [f"Incompatible because of different schema type: {content.schemaType}"]
        else:
            old_used = state.used_by(content.references)
            work = partial(_compare, level, kind, parsed, content.schema, old_used)
            texts = yield work
        if texts:
            return [
                *texts,
                f"{{oldSchemaVersion: {version.number}}}",
                f"{{oldSchema: '{content.schema}'}}",
                f"{{validateFields: 'false', compatibility: '{level}'}}",
            ]
    return []


def _compare(
    level: str, kind: str, parsed: Parsed, old_text: str, old_used: tuple[Used, ...]
) -> list[str]:
    old = parse(kind, old_text, old_used)
    faults: list[Fault] = []
    if level.startswith(("BACKWARD", "FULL")):
        faults += parsed.faults_reading(old)
    if level.startswith(("FORWARD", "FULL")):
        faults += old.faults_reading(parsed)
    return list(map(str, faults))


# Deleting


def delete_version(state: State, subject: str, number: str, *, permanent: bool) -> Change:
    _check_writable(state, subject)
    version = find_number(state, subject, number, deleted=True)
    if number in (LATEST, "-1") and not permanent:
        version = find_number(state, subject, number)
    _check_unreferenced(state, [version])
    if permanent:
        if not version.is_deleted:
            message = (
                f"Subject '{subject}' Version {version.number} was not deleted first before being "
                "permanently deleted"
            )
            raise RegistryError(errors.VERSION_NOT_SOFT_DELETED, message)
        return Change(_gone(state, [version]), version.number)
    if version.is_deleted:
        message = (
            f"Subject '{subject}' Version {version.number} was soft deleted."
            "Set permanent=true to delete permanently"
        )
        raise RegistryError(errors.VERSION_SOFT_DELETED, message)
    entry = _version_entry(subject, version.number, version.schema, deleted=True)
    is_last = len(state.versions(subject)) == 1
    return Change([entry, *(_settings_gone(state, subject) if is_last else ())], version.number)


def delete_subject(state: State, subject: str, *, permanent: bool) -> Change:
    _check_writable(state, subject)
    versions = state.versions(subject, deleted=True)
    if not versions:
        raise errors.no_subject(subject)
    living = [each for each in versions if not each.is_deleted]
    if permanent:
        if living:
            message = f"Subject '{subject}' was not deleted first before being permanently deleted"
            raise RegistryError(errors.SUBJECT_NOT_SOFT_DELETED, message)
        _check_unreferenced(state, versions)
        return Change(_gone(state, versions), [each.number for each in versions])
    if not living:
        message = f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
        raise RegistryError(errors.SUBJECT_SOFT_DELETED, message)
    _check_unreferenced(state, living)
    value = DeleteSubjectValue(subject=subject, version=living[-1].number)
    entries = [Entry(DeleteSubjectKey(subject), value), *_settings_gone(state, subject)]
    return Change(entries, [each.number for each in living])


def _check_writable(state: State, subject: str) -> None:
    if state.mode(subject).startswith("READONLY"):
        raise not_permitted(f"Subject {subject} is in read-only mode")


def _check_unreferenced(state: State, versions: Sequence[Version]) -> None:
    """Versions that go together may refer to each other."""
    going = {(each.subject, each.number) for each in versions}
    for version in versions:
        users = state.referring(version.subject, version.number)
        if any((each.subject, each.number) not in going for each in users):
            key = f"subject={version.subject},version={version.number}"
            message = (
                f"One or more references exist to the schema {{magic=1,keytype=SCHEMA,{key}}}."
            )
            raise RegistryError(errors.REFERENCE_EXISTS, message)


def _gone(state: State, versions: Sequence[Version]) -> list[Entry]:
    """Their ids are never given again, even after compaction forgot them."""
    entries = [Entry(SchemaKey(each.subject, each.number)) for each in versions]
    return [*entries, Entry(NoopKey(), NoopValue(nextId=state.next_id))]


def _settings_gone(state: State, subject: str) -> list[Entry]:
    """A subject takes its own settings along."""
    gone: list[Entry] = []
    if subject in state.configs:
        gone.append(Entry(ConfigKey(subject)))
    if subject in state.modes:
        gone.append(Entry(ModeKey(subject)))
    return gone


# Settings


class Config(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a client may set; of the rest, the registry says that it does not serve it."""

    compatibility: str | None = None
    compatibilityLevel: str | None = None  # noqa: N815
    normalize: bool | None = None
    alias: str | None = None
    validateFields: bool | None = None  # noqa: N815
    compatibilityGroup: str | None = None  # noqa: N815
    defaultMetadata: dict[str, Any] | None = None  # noqa: N815
    overrideMetadata: dict[str, Any] | None = None  # noqa: N815
    defaultRuleSet: dict[str, Any] | None = None  # noqa: N815
    overrideRuleSet: dict[str, Any] | None = None  # noqa: N815


_NOT_SERVED: Final = (
    "alias",
    "compatibilityGroup",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
)


def set_config(state: State, subject: str | None, config: Config) -> Change:
    if subject is not None:
        check_subject(subject)
    for name in _NOT_SERVED:
        if getattr(config, name):
            raise RegistryError(errors.NOT_SERVED, f"This registry does not serve '{name}'.")
    if config.validateFields:
        raise RegistryError(errors.NOT_SERVED, "This registry does not serve 'validateFields'.")
    level = config.compatibility or config.compatibilityLevel
    if level is not None and level.upper() not in LEVELS:
        words = "none, backward, forward, full, backward_transitive, forward_transitive"
        message = f"Invalid compatibility level. Valid values are {words}, and full_transitive"
        raise RegistryError(errors.INVALID_LEVEL, message)
    known = state.configs.get(subject, ConfigValue(subject=subject))
    value = ConfigValue(
        subject=subject,
        compatibilityLevel=level.upper() if level else known.compatibilityLevel,
        normalize=known.normalize if config.normalize is None else config.normalize,
    )
    answer = Config(compatibility=value.compatibilityLevel, normalize=config.normalize)
    return Change([Entry(ConfigKey(subject), value)], answer)


def delete_config(state: State, subject: str | None) -> Change:
    known = state.configs.get(subject)
    if known is None and subject is not None:
        raise errors.no_subject(subject)
    answer = Config(
        compatibilityLevel=known.compatibilityLevel if known else "BACKWARD",
        normalize=known.normalize if known else None,
    )
    return Change([Entry(ConfigKey(subject))] if known else [], answer)


def set_mode(state: State, subject: str | None, mode: str, *, force: bool) -> Change:
    if subject is not None:
        check_subject(subject)
    if mode.upper() not in MODES:
        message = f"Invalid mode. Valid values are {', '.join(MODES[:-1])}, and {MODES[-1]}"
        raise RegistryError(errors.INVALID_MODE, message)
    mode = mode.upper()
    current = state.modes.get(subject, "") if subject else state.modes.get(None, READWRITE)
    if mode == IMPORT and current != IMPORT and not force:
        # Ids from elsewhere may be those of schemas that are here.
        living = [subject] if subject is not None else list(state.subjects)
        if any(state.versions(each) for each in living):
            raise not_permitted("Cannot import since found existing subjects")
    value = ModeValue(subject=subject, mode=mode)
    return Change([Entry(ModeKey(subject), value)], {"mode": mode})


def delete_mode(state: State, subject: str | None) -> Change:
    known = state.modes.get(subject)
    if known is None and subject is not None:
        raise errors.no_subject(subject)
    return Change([Entry(ModeKey(subject))] if known else [], {"mode": known or READWRITE})
