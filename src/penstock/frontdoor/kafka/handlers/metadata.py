"""Metadata, versions 0 to 13: the brokers, and topics with the places of their partitions.

All topics (null, or in version 0 an empty list), topics by name, and from version 12 on by id.
A missing topic is made when both the client and `auto.create.topics.enable` permit it, and the
answer waits until its partitions are in use, where Kafka answers with an error first and lets the
client ask again. The broker's own topics are never made this way.

A broker that can't be reached is listed for half a minute more, and a partition whose leader is not
known or gone has none (LEADER_NOT_AVAILABLE); the answer about one that lost it just now waits for
the election, within a bound. Every broker answers from its own copy of the metadata; one that has
lost its cluster sends clients away (REBOOTSTRAP_REQUIRED, before version 13 by ending the
connection), since its copy may be old.

Other deviations: none known.
"""

from collections.abc import Iterable
from uuid import UUID

from penstock.broker.later import Later, Task
from penstock.broker.topics import NewTopic, Outcome, Topic, check_topic_name, is_internal
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.frontdoor.kafka.isolation import check_contact
from penstock.frontdoor.kafka.operations import ALL_ON_CLUSTER, ALL_ON_TOPIC
from penstock.model.errors import Reason, Refused
from penstock.model.ids import PartitionId, PartitionIndex, TopicId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.metadata import (
    OPERATIONS_NOT_REQUESTED,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NO_ID = UUID(int=0)
_FIRST_VERSION_BY_ID = 12
_FIRST_VERSION_WITH_ERROR = 13


def handle(call: Call, request: MetadataRequest) -> MetadataResponse | Later[MetadataResponse]:
    check_contact(call)
    asked = _asked(call, request)
    if asked is None:
        topics = [_described(call, topic) for topic in call.services.topics.all()]
        return _response(call, request, topics)
    missing = _to_make(call, request, asked)
    if missing:
        return Task(_make_and_answer(call, request, asked, missing))
    topics = [_topic(call, topic, {}) for topic in asked]
    leaderless = call.services.leaderships.worth_a_wait(_leaderless(topics), call.now)
    if leaderless:
        return Task(_wait_and_answer(call, request, asked, leaderless))
    return _response(call, request, topics)


def _leaderless(topics: Iterable[MetadataResponseTopic]) -> list[PartitionId]:
    return [
        PartitionId(TopicId(topic.topic_id), PartitionIndex(partition.partition_index))
        for topic in topics
        for partition in topic.partitions
        if partition.leader_id < 0
    ]


async def _wait_and_answer(
    call: Call,
    request: MetadataRequest,
    asked: list[MetadataRequestTopic],
    leaderless: list[PartitionId],
) -> MetadataResponse:
    await call.services.leaderships.wait_for_leaders(leaderless)
    return _response(call, request, [_topic(call, topic, {}) for topic in asked])


async def _make_and_answer(
    call: Call, request: MetadataRequest, asked: list[MetadataRequestTopic], missing: list[NewTopic]
) -> MetadataResponse:
    try:
        outcomes = await call.services.topics.ensure(missing)
    except Refused as refused:
        outcomes = {new.name: refused for new in missing}
    return _response(call, request, [_topic(call, topic, outcomes) for topic in asked])


def _asked(call: Call, request: MetadataRequest) -> list[MetadataRequestTopic] | None:
    """The topics asked for, each once; None for all."""
    if request.topics is None or (call.version == 0 and not request.topics):
        return None
    if call.version < _FIRST_VERSION_BY_ID:
        _check_without_ids(request.topics)
    # One by id is told by its id alone, whatever name stands beside it.
    distinct = {
        topic.name if topic.topic_id == NO_ID else topic.topic_id: topic for topic in request.topics
    }
    return list(distinct.values())


def _check_without_ids(topics: Iterable[MetadataRequestTopic]) -> None:
    for topic in topics:
        if topic.name is None or topic.topic_id != NO_ID:
            detail = f"Topics can be asked for by id from version {_FIRST_VERSION_BY_ID} on."
            raise Refused(Reason.INVALID_REQUEST, detail)


def _to_make(
    call: Call, request: MetadataRequest, asked: list[MetadataRequestTopic]
) -> list[NewTopic]:
    if not (request.allow_auto_topic_creation and call.services.topics.makes_missing):
        return []
    return [
        NewTopic(name=topic.name, configs={})
        for topic in asked
        if topic.topic_id == NO_ID
        and topic.name is not None
        and call.services.topics.find(topic.name) is None
        and not is_internal(topic.name)
    ]


def _topic(
    call: Call, asked: MetadataRequestTopic, outcomes: dict[str, Outcome]
) -> MetadataResponseTopic:
    topics = call.services.topics
    if asked.topic_id != NO_ID:
        by_id = topics.find_by_id(asked.topic_id)
        if by_id is not None:
            return _described(call, by_id)
        code = ErrorCode.UNKNOWN_TOPIC_ID
        return MetadataResponseTopic(error_code=code, name=None, topic_id=asked.topic_id)
    name = asked.name or ""
    by_name = topics.find(name)
    if by_name is not None:
        return _described(call, by_name)
    code = _code_of_missing(name, outcomes.get(name))
    return MetadataResponseTopic(error_code=code, name=name, is_internal=is_internal(name))


def _code_of_missing(name: str, outcome: Outcome | None) -> ErrorCode:
    try:
        check_topic_name(name)
    except Refused as refused:
        return error_code(refused)
    if isinstance(outcome, Refused):
        if outcome.reason == Reason.STORAGE_ERROR:
            # The disk may have room again when the client asks next: this code makes it ask.
            return ErrorCode.LEADER_NOT_AVAILABLE
        return error_code(outcome)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _described(call: Call, topic: Topic) -> MetadataResponseTopic:
    views = call.services.leaderships.describe(topic)
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            MetadataResponsePartition(
                error_code=0 if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=partition,
                leader_id=leader,
                leader_epoch=term,
                replica_nodes=replicas,
                isr_nodes=in_sync,
                offline_replicas=offline,
            )
            for partition, leader, term, replicas, in_sync, offline in views
        ],
    )


def _response(
    call: Call, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    leaderships = call.services.leaderships
    if request.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = ALL_ON_TOPIC
    operations = OPERATIONS_NOT_REQUESTED
    if request.include_cluster_authorized_operations:
        operations = ALL_ON_CLUSTER
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.id, host=broker.kafka.host, port=broker.kafka.port, rack=broker.rack
            )
            for broker in leaderships.brokers(call.now)
        ],
        cluster_id=leaderships.cluster_id,
        controller_id=leaderships.admin_broker(),
        topics=topics,
        cluster_authorized_operations=operations,
    )


def refuse(call: Call, request: MetadataRequest, code: ErrorCode) -> MetadataResponse | None:
    if code is ErrorCode.REBOOTSTRAP_REQUIRED:
        if call.version < _FIRST_VERSION_WITH_ERROR:
            return None
        return MetadataResponse(error_code=code)
    topics = [
        MetadataResponseTopic(
            error_code=code,
            name=topic.name if call.version >= _FIRST_VERSION_BY_ID else topic.name or "",
            topic_id=topic.topic_id,
        )
        for topic in request.topics or ()
    ]
    return _response(call, request, topics)


API = Api(
    key=ApiKey.METADATA,
    versions=(0, 13),
    request=MetadataRequest,
    response=MetadataResponse,
    handle=handle,
    refuse=refuse,
)
