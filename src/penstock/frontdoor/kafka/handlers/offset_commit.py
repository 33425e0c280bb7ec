"""OffsetCommit, versions 0 to 10: a group saves how far it has come, with a string of its own.

Answered only after the offsets are durable. Topics go by id from version 10 on. Versions 2 to 4
may choose a retention of their own. The commit timestamps of version 1 are not used: the broker's
clock is. Version 0, which Kafka once kept in ZooKeeper, is stored like the others.

Members of the new consumer protocol (KIP-848) commit with version 9 or above, and are fenced by the
epochs in which their partitions were assigned (KIP-1251). Of a partition that is another member's
they may commit nothing, where Kafka lets a member of the present epoch commit anything: a commit
that was under way for long could take back what the new owner has committed.
"""

from collections.abc import Iterator

from penstock.broker.groups import CommitOffsets, OffsetToCommit
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.outcomes import outcome_code
from penstock.model.errors import Reason
from penstock.model.ids import GroupId, MemberId, TopicName
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

MEMBER_EPOCHS_FROM = 9
TOPIC_IDS_FROM = 10
NO_RETENTION = -1


async def handle(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    names = [_name(call, topic) for topic in request.topics]
    command = _command(call, request, names)
    outcomes = iter(await call.services.groups.commit_offsets(command))
    topics = [
        _topic_response(topic, outcomes if name is not None else None)
        for topic, name in zip(request.topics, names, strict=True)
    ]
    return OffsetCommitResponse(topics=topics)


def _name(call: Call, topic: OffsetCommitRequestTopic) -> TopicName | None:
    """None for an id that no topic has."""
    if call.version < TOPIC_IDS_FROM:
        return TopicName(topic.name)
    found = call.services.topics.find_by_id(topic.topic_id)
    return None if found is None else found.name


def _command(
    call: Call, request: OffsetCommitRequest, names: list[TopicName | None]
) -> CommitOffsets:
    has_retention = request.retention_time_ms != NO_RETENTION
    knows_epochs = call.version >= MEMBER_EPOCHS_FROM
    offsets = tuple(
        OffsetToCommit(
            topic=name,
            partition=partition.partition_index,
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata or "",
        )
        for topic, name in zip(request.topics, names, strict=True)
        if name is not None
        for partition in topic.partitions
    )
    return CommitOffsets(
        group_id=GroupId(request.group_id),
        member_id=MemberId(request.member_id),
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        retention_ms=request.retention_time_ms if has_retention else None,
        offsets=offsets,
        knows_member_epochs=knows_epochs,
        unknown_group=(Reason.GROUP_ID_NOT_FOUND if knows_epochs else Reason.ILLEGAL_GENERATION),
    )


def _topic_response(
    topic: OffsetCommitRequestTopic, outcomes: Iterator[Reason | None] | None
) -> OffsetCommitResponseTopic:
    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    codes = [
        unknown if outcomes is None else outcome_code(next(outcomes)) for _ in topic.partitions
    ]
    return _with_codes(topic, codes)


def _with_codes(
    topic: OffsetCommitRequestTopic, codes: list[ErrorCode]
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=item.partition_index, error_code=code)
            for item, code in zip(topic.partitions, codes, strict=True)
        ],
    )


API = Api(
    key=ApiKey.OFFSET_COMMIT,
    versions=(0, 10),
    request=OffsetCommitRequest,
    response=OffsetCommitResponse,
    handle=handle,
)
