"""AlterPartitionReassignments, versions 0 and 1: move replicas of partitions to other brokers.

Answered when the move is decided; ListPartitionReassignments shows when it is over. No replicas
(null) takes a move back. Version 1 may forbid that a partition gets more or fewer replicas. Without
time (`timeout_ms` of 0 or less) no move begins: REQUEST_TIMED_OUT.
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.frontdoor.kafka.time_limits import time_to_wait
from penstock.model.errors import Reason, Refused
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def handle(
    call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    deadline = call.services.clock.monotonic() + time_to_wait(request.timeout_ms)
    _check_once(request)
    can_change = request.allow_replication_factor_change
    topics = []
    for topic in request.topics:
        # One after the other: each is a change of the same metadata.
        results = [
            await _reassign(call, topic.name, partition, can_change, deadline)
            for partition in topic.partitions
        ]
        topics.append(ReassignableTopicResponse(name=topic.name, partitions=results))
    return AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=can_change, responses=topics
    )


def _check_once(request: AlterPartitionReassignmentsRequest) -> None:
    named = [
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    if len(set(named)) < len(named):
        raise Refused(Reason.INVALID_REQUEST, "a partition is named twice")


async def _reassign(
    call: Call, topic: str, asked: ReassignablePartition, can_change: bool, deadline: float
) -> ReassignablePartitionResponse:
    index = asked.partition_index
    wait_s = deadline - call.services.clock.monotonic()
    try:
        await call.services.reassignments.reassign(
            topic, index, asked.replicas, can_change_factor=can_change, wait_s=wait_s
        )
    except Refused as refused:
        return _result(index, error_code(refused), refused.detail)
    return _result(index, ErrorCode.NONE, None)


def _result(index: int, code: ErrorCode, message: str | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=index, error_code=code, error_message=message
    )


def refuse(
    call: Call, request: AlterPartitionReassignmentsRequest, code: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=None,
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_result(each.partition_index, code, None) for each in topic.partitions],
            )
            for topic in request.topics
        ],
    )


API = Api(
    key=ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    versions=(0, 1),
    request=AlterPartitionReassignmentsRequest,
    response=AlterPartitionReassignmentsResponse,
    handle=handle,
    refuse=refuse,
)
