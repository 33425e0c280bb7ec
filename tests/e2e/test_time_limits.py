"""Proves what the time-out of an administrative request ends, beside Apache Kafka.

A request that leaves no time changes nothing. One that was begun is carried out, however short
its time is.
"""

from typing import Any

import pytest

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.protocol.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.kafka.messages.delete_topics import DeleteTopicsRequest
from penstock.protocol.kafka.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from penstock.protocol.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.protocol.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from penstock.protocol.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.e2e.beside_kafka import Brokers, on_both, say
from tests.waiting import wait_until

pytestmark = [pytest.mark.xdist_group("apache-kafka"), pytest.mark.timeout(180)]

NONE, TIMED_OUT = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT
NO_TIME = (-1, 0)
ENOUGH_MS = 30_000
# How often something is asked again that a busy machine had no time for.
TRIES_MAX = 20
EARLIEST = -2
PREFERRED, UNCLEAN = 0, 1
HEARD_TIMEOUT_S = 30.0


def partitions_of(bootstrap: str, topic: str) -> int:
    """0 if there is no such topic."""
    asked = [MetadataRequestTopic(name=topic)]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    return len(say(bootstrap, ApiKey.METADATA, 9, request).topics[0].partitions)


def soon_has(bootstrap: str, topic: str, partitions: int) -> int:
    """A broker of Kafka may hear of a change after it was answered."""
    wait_until(
        f"{partitions} partitions",
        lambda: partitions_of(bootstrap, topic) == partitions,
        HEARD_TIMEOUT_S,
    )
    return partitions


def start_of(bootstrap: str, topic: str) -> int:
    place = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    asked = ListOffsetsTopic(name=topic, partitions=[place])
    request = ListOffsetsRequest(replica_id=-1, topics=[asked])
    answer = say(bootstrap, ApiKey.LIST_OFFSETS, 7, request)
    offset: int = answer.topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize("timeout_ms", [*NO_TIME, 1, ENOUGH_MS])
def test_records_are_deleted_whatever_the_time(brokers: Brokers, timeout_ms: int) -> None:
    def converse(bootstrap: str, topic: str) -> Any:
        place = DeleteRecordsPartition(partition_index=0, offset=3)
        asked = DeleteRecordsTopic(name=topic, partitions=[place])
        request = DeleteRecordsRequest(topics=[asked], timeout_ms=timeout_ms)
        answer = say(bootstrap, ApiKey.DELETE_RECORDS, 2, request)
        (result,) = answer.topics[0].partitions
        return result.error_code, result.low_watermark, start_of(bootstrap, topic)

    assert on_both(brokers, converse) == (NONE, 3, 3)


@pytest.mark.parametrize("timeout_ms", [*NO_TIME, ENOUGH_MS])
@pytest.mark.parametrize("validate_only", [False, True])
def test_topics_are_made_if_there_is_time(
    brokers: Brokers, timeout_ms: int, validate_only: bool
) -> None:
    def converse(bootstrap: str, topic: str) -> Any:
        name = f"{topic}-new"
        asked = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
        request = CreateTopicsRequest(
            topics=[asked], timeout_ms=timeout_ms, validate_only=validate_only
        )
        (result,) = say(bootstrap, ApiKey.CREATE_TOPICS, 5, request).topics
        is_made = result.error_code == NONE and not validate_only
        return result.error_code, soon_has(bootstrap, name, 2 if is_made else 0)

    has_time = timeout_ms > 0
    made = 2 if has_time and not validate_only else 0
    assert on_both(brokers, converse) == (NONE if has_time else TIMED_OUT, made)


@pytest.mark.parametrize("timeout_ms", [*NO_TIME, ENOUGH_MS])
@pytest.mark.parametrize("validate_only", [False, True])
def test_partitions_are_made_if_there_is_time(
    brokers: Brokers, timeout_ms: int, validate_only: bool
) -> None:
    def converse(bootstrap: str, topic: str) -> Any:
        asked = CreatePartitionsTopic(name=topic, count=3, assignments=None)
        request = CreatePartitionsRequest(
            topics=[asked], timeout_ms=timeout_ms, validate_only=validate_only
        )
        (result,) = say(bootstrap, ApiKey.CREATE_PARTITIONS, 3, request).results
        is_made = result.error_code == NONE and not validate_only
        return result.error_code, soon_has(bootstrap, topic, 3 if is_made else 1)

    has_time = timeout_ms > 0
    made = 3 if has_time and not validate_only else 1
    assert on_both(brokers, converse) == (NONE if has_time else TIMED_OUT, made)


