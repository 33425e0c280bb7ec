"""ShareGroupDescribe, version 1: state, epochs and members of share groups (KIP-932).

A group of another type is not found here. A client that asks for the operations it may do gets all
of them.
"""

from collections.abc import Mapping
from uuid import UUID

from penstock.broker.groups import ConsumerMemberDescription, ShareDescription
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.frontdoor.kafka.handlers.describe_groups import ALL_OPERATIONS
from penstock.model.errors import Refused
from penstock.model.ids import GroupId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.share_group_describe import (
    DescribedShareAssignment,
    DescribedShareGroup,
    DescribedShareGroupMember,
    DescribedShareTopicPartitions,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


async def handle(call: Call, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    groups = [await _describe(call, GroupId(group_id)) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = ALL_OPERATIONS
    return ShareGroupDescribeResponse(groups=groups)


async def _describe(call: Call, group_id: GroupId) -> DescribedShareGroup:
    if not group_id:
        return DescribedShareGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        found = await call.services.groups.describe_share(group_id)
    except Refused as refused:
        return DescribedShareGroup(group_id=group_id, error_code=error_code(refused))
    if found is None:
        return DescribedShareGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"There is no share group {group_id}.",
        )
    return _described(call, found)


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
    described = []
    for topic_id, partitions in topics.items():
        topic = call.services.topics.find_by_id(topic_id)
        # A topic that was deleted just now has no name.
        if topic is not None:
            described.append(
                DescribedShareTopicPartitions(
                    topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions)
                )
            )
    return DescribedShareAssignment(topic_partitions=described)


API = Api(
    key=ApiKey.SHARE_GROUP_DESCRIBE,
    versions=(1, 1),
    request=ShareGroupDescribeRequest,
    response=ShareGroupDescribeResponse,
    handle=handle,
)
