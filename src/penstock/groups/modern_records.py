"""What is stored of groups whose partitions the broker assigns (KIP-848), in Kafka's layout.

A group is several keys: its epoch, and for each member who it is, what it should have (target) and
what it has (current). All values are flexible. Without a value, a record says that it is gone.

Consumer groups and share groups have the same records, each kind of group under keys of its own.
The layout here is that of consumer groups; `share_records.py` has the other one.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias
from uuid import UUID

from penstock.groups.classic_member import (
    ClassicMember,
    read_classic_member,
    write_classic_member,
)
from penstock.groups.layout import (
    Reader,
    write_compact_array,
    write_compact_string,
    write_string,
    write_tagged_fields,
)
from penstock.model.ids import GroupId, MemberId
from penstock.records.batch import CorruptBatch

EPOCH_KIND = 3
MEMBER_KIND = 5
TARGET_EPOCH_KIND = 6
TARGET_KIND = 7
CURRENT_KIND = 8
EXPRESSION_KIND = 16
MODERN_KINDS = frozenset(
    {EPOCH_KIND, MEMBER_KIND, TARGET_EPOCH_KIND, TARGET_KIND, CURRENT_KIND, EXPRESSION_KIND}
)
VALUE_VERSION = 0
METADATA_HASH_TAG = 0
ASSIGNMENT_EPOCHS_TAG = 0

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_CURRENT_HEAD = struct.Struct(">hiib")
_EXPRESSION_TAIL = struct.Struct(">qq")


class GroupKind(Enum):
    """The values are the types that clients and tools know."""

    CONSUMER = "consumer"
    SHARE = "share"


# By topic id.
Partitions: TypeAlias = Mapping[UUID, frozenset[int]]
# By topic id and partition: the epoch in which the partition was assigned (KIP-1251).
PartitionEpochs: TypeAlias = Mapping[UUID, Mapping[int, int]]


class MemberState(Enum):
    """How far a member has come on its way to its target; the values are Kafka's."""

    STABLE = 0
    # It has to give partitions up before it gets to the next epoch.
    UNREVOKED_PARTITIONS = 1
    # It is in the newest epoch, but others have not given up yet what it shall have.
    UNRELEASED_PARTITIONS = 2
    # Stored by a later version: the member has to begin again.
    UNKNOWN = 127


_STATES = frozenset(each.value for each in MemberState)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberProfile:
    """Who a member is and what it wants to read."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    # A regular expression over the names of topics; empty or None for no such subscription.
    expression: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    # Of a member that speaks the classic protocol.
    classic: ClassicMember | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignment:
    """Where a member is: its epoch, what is its own, and what it has to give up."""

    epoch: int = 0
    # A member whose answer was lost comes with this one.
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: PartitionEpochs = field(default_factory=dict)
    revoking: PartitionEpochs = field(default_factory=dict)


class ResolvedExpression(NamedTuple):
    """The topics that a regular expression matched when it was looked up last."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class NamedPartitions(NamedTuple):
    """Partitions of a topic, with the name that it had."""

    name: str
    partitions: frozenset[int]


NamedTopics: TypeAlias = Mapping[UUID, NamedPartitions]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptQueues:
    """For which partitions the state of a group's queue is kept elsewhere, by topic id."""

    # Asked for, with an outcome that is not known yet: it may be there or not.
    initializing: NamedTopics = field(default_factory=dict)
    # It is durable, so that members may have the partitions.
    initialized: NamedTopics = field(default_factory=dict)
    # The names of topics whose state is being deleted.
    deleting: Mapping[UUID, str] = field(default_factory=dict)


class GroupEpoch(NamedTuple):
    epoch: int
    # Of the subscribed topics: another one means that partitions have to be assigned again.
    metadata_hash: int


class EpochRecord(NamedTuple):
    group_id: GroupId
    value: GroupEpoch | None
    kind: GroupKind = GroupKind.CONSUMER


class MemberRecord(NamedTuple):
    group_id: GroupId
    member_id: MemberId
    value: MemberProfile | None
    kind: GroupKind = GroupKind.CONSUMER


