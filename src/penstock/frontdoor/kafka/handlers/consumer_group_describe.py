"""ConsumerGroupDescribe, versions 0 and 1: state, epochs and members of groups whose partitions the
broker assigns (KIP-848). From version 1 on each member says which protocol it speaks.

A group of the classic protocol is not found here. What a member has still to give up is part of its
assignment. A client that asks for the operations it may do gets all of them.
"""

from collections.abc import Mapping
from functools import partial
from uuid import UUID

from penstock.broker.groups import ConsumerDescription, ConsumerMemberDescription
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.group_descriptions import describe_each, named
from penstock.protocol.kafka.api_keys import ApiKey
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
    groups = await describe_each(
        request.group_ids,
        call.services.groups.describe_consumer,
        DescribedConsumerGroup,
        partial(_described, call),
        kind="consumer group",
        with_operations=request.include_authorized_operations,
    )
    return ConsumerGroupDescribeResponse(groups=groups)


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
    return DescribedAssignment(topic_partitions=named(call, topics, DescribedTopicPartitions))


API = Api(
    key=ApiKey.CONSUMER_GROUP_DESCRIBE,
    versions=(0, 1),
    request=ConsumerGroupDescribeRequest,
    response=ConsumerGroupDescribeResponse,
    handle=handle,
)
