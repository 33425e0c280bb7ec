"""DeleteGroups, versions 0 to 2: forgets groups without members, and their committed offsets."""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.outcomes import outcome_code
from penstock.model.ids import GroupId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    group_ids = [GroupId(name) for name in request.groups_names]
    outcomes = await call.services.groups.delete(group_ids)
    results = [
        DeletableGroupResult(
            group_id=group_id,
            error_code=outcome_code(outcome),
        )
        for group_id, outcome in zip(group_ids, outcomes, strict=True)
    ]
    return DeleteGroupsResponse(results=results)


API = Api(
    key=ApiKey.DELETE_GROUPS,
    versions=(0, 2),
    request=DeleteGroupsRequest,
    response=DeleteGroupsResponse,
    handle=handle,
)
