"""Between messages of gRPC and the broker's words.

Most calls of doors have a request with the same fields, and their answers a message with the same
fields: those are translated by name.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar, get_args
from uuid import UUID

import msgspec
from google.protobuf.message import Message as ProtobufMessage

from penstock.broker.doors.calls import TopicInfo
from penstock.frontdoor.grpc import limits, messages
from penstock.frontdoor.grpc.statuses import Failure, invalid
from penstock.frontdoor.remote.queueing import Message
from penstock.frontdoor.remote.reading import EARLIEST, LATEST
from penstock.frontdoor.remote.writing import Outcome, Wanted, refusal_of_all
from penstock.model.errors import Reason, Refused
from penstock.records.record import Record
from penstock.records.rows import Row

TIMESTAMP_MS_MAX: Final = 2**53
# What a record takes in a message beside its bytes, at most, with the token that it may have.
RECORD_OVERHEAD_BYTES: Final = 150
HEADER_OVERHEAD_BYTES: Final = 10
_EDGES: Final = {messages.EDGE_EARLIEST: EARLIEST, messages.EDGE_LATEST: LATEST}

S = TypeVar("S", bound=msgspec.Struct)
M = TypeVar("M", bound=ProtobufMessage)

# By name


def to_struct(kind: type[S], message: Any) -> S:
    """Each field from that of the message with its name; one that the client left out keeps its
    default."""
    given: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        inner = _inner(kind, field.name)
        if isinstance(value, Mapping):
            value = dict(value)
        elif inner is not None:
            value = [to_struct(inner, each) for each in value]
        given[field.name] = value
    return kind(**given)


@cache
def _inner(kind: type[msgspec.Struct], name: str) -> type[msgspec.Struct] | None:
    """The kind of struct in a field that is a list of them."""
    (declared,) = (each.type for each in msgspec.structs.fields(kind) if each.name == name)
    (inner, *_) = get_args(declared) or (None,)
    return inner if isinstance(inner, type) and issubclass(inner, msgspec.Struct) else None


def to_message(kind: type[M], struct: msgspec.Struct) -> M:
    """The same the other way; what is None stays out."""
    message: M = kind()
    for name in struct.__struct_fields__:
        _set(message, name, getattr(struct, name))
    return message


def _set(message: Any, name: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, msgspec.Struct):
        field = getattr(message, name)
        field.SetInParent()
        for inner in value.__struct_fields__:
            _set(field, inner, getattr(value, inner))
    elif isinstance(value, dict):
        getattr(message, name).update(value)
    elif isinstance(value, list):
        field = getattr(message, name)
        if value and isinstance(value[0], msgspec.Struct):
            for each in value:
                added = field.add()
                for inner in each.__struct_fields__:
                    _set(added, inner, getattr(each, inner))
        else:
            field.extend(value)
    else:
        setattr(message, name, str(value) if isinstance(value, UUID) else value)


# Records to write


def to_rows(records: Sequence[messages.NewRecord], now_ms: int) -> list[Wanted]:
    """Raises Failure for one that can't be written."""
    if not records:
        raise invalid("records", "There must be at least one record.")
    if len(records) > limits.RECORDS_PER_REQUEST_MAX:
        detail = f"There are more than {limits.RECORDS_PER_REQUEST_MAX:,} records."
        raise invalid("records", detail)
    wanted: list[Wanted] = []
    for index, each in enumerate(records):
        has = each.HasField
        timestamp_ms, partition = now_ms, None
        if has("timestamp_ms"):
            timestamp_ms = each.timestamp_ms
            if not 0 <= timestamp_ms <= TIMESTAMP_MS_MAX:
                detail = f"Record {index} has the time {timestamp_ms}, which is not possible."
                raise invalid(f"records[{index}].timestamp_ms", detail)
        if has("partition"):
            partition = each.partition
        row = Row(
            each.key if has("key") else None,
            each.value if has("value") else None,
            _header_pairs(each.headers) if each.headers else (),
            timestamp_ms,
        )
        wanted.append((row, partition))
    return wanted


def _header_pairs(headers: Iterable[messages.Header]) -> list[tuple[str, bytes | None]]:
    return [(each.name, each.value if each.HasField("value") else None) for each in headers]


