"""What requests are answered that change nothing."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from penstock.registry import errors
from penstock.registry.decisions import (
    Deciding,
    Request,
    check_subject,
    compatibility_faults,
    find_number,
    find_version,
    read_request,
    request_kind,
)
from penstock.registry.errors import RegistryError
from penstock.registry.schemas import AVRO, Content, parse
from penstock.registry.state import LEVEL, MODE, Schema, State, Version

Document = dict[str, Any]
T = TypeVar("T")
# A prefix in front of subjects names a context, of which there is only one.
CONTEXT = "."
_CONTEXTS = (":*:", ":.:")


# Schemas


def schema_by_id(
    state: State, schema_id: str, *, form: str = "", max_id: bool = False
) -> Deciding[Document]:
    schema = find_schema(state, schema_id)
    document = yield from _content(state, schema.content, form)
    document["guid"] = state.guid(schema)
    if max_id:
        document["maxId"] = state.next_id - 1
    return document


def schema_by_guid(state: State, guid: str, *, form: str = "") -> Deciding[Document]:
    schema = state.find_guid(guid)
    if schema is None:
        raise errors.no_schema(guid)
    document = yield from _content(state, schema.content, form)
    return document | {"guid": state.guid(schema), "id": schema.id}


def find_schema(state: State, schema_id: str) -> Schema:
    is_number = schema_id.isascii() and schema_id.isdigit() and len(schema_id) < 12
    found = state.find_id(int(schema_id)) if is_number else None
    if found is None:
        raise errors.no_schema(schema_id)
    return found


def subjects_of_id(
    state: State, schema_id: str, *, deleted: bool, subject: str | None
) -> list[str]:
    return list(dict.fromkeys(each.subject for each in _uses(state, schema_id, deleted, subject)))


def versions_of_id(
    state: State, schema_id: str, *, deleted: bool, subject: str | None
) -> list[Document]:
    return [
        {"subject": each.subject, "version": each.number}
        for each in _uses(state, schema_id, deleted, subject)
    ]


def _uses(state: State, schema_id: str, deleted: bool, subject: str | None) -> Iterator[Version]:
    schema = find_schema(state, schema_id)
    found = sorted(state.versions_of_id(schema.id), key=lambda each: (each.subject, each.number))
    return (
        each
        for each in found
        if (deleted or not each.is_deleted) and subject in (None, "", each.subject)
    )


def all_schemas(
    state: State, *, prefix: str, deleted: bool, latest_only: bool
) -> Iterator[Document]:
    for subject in subjects(state, prefix=prefix, deleted=deleted):
        versions = state.versions(subject, deleted=deleted)
        for version in versions[-1:] if latest_only else versions:
            yield _version(state, version, dict(_plain(version.schema.content)))


def _content(state: State, content: Content, form: str) -> Deciding[Document]:
    document = _plain(content)
    if form:
        used = state.used_by(content.references)
        parsed = yield partial(parse, content.schemaType, content.schema, used)
        document["schema"] = parsed.formatted(form)
    return document


def _plain(content: Content) -> Document:
    document: Document = {}
    if content.schemaType != AVRO:
        document["schemaType"] = content.schemaType
    if content.references:
        document["references"] = content.references
    if content.metadata is not None:
        document["metadata"] = content.metadata
    if content.ruleSet is not None:
        document["ruleSet"] = content.ruleSet
    document["schema"] = content.schema
    return document


# Subjects and versions


def subjects(
    state: State, *, prefix: str = "", deleted: bool = False, deleted_only: bool = False
) -> list[str]:
    for context in _CONTEXTS:
        prefix = prefix.removeprefix(context)
    found = []
    for subject, versions in state.subjects.items():
        if subject.startswith(prefix):
            is_living = any(not each.is_deleted for each in versions.values())
            if not is_living if deleted_only else is_living or deleted:
                found.append(subject)
    return sorted(found)


def numbers(
    state: State, subject: str, *, deleted: bool = False, deleted_only: bool = False
) -> list[int]:
    found = state.versions(subject, deleted=True)
    shown = [
        each.number
        for each in found
        if (each.is_deleted if deleted_only else deleted or not each.is_deleted)
    ]
    if not shown:
        check_subject(subject)
        raise errors.no_subject(subject)
    return shown


def version(
    state: State, subject: str, number: str, *, deleted: bool = False, form: str = ""
) -> Deciding[Document]:
    found = find_number(state, subject, number, deleted=deleted)
    document = yield from _content(state, found.schema.content, form)
    return _version(state, found, document)


def _version(state: State, found: Version, document: Document) -> Document:
    head = {
        "subject": found.subject,
        "version": found.number,
        "id": found.schema.id,
        "guid": state.guid(found.schema),
    }
    return head | document | ({"deleted": True} if found.is_deleted else {})


def version_with_metadata(
    state: State, subject: str, wanted: dict[str, str], *, deleted: bool, form: str = ""
) -> Deciding[Document]:
    """The newest version whose metadata has all these properties."""
    if not state.versions(subject, deleted=deleted):
        raise errors.no_subject(subject)
    for each in reversed(state.versions(subject, deleted=deleted)):
        properties = (each.schema.content.metadata or {}).get("properties") or {}
        if all(properties.get(name) == value for name, value in wanted.items()):
            document = yield from _content(state, each.schema.content, form)
            return _version(state, each, document)
    raise errors.no_schema()


def lookup(
    state: State, subject: str, request: Request, *, normalize: bool, deleted: bool, form: str = ""
) -> Deciding[Document]:
    """The version of a subject that has this schema."""
    if not state.versions(subject, deleted=deleted):
        check_subject(subject)
        raise errors.no_subject(subject)
    normalize = normalize or state.normalizes(subject)
    content, _, _ = yield from read_request(state, request, normalize)
    found = find_version(state, subject, content, deleted=deleted)
    if found is None:
        raise errors.no_schema()
    document = yield from _content(state, found.schema.content, form)
    return _version(state, found, document)


def referenced_by(state: State, subject: str, number: str, *, deleted: bool = False) -> list[int]:
    """The ids of schemas that refer to a version."""
    found = find_number(state, subject, number, deleted=True)
    users = state.referring(subject, found.number)
    return sorted({each.schema.id for each in users if deleted or not each.is_deleted})


# Compatibility


def check(
    state: State,
    subject: str,
    number: str | None,
    request: Request,
    *,
    normalize: bool,
    verbose: bool,
) -> Deciding[Document]:
    """Whether a schema could be the next version, as far as one version, or the level, asks."""
    against: Sequence[Version] | None = None
    if number is not None:
        against = [find_number(state, subject, number)]
    _, parsed, used = yield from read_request(state, request, normalize)
    faults = yield from compatibility_faults(
        state, subject, request_kind(request), parsed, used, against
    )
    answer: Document = {"is_compatible": not faults}
    return answer | ({"messages": faults} if verbose else {})


# Settings


def config(state: State, subject: str | None, *, default_to_global: bool) -> Document:
    found = state.configs.get(subject)
    if found is None and subject is not None:
        if not default_to_global:
            message = f"Subject '{subject}' does not have subject-level compatibility configured"
            raise RegistryError(errors.NO_SUBJECT_LEVEL, message)
        return config(state, None, default_to_global=False)
    level = (found and found.compatibilityLevel) or LEVEL
    document: Document = {"compatibilityLevel": level}
    if found is not None and found.normalize is not None:
        document["normalize"] = found.normalize
    return document


def mode(state: State, subject: str | None, *, default_to_global: bool) -> Document:
    found = state.modes.get(subject)
    if found is None and subject is not None:
        if not default_to_global:
            message = f"Subject '{subject}' does not have subject-level mode configured"
            raise RegistryError(errors.NO_SUBJECT_MODE, message)
        found = state.modes.get(None)
    return {"mode": found or MODE}


def page(found: Iterable[T], offset: int, limit: int) -> list[T]:
    """A part of a list; a negative limit takes all that follows."""
    rows = list(found)[max(0, offset) :]
    return rows if limit < 0 else rows[:limit]
