"""Decisions on committed offsets: what to store and what to remove, as records."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from penstock.groups.commands import CommitOffsets
from penstock.groups.membership import Membership
from penstock.groups.modern_group import ModernGroup
from penstock.groups.records import (
    NO_TIMESTAMP,
    CommittedOffset,
    GroupRecord,
    GroupRemoved,
    OffsetRemoved,
    OffsetStored,
)
from penstock.groups.settings import GroupSettings
from penstock.groups.state import GroupsState
from penstock.groups.subscriptions import CONSUMER_PROTOCOL_TYPE
from penstock.groups.transitions import GroupState
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, TopicName

TIMESTAMP_MAX = 2**63 - 1
# What the numbers and lengths of one stored offset take.
RECORD_BYTES = 48


class FetchedOffset(NamedTuple):
    partition: int
    committed: CommittedOffset | None


class FetchedTopic(NamedTuple):
    topic: TopicName
    offsets: list[FetchedOffset]


WantedTopic = tuple[TopicName, Sequence[int]]
AnyGroup = Membership | ModernGroup


def read_offsets(
    state: GroupsState, group_id: GroupId, wanted: Iterable[WantedTopic] | None
) -> list[FetchedTopic]:
    """What the group has committed for these partitions, or everything it has committed."""
    found = state.offsets(group_id)
    if wanted is None:
        return [
            FetchedTopic(topic, [FetchedOffset(*item) for item in partitions.items()])
            for topic, partitions in found.items()
        ]
    fetched = []
    for topic, indexes in wanted:
        partitions = found.get(topic, {})
        offsets = [FetchedOffset(index, partitions.get(index)) for index in indexes]
        fetched.append(FetchedTopic(topic, offsets))
    return fetched


def decide_commit(
    command: CommitOffsets, *, now_ms: int, settings: GroupSettings
) -> tuple[list[GroupRecord], list[Reason | None]]:
    """The records, and for each offset of the command why it is refused, or None."""
    if _size_of(command) > settings.commit_bytes_max:
        detail = f"{len(command.offsets)} offsets are too many for one commit"
        raise Refused(Reason.INVALID_COMMIT_OFFSET_SIZE, detail)
    expire_ms = _expire_timestamp_ms(now_ms, command.retention_ms)
    records: list[GroupRecord] = []
    outcomes: list[Reason | None] = []
    for topic, partition, offset, leader_epoch, metadata in command.offsets:
        if len(metadata) > settings.offset_metadata_length_max:
            outcomes.append(Reason.OFFSET_METADATA_TOO_LARGE)
            continue
        committed = CommittedOffset(offset, leader_epoch, metadata, now_ms, expire_ms)
        records.append(OffsetStored(command.group_id, topic, partition, committed))
        outcomes.append(None)
    return records, outcomes


def _size_of(command: CommitOffsets) -> int:
    """Roughly what the records of a commit take."""
    own = len(command.group_id) + RECORD_BYTES
    return sum(own + len(item.topic) + len(item.metadata) for item in command.offsets)


def _expire_timestamp_ms(now_ms: int, retention_ms: int | None) -> int:
    if retention_ms is None:
        return NO_TIMESTAMP
    return min(max(now_ms + retention_ms, 0), TIMESTAMP_MAX)


def decide_offset_removal(
    state: GroupsState, group: AnyGroup, partitions: Sequence[tuple[TopicName, int]]
) -> tuple[list[GroupRecord], list[Reason | None]]:
    """Offsets of topics that the group reads stay: its members would start again somewhere else."""
    records: list[GroupRecord] = []
    outcomes: list[Reason | None] = []
    for topic, partition in partitions:
        if group.is_subscribed_to(topic):
            outcomes.append(Reason.GROUP_SUBSCRIBED_TO_TOPIC)
            continue
        outcomes.append(None)
        if state.offset(group.group_id, topic, partition) is not None:
            records.append(OffsetRemoved(group.group_id, topic, partition))
    return records, outcomes


def decide_group_removal(state: GroupsState, group_id: GroupId) -> list[GroupRecord]:
    records: list[GroupRecord] = [
        OffsetRemoved(group_id, topic, partition)
        for topic, partitions in state.offsets(group_id).items()
        for partition in partitions
    ]
    return records + decide_end(state, group_id)


def decide_end(state: GroupsState, group_id: GroupId) -> list[GroupRecord]:
    """Ends a group of any type; its offsets stay."""
    modern = state.modern(group_id)
    return [GroupRemoved(group_id)] if modern is None else list(modern.removal())


def decide_topic_removal(
    state: GroupsState, is_gone: Callable[[TopicName], bool]
) -> list[GroupRecord]:
    """Offsets must not outlive their topic: a new one of that name has other records."""
    return [
        OffsetRemoved(group_id, topic, partition)
        for group_id in state.group_ids()
        for topic, partitions in state.offsets(group_id).items()
        if is_gone(topic)
        for partition in partitions
    ]


def decide_expiry(
    state: GroupsState, group: AnyGroup, *, now_ms: int, retention_ms: int
) -> list[GroupRecord]:
    """Offsets that nobody needs any more, and the group itself once none is left (KIP-211)."""
    records: list[GroupRecord] = []
    is_rid_of_all = True
    for topic, partitions in state.offsets(group.group_id).items():
        for partition, committed in partitions.items():
            if _is_expired(group, topic, committed, now_ms, retention_ms):
                records.append(OffsetRemoved(group.group_id, topic, partition))
            else:
                is_rid_of_all = False
    if is_rid_of_all and group.is_forgettable:
        records += decide_end(state, group.group_id)
    return records


def _is_expired(
    group: AnyGroup,
    topic: TopicName,
    committed: CommittedOffset,
    now_ms: int,
    retention_ms: int,
) -> bool:
    start_ms = _retention_start_ms(group, committed)
    if start_ms is None or group.is_subscribed_to(topic):
        return False
    if committed.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - start_ms >= retention_ms


def _retention_start_ms(group: AnyGroup, committed: CommittedOffset) -> int | None:
    """From when on an offset's retention counts; None while it can't expire."""
    if isinstance(group, ModernGroup) or not group.protocol_type:
        return committed.commit_timestamp_ms
    if group.state is GroupState.EMPTY:
        # Since the group became empty; groups stored by old brokers do not say when.
        if group.state_timestamp_ms != NO_TIMESTAMP:
            return group.state_timestamp_ms
        return committed.commit_timestamp_ms
    # A working group keeps what it reads; what it has given up reading expires by its commits.
    is_consumer = group.protocol_type == CONSUMER_PROTOCOL_TYPE
    if is_consumer and group.topics is not None and group.state is GroupState.STABLE:
        return committed.commit_timestamp_ms
    return None
