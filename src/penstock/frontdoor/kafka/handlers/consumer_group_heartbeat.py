"""ConsumerGroupHeartbeat, versions 0 and 1: a member joins, lives, gives up and gets partitions,
and leaves a group whose partitions the broker assigns (KIP-848).

From version 1 on members choose their ids, and may subscribe with a regular expression.

Differences from Kafka:
- A group that moves from the classic protocol or back to it (`group.consumer.migration.policy`)
  never gives a partition to two members or leaves one to none, where Kafka could:
  `groups/conversions.py` and `groups/classic_decisions.py` say how.
- The topics of a new regular expression are looked up by the group's next heartbeat, and not beside
  the first one. Both brokers answer the first one without them. One that matches no topic also
  starts a new epoch of the group.
- A member that is an epoch behind, because an answer got lost, gets its assignment again. On
  Kafka it gets it only if it sends a full request, as Java's client does then: another one would go
  on with an older assignment.
- Partitions are assigned as soon as something has changed; Kafka may wait in between
  (`group.consumer.assignment.interval.ms`).
"""

from collections.abc import Iterable
from uuid import UUID

from penstock.broker.groups import ConsumerAnswer, ConsumerHeartbeat
from penstock.broker.later import Later, Task
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.consumer_group_heartbeat import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_NOW_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)

OWN_MEMBER_ID_FROM = 1
NOT_SAID = -1


def handle(
    call: Call, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Later[ConsumerGroupHeartbeatResponse]:
    try:
        _check(call, request)
        answer = call.services.groups.consumer_heartbeat(_command(call, request))
    except Refused as refused:
        return _refused(refused)
    return _response(answer.answer) if answer.is_settled else Task(_awaited(answer))


async def _awaited(answer: Later[ConsumerAnswer]) -> ConsumerGroupHeartbeatResponse:
    try:
        return _response(await answer)
    except Refused as refused:
        return _refused(refused)


def _refused(refused: Refused) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=error_code(refused), error_message=refused.detail
    )


def _check(call: Call, request: ConsumerGroupHeartbeatRequest) -> None:
    epoch = request.member_epoch
    knows_id = call.version >= OWN_MEMBER_ID_FROM or epoch > 0 or epoch == LEAVE_EPOCH
    _require(not knows_id or request.member_id.strip(), "the member has no id")
    _require(request.group_id.strip(), "the group has no id")
    _require(_is_named(request.instance_id), "the instance id is empty")
    _require(_is_named(request.rack_id), "the rack is empty")
    if epoch == JOIN_EPOCH:
        has_timeout = request.rebalance_timeout_ms != NOT_SAID
        _require(has_timeout, "a member that joins has to give its rebalance timeout")
        owns_nothing = request.topic_partitions is not None and not request.topic_partitions
        _require(owns_nothing, "a member that joins has to say that it owns no partition")
        names, expression = request.subscribed_topic_names, request.subscribed_topic_regex
        subscribes = names is not None or expression is not None
        _require(subscribes, "a member that joins has to subscribe to topics")
    elif epoch == LEAVE_FOR_NOW_EPOCH:
        is_static = request.instance_id is not None
        _require(is_static, "only a member with an instance id can leave for a while")
    else:
        _require(epoch >= LEAVE_EPOCH, f"there is no member epoch {epoch}")


def _require(is_met: object, detail: str) -> None:
    if not is_met:
        raise Refused(Reason.INVALID_REQUEST, detail)


def _is_named(text: str | None) -> bool:
    return text is None or bool(text.strip())


def _command(call: Call, request: ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat:
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    return ConsumerHeartbeat(
        group_id=GroupId(request.group_id),
        member_id=MemberId(request.member_id),
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=None if timeout_ms == NOT_SAID else timeout_ms,
        client_id=call.client_id or "",
        # Kafka's tools print hosts with a slash, as Java prints addresses.
        client_host=f"/{call.connection.peer_host}",
        topics=None if names is None else frozenset(names),
        expression=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None if request.topic_partitions is None else _owned(request.topic_partitions),
    )


def _owned(topics: Iterable[HeartbeatTopicPartitions]) -> dict[UUID, frozenset[int]]:
    owned: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        owned[topic.topic_id] = owned.get(topic.topic_id, frozenset()).union(topic.partitions)
    return owned


def _response(answer: ConsumerAnswer) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if answer.assignment is not None:
        topics = [
            HeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in answer.assignment.items()
        ]
        assignment = HeartbeatAssignment(topic_partitions=topics)
    return ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )


API = Api(
    key=ApiKey.CONSUMER_GROUP_HEARTBEAT,
    versions=(0, 1),
    request=ConsumerGroupHeartbeatRequest,
    response=ConsumerGroupHeartbeatResponse,
    handle=handle,
)
