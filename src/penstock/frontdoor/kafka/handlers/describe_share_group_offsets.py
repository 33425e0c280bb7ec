"""DescribeShareGroupOffsets, versions 0 and 1: how far share groups are with their queues.

- The start is the first offset that is not done with, -1 for a queue that was never read; the lag
  of version 1 counts records that are not done with (KIP-1226), -1 where it is not known.
- Without topics, all those that the group knows are listed. Named ones are listed in any case, with
  -1 if there is nothing to say of them, also those of a group that does not exist.
- Only the group's coordinator answers.

- What Kafka does not tell of dead letters is in fields that its clients skip.

Differences from Kafka: a partition that its topic does not have is UNKNOWN_TOPIC_OR_PARTITION;
Kafka does not answer such a request. A queue in which too many records wait says so in the error
message of its partition, without an error code.
"""

from collections.abc import Collection, Mapping

from penstock.broker.queues import QueueOffset
from penstock.broker.topics import Topics
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.shares import refusal_of
from penstock.model.errors import Refused
from penstock.model.ids import GroupId, TopicId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

UNKNOWN = -1

Offsets = Mapping[tuple[TopicId, int], QueueOffset | Refused]


async def handle(
    call: Call, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    groups = [await _describe(call, group) for group in request.groups]
    return DescribeShareGroupOffsetsResponse(groups=groups)


async def _describe(
    call: Call, asked: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    group_id, answer = GroupId(asked.group_id), DescribeShareGroupOffsetsResponseGroup()
    answer.group_id = asked.group_id
    try:
        # Refuses what is not for this broker.
        await call.services.groups.describe_share(group_id)
        wanted = None if asked.topics is None else _wanted(call.services.topics, asked.topics)
        found = await call.services.queues.describe_offsets(group_id, wanted)
    except Refused as refused:
        answer.error_code, answer.error_message = refusal_of(refused)
        return answer
    if asked.topics is None:
        answer.topics = _all(call.services.topics, found)
    else:
        answer.topics = [_topic(call.services.topics, topic, found) for topic in asked.topics]
    return answer


def _wanted(
    topics: Topics, asked: Collection[DescribeShareGroupOffsetsRequestTopic]
) -> dict[TopicId, set[int]]:
    wanted: dict[TopicId, set[int]] = {}
    for each in asked:
        topic = topics.find(each.topic_name)
        if topic is not None:
            wanted.setdefault(topic.topic_id, set()).update(each.partitions)
    return wanted


def _topic(
    topics: Topics, asked: DescribeShareGroupOffsetsRequestTopic, found: Offsets
) -> DescribeShareGroupOffsetsResponseTopic:
    answer = DescribeShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
    topic = topics.find(asked.topic_name)
    if topic is None:
        answer.partitions = [_partition(index, None) for index in asked.partitions]
        return answer
    answer.topic_id = topic.topic_id
    answer.partitions = [
        _partition(index, found.get((topic.topic_id, index))) for index in asked.partitions
    ]
    return answer


def _all(topics: Topics, found: Offsets) -> list[DescribeShareGroupOffsetsResponseTopic]:
    """Without topics that were deleted: they have no name any more."""
    named: dict[TopicId, DescribeShareGroupOffsetsResponseTopic] = {}
    for (topic_id, index), offset in sorted(found.items()):
        topic = topics.find_by_id(topic_id)
        if topic is None:
            continue
        answer = named.setdefault(
            topic_id,
            DescribeShareGroupOffsetsResponseTopic(topic_name=topic.name, topic_id=topic_id),
        )
        answer.partitions.append(_partition(index, offset))
    return list(named.values())


def _partition(
    index: int, found: QueueOffset | Refused | None
) -> DescribeShareGroupOffsetsResponsePartition:
    answer = DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=UNKNOWN, lag=UNKNOWN
    )
    if isinstance(found, Refused):
        answer.error_code, answer.error_message = refusal_of(found)
    elif found is not None:
        answer.start_offset, answer.leader_epoch = found.start, found.leader_epoch
        answer.lag = found.lag
        answer.dying_count = found.dying_count
        answer.dead_letters_sent = found.sent_count
        answer.dead_letters_redriven = found.redriven_count
        answer.dead_letters_trouble = found.trouble
        answer.note = found.note
    return answer


API = Api(
    key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    versions=(0, 1),
    request=DescribeShareGroupOffsetsRequest,
    response=DescribeShareGroupOffsetsResponse,
    handle=handle,
)
