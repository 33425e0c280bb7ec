"""JoinGroup, versions 0 to 9: a consumer joins its group and waits for the generation to start.

From version 4 on a new member is sent away with its id first (KIP-394); from 5 on members may be
static (KIP-345); from 9 on a static leader can be asked to keep the assignment (KIP-814).
Version 0 has one timeout for the session and for the rebalance.
"""

from penstock.broker.groups import Join, JoinAnswer, MemberProtocol
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.outcomes import outcome_code
from penstock.model.ids import GroupId, MemberId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

REBALANCE_TIMEOUT_FROM = 1
MEMBER_ID_REQUIRED_FROM = 4
NULLABLE_PROTOCOL_FROM = 7
SKIP_ASSIGNMENT_FROM = 9
# Reasons are for logs; Kafka cuts them here as well.
REASON_LENGTH_MAX = 255


async def handle(call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
    return _response(call, await call.services.groups.join(_command(call, request)))


def _command(call: Call, request: JoinGroupRequest) -> Join:
    # The first of several protocols of one name counts.
    protocols = {protocol.name: protocol.metadata for protocol in reversed(request.protocols)}
    names = dict.fromkeys(protocol.name for protocol in request.protocols)
    has_rebalance_timeout = call.version >= REBALANCE_TIMEOUT_FROM
    return Join(
        group_id=GroupId(request.group_id),
        member_id=MemberId(request.member_id),
        instance_id=request.group_instance_id,
        client_id=call.client_id or "",
        # Kafka's tools print hosts with a slash, as Java prints addresses.
        client_host=f"/{call.connection.peer_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=(
            request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms
        ),
        protocol_type=request.protocol_type,
        protocols=tuple(MemberProtocol(name, protocols[name]) for name in names),
        reason=(request.reason or "not provided")[:REASON_LENGTH_MAX],
        takes_member_id=call.version >= MEMBER_ID_REQUIRED_FROM,
        can_skip_assignment=call.version >= SKIP_ASSIGNMENT_FROM,
    )


def _response(call: Call, answer: JoinAnswer) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=outcome_code(answer.refused),
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=_protocol_name(call, answer.protocol),
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in answer.members
        ],
    )


def _protocol_name(call: Call, protocol: str | None) -> str | None:
    return "" if protocol is None and call.version < NULLABLE_PROTOCOL_FROM else protocol


API = Api(
    key=ApiKey.JOIN_GROUP,
    versions=(0, 9),
    request=JoinGroupRequest,
    response=JoinGroupResponse,
    handle=handle,
    # A join may wait for minutes. The client then looks for its coordinator and joins there.
    drain_code=ErrorCode.NOT_COORDINATOR,
)
