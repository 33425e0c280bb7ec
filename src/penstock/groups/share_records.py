"""What is stored of share groups (KIP-932), in Kafka's layout.

Members, epochs and assignments are the records of `modern_records.py` under other keys, and with
fewer fields: nobody gives a partition up before another one gets it, so there is nothing to revoke.
Only share groups have the last kind: for which partitions the state of their queue is kept.
"""

import struct
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from penstock.groups.layout import (
    Reader,
    write_compact_array,
    write_compact_string,
    write_string,
    write_tagged_fields,
)
from penstock.groups.modern_records import (
    VALUE_VERSION,
    CurrentAssignment,
    CurrentRecord,
    EpochRecord,
    GroupEpoch,
    GroupKind,
    KeptQueues,
    MemberProfile,
    MemberRecord,
    MemberState,
    ModernRecord,
    NamedPartitions,
    NamedTopics,
    QueuesRecord,
    TargetEpochRecord,
    TargetRecord,
    open_value,
    read_names,
    read_numbers,
    read_target,
    write_numbers,
    write_target,
)
from penstock.model.ids import GroupId, MemberId

MEMBER_KIND: Final = 10
EPOCH_KIND: Final = 11
TARGET_EPOCH_KIND: Final = 12
TARGET_KIND: Final = 13
CURRENT_KIND: Final = 14
QUEUES_KIND: Final = 15
SHARE_KINDS: Final = frozenset(range(MEMBER_KIND, QUEUES_KIND + 1))

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_EPOCH = struct.Struct(">iq")
_CURRENT = struct.Struct(">iib")


# Encoding


def encode_share(record: ModernRecord) -> tuple[bytes, bytes | None]:
    if record.value is None:
        return _key(record), None
    return _key(record), _INT16.pack(VALUE_VERSION) + _value(record) + write_tagged_fields({})


def _key(record: ModernRecord) -> bytes:
    if isinstance(record, EpochRecord | TargetEpochRecord | QueuesRecord):
        kind = QUEUES_KIND
        if not isinstance(record, QueuesRecord):
            kind = EPOCH_KIND if isinstance(record, EpochRecord) else TARGET_EPOCH_KIND
        return _INT16.pack(kind) + write_string(record.group_id)
    if isinstance(record, MemberRecord):
        kind = MEMBER_KIND
    else:
        kind = TARGET_KIND if isinstance(record, TargetRecord) else CURRENT_KIND
    assert isinstance(record, MemberRecord | TargetRecord | CurrentRecord)
    return _INT16.pack(kind) + write_string(record.group_id) + write_string(record.member_id)


def _value(record: ModernRecord) -> bytes:
    value = record.value
    if isinstance(value, GroupEpoch):
        return _EPOCH.pack(*value)
    if isinstance(value, int):
        return _INT32.pack(value)
    if isinstance(value, MemberProfile):
        return _profile(value)
    if isinstance(value, CurrentAssignment):
        head = _CURRENT.pack(value.epoch, value.previous_epoch, value.state.value)
        return head + write_target({t: frozenset(epochs) for t, epochs in value.assigned.items()})
    if isinstance(value, KeptQueues):
        return _queues(value)
    assert isinstance(record, TargetRecord)
    assert record.value is not None
    return write_target(record.value)


def _profile(profile: MemberProfile) -> bytes:
    return b"".join(
        (
            write_compact_string(profile.rack_id),
            write_compact_string(profile.client_id),
            write_compact_string(profile.client_host),
            write_compact_array(map(write_compact_string, sorted(profile.topics))),
        )
    )


def _queues(queues: KeptQueues) -> bytes:
    end = write_tagged_fields({})
    deleting = write_compact_array(
        topic_id.bytes + write_compact_string(name) + end
        for topic_id, name in queues.deleting.items()
    )
    return _named(queues.initializing) + _named(queues.initialized) + deleting


def _named(topics: NamedTopics) -> bytes:
    end = write_tagged_fields({})
    return write_compact_array(
        topic_id.bytes + write_compact_string(name) + write_numbers(sorted(partitions)) + end
        for topic_id, (name, partitions) in topics.items()
    )


# Decoding


def decode_share(kind: int, key: Reader, value: bytes | None) -> ModernRecord:
    """`key` stands behind its kind."""
    group_id, share = GroupId(key.string()), GroupKind.SHARE
    reader = None if value is None else open_value(value)
    if kind == EPOCH_KIND:
        epoch = None if reader is None else GroupEpoch(reader.int32(), reader.int64())
        return EpochRecord(group_id, epoch, share)
    if kind == TARGET_EPOCH_KIND:
        return TargetEpochRecord(group_id, None if reader is None else reader.int32(), share)
    if kind == QUEUES_KIND:
        return QueuesRecord(group_id, None if reader is None else _read_queues(reader))
    member_id = MemberId(key.string())
    if kind == MEMBER_KIND:
        profile = None if reader is None else _read_profile(reader)
        return MemberRecord(group_id, member_id, profile, share)
    if kind == TARGET_KIND:
        target = None if reader is None else read_target(reader)
        return TargetRecord(group_id, member_id, target, share)
    assert kind == CURRENT_KIND
    current = None if reader is None else _read_current(reader)
    return CurrentRecord(group_id, member_id, current, share)


def _read_profile(reader: Reader) -> MemberProfile:
    return MemberProfile(
        rack_id=reader.nullable_string(),
        client_id=reader.string(),
        client_host=reader.string(),
        topics=read_names(reader),
    )


def _read_current(reader: Reader) -> CurrentAssignment:
    """The state is always stable: members change over to a new assignment at once."""
    epoch, previous_epoch, _ = reader.int32(), reader.int32(), reader.int8()
    assigned = read_target(reader)
    return CurrentAssignment(
        epoch=epoch,
        previous_epoch=previous_epoch,
        state=MemberState.STABLE,
        assigned=in_epoch(assigned, epoch),
    )


def in_epoch(assigned: Mapping[UUID, frozenset[int]], epoch: int) -> dict[UUID, dict[int, int]]:
    """What a member has, in the form that members of both kinds of groups share. The records of
    share groups do not tell since when, so that is the member's own epoch for all of it."""
    return {topic_id: dict.fromkeys(sorted(ps), epoch) for topic_id, ps in assigned.items()}


def _read_queues(reader: Reader) -> KeptQueues:
    initializing, initialized = _read_named(reader), _read_named(reader)
    deleting = {}
    for _ in range(reader.array_length()):
        topic_id = reader.uuid()
        deleting[topic_id] = reader.string()
        reader.end_of_struct()
    return KeptQueues(initializing=initializing, initialized=initialized, deleting=deleting)


def _read_named(reader: Reader) -> NamedTopics:
    topics = {}
    for _ in range(reader.array_length()):
        topic_id, name = reader.uuid(), reader.string()
        topics[topic_id] = NamedPartitions(name, frozenset(read_numbers(reader)))
        reader.end_of_struct()
    return topics
