"""CreatePartitions, versions 0 to 3: makes topics larger, one result per topic.

Without time (`timeout_ms` of 0 or less) nothing is made: REQUEST_TIMED_OUT. Partitions that are
being made will be made whatever the time, which only ends the wait until they can be used.

Deviations: the broker's own topics keep their number of partitions, because what they hold is
spread by it.
"""

from collections.abc import Mapping

from penstock.broker.topics import Growth, Outcome
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.frontdoor.kafka.time_limits import time_to_wait
from penstock.model.errors import Refused
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    wait_s = time_to_wait(request.timeout_ms)
    wanted = [_growth(topic) for topic in request.topics]
    try:
        outcomes: Mapping[str, Outcome] = await call.services.topics.grow(
            wanted, validate_only=request.validate_only, wait_s=wait_s
        )
    except Refused as refused:
        outcomes = {growth.name: refused for growth in wanted}
    return CreatePartitionsResponse(
        results=[_result(name, outcome) for name, outcome in outcomes.items()]
    )


def _growth(topic: CreatePartitionsTopic) -> Growth:
    assignments = topic.assignments
    return Growth(
        name=topic.name,
        partitions=topic.count,
        assignments=None if assignments is None else [each.broker_ids for each in assignments],
    )


def _result(name: str, outcome: Outcome) -> CreatePartitionsTopicResult:
    if isinstance(outcome, Refused):
        return CreatePartitionsTopicResult(
            name=name, error_code=error_code(outcome), error_message=outcome.detail
        )
    return CreatePartitionsTopicResult(name=name, error_code=0)


API = Api(
    key=ApiKey.CREATE_PARTITIONS,
    versions=(0, 3),
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
    handle=handle,
)
