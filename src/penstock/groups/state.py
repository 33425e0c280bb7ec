"""The replicated state of one coordinator: its groups, and their offsets.

A function of the records before it, and `apply` is its only mutator. Of a group of the classic
protocol it has the last generation. What lives between two generations (members that join, their
timers, parked requests) is in `group.py`: it is not replicated, as in Kafka, since members can
repeat it. A group whose partitions the broker assigns is here as a whole (`modern_group.py`).
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from penstock.groups.modern_group import ModernGroup
from penstock.groups.modern_records import EpochRecord, GroupKind, ModernRecord
from penstock.groups.records import (
    FIRST_KINDS,
    KINDS,
    CommittedOffset,
    ForeignRecord,
    GroupMetadata,
    GroupRecord,
    GroupRecordCodec,
    GroupRemoved,
    GroupStored,
    OffsetRemoved,
    OffsetStored,
    offsets_of_topic,
)
from penstock.groups.share_group import ShareGroup
from penstock.model.ids import GroupId, TopicName
from penstock.records.batch import CorruptBatch

TopicOffsets = dict[TopicName, dict[int, CommittedOffset]]

_LENGTHS = struct.Struct(">ii")
# Stands where the first record's lengths would be: how many kinds of records follow.
_HEAD = struct.Struct(">ii")
_NO_LENGTH = -1
_KIND = struct.Struct(">h")


class GroupsState:
    """A group exists when a generation of it is stored, when the broker assigns its partitions, or
    when it has committed offsets."""

    def __init__(self) -> None:
        self._modern: dict[GroupId, ModernGroup] = {}
        self._groups: dict[GroupId, GroupMetadata] = {}
        self._offsets: dict[GroupId, TopicOffsets] = {}
        # Groups whose offsets no snapshot shares: those of all others are copied before a change.
        self._unshared: set[GroupId] = set()

    def apply(self, record: GroupRecord, /) -> None:
        if isinstance(record, OffsetStored):
            topics = self._changeable(record.group_id)
            topics.setdefault(record.topic, {})[record.partition] = record.committed
        elif isinstance(record, OffsetRemoved):
            self._remove_offset(record)
        elif isinstance(record, GroupStored):
            self._groups[record.group_id] = record.metadata
        elif isinstance(record, GroupRemoved):
            self._groups.pop(record.group_id, None)
        elif not isinstance(record, ForeignRecord):
            self._apply_modern(record)

    def _apply_modern(self, record: ModernRecord) -> None:
        group = self._modern.get(record.group_id)
        if group is None or group.kind is not record.kind:
            if record.value is None:
                # Of a group that had the name before.
                return
            make = ShareGroup if record.kind is GroupKind.SHARE else ModernGroup
            group = self._modern[record.group_id] = make(record.group_id)
        group.apply(record)
        if isinstance(record, EpochRecord) and record.value is None:
            del self._modern[record.group_id]

    def validate(self) -> None:
        """Asserts what every sequence of records leaves true; for tests, which call it often."""
        for metadata in self._groups.values():
            members = [member.member_id for member in metadata.members]
            assert metadata.generation >= bool(members), f"no generation of {members}"
            assert len(set(members)) == len(members), f"twice in {members}"
            leader = metadata.leader
            assert not members or leader in (None, *members), f"{leader} leads {members}"
            assert bool(members) <= bool(metadata.protocol), f"{members} agreed on nothing"
        for topics in self._offsets.values():
            assert topics, "a group without offsets is kept among those that have some"
            assert all(topics.values()), "a topic without offsets is kept"
        assert self._offsets.keys() >= self._unshared
        for group in self._modern.values():
            group.validate()
        both = self._modern.keys() & self._groups.keys()
        assert not both, f"{both} are of two types"

    def snapshot(self) -> Callable[[], bytes]:
        self._unshared.clear()
        modern = [group.copy() for group in self._modern.values()]
        return partial(_encode, self._groups.copy(), modern, self._offsets.copy())

    def restore(self, data: bytes, /) -> None:
        """Raises ValueError for a snapshot that lacks what the log may hold."""
        codec = GroupRecordCodec()
        kinds, position = _read_kinds(data)
        if not kinds >= KINDS:
            # An earlier version took it, which skipped the records that it did not know.
            raise ValueError(f"it does not know records of the kinds {sorted(KINDS - kinds)}")
        while position < len(data):
            try:
                key_length, value_length = _LENGTHS.unpack_from(data, position)
            except struct.error as error:
                raise CorruptBatch(f"a snapshot of groups ends amid a record: {error}") from error
            start = position + _LENGTHS.size
            middle, position = start + key_length, start + key_length + value_length
            self.apply(codec.decode(data[start:middle], data[middle:position]))

    def exists(self, group_id: GroupId) -> bool:
        return any(group_id in known for known in (self._groups, self._modern, self._offsets))

    def modern(self, group_id: GroupId) -> ModernGroup | None:
        """A group whose partitions the broker assigns, of either kind."""
        return self._modern.get(group_id)

    def consumer(self, group_id: GroupId) -> ModernGroup | None:
        group = self._modern.get(group_id)
        return None if isinstance(group, ShareGroup) else group

    def share(self, group_id: GroupId) -> ShareGroup | None:
        group = self._modern.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def modern_groups(self) -> Mapping[GroupId, ModernGroup]:
        return self._modern

    def metadata(self, group_id: GroupId) -> GroupMetadata | None:
        return self._groups.get(group_id)

    def group_ids(self) -> Iterator[GroupId]:
        yield from self._groups
        yield from self._modern
        for group_id in self._offsets:
            if group_id not in self._groups and group_id not in self._modern:
                yield group_id

    def generations(self) -> Mapping[GroupId, GroupMetadata]:
        return self._groups

    def offsets(self, group_id: GroupId) -> Mapping[TopicName, Mapping[int, CommittedOffset]]:
        return self._offsets.get(group_id, {})

    def offset(self, group_id: GroupId, topic: TopicName, partition: int) -> CommittedOffset | None:
        return self._offsets.get(group_id, {}).get(topic, {}).get(partition)

    def _changeable(self, group_id: GroupId) -> TopicOffsets:
        if group_id not in self._unshared:
            shared = self._offsets.get(group_id, {})
            self._offsets[group_id] = {topic: one.copy() for topic, one in shared.items()}
            self._unshared.add(group_id)
        return self._offsets[group_id]

    def _remove_offset(self, record: OffsetRemoved) -> None:
        if self.offset(record.group_id, record.topic, record.partition) is None:
            return
        topics = self._changeable(record.group_id)
        del topics[record.topic][record.partition]
        if not topics[record.topic]:
            del topics[record.topic]
        if not topics:
            del self._offsets[record.group_id]
            self._unshared.remove(record.group_id)


def _encode(
    groups: Mapping[GroupId, GroupMetadata],
    modern: Sequence[ModernGroup],
    offsets: Mapping[GroupId, TopicOffsets],
) -> bytes:
    """The kinds of records that this version knows, then the records that make up the state, each
    as in the log, behind its lengths."""
    parts = [_HEAD.pack(_NO_LENGTH, len(KINDS)), *map(_KIND.pack, sorted(KINDS))]
    for key, value in _stored(groups, modern, offsets):
        parts += (_LENGTHS.pack(len(key), len(value)), key, value)
    return b"".join(parts)


def _read_kinds(data: bytes) -> tuple[frozenset[int], int]:
    """The kinds that a snapshot knows, and where its records begin. The first ones did not say."""
    try:
        mark, count = _HEAD.unpack_from(data) if data else (0, 0)
        if mark != _NO_LENGTH:
            return FIRST_KINDS, 0
        end = _HEAD.size + count * _KIND.size
        starts = range(_HEAD.size, end, _KIND.size)
        return frozenset(_KIND.unpack_from(data, start)[0] for start in starts), end
    except struct.error as error:
        raise CorruptBatch(f"a snapshot of groups ends amid its head: {error}") from error


def _stored(
    groups: Mapping[GroupId, GroupMetadata],
    modern: Sequence[ModernGroup],
    offsets: Mapping[GroupId, TopicOffsets],
) -> Iterator[tuple[bytes, bytes]]:
    codec = GroupRecordCodec()
    classic = (GroupStored(group_id, metadata) for group_id, metadata in groups.items())
    for record in chain(classic, *(group.records() for group in modern)):
        key, value = codec.encode(record)
        assert key is not None
        assert value is not None
        yield key, value
    for group_id, topics in offsets.items():
        for topic, committed in topics.items():
            yield from offsets_of_topic(group_id, topic, committed)
