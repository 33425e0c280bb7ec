"""SyncGroup, versions 0 to 5: the leader hands in the assignments, each member gets its own.

Answered only after the generation with its assignments is durable.
"""

from penstock.broker.groups import Sync
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.outcomes import outcome_code
from penstock.model.ids import GroupId, MemberId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse

# From here on a member must name the protocol and its type (KIP-559).
PROTOCOL_FROM = 5


async def handle(call: Call, request: SyncGroupRequest) -> SyncGroupResponse:
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if call.version >= PROTOCOL_FROM and not names_protocol:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    command = Sync(
        group_id=GroupId(request.group_id),
        member_id=MemberId(request.member_id),
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={item.member_id: item.assignment for item in request.assignments},
    )
    answer = await call.services.groups.sync(command)
    return SyncGroupResponse(
        error_code=outcome_code(answer.refused),
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )


API = Api(
    key=ApiKey.SYNC_GROUP,
    versions=(0, 5),
    request=SyncGroupRequest,
    response=SyncGroupResponse,
    handle=handle,
    # The client then looks for its coordinator and joins again there.
    drain_code=ErrorCode.NOT_COORDINATOR,
)
