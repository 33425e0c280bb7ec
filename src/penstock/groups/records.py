"""What a group coordinator persists, in the layout of Kafka's __consumer_offsets.

Keys begin with a version that also tells their kind: 0 and 1 an offset, 2 a group of the classic
protocol. Groups whose partitions the broker assigns have kinds of their own (`modern_records.py`,
`share_records.py`), and what is left means nothing to us. Values are written in the highest version
that is not flexible, as Kafka does, and read in all versions.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from penstock.groups.layout import Reader, write_bytes, write_string
from penstock.groups.modern_records import (
    MODERN_KINDS,
    GroupKind,
    ModernRecord,
    decode_modern,
    encode_modern,
)
from penstock.groups.share_records import (
    SHARE_KINDS,
    decode_share,
    encode_share,
)
from penstock.model.ids import GroupId, MemberId, TopicName
from penstock.records.batch import CorruptBatch

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
# The last version that can hold a moment of expiry of its own; used only for offsets that have one.
OFFSET_VALUE_VERSION_EXPIRING = 1
GROUP_VALUE_VERSION = 3
FLEXIBLE_VERSION = 4

# What keys of a version that this code knows are about. A snapshot names them: one that was taken
# without one of them lacks whatever the log says of it.
KINDS = frozenset({0, OFFSET_KEY_VERSION, GROUP_KEY_VERSION}) | MODERN_KINDS | SHARE_KINDS
# Of the snapshots from before they named any.
FIRST_KINDS = frozenset({0, 1, 2})

NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_GROUP_TIMES = struct.Struct(">qi")
_MEMBER_TIMEOUTS = struct.Struct(">ii")
_OFFSET_HEAD = struct.Struct(">hqi")
_OFFSET_HEAD_EXPIRING = struct.Struct(">hq")
_OFFSET_TAIL = struct.Struct(">q")
_OFFSET_TAIL_EXPIRING = struct.Struct(">qq")


class CommittedOffset(NamedTuple):
    """A group's saved position in one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    # Only for offsets of old clients that chose their own retention.
    expire_timestamp_ms: int = NO_TIMESTAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    member_id: MemberId
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    # The member's data for the protocol that its generation chose.
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """One generation of a group, complete with assignments; without members the group is empty."""

    # Empty for groups that only commit offsets.
    protocol_type: str
    generation: int
    protocol: str | None
    leader: MemberId | None
    state_timestamp_ms: int
    members: tuple[MemberMetadata, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of what members bring along, which is nearly all of a large generation."""
        return sum(len(member.subscription) + len(member.assignment) for member in self.members)


class OffsetStored(NamedTuple):
    group_id: GroupId
    topic: TopicName
    partition: int
    committed: CommittedOffset


class OffsetRemoved(NamedTuple):
    group_id: GroupId
    topic: TopicName
    partition: int


class GroupStored(NamedTuple):
    group_id: GroupId
    metadata: GroupMetadata


class GroupRemoved(NamedTuple):
    group_id: GroupId


class ForeignRecord(NamedTuple):
    """A record of a kind that we don't know, such as one copied from another broker."""

    key: bytes
    value: bytes | None


GroupRecord: TypeAlias = (
    OffsetStored | OffsetRemoved | GroupStored | GroupRemoved | ModernRecord | ForeignRecord
)


class GroupRecordCodec:
    """Keyed so that compaction keeps the last offset of each partition and the last generation."""

    def encode(self, record: GroupRecord, /) -> tuple[bytes | None, bytes | None]:
        if isinstance(record, OffsetStored):
            key = _offset_key(record.group_id, record.topic, record.partition)
            return key, _offset_value(record.committed)
        if isinstance(record, OffsetRemoved):
            return _offset_key(record.group_id, record.topic, record.partition), None
        if isinstance(record, GroupStored):
            return _group_key(record.group_id), _group_value(record.metadata)
        if isinstance(record, GroupRemoved):
            return _group_key(record.group_id), None
        if isinstance(record, ForeignRecord):
            return record.key, record.value
        if record.kind is GroupKind.SHARE:
            return encode_share(record)
        return encode_modern(record)

    def decode(self, key: bytes | None, value: bytes | None, /) -> GroupRecord:
        if key is None:
            raise CorruptBatch("a group record has no key")
        reader = Reader(key)
        version = reader.int16()
        if 0 <= version <= OFFSET_KEY_VERSION:
            group_id = GroupId(reader.string())
            topic, partition = TopicName(reader.string()), reader.int32()
            if value is None:
                return OffsetRemoved(group_id, topic, partition)
            return OffsetStored(group_id, topic, partition, _read_offset(Reader(value)))
        if version == GROUP_KEY_VERSION:
            group_id = GroupId(reader.string())
            if value is None:
                return GroupRemoved(group_id)
            return GroupStored(group_id, _read_group(Reader(value)))
        if version in MODERN_KINDS:
            return decode_modern(version, reader, value)
        if version in SHARE_KINDS:
            return decode_share(version, reader, value)
        return ForeignRecord(key, value)


def offsets_of_topic(
    group_id: GroupId, topic: TopicName, offsets: Mapping[int, CommittedOffset]
) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of many offsets at once, for snapshots."""
    head = _offset_key_head(group_id, topic)
    for partition, committed in offsets.items():
        yield head + _INT32.pack(partition), _offset_value(committed)


def _offset_key(group_id: GroupId, topic: TopicName, partition: int) -> bytes:
    return _offset_key_head(group_id, topic) + _INT32.pack(partition)


def _offset_key_head(group_id: GroupId, topic: TopicName) -> bytes:
    return _INT16.pack(OFFSET_KEY_VERSION) + write_string(group_id) + write_string(topic)


def _group_key(group_id: GroupId) -> bytes:
    return _INT16.pack(GROUP_KEY_VERSION) + write_string(group_id)


def _offset_value(committed: CommittedOffset) -> bytes:
    offset, leader_epoch, metadata, commit_ms, expire_ms = committed
    if expire_ms == NO_TIMESTAMP:
        head = _OFFSET_HEAD.pack(OFFSET_VALUE_VERSION, offset, leader_epoch)
        return head + write_string(metadata) + _OFFSET_TAIL.pack(commit_ms)
    head = _OFFSET_HEAD_EXPIRING.pack(OFFSET_VALUE_VERSION_EXPIRING, offset)
    return head + write_string(metadata) + _OFFSET_TAIL_EXPIRING.pack(commit_ms, expire_ms)


def _group_value(metadata: GroupMetadata) -> bytes:
    parts = [
        _INT16.pack(GROUP_VALUE_VERSION),
        write_string(metadata.protocol_type),
        _INT32.pack(metadata.generation),
        write_string(metadata.protocol),
        write_string(metadata.leader),
        _GROUP_TIMES.pack(metadata.state_timestamp_ms, len(metadata.members)),
    ]
    for member in metadata.members:
        parts += _member_parts(member)
    return b"".join(parts)


def _member_parts(member: MemberMetadata) -> list[bytes]:
    return [
        write_string(member.member_id),
        write_string(member.instance_id),
        write_string(member.client_id),
        write_string(member.client_host),
        _MEMBER_TIMEOUTS.pack(member.rebalance_timeout_ms, member.session_timeout_ms),
        write_bytes(member.subscription),
        write_bytes(member.assignment),
    ]


def _read_version(reader: Reader) -> int:
    version = reader.int16()
    if not 0 <= version <= FLEXIBLE_VERSION:
        raise CorruptBatch(f"a group record has a value of version {version}")
    if version >= FLEXIBLE_VERSION:
        reader.expect_flexible()
    return version


def _read_offset(reader: Reader) -> CommittedOffset:
    version = _read_version(reader)
    return CommittedOffset(
        offset=reader.int64(),
        leader_epoch=reader.int32() if version >= 3 else NO_LEADER_EPOCH,
        metadata=reader.string(),
        commit_timestamp_ms=reader.int64(),
        expire_timestamp_ms=reader.int64() if version == 1 else NO_TIMESTAMP,
    )


def _read_group(reader: Reader) -> GroupMetadata:
    version = _read_version(reader)
    protocol_type, generation = reader.string(), reader.int32()
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    return GroupMetadata(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=None if leader is None else MemberId(leader),
        state_timestamp_ms=reader.int64() if version >= 2 else NO_TIMESTAMP,
        members=tuple(_read_member(reader, version) for _ in range(reader.array_length())),
    )


def _read_member(reader: Reader, version: int) -> MemberMetadata:
    member_id = MemberId(reader.string())
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription, assignment = reader.bytes_(), reader.bytes_()
    reader.end_of_struct()
    return MemberMetadata(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        # The oldest members had one timeout for both.
        rebalance_timeout_ms=(
            session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms
        ),
        session_timeout_ms=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )
