"""ElectLeaders, versions 0 to 2: give partitions back to their preferred leaders.

- Null asks for all partitions; those that need no election are then left out, their topics not.
- Answered when the preferred replica leads, or when the time is up (REQUEST_TIMED_OUT); the
  election continues. Without time (`timeout_ms` of 0 or less) nothing is started.
- An unclean election (from version 1 on) is not needed where there is a leader.

Deviations: where there is none, an unclean election finds no eligible leader
(ELIGIBLE_LEADERS_NOT_AVAILABLE). A partition elects its leader as soon as a majority is there,
and without one nothing may lead it.
"""

import asyncio
from collections.abc import Iterable

from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.frontdoor.kafka.time_limits import time_to_wait
from penstock.model.errors import Reason, Refused
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PREFERRED, UNCLEAN = 0, 1
# Elections that one request has under way at the same time.
ELECTIONS_MAX = 32


async def handle(call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise Refused(Reason.INVALID_REQUEST, f"no election has the type {request.election_type}")
    timeout_s = time_to_wait(request.timeout_ms)
    wanted = _wanted(call, request)
    is_unclean = request.election_type == UNCLEAN
    room = asyncio.Semaphore(ELECTIONS_MAX)
    pairs = [(topic, index) for topic, indexes in wanted.items() for index in indexes]
    results = await asyncio.gather(
        *(_elect(call, topic, index, timeout_s, is_unclean, room) for topic, index in pairs)
    )
    by_topic: dict[str, list[PartitionResult]] = {topic: [] for topic in wanted}
    for (topic, _), result in zip(pairs, results, strict=True):
        is_wanted = request.topic_partitions is not None
        if is_wanted or result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
            by_topic[topic].append(result)
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=results)
            for topic, results in by_topic.items()
        ]
    )


def _wanted(call: Call, request: ElectLeadersRequest) -> dict[str, Iterable[int]]:
    if request.topic_partitions is None:
        topics = call.services.topics.all()
        return {topic.name: range(topic.partitions) for topic in topics}
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topic_partitions:
        wanted.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
    return dict(wanted)


async def _elect(
    call: Call,
    topic: str,
    index: int,
    timeout_s: float,
    is_unclean: bool,
    room: asyncio.Semaphore,
) -> PartitionResult:
    try:
        async with room:
            await call.services.reassignments.elect(topic, index, timeout_s, is_unclean=is_unclean)
    except Refused as refused:
        return _result(index, error_code(refused), refused.detail)
    return _result(index, ErrorCode.NONE, None)


def _result(index: int, code: ErrorCode, message: str | None) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=code, error_message=message)


def refuse(call: Call, request: ElectLeadersRequest, code: ErrorCode) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[_result(index, code, None) for index in topic.partitions],
            )
            for topic in request.topic_partitions or ()
        ],
    )


API = Api(
    key=ApiKey.ELECT_LEADERS,
    versions=(0, 2),
    request=ElectLeadersRequest,
    response=ElectLeadersResponse,
    handle=handle,
    refuse=refuse,
)
