"""LeaveGroup, versions 0 to 5: members go, or an operator removes static ones by instance id.

Up to version 2 one member leaves and its error is the response's; from 3 on several can leave and
each has its own error.
"""

from penstock.broker.groups import Departure
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.outcomes import outcome_code
from penstock.model.ids import GroupId, MemberId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)

BATCHED_FROM = 3
REASON_LENGTH_MAX = 255


async def handle(call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    departures = _departures(call, request)
    outcomes = await call.services.groups.leave(GroupId(request.group_id), departures)
    if call.version < BATCHED_FROM:
        return LeaveGroupResponse(error_code=outcome_code(outcomes[0]))
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=departure.member_id,
                group_instance_id=departure.instance_id,
                error_code=outcome_code(outcome),
            )
            for departure, outcome in zip(departures, outcomes, strict=True)
        ]
    )


def _departures(call: Call, request: LeaveGroupRequest) -> list[Departure]:
    if call.version < BATCHED_FROM:
        return [Departure(MemberId(request.member_id))]
    return [
        Departure(
            MemberId(member.member_id),
            member.group_instance_id,
            (member.reason or "not provided")[:REASON_LENGTH_MAX],
        )
        for member in request.members
    ]


API = Api(
    key=ApiKey.LEAVE_GROUP,
    versions=(0, 5),
    request=LeaveGroupRequest,
    response=LeaveGroupResponse,
    handle=handle,
)
