"""ShareGroupDescribe, version 1: state, epochs and members of share groups (KIP-932).

A group of another type is not found here. A client that asks for the operations it may do gets all
of them.
"""

from collections.abc import Mapping
from functools import partial
from uuid import UUID

from penstock.broker.groups import ConsumerMemberDescription, ShareDescription
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.group_descriptions import describe_each, named
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.share_group_describe import (
    DescribedShareAssignment,
    DescribedShareGroup,
    DescribedShareGroupMember,
    DescribedShareTopicPartitions,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


async def handle(call: Call, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    groups = await describe_each(
        request.group_ids,
        partial(_find, call),
        DescribedShareGroup,
        partial(_described, call),
        kind="share group",
        with_operations=request.include_authorized_operations,
    )
    return ShareGroupDescribeResponse(groups=groups)


async def _find(call: Call, group_id: GroupId) -> ShareDescription | None:
    if not group_id:
        raise Refused(Reason.INVALID_GROUP_ID)
    return await call.services.groups.describe_share(group_id)


def _described(call: Call, group: ShareDescription) -> DescribedShareGroup:
    return DescribedShareGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[_member(call, member) for member in group.members],
    )


def _member(call: Call, member: ConsumerMemberDescription) -> DescribedShareGroupMember:
    return DescribedShareGroupMember(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=_assignment(call, member.assignment),
    )


def _assignment(call: Call, topics: Mapping[UUID, frozenset[int]]) -> DescribedShareAssignment:
    partitions = named(call, topics, DescribedShareTopicPartitions)
    return DescribedShareAssignment(topic_partitions=partitions)


API = Api(
    key=ApiKey.SHARE_GROUP_DESCRIBE,
    versions=(1, 1),
    request=ShareGroupDescribeRequest,
    response=ShareGroupDescribeResponse,
    handle=handle,
)
