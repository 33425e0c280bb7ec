"""OffsetFetch, versions 0 to 10: how far groups have come; from version 8 on of several at once.

A partition without a committed offset has -1 and no error, and so has a group that does not exist.
Null topics (from version 2 on) ask for everything the group has committed. Topics go by id from
version 10 on. `require_stable` changes nothing: without transactions an offset is either durable,
and only then it is shown, or it is not there.

Apache Kafka answers from the coordinator's memory, also if another broker coordinates the group by
now. Here a majority of the replicas confirms first that this one still does (decision 33), so that
an offset whose commit was answered is seen by everybody who asks later. If nobody confirms it, the
answer is NOT_COORDINATOR or, after some seconds, COORDINATOR_NOT_AVAILABLE: clients look for the
coordinator and ask again.
"""

import asyncio
from collections.abc import Sequence
from uuid import UUID

from penstock.broker.groups import CommittedOffset, FetchedTopic, WantedTopic
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.model.errors import Refused
from penstock.model.ids import GroupId, MemberId, TopicName
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

GROUP_ERROR_FROM = 2
BATCHED_FROM = 8
TOPIC_IDS_FROM = 10

NOTHING = CommittedOffset(offset=-1, leader_epoch=-1, metadata="", commit_timestamp_ms=-1)


async def handle(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if call.version < BATCHED_FROM:
        return await _handle_one(call, request)
    # At once: groups of one coordinator share the round in which it is confirmed.
    groups = await asyncio.gather(*(_fetch_group(call, group) for group in request.groups))
    return OffsetFetchResponse(groups=groups)


# Versions 0 to 7: one group


async def _handle_one(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    wanted: list[WantedTopic] | None = None
    if request.topics is not None:
        wanted = [(TopicName(topic.name), topic.partition_indexes) for topic in request.topics]
    fetched = await call.services.groups.fetch_offsets(GroupId(request.group_id), wanted)
    return OffsetFetchResponse(topics=[_topic(topic) for topic in fetched])


def _topic(topic: FetchedTopic) -> OffsetFetchResponseTopic:
    partitions = [
        _partition(index, committed or NOTHING, ErrorCode.NONE)
        for index, committed in topic.offsets
    ]
    return OffsetFetchResponseTopic(name=topic.topic, partitions=partitions)


def _partition(
    index: int, committed: CommittedOffset, code: ErrorCode
) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=code,
    )


# Versions from 8 on: groups


async def _fetch_group(call: Call, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    try:
        if group.topics is None:
            topics = await _fetch_all(call, group)
        else:
            topics = await _fetch_some(call, group, group.topics)
    except Refused as refused:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error_code(refused))
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


async def _fetch_all(call: Call, group: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    topics = []
    for found in await _fetch(call, group, None):
        topic = call.services.topics.find(found.topic)
        # A topic that was deleted just now has no id to be called by.
        if topic is not None or call.version < TOPIC_IDS_FROM:
            topic_id = UUID(int=0) if topic is None else topic.topic_id
            topics.append(_topics(found, topic_id))
    return topics


async def _fetch_some(
    call: Call, group: OffsetFetchRequestGroup, topics: Sequence[OffsetFetchRequestTopics]
) -> list[OffsetFetchResponseTopics]:
    names = [_name(call, topic) for topic in topics]
    wanted: list[WantedTopic] = [
        (name, topic.partition_indexes)
        for topic, name in zip(topics, names, strict=True)
        if name is not None
    ]
    fetched = iter(await _fetch(call, group, wanted))
    return [
        _unknown_id(topic) if name is None else _topics(next(fetched), topic.topic_id)
        for topic, name in zip(topics, names, strict=True)
    ]


async def _fetch(
    call: Call, group: OffsetFetchRequestGroup, wanted: list[WantedTopic] | None
) -> list[FetchedTopic]:
    """From version 9 on members of the new protocol say who they are (KIP-848)."""
    member_id = None if group.member_id is None else MemberId(group.member_id)
    return await call.services.groups.fetch_offsets(
        GroupId(group.group_id), wanted, member_id, group.member_epoch
    )


def _name(call: Call, topic: OffsetFetchRequestTopics) -> TopicName | None:
    """None for an id that no topic has."""
    if call.version < TOPIC_IDS_FROM:
        return TopicName(topic.name)
    found = call.services.topics.find_by_id(topic.topic_id)
    return None if found is None else found.name


def _topics(topic: FetchedTopic, topic_id: UUID) -> OffsetFetchResponseTopics:
    partitions = [
        _partitions(index, committed or NOTHING, ErrorCode.NONE)
        for index, committed in topic.offsets
    ]
    return OffsetFetchResponseTopics(name=topic.topic, topic_id=topic_id, partitions=partitions)


def _unknown_id(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    partitions = [
        _partitions(index, NOTHING, ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes
    ]
    return OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions)


def _partitions(
    index: int, committed: CommittedOffset, code: ErrorCode
) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=code,
    )


API = Api(
    key=ApiKey.OFFSET_FETCH,
    versions=(0, 10),
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
    handle=handle,
)
