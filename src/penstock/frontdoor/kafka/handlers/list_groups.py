"""ListGroups, versions 0 to 5: the groups of this broker, from 4 on by state, from 5 on by type.

All groups are of the type classic.
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

CLASSIC = "classic"


async def handle(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    types = {name.lower() for name in request.types_filter}
    if types and CLASSIC not in types:
        return ListGroupsResponse()
    groups = [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state,
            group_type=CLASSIC,
        )
        for group in await call.services.groups.list_groups(request.states_filter)
    ]
    return ListGroupsResponse(groups=groups)


API = Api(
    key=ApiKey.LIST_GROUPS,
    versions=(0, 5),
    request=ListGroupsRequest,
    response=ListGroupsResponse,
    handle=handle,
)
