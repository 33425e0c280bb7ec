"""The replicated state of one coordinator: the last generation of each group, and its offsets.

A function of the records before it, and `apply` is its only mutator. What lives between two
generations (members that join, their timers, parked requests) is in `group.py`: it is not
replicated, as in Kafka, since members can repeat it.
"""

import struct
from collections.abc import Iterator, Mapping

from penstock.groups.records import (
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
from penstock.model.ids import GroupId, TopicName
from penstock.records.batch import CorruptBatch

TopicOffsets = dict[TopicName, dict[int, CommittedOffset]]

_LENGTHS = struct.Struct(">ii")


class GroupsState:
    """A group exists when a generation of it is stored, or when it has committed offsets."""

    def __init__(self) -> None:
        self._groups: dict[GroupId, GroupMetadata] = {}
        self._offsets: dict[GroupId, TopicOffsets] = {}

    def apply(self, record: GroupRecord, /) -> None:
        if isinstance(record, OffsetStored):
            topics = self._offsets.setdefault(record.group_id, {})
            topics.setdefault(record.topic, {})[record.partition] = record.committed
        elif isinstance(record, OffsetRemoved):
            self._remove_offset(record)
        elif isinstance(record, GroupStored):
            self._groups[record.group_id] = record.metadata
        elif isinstance(record, GroupRemoved):
            self._groups.pop(record.group_id, None)
        else:
            assert isinstance(record, ForeignRecord)

    def snapshot(self) -> bytes:
        """The records that make up the state, each as in the log, behind its lengths."""
        parts: list[bytes] = []
        for key, value in self._stored():
            parts += (_LENGTHS.pack(len(key), len(value)), key, value)
        return b"".join(parts)

    def restore(self, data: bytes, /) -> None:
        codec = GroupRecordCodec()
        position = 0
        while position < len(data):
            try:
                key_length, value_length = _LENGTHS.unpack_from(data, position)
            except struct.error as error:
                raise CorruptBatch(f"a snapshot of groups ends amid a record: {error}") from error
            start = position + _LENGTHS.size
            middle, position = start + key_length, start + key_length + value_length
            self.apply(codec.decode(data[start:middle], data[middle:position]))

    def exists(self, group_id: GroupId) -> bool:
        return group_id in self._groups or group_id in self._offsets

    def metadata(self, group_id: GroupId) -> GroupMetadata | None:
        return self._groups.get(group_id)

    def group_ids(self) -> Iterator[GroupId]:
        yield from self._groups
        yield from (group_id for group_id in self._offsets if group_id not in self._groups)

    def generations(self) -> Mapping[GroupId, GroupMetadata]:
        return self._groups

    def offsets(self, group_id: GroupId) -> Mapping[TopicName, Mapping[int, CommittedOffset]]:
        return self._offsets.get(group_id, {})

    def offset(self, group_id: GroupId, topic: TopicName, partition: int) -> CommittedOffset | None:
        return self._offsets.get(group_id, {}).get(topic, {}).get(partition)

    def _remove_offset(self, record: OffsetRemoved) -> None:
        topics = self._offsets.get(record.group_id, {})
        partitions = topics.get(record.topic, {})
        partitions.pop(record.partition, None)
        if not partitions:
            topics.pop(record.topic, None)
        if not topics:
            self._offsets.pop(record.group_id, None)

    def _stored(self) -> Iterator[tuple[bytes, bytes]]:
        codec = GroupRecordCodec()
        for group_id, metadata in self._groups.items():
            key, value = codec.encode(GroupStored(group_id, metadata))
            assert key is not None
            assert value is not None
            yield key, value
        for group_id, topics in self._offsets.items():
            for topic, offsets in topics.items():
                yield from offsets_of_topic(group_id, topic, offsets)