def idempotency_key(given: str) -> str | None:
    if len(given) > limits.IDEMPOTENCY_KEY_LENGTH_MAX:
        detail = f"It must have at most {limits.IDEMPOTENCY_KEY_LENGTH_MAX} characters."
        raise invalid("idempotency_key", detail)
    return given or None


def publish_reply(outcomes: Sequence[Outcome], count: int) -> messages.PublishReply:
    """Raises Refused if no record was written."""
    refused = refusal_of_all(outcomes)
    if refused is not None:
        raise refused
    partition, _, found = outcomes[0]
    if len(outcomes) == 1 and not isinstance(found, Refused):
        return messages.PublishReply(partitions=[partition] * count, offsets=found)
    partitions, offsets, errors = [0] * count, [-1] * count, []
    for partition, indexes, found in outcomes:
        for index in indexes:
            partitions[index] = partition
        if isinstance(found, Refused):
            problem = Failure.of(found).problem
            errors += [messages.RecordError(index=index, problem=problem) for index in indexes]
        else:
            for index, offset in zip(indexes, found, strict=True):
                offsets[index] = offset
    errors.sort(key=lambda error: error.index)
    return messages.PublishReply(partitions=partitions, offsets=offsets, errors=errors)


# Records that were read


def add_records(target: Any, records: Sequence[Record]) -> None:
    """To a repeated field of Record; called for every record that is read."""
    add = target.add
    for each in records:
        # A field that is None stays unset.
        added = add(
            offset=each.offset, timestamp_ms=each.timestamp_ms, key=each.key, value=each.value
        )
        if each.headers:
            add_headers(added.headers, each.headers)


def add_headers(target: Any, headers: Iterable[tuple[str, bytes | None]]) -> None:
    for name, value in headers:
        target.add(name=name, value=value)


def add_messages(target: Any, found: Iterable[Message]) -> None:
    """To a repeated field of QueueMessage."""
    for each in found:
        record = each.record
        added = target.add(partition=each.partition, attempt=each.attempt, token=each.token)
        copy = added.record
        copy.offset, copy.timestamp_ms = record.offset, record.timestamp_ms
        if record.key is not None:
            copy.key = record.key
        if record.value is not None:
            copy.value = record.value
        if record.headers:
            add_headers(copy.headers, record.headers)


def record_bytes(record: Record) -> int:
    """At least as many as the record takes in a message."""
    size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += HEADER_OVERHEAD_BYTES + 4 * len(name) + len(value or b"")
    return size


def fitting(records: Iterable[Record]) -> int:
    """How many of the first fit into an answer, but at least one."""
    size = count = 0
    for count, each in enumerate(records, 1):
        size += record_bytes(each)
        if size > limits.REPLY_BYTES_MAX and count > 1:
            return count - 1
    return count


# Places


def to_partition(topic: TopicInfo, partition: int | None, field: str = "partition") -> int:
    if partition is None:
        if topic.partitions > 1:
            detail = f"Topic {topic.name} has {topic.partitions} partitions: say which."
            raise invalid(field, detail)
        return 0
    if not 0 <= partition < topic.partitions:
        detail = f"Topic {topic.name} has no partition {partition}: it has {topic.partitions}."
        raise Failure.of(Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, detail))
    return partition


def to_place(start: messages.Start, otherwise: int) -> tuple[bool, int]:
    """Whether it is an offset, and the offset or time; `otherwise` if the client gave none."""
    kind = start.WhichOneof("place")
    if kind == "offset":
        if start.offset < 0:
            raise invalid("start.offset", "An offset is 0 or more.")
        return True, start.offset
    if kind == "timestamp_ms":
        if not 0 <= start.timestamp_ms <= TIMESTAMP_MS_MAX:
            raise invalid("start.timestamp_ms", "This time is not possible.")
        return False, start.timestamp_ms
    if kind == "edge":
        if start.edge not in _EDGES:
            raise invalid("start.edge", "It must be EDGE_EARLIEST or EDGE_LATEST.")
        return False, _EDGES[start.edge]
    return False, otherwise
