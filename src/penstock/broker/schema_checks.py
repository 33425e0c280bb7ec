"""Which schemas the records of a batch name, and whether their topic takes them. Nothing waits.

A record names its schema as Confluent's serialisers do: in a header, `__key_schema_id` or
`__value_schema_id`, or at the beginning of its key or value. Both hold a magic byte and then the
schema's id (0, four bytes) or its GUID (1, sixteen bytes).
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from penstock.model.errors import Reason
from penstock.model.topic_config import SchemaValidation, SubjectNames
from penstock.records.batch import batch_payload, check_batch
from penstock.records.raw_records import read_records
from penstock.records.record import Headers
from penstock.registry.naming import record_names
from penstock.registry.state import Schema, State
from penstock.replication.admission import RECORD_ERRORS_MAX, RecordsRefused

ID_MAGIC: Final = 0
GUID_MAGIC: Final = 1
# By the magic byte, which counts.
_SIZES: Final = {ID_MAGIC: 5, GUID_MAGIC: 17}
_KEY_HEADER: Final = "__key_schema_id"
_VALUE_HEADER: Final = "__value_schema_id"
# As Confluent's brokers say it; clients show it.
REJECTED: Final = "One or more records have been rejected"

# A magic byte and an id or a GUID; empty where a record names no schema.
Token: TypeAlias = bytes
NO_TOKEN: Final[Token] = b""


class Named(NamedTuple):
    """One schema that records of a batch name, as that of their key or of their value."""

    of_key: bool
    token: Token


# The first records that name each schema, by their place among the records of the request.
Found: TypeAlias = dict[Named, list[int]]


def find_schemas(batches: bytes | memoryview, validation: SchemaValidation) -> Found:
    """Of one batch or several; raises CorruptBatch. May take long for a large batch."""
    keys: dict[Token, list[int]] | None = None if validation.key is None else {}
    values: dict[Token, list[int]] | None = None if validation.value is None else {}
    view, first = memoryview(batches), 0
    while len(view):
        header = check_batch(view)
        payload = batch_payload(view, header)
        records = read_records(payload, header.record_count)
        for index, (_, _, key, value, headers) in enumerate(records, first):
            if keys is not None and key is not None:
                _note(keys, _token(key, _KEY_HEADER, headers), index)
            if values is not None and value is not None:
                # The most frequent by far, and for every record: without a call.
                if not headers and value[:1] == b"\0" and (known := values.get(value[:5])):
                    if len(known) < RECORD_ERRORS_MAX:
                        known.append(index)
                else:
                    _note(values, _token(value, _VALUE_HEADER, headers), index)
        first += header.record_count
        view = view[header.size :]
    return {
        Named(of_key, token): indexes
        for of_key, tokens in ((True, keys), (False, values))
        for token, indexes in (tokens or {}).items()
    }


def _note(tokens: dict[Token, list[int]], token: Token, index: int) -> None:
    indexes = tokens.setdefault(token, [])
    if len(indexes) < RECORD_ERRORS_MAX:
        indexes.append(index)


def _token(data: bytes, name: str, headers: Headers) -> Token:
    """A header counts before the data, as for Confluent's deserialisers."""
    for each, value in headers:
        if each == name and value:
            return value if len(value) == _SIZES.get(value[0]) else NO_TOKEN
    size = _SIZES.get(data[0]) if data else None
    return data[:size] if size is not None and len(data) >= size else NO_TOKEN


def fault_of(named: Named, topic: str, validation: SchemaValidation, state: State) -> str | None:
    """Why records that name this schema are not taken; None if they are."""
    part = "key" if named.of_key else "value"
    if named.token == NO_TOKEN:
        return f"the {part} does not name a schema: it has no magic byte with an id"
    schema, called = _schema(named.token, state)
    if schema is None:
        return f"the registry has no schema with the {called}"
    names = validation.key if named.of_key else validation.value
    assert names is not None
    subjects = list(_subjects(names, topic, part, schema))
    for subject in subjects:
        versions = state.subjects.get(subject, {}).values()
        if any(each.schema.id == schema.id and not each.is_deleted for each in versions):
            return None
    if not subjects:
        return f"the schema with the {called} has no record name, so no subject can be its own"
    return f"the schema with the {called} is not registered under {' or '.join(subjects)}"


def _schema(token: Token, state: State) -> tuple[Schema | None, str]:
    if token[0] == ID_MAGIC:
        number = int.from_bytes(token[1:], signed=True)
        return state.find_id(number), f"id {number}"
    return state.find_digest(token[1:]), f"GUID {UUID(bytes=token[1:])}"


def _subjects(names: SubjectNames, topic: str, part: str, schema: Schema) -> Iterator[str]:
    if names is SubjectNames.TOPIC:
        yield f"{topic}-{part}"
        return
    for record in sorted(record_names(schema.content.schemaType, schema.content.schema)):
        yield record if names is SubjectNames.RECORD else f"{topic}-{record}"


def refusal(found: Found, faults: dict[Named, str]) -> RecordsRefused:
    """Names each bad record once, by its place."""
    by_index: dict[int, str] = {}
    for named, fault in faults.items():
        for index in found[named]:
            by_index[index] = f"{by_index[index]}; {fault}" if index in by_index else fault
    errors = sorted(by_index.items())
    first, why = errors[0]
    return RecordsRefused(Reason.INVALID_RECORD, f"{REJECTED}: record {first}: {why}", errors)
