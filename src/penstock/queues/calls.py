"""What brokers ask the share coordinators of others, as bytes.

Each call begins with the partition of the state topic that it is meant for. Bytes that are no
call raise Refused.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId, TopicId
from penstock.queues.decisions import Open, QueueSummary, Write
from penstock.queues.layout import (
    INT8,
    INT32,
    INT64,
    QueueKey,
    Reader,
    pack_changes,
    pack_key,
    pack_letters,
    pack_list,
    pack_text,
    read_letters,
)
from penstock.queues.records import QueueStored, pack_record, read_stored
from penstock.records.errors import CorruptBatch

OPEN: Final = "queues.open"
WRITE: Final = "queues.write"
INITIALIZE: Final = "queues.initialize"
ALTER: Final = "queues.alter"
REMOVE: Final = "queues.remove"
READ: Final = "queues.read"
ENDS: Final = "queues.ends"
REOPEN: Final = "queues.reopen"
RELEASE: Final = "queues.release"
WAKE: Final = "queues.wake"

Starts = Mapping[QueueKey, int]
Outcomes = Mapping[QueueKey, Refused | None]

_REASONS: Final = {reason.name: reason for reason in Reason}

T = TypeVar("T")


def decoded(data: bytes, read: Callable[[Reader], T]) -> T:
    """All of the bytes, read as one thing."""
    reader = Reader(data)
    try:
        found = read(reader)
        reader.end()
    except CorruptBatch as bad:
        raise Refused(Reason.INVALID_REQUEST, f"a call about queues is malformed: {bad}") from bad
    return found


def with_partition(partition: int, data: bytes) -> bytes:
    return INT32.pack(partition) + data


def read_with_partition(read: Callable[[Reader], T]) -> Callable[[Reader], tuple[int, T]]:
    return lambda reader: (reader.int32(), read(reader))


# Of leaders


def encode_open(command: Open) -> bytes:
    return pack_key(command.key) + INT64.pack(command.term) + INT64.pack(command.opening)


def read_open(reader: Reader) -> Open:
    return Open(key=reader.key(), term=reader.int64(), opening=reader.int64())


def encode_stored(stored: QueueStored) -> bytes:
    return pack_record(stored)


read_opened = read_stored


def encode_write(command: Write) -> bytes:
    numbers = (command.term, command.opening, command.state_epoch, command.version)
    head = pack_key(command.key) + b"".join(map(INT64.pack, numbers))
    return head + INT8.pack(command.is_whole) + pack_changes(command.changes)


def read_write(reader: Reader) -> Write:
    return Write(
        key=reader.key(),
        term=reader.int64(),
        opening=reader.int64(),
        state_epoch=reader.int64(),
        version=reader.int64(),
        is_whole=bool(reader.int8()),
        changes=reader.changes(),
    )


# Of groups and operators


def encode_starts(starts: Starts) -> bytes:
    return pack_list(pack_key(key) + INT64.pack(start) for key, start in starts.items())


def read_starts(reader: Reader) -> dict[QueueKey, int]:
    return {reader.key(): reader.int64() for _ in range(reader.count())}


def encode_keys(keys: Collection[QueueKey]) -> bytes:
    return pack_list(map(pack_key, keys))


def read_keys(reader: Reader) -> list[QueueKey]:
    return [reader.key() for _ in range(reader.count())]


def encode_outcomes(outcomes: Outcomes) -> bytes:
    def pack(key: QueueKey, refused: Refused | None) -> bytes:
        name, detail = ("", "") if refused is None else (refused.reason.name, refused.detail)
        return pack_key(key) + pack_text(name) + pack_text(detail)

    return pack_list(pack(key, refused) for key, refused in outcomes.items())


def read_outcomes(reader: Reader) -> dict[QueueKey, Refused | None]:
    found: dict[QueueKey, Refused | None] = {}
    for _ in range(reader.count()):
        key, name, detail = reader.key(), reader.text(), reader.text()
        if name and name not in _REASONS:
            raise CorruptBatch(f"there is no reason {name!r}")
        found[key] = Refused(_REASONS[name], detail) if name else None
    return found


def encode_read(group_id: GroupId, keys: Sequence[QueueKey] | None) -> bytes:
    return pack_text(group_id) + INT8.pack(keys is not None) + encode_keys(keys or ())


def read_read(reader: Reader) -> tuple[GroupId, list[QueueKey] | None]:
    group_id, has_keys, keys = GroupId(reader.text()), reader.int8(), read_keys(reader)
    return group_id, keys if has_keys else None


def encode_summaries(summaries: Iterable[QueueSummary]) -> bytes:
    def pack(each: QueueSummary) -> bytes:
        numbers = (
            each.term,
            each.state_epoch,
            each.start,
            each.done_count,
            each.leased_count,
            each.waiting_count,
            each.dying_count,
        )
        whole = b"".join(map(INT64.pack, numbers))
        return pack_key(each.key) + whole + pack_letters(each.letters)

    return pack_list(map(pack, summaries))


def read_summaries(reader: Reader) -> list[QueueSummary]:
    return [
        QueueSummary(
            key=reader.key(),
            term=reader.int64(),
            state_epoch=reader.int64(),
            start=reader.int64(),
            done_count=reader.int64(),
            leased_count=reader.int64(),
            waiting_count=reader.int64(),
            dying_count=reader.int64(),
            letters=read_letters(reader),
        )
        for _ in range(reader.count())
    ]


def encode_members(group_id: GroupId, member_ids: Collection[MemberId]) -> bytes:
    return pack_text(group_id) + pack_list(map(pack_text, member_ids))


def read_members(reader: Reader) -> tuple[GroupId, list[MemberId]]:
    return GroupId(reader.text()), [MemberId(reader.text()) for _ in range(reader.count())]


# The ends of data partitions, by which an operator sees how far behind a queue is


def encode_places(places: Collection[tuple[TopicId, int]]) -> bytes:
    return pack_list(topic_id.bytes + INT32.pack(partition) for topic_id, partition in places)


def read_places(reader: Reader) -> list[tuple[TopicId, int]]:
    return [(TopicId(reader.uuid()), reader.int32()) for _ in range(reader.count())]


def encode_ends(ends: Iterable[int]) -> bytes:
    return pack_list(map(INT64.pack, ends))


def read_ends(reader: Reader) -> list[int]:
    return [reader.int64() for _ in range(reader.count())]
