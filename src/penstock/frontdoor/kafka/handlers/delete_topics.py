"""DeleteTopics, versions 0 to 6: by name, from version 6 on by name or id, all in one commit.

A topic is gone for everyone when the answer is sent; its files are removed in the background.

Without time (`timeout_ms` of 0 or less) nothing is deleted: REQUEST_TIMED_OUT.

Deviations: the broker's own topics can't be deleted; answers keep the order of the request, where
Kafka shuffles them.
"""

from collections import Counter
from typing import NamedTuple
from uuid import UUID

from penstock.broker.topics import Outcome, Topic
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.frontdoor.kafka.time_limits import time_to_wait
from penstock.model.errors import Reason, Refused
from penstock.model.ids import TopicId, TopicName
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

NO_ID = UUID(int=0)
_FIRST_VERSION_WITH_TOPICS = 6
_FIRST_VERSION_WITH_DISABLED = 3


class _Choice(NamedTuple):
    name: str | None
    topic_id: UUID


async def handle(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    wait_s = time_to_wait(request.timeout_ms)
    choices = _choices(call, request)
    times = Counter(choices)
    outcomes: dict[_Choice, Outcome] = {}
    good: list[_Choice] = []
    for choice in times:
        fault = _fault_of(choice, times[choice])
        if fault is None:
            good.append(choice)
        else:
            outcomes[choice] = Refused(Reason.INVALID_REQUEST, fault)
    outcomes.update(zip(good, await _delete(call, good, wait_s), strict=True))
    return DeleteTopicsResponse(responses=[_result(choice, outcomes[choice]) for choice in times])


def _choices(call: Call, request: DeleteTopicsRequest) -> list[_Choice]:
    if call.version < _FIRST_VERSION_WITH_TOPICS:
        return [_Choice(name, NO_ID) for name in request.topic_names]
    return [_Choice(topic.name, topic.topic_id) for topic in request.topics]


def _fault_of(choice: _Choice, times: int) -> str | None:
    if choice.name is None and choice.topic_id == NO_ID:
        return "Neither topic name nor id were specified."
    if choice.name is not None and choice.topic_id != NO_ID:
        return "You may not specify both topic name and topic id."
    if times > 1:
        return "Duplicate topic name." if choice.name is not None else "Duplicate topic id."
    return None


async def _delete(call: Call, choices: list[_Choice], wait_s: float) -> list[Outcome]:
    chosen = [
        TopicId(choice.topic_id) if choice.name is None else TopicName(choice.name)
        for choice in choices
    ]
    try:
        return await call.services.topics.delete(chosen, wait_s=wait_s)
    except Refused as refused:
        too_old = call.version < _FIRST_VERSION_WITH_DISABLED
        if refused.reason == Reason.TOPIC_DELETION_DISABLED and too_old:
            refused = Refused(Reason.INVALID_REQUEST, refused.detail)
        return [refused] * len(chosen)


def _result(choice: _Choice, outcome: Outcome) -> DeletableTopicResult:
    if isinstance(outcome, Topic):
        return DeletableTopicResult(name=outcome.name, topic_id=outcome.topic_id, error_code=0)
    return DeletableTopicResult(
        name=choice.name,
        topic_id=choice.topic_id,
        error_code=error_code(outcome),
        error_message=outcome.detail,
    )


API = Api(
    key=ApiKey.DELETE_TOPICS,
    versions=(0, 6),
    request=DeleteTopicsRequest,
    response=DeleteTopicsResponse,
    handle=handle,
)
