"""What a share coordinator stores about queues, in a layout of our own.

A queue is stored as a whole now and then; between two such records lie its changes. So the log is
never compacted by key (the last change alone would stay): it is cut where every queue has been
stored as a whole behind the cut. An older record of a queue that comes before its first whole
one says nothing any more.

A key is the kind of record and the queue. A value begins with the version of its layout.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.queues.commands import Change
from penstock.queues.layout import INT8, INT16, INT32, INT64, QueueKey, Reader, pack_change
from penstock.queues.layout import pack_changes as _pack_changes
from penstock.queues.layout import pack_key as _pack_key
from penstock.records.errors import CorruptBatch

STORED: Final = 1
OPENED: Final = 2
CHANGED: Final = 3
VERSION: Final = 1

# The start of a queue that nobody has polled yet: it follows from the group's setting.
UNRESOLVED: Final = -1
NO_TERM: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStored:
    """A queue as a whole."""

    key: QueueKey
    # Who may change it: a leader of the data partition, under the number of its opening.
    term: int = NO_TERM
    opening: int = 0
    # Grows when an operator moves the start: what was decided before is void.
    state_epoch: int = 0
    # Grows with every change.
    version: int = 0
    whole: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOpened:
    """Another leader, or the same one once more: what earlier ones send is refused from now on."""

    key: QueueKey
    term: int
    opening: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChanged:
    key: QueueKey
    version: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRemoved:
    key: QueueKey


QueueRecord: TypeAlias = QueueStored | QueueOpened | QueueChanged | QueueRemoved


class QueueRecordCodec:
    """Raises only CorruptBatch."""

    def encode(self, record: QueueRecord, /) -> tuple[bytes, bytes | None]:
        if isinstance(record, QueueRemoved):
            return _encode_key(STORED, record.key), None
        version = INT8.pack(VERSION)
        if isinstance(record, QueueStored):
            return _encode_key(STORED, record.key), version + _encode_stored(record)
        if isinstance(record, QueueOpened):
            value = INT64.pack(record.term) + INT64.pack(record.opening)
            return _encode_key(OPENED, record.key), version + value
        value = INT64.pack(record.version) + _pack_changes(record.changes)
        return _encode_key(CHANGED, record.key), version + value

    def decode(self, key: bytes | None, value: bytes | None, /) -> QueueRecord:
        if key is None:
            raise CorruptBatch("a record of a queue has no key")
        reader = Reader(key)
        kind, queue = reader.int16(), reader.key()
        reader.end()
        if value is None:
            if kind != STORED:
                raise CorruptBatch(f"a record of kind {kind} of a queue has no value")
            return QueueRemoved(key=queue)
        reader = Reader(value)
        version = reader.int8()
        if version != VERSION:
            raise CorruptBatch(f"a record of a queue has version {version}; known is {VERSION}")
        record = _decode(kind, queue, reader)
        reader.end()
        return record


def _encode_key(kind: int, key: QueueKey) -> bytes:
    return INT16.pack(kind) + _pack_key(key)


def _encode_stored(record: QueueStored) -> bytes:
    numbers = (record.term, record.opening, record.state_epoch, record.version)
    return b"".join(map(INT64.pack, numbers)) + pack_change(record.whole)


def _decode(kind: int, key: QueueKey, reader: Reader) -> QueueRecord:
    if kind == STORED:
        return QueueStored(
            key=key,
            term=reader.int64(),
            opening=reader.int64(),
            state_epoch=reader.int64(),
            version=reader.int64(),
            whole=reader.change(),
        )
    if kind == OPENED:
        return QueueOpened(key=key, term=reader.int64(), opening=reader.int64())
    if kind == CHANGED:
        return QueueChanged(key=key, version=reader.int64(), changes=reader.changes())
    raise CorruptBatch(f"a record of a queue has kind {kind}, which is unknown")


def pack_record(record: QueueRecord) -> bytes:
    """For snapshots and between brokers: key and value in one."""
    key, value = QueueRecordCodec().encode(record)
    assert value is not None
    return INT32.pack(len(key)) + key + INT32.pack(len(value)) + value


def read_stored(reader: Reader) -> QueueStored:
    record = QueueRecordCodec().decode(reader.bytes_(), reader.bytes_())
    if not isinstance(record, QueueStored):
        raise CorruptBatch("a queue as a whole was expected")
    return record
