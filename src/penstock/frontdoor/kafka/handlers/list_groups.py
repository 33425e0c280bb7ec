"""ListGroups, versions 0 to 5: the groups of this broker, from 4 on by state, from 5 on by type.

A group is of the type classic, consumer (KIP-848) or share (KIP-932).
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)


async def handle(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    types = {name.lower() for name in request.types_filter}
    groups = [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state,
            group_type=group.group_type,
        )
        for group in await call.services.groups.list_groups(request.states_filter)
        if not types or group.group_type in types
    ]
    return ListGroupsResponse(groups=groups)


API = Api(
    key=ApiKey.LIST_GROUPS,
    versions=(0, 5),
    request=ListGroupsRequest,
    response=ListGroupsResponse,
    handle=handle,
)
