"""ConsumerGroupDescribe, versions 0 and 1: state, epochs and members of groups whose partitions the
broker assigns (KIP-848). From version 1 on each member says which protocol it speaks.

A group of the classic protocol is not found here. What a member has still to give up is part of its
assignment. A client that asks for the operations it may do gets all of them.
"""

from collections.abc import Mapping
from uuid import UUID

from penstock.broker.groups import ConsumerDescription, ConsumerMemberDescription
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.frontdoor.kafka.handlers.describe_groups import ALL_OPERATIONS
from penstock.model.errors import Refused
from penstock.model.ids import GroupId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.consumer_group_describe import (
    MEMBER_TYPE_CLASSIC,
    MEMBER_TYPE_CONSUMER,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerGroupMember,
    DescribedTopicPartitions,
)


async def handle(
    call: Call, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    groups = [await _describe(call, GroupId(group_id)) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = ALL_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=groups)


async def _describe(call: Call, group_id: GroupId) -> DescribedConsumerGroup:
    try:
        found = await call.services.groups.describe_consumer(group_id)
    except Refused as refused:
        return DescribedConsumerGroup(group_id=group_id, error_code=error_code(refused))
    if found is None:
        return DescribedConsumerGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"There is no consumer group {group_id}.",
        )
    return _described(call, found)


def _described(call: Call, group: ConsumerDescription) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[_member(call, member) for member in group.members],
    )


def _member(call: Call, member: ConsumerMemberDescription) -> DescribedConsumerGroupMember:
    return DescribedConsumerGroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        # Kafka has no null here.
        subscribed_topic_regex=member.expression or "",
        assignment=_assignment(call, member.assignment),
        target_assignment=_assignment(call, member.target),
        member_type=MEMBER_TYPE_CLASSIC if member.is_classic else MEMBER_TYPE_CONSUMER,
    )


def _assignment(call: Call, topics: Mapping[UUID, frozenset[int]]) -> DescribedAssignment:
    described = []
    for topic_id, partitions in topics.items():
        topic = call.services.topics.find_by_id(topic_id)
        # A topic that was deleted just now has no name.
        if topic is not None:
            described.append(
                DescribedTopicPartitions(
                    topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions)
                )
            )
    return DescribedAssignment(topic_partitions=described)


API = Api(
    key=ApiKey.CONSUMER_GROUP_DESCRIBE,
    versions=(0, 1),
    request=ConsumerGroupDescribeRequest,
    response=ConsumerGroupDescribeResponse,
    handle=handle,
)
