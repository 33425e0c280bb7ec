"""Committed offsets of a group, for those who are not members of it."""

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import TypeVar

from penstock.client.errors import GroupActive
from penstock.client.wire.cluster_map import ClusterMap
from penstock.client.wire.coordinators import Coordinators
from penstock.client.wire.errors import name_of, place, refused
from penstock.client.wire.links import Links
from penstock.client.wire.settings import WireSettings
from penstock.client.wire.topics import unknown_topic
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.protocol.kafka.error_codes import RETRIABLE, ErrorCode
from penstock.protocol.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.protocol.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

# The last versions in which topics go by name.
COMMIT_VERSION_MAX = 9
FETCH_VERSION_MAX = 9
NOT_COMMITTED = -1
_ACTIVE_CODES = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
)

Answer = TypeVar("Answer")
# The code of each part of an answer, with the partition that it is about, if it is about one.
Codes = Iterable[tuple[int, TopicPartition | None]]


class GroupOffsets:
    def __init__(self, settings: WireSettings, links: Links, cluster_map: ClusterMap) -> None:
        self._map = cluster_map
        self._coordinators = Coordinators(settings, links, cluster_map)

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str) -> None:
        if not offsets:
            return
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=one.partition,
                            committed_offset=offsets[one],
                            committed_metadata=metadata,
                        )
                        for one in partitions
                    ],
                )
                for topic, partitions in _by_topic(offsets)
            ],
        )
        self._ask(group, request, OffsetCommitResponse, COMMIT_VERSION_MAX, _commit_codes)

    def committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        wanted = set(partitions)
        if not wanted:
            return {}
        topics = [(topic, [one.partition for one in ones]) for topic, ones in _by_topic(wanted)]
        request = OffsetFetchRequest(
            # One form is for old versions, the other for new ones.
            group_id=group,
            topics=[
                OffsetFetchRequestTopic(name=topic, partition_indexes=list(indexes))
                for topic, indexes in topics
            ],
            groups=[
                OffsetFetchRequestGroup(
                    group_id=group,
                    topics=[
                        OffsetFetchRequestTopics(name=topic, partition_indexes=list(indexes))
                        for topic, indexes in topics
                    ],
                )
            ],
        )
        answer = self._ask(group, request, OffsetFetchResponse, FETCH_VERSION_MAX, _fetch_codes)
        found = dict.fromkeys(sorted(wanted), None) | {
            _place(topic.name, one.partition_index): one.committed_offset
            for topic in _fetched_topics(answer)
            for one in topic.partitions
            if one.committed_offset > NOT_COMMITTED
        }
        return {partition: found[partition] for partition in sorted(wanted)}

    def _ask(
        self,
        group: str,
        request: object,
        answer: type[Answer],
        version_max: int,
        codes_of: Callable[[Answer], Codes],
    ) -> Answer:
        return self._coordinators.ask(
            group,
            request,
            answer,
            lambda found: _complaint(group, codes_of(found)),
            patience=self._map.patience(f"the offsets of group {group}"),
            version_max=version_max,
        )


def _complaint(group: str, codes: Codes) -> str | None:
    """What passes by itself; raises what does not."""
    complaint = None
    for code, partition in codes:
        if code == ErrorCode.NONE:
            continue
        if code in _ACTIVE_CODES:
            raise GroupActive(f"Group {group} has active members: stop its consumers first.")
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and partition is not None:
            raise unknown_topic(partition.topic)
        if code not in RETRIABLE:
            where = f" of {place(partition)}" if partition is not None else ""
            raise refused(f"the offsets of group {group}{where}", code)
        complaint = name_of(code)
    return complaint


def _commit_codes(answer: OffsetCommitResponse) -> Codes:
    for topic in answer.topics:
        for one in topic.partitions:
            yield one.error_code, _place(topic.name, one.partition_index)


def _fetch_codes(answer: OffsetFetchResponse) -> Codes:
    yield answer.error_code, None
    for group in answer.groups:
        yield group.error_code, None
    for topic in _fetched_topics(answer):
        for one in topic.partitions:
            # A partition that is gone has no offset, and that is not the caller's error.
            if one.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                yield one.error_code, _place(topic.name, one.partition_index)


def _fetched_topics(
    answer: OffsetFetchResponse,
) -> list[OffsetFetchResponseTopic | OffsetFetchResponseTopics]:
    return [*answer.topics, *(topic for group in answer.groups for topic in group.topics)]


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    ordered = sorted(partitions)
    return [(topic, list(ones)) for topic, ones in groupby(ordered, key=lambda one: one.topic)]


def _place(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(partition))
