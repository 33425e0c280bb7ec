"""Heartbeat, versions 0 to 4: a member is alive, and learns whether its group rebalances.

While the group is being loaded, the answer is not an error, as in Kafka: no session runs then.
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.model.errors import Refused
from penstock.model.ids import GroupId, MemberId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        call.services.groups.heartbeat(
            GroupId(request.group_id),
            MemberId(request.member_id),
            request.group_instance_id,
            request.generation_id,
        )
    except Refused as refused:
        return HeartbeatResponse(error_code=error_code(refused))
    return HeartbeatResponse()


API = Api(
    key=ApiKey.HEARTBEAT,
    versions=(0, 4),
    request=HeartbeatRequest,
    response=HeartbeatResponse,
    handle=handle,
)
