"""CreateTopics, versions 0 to 7: makes topics, all of a request in one commit.

Partitions and replication factor may be left to the broker's defaults (-1), or follow from a
manual assignment. From version 5 on the answer has the new topic's settings, from 7 on its id.

Without time (`timeout_ms` of 0 or less) nothing is made: REQUEST_TIMED_OUT. Topics that are being
made will be made whatever the time, which only ends the wait until they can be used.

Deviations: the broker's own topics can't be made by clients; two names of one request that differ
only in '.' and '_' collide.
"""

from collections import Counter
from collections.abc import Mapping

from penstock.broker.topics import NewTopic, Outcome, Topic
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.frontdoor.kafka.time_limits import time_to_wait
from penstock.model.errors import Reason, Refused
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_FIRST_VERSION_WITH_CONFIGS = 5


async def handle(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    wait_s = time_to_wait(request.timeout_ms)
    refusals = _repeated_settings(request)
    wanted = [_new_topic(topic) for topic in request.topics if topic.name not in refusals]
    try:
        outcomes: Mapping[str, Outcome] = await call.services.topics.create(
            wanted, validate_only=request.validate_only, wait_s=wait_s
        )
    except Refused as refused:
        outcomes = {new.name: refused for new in wanted}
    return CreateTopicsResponse(
        topics=[
            _result(call, name, outcome, request.validate_only)
            for name, outcome in {**outcomes, **refusals}.items()
        ]
    )


def _repeated_settings(request: CreateTopicsRequest) -> dict[str, Outcome]:
    """Topics that give a setting twice: which of the values is meant can't be known."""
    refusals: dict[str, Outcome] = {}
    for topic in request.topics:
        for name, times in Counter(config.name for config in topic.configs).items():
            if times > 1:
                detail = f"Configuration {name} is given more than once."
                refusals[topic.name] = Refused(Reason.INVALID_REQUEST, detail)
    return refusals


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(each.partition_index, each.broker_ids) for each in topic.assignments],
        configs={config.name: config.value for config in topic.configs},
    )


def _result(call: Call, name: str, outcome: Outcome, validate_only: bool) -> CreatableTopicResult:
    if isinstance(outcome, Refused):
        code = error_code(outcome)
        return CreatableTopicResult(name=name, error_code=code, error_message=outcome.detail)
    result = CreatableTopicResult(
        name=name,
        error_code=0,
        error_message=None,
        num_partitions=outcome.partitions,
        replication_factor=len(outcome.assignments[0].replicas),
    )
    if not validate_only:
        result.topic_id = outcome.topic_id
    if call.version >= _FIRST_VERSION_WITH_CONFIGS:
        result.configs = _configs(call, outcome)
    return result


def _configs(call: Call, topic: Topic) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=False,
        )
        for entry in call.services.configs.describe_new_topic(topic.configs)
    ]


API = Api(
    key=ApiKey.CREATE_TOPICS,
    versions=(0, 7),
    request=CreateTopicsRequest,
    response=CreateTopicsResponse,
    handle=handle,
)