@pytest.mark.parametrize("timeout_ms", [*NO_TIME, ENOUGH_MS])
def test_topics_are_deleted_if_there_is_time(brokers: Brokers, timeout_ms: int) -> None:
    def converse(bootstrap: str, topic: str) -> Any:
        request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=timeout_ms)
        (result,) = say(bootstrap, ApiKey.DELETE_TOPICS, 5, request).responses
        left = 0 if result.error_code == NONE else 1
        return result.error_code, soon_has(bootstrap, topic, left)

    outcome = (NONE, 0) if timeout_ms > 0 else (TIMED_OUT, 1)
    assert on_both(brokers, converse) == outcome


def codes_of(answer: Any) -> set[int]:
    results = answer.replica_election_results
    return {answer.error_code, *(each.error_code for r in results for each in r.partition_result)}


@pytest.mark.parametrize("timeout_ms", [*NO_TIME, 1, ENOUGH_MS])
@pytest.mark.parametrize("election", [PREFERRED, UNCLEAN])
def test_elections_need_time_and_a_reason(brokers: Brokers, timeout_ms: int, election: int) -> None:
    def converse(bootstrap: str, topic: str) -> Any:
        def elect(wanted: list[TopicPartitions] | None) -> Any:
            request = ElectLeadersRequest(
                election_type=election, timeout_ms=timeout_ms, topic_partitions=wanted
            )
            answer = say(bootstrap, ApiKey.ELECT_LEADERS, 2, request)
            # On a busy machine a millisecond may be over before anybody has looked.
            tries = TRIES_MAX if timeout_ms > 0 else 0
            while tries and TIMED_OUT in codes_of(answer):
                answer, tries = say(bootstrap, ApiKey.ELECT_LEADERS, 2, request), tries - 1
            return answer

        asked = [
            TopicPartitions(topic=topic, partitions=[0, 9]),
            TopicPartitions(topic="no", partitions=[0]),
        ]
        some, everything = elect(asked), elect(None)
        codes = {
            (topic == result.topic, each.partition_id): each.error_code
            for result in some.replica_election_results
            for each in result.partition_result
        }
        topics = {each.topic: each.partition_result for each in everything.replica_election_results}
        return some.error_code, codes, everything.error_code, topics.get(topic)

    code, codes, all_code, of_topic = on_both(brokers, converse, in_turn=True)
    if timeout_ms <= 0:
        assert (code, all_code, of_topic) == (TIMED_OUT, TIMED_OUT, None)
        assert set(codes.values()) == {TIMED_OUT}
    else:
        assert (code, all_code, of_topic) == (NONE, NONE, [])
        assert codes[True, 0] == ErrorCode.ELECTION_NOT_NEEDED


@pytest.mark.parametrize("timeout_ms", [*NO_TIME, ENOUGH_MS])
def test_moves_need_time(brokers: Brokers, timeout_ms: int) -> None:
    def converse(bootstrap: str, topic: str) -> Any:
        place = ReassignablePartition(partition_index=0, replicas=[777])
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=timeout_ms, topics=[ReassignableTopic(name=topic, partitions=[place])]
        )
        answer = say(bootstrap, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request)
        codes = [
            (each.partition_index, each.error_code)
            for topic in answer.responses
            for each in topic.partitions
        ]
        listing = ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=None)
        listed = say(bootstrap, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, listing)
        return answer.error_code, codes, listed.error_code, listed.topics

    code, codes, *_ = on_both(brokers, converse)
    if timeout_ms <= 0:
        assert (code, codes) == (TIMED_OUT, [(0, TIMED_OUT)])
    else:
        assert (code, codes) == (NONE, [(0, ErrorCode.INVALID_REPLICA_ASSIGNMENT)])
