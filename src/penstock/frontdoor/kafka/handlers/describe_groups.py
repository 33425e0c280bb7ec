"""DescribeGroups, versions 0 to 6: state, protocol and members of groups.

A group that does not exist is in the state Dead; from version 6 on that is an error too. A
client that asks which operations it may do gets all of them, since nothing is forbidden yet.
"""

from penstock.broker.groups import GroupDescription
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.model.errors import Refused
from penstock.model.ids import GroupId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

NOT_FOUND_FROM = 6
DEAD = "Dead"
# Bits by Kafka's numbers of operations: read, delete, describe, describe and alter settings.
ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


async def handle(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    groups = [await _describe(call, GroupId(group_id)) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = ALL_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


async def _describe(call: Call, group_id: GroupId) -> DescribedGroup:
    try:
        found = await call.services.groups.describe(group_id)
    except Refused as refused:
        return DescribedGroup(group_id=group_id, error_code=error_code(refused))
    if found is not None:
        return _described(found)
    if call.version < NOT_FOUND_FROM:
        return DescribedGroup(group_id=group_id, group_state=DEAD)
    return DescribedGroup(
        group_id=group_id,
        group_state=DEAD,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} not found.",
    )


def _described(group: GroupDescription) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )


API = Api(
    key=ApiKey.DESCRIBE_GROUPS,
    versions=(0, 6),
    request=DescribeGroupsRequest,
    response=DescribeGroupsResponse,
    handle=handle,
)