class TargetEpochRecord(NamedTuple):
    group_id: GroupId
    value: int | None
    kind: GroupKind = GroupKind.CONSUMER


class TargetRecord(NamedTuple):
    group_id: GroupId
    member_id: MemberId
    value: Partitions | None
    kind: GroupKind = GroupKind.CONSUMER


class CurrentRecord(NamedTuple):
    group_id: GroupId
    member_id: MemberId
    value: CurrentAssignment | None
    kind: GroupKind = GroupKind.CONSUMER


class ExpressionRecord(NamedTuple):
    group_id: GroupId
    expression: str
    value: ResolvedExpression | None
    # Only consumer groups have them.
    kind: GroupKind = GroupKind.CONSUMER


class QueuesRecord(NamedTuple):
    group_id: GroupId
    value: KeptQueues | None
    kind: GroupKind = GroupKind.SHARE


ModernRecord: TypeAlias = (
    EpochRecord
    | MemberRecord
    | TargetEpochRecord
    | TargetRecord
    | CurrentRecord
    | ExpressionRecord
    | QueuesRecord
)


# Encoding


def encode_modern(record: ModernRecord) -> tuple[bytes, bytes | None]:
    return _key(record), None if record.value is None else _value(record)


def _key(record: ModernRecord) -> bytes:
    if isinstance(record, EpochRecord | TargetEpochRecord):
        kind = EPOCH_KIND if isinstance(record, EpochRecord) else TARGET_EPOCH_KIND
        return _INT16.pack(kind) + write_string(record.group_id)
    if isinstance(record, ExpressionRecord):
        kind, name = EXPRESSION_KIND, record.expression
    elif isinstance(record, MemberRecord):
        kind, name = MEMBER_KIND, record.member_id
    else:
        assert isinstance(record, TargetRecord | CurrentRecord)
        kind = TARGET_KIND if isinstance(record, TargetRecord) else CURRENT_KIND
        name = record.member_id
    return _INT16.pack(kind) + write_string(record.group_id) + write_string(name)


def _value(record: ModernRecord) -> bytes:
    value = record.value
    version, end = _INT16.pack(VALUE_VERSION), write_tagged_fields({})
    if isinstance(value, GroupEpoch):
        tagged = {METADATA_HASH_TAG: _INT64.pack(value.metadata_hash)}
        return version + _INT32.pack(value.epoch) + write_tagged_fields(tagged)
    if isinstance(value, int):
        return version + _INT32.pack(value) + end
    if isinstance(value, MemberProfile):
        return version + _profile(value)
    if isinstance(value, CurrentAssignment):
        return _current(value) + end
    if isinstance(value, ResolvedExpression):
        topics = write_compact_array(map(write_compact_string, sorted(value.topics)))
        return version + topics + _EXPRESSION_TAIL.pack(value.version, value.timestamp_ms) + end
    assert isinstance(record, TargetRecord)
    assert record.value is not None
    return version + write_target(record.value) + end


def write_target(topics: Partitions) -> bytes:
    end = write_tagged_fields({})
    return write_compact_array(
        topic_id.bytes + write_numbers(sorted(partitions)) + end
        for topic_id, partitions in topics.items()
    )


def _profile(profile: MemberProfile) -> bytes:
    return b"".join(
        (
            write_compact_string(profile.instance_id),
            write_compact_string(profile.rack_id),
            write_compact_string(profile.client_id),
            write_compact_string(profile.client_host),
            write_compact_array(map(write_compact_string, sorted(profile.topics))),
            write_compact_string(profile.expression),
            _INT32.pack(profile.rebalance_timeout_ms),
            write_compact_string(profile.assignor),
            write_tagged_fields(write_classic_member(profile.classic)),
        )
    )


def _current(current: CurrentAssignment) -> bytes:
    head = (VALUE_VERSION, current.epoch, current.previous_epoch, current.state.value)
    return _CURRENT_HEAD.pack(*head) + _epochs(current.assigned) + _epochs(current.revoking)


def _epochs(topics: PartitionEpochs) -> bytes:
    return write_compact_array(
        topic_id.bytes
        + write_numbers(epochs)
        + write_tagged_fields({ASSIGNMENT_EPOCHS_TAG: write_numbers(epochs.values())})
        for topic_id, epochs in topics.items()
    )


