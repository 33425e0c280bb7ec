"""Proves what a client reads when all of its request is refused, by what the schemas say."""

from typing import Any
from uuid import UUID

import pytest

from penstock.frontdoor.kafka.refusals import refusal
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.catalogue import EXCHANGES
from penstock.protocol.kafka.codec import decode, encode
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from penstock.protocol.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.kafka.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from penstock.protocol.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.kafka.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.kafka.messages.join_group import JoinGroupRequest
from penstock.protocol.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from penstock.protocol.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

CODE = ErrorCode.COORDINATOR_NOT_AVAILABLE


def refused(key: ApiKey, version: int, request: Any) -> Any:
    """Over the wire in both directions."""
    exchange = EXCHANGES[key]
    received = decode(exchange.request, version, encode(request, version))
    response = refusal(exchange.response, received, version, CODE)
    return decode(exchange.response, version, encode(response, version))


def test_one_code_is_enough_where_the_response_has_a_place_for_it() -> None:
    joined = refused(ApiKey.JOIN_GROUP, 7, JoinGroupRequest(group_id="g", member_id="m"))
    assert (joined.error_code, joined.member_id, joined.members) == (CODE, "m", [])
    assert (joined.generation_id, joined.protocol_name) == (-1, None)
    request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition()])])
    fetched = refused(ApiKey.FETCH, 7, request)
    assert (fetched.error_code, fetched.responses) == (CODE, [])


def test_otherwise_everything_that_was_named_gets_it() -> None:
    data = [PartitionProduceData(index=index, records=b"") for index in (3, 5)]
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    (topic,) = refused(ApiKey.PRODUCE, 9, request).responses
    assert topic.name == "t"
    found = [(each.index, each.error_code, each.base_offset) for each in topic.partition_responses]
    assert found == [(3, CODE, -1), (5, CODE, -1)]


def test_what_is_named_otherwise_in_the_response_is_found() -> None:
    partition = FetchPartition(partition=4, fetch_offset=9, log_start_offset=8)
    request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[partition])])
    (topic,) = refused(ApiKey.FETCH, 5, request).responses
    (answer,) = topic.partitions
    assert (topic.topic, answer.partition_index, answer.error_code) == ("t", 4, CODE)
    assert (answer.high_watermark, answer.log_start_offset, answer.records) == (-1, -1, b"")


def test_plain_names_and_numbers_are_found_too() -> None:
    coordinators = FindCoordinatorRequest(coordinator_keys=["a", "b"])
    found = refused(ApiKey.FIND_COORDINATOR, 4, coordinators).coordinators
    assert [(each.key, each.error_code, each.node_id) for each in found] == [
        ("a", CODE, -1),
        ("b", CODE, -1),
    ]
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[2])]
    (topic,) = refused(
        ApiKey.OFFSET_FETCH, 1, OffsetFetchRequest(group_id="g", topics=topics)
    ).topics
    (answer,) = topic.partitions
    assert (answer.partition_index, answer.error_code) == (2, CODE)
    assert (answer.committed_offset, answer.metadata) == (-1, "")


def test_the_place_of_the_code_follows_the_version() -> None:
    request = OffsetFetchRequest(group_id="g", groups=[OffsetFetchRequestGroup(group_id="g")])
    assert refused(ApiKey.OFFSET_FETCH, 2, request).error_code == CODE
    (group,) = refused(ApiKey.OFFSET_FETCH, 8, request).groups
    assert (group.group_id, group.error_code) == ("g", CODE)
    by_name = DeleteTopicsRequest(topic_names=["a"])
    assert refused(ApiKey.DELETE_TOPICS, 5, by_name).responses[0].name == "a"
    by_id = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=UUID(int=4))])
    (deleted,) = refused(ApiKey.DELETE_TOPICS, 6, by_id).responses
    assert (deleted.name, deleted.topic_id, deleted.error_code) == (None, UUID(int=4), CODE)


def test_resources_are_named_by_two_fields() -> None:
    asked = AlterConfigsResource(resource_type=2, resource_name="t")
    (answer,) = refused(ApiKey.ALTER_CONFIGS, 2, AlterConfigsRequest(resources=[asked])).responses
    assert (answer.resource_type, answer.resource_name, answer.error_code) == (2, "t", CODE)


def test_an_array_of_other_things_stays_empty() -> None:
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="t", partitions=[0])])
    assert refused(ApiKey.DESCRIBE_LOG_DIRS, 1, request).results == []


@pytest.mark.parametrize("key", EXCHANGES)
def test_a_client_that_has_to_start_over_loses_its_connection(key: ApiKey) -> None:
    exchange = EXCHANGES[key]
    version = exchange.response.__schema__.versions[1]
    code = ErrorCode.REBOOTSTRAP_REQUIRED
    assert refusal(exchange.response, exchange.request(), version, code) is None
