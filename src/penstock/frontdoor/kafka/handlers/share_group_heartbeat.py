"""ShareGroupHeartbeat, version 1: a member joins, lives and leaves a share group (KIP-932).

A partition is in the answer only after the state of its queue is durable. The answer to a member
that joins, or reads other topics, waits up to two seconds for that.

Differences from Kafka:
- Kafka answers a join at once, and brings partitions whose queues had to be made with the next
  heartbeat, five seconds later by default.
- What is leased to a member that leaves, or whose session is over, goes back at once, wherever its
  queues are led. On Kafka such a lease ends with the member's connections, or when its time is up.
- A member that is an epoch behind, because an answer got lost, gets its assignment again. On
  Kafka it gets it only if it sends a full request, as Java's client does then: another one would go
  on with an older assignment.
- Partitions are assigned as soon as something has changed; Kafka may wait in between
  (`group.share.assignment.interval.ms`).
- Partitions that a known topic gets later are read from their beginning, whatever
  `share.auto.offset.reset` says.
- A topic of which a member has no partition any more is not in its assignment; Kafka may list it
  without partitions.
"""

from penstock.broker.groups import ShareAnswer, ShareHeartbeat
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.share_group_heartbeat import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareHeartbeatAssignment,
    ShareHeartbeatTopicPartitions,
)


async def handle(call: Call, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    try:
        _check(request)
        answer = await call.services.groups.share_heartbeat(_command(call, request))
    except Refused as refused:
        return ShareGroupHeartbeatResponse(
            error_code=error_code(refused), error_message=refused.detail
        )
    return _response(answer)


def _check(request: ShareGroupHeartbeatRequest) -> None:
    _require(request.member_id.strip(), "the member has no id")
    _require(request.group_id.strip(), "the group has no id")
    _require(request.rack_id is None or request.rack_id.strip(), "the rack is empty")
    if request.member_epoch == JOIN_EPOCH:
        names = request.subscribed_topic_names
        _require(names, "a member that joins has to subscribe to topics")
    _require(
        request.member_epoch >= LEAVE_EPOCH, f"there is no member epoch {request.member_epoch}"
    )


def _require(is_met: object, detail: str) -> None:
    if not is_met:
        raise Refused(Reason.INVALID_REQUEST, detail)


def _command(call: Call, request: ShareGroupHeartbeatRequest) -> ShareHeartbeat:
    names = request.subscribed_topic_names
    return ShareHeartbeat(
        group_id=GroupId(request.group_id),
        member_id=MemberId(request.member_id),
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        client_id=call.client_id or "",
        # Kafka's tools print hosts with a slash, as Java prints addresses.
        client_host=f"/{call.connection.peer_host}",
        topics=None if names is None else frozenset(names),
    )


def _response(answer: ShareAnswer) -> ShareGroupHeartbeatResponse:
    assignment = None
    if answer.assignment is not None:
        topics = [
            ShareHeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in answer.assignment.items()
        ]
        assignment = ShareHeartbeatAssignment(topic_partitions=topics)
    return ShareGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )


API = Api(
    key=ApiKey.SHARE_GROUP_HEARTBEAT,
    versions=(1, 1),
    request=ShareGroupHeartbeatRequest,
    response=ShareGroupHeartbeatResponse,
    handle=handle,
)