def write_numbers(numbers: Iterable[int]) -> bytes:
    return write_compact_array(map(_INT32.pack, numbers))


# Decoding


def decode_modern(kind: int, key: Reader, value: bytes | None) -> ModernRecord:
    """`key` stands behind its kind."""
    group_id = GroupId(key.string())
    reader = None if value is None else open_value(value)
    if kind == EPOCH_KIND:
        return EpochRecord(group_id, None if reader is None else _read_epoch(reader))
    if kind == TARGET_EPOCH_KIND:
        return TargetEpochRecord(group_id, None if reader is None else reader.int32())
    name = key.string()
    if kind == EXPRESSION_KIND:
        return ExpressionRecord(group_id, name, None if reader is None else _read_resolved(reader))
    member_id = MemberId(name)
    if kind == MEMBER_KIND:
        return MemberRecord(group_id, member_id, None if reader is None else _read_profile(reader))
    if kind == TARGET_KIND:
        return TargetRecord(group_id, member_id, None if reader is None else read_target(reader))
    assert kind == CURRENT_KIND
    return CurrentRecord(group_id, member_id, None if reader is None else _read_current(reader))


def open_value(value: bytes) -> Reader:
    reader = Reader(value)
    version = reader.int16()
    if version != VALUE_VERSION:
        raise CorruptBatch(f"a group record has a value of version {version}")
    reader.expect_flexible()
    return reader


def _read_epoch(reader: Reader) -> GroupEpoch:
    epoch = reader.int32()
    data = reader.end_of_struct().get(METADATA_HASH_TAG)
    return GroupEpoch(epoch, 0 if data is None else Reader(data).int64())


def _read_profile(reader: Reader) -> MemberProfile:
    return MemberProfile(
        instance_id=reader.nullable_string(),
        rack_id=reader.nullable_string(),
        client_id=reader.string(),
        client_host=reader.string(),
        topics=read_names(reader),
        expression=reader.nullable_string(),
        rebalance_timeout_ms=reader.int32(),
        assignor=reader.nullable_string(),
        classic=read_classic_member(reader.end_of_struct()),
    )


def read_names(reader: Reader) -> frozenset[str]:
    return frozenset(reader.string() for _ in range(reader.array_length()))


def _read_resolved(reader: Reader) -> ResolvedExpression:
    return ResolvedExpression(read_names(reader), reader.int64(), reader.int64())


def read_target(reader: Reader) -> Partitions:
    topics: dict[UUID, frozenset[int]] = {}
    for _ in range(reader.array_length()):
        topic_id = reader.uuid()
        topics[topic_id] = frozenset(read_numbers(reader))
        reader.end_of_struct()
    return topics


def _read_current(reader: Reader) -> CurrentAssignment:
    epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.int8()
    return CurrentAssignment(
        epoch=epoch,
        previous_epoch=previous_epoch,
        state=MemberState(state) if state in _STATES else MemberState.UNKNOWN,
        assigned=_read_epochs(reader, epoch),
        revoking=_read_epochs(reader, epoch),
    )


def _read_epochs(reader: Reader, member_epoch: int) -> PartitionEpochs:
    """Records of before KIP-1251 say no epochs: then none is older than the member's."""
    topics: dict[UUID, Mapping[int, int]] = {}
    for _ in range(reader.array_length()):
        topic_id, partitions = reader.uuid(), read_numbers(reader)
        data = reader.end_of_struct().get(ASSIGNMENT_EPOCHS_TAG)
        epochs = [member_epoch] * len(partitions)
        if data is not None:
            tagged = Reader(data)
            tagged.expect_flexible()
            epochs = read_numbers(tagged)
        if len(epochs) != len(partitions):
            raise CorruptBatch(f"{len(partitions)} partitions have {len(epochs)} epochs")
        topics[topic_id] = dict(zip(partitions, epochs, strict=True))
    return topics


def read_numbers(reader: Reader) -> list[int]:
    return [reader.int32() for _ in range(reader.array_length())]
