"""Proves that requests of one connection see what those before them did, as on Apache Kafka.

Each conversation goes out in one write, again and again, to us and to Apache Kafka itself.
"""

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.kafka.messages.delete_topics import DeleteTopicsRequest
from penstock.protocol.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.protocol.kafka.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.protocol.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.protocol.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.e2e.beside_kafka import Asked, Brokers, ask, from_both, talk
from tests.e2e.conftest import create_topic
from tests.e2e.wire import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    Wire,
    connect,
    fetch_frame,
    produce_frame,
)
from tests.waiting import wait_until

pytestmark = [pytest.mark.xdist_group("apache-kafka"), pytest.mark.timeout(180)]

NONE = ErrorCode.NONE
START_TIMEOUT_S = 60.0
TIMES = 50
EARLIEST, LATEST = -2, -1
TOPIC_RESOURCE = 2
SET = 0
TIMEOUT_MS = 30_000


def same_on_both(
    brokers: Brokers, converse: Callable[[Wire, str, int], Any], times: int = TIMES
) -> list[Any]:
    """What a conversation about a topic comes to each time; on both the same."""

    def outcomes(bootstrap: str) -> list[Any]:
        topic = create_topic(bootstrap)
        with connect(bootstrap) as wire:
            # The leader of a new topic may not serve yet.
            wait_until(
                "a leader", lambda: wire.produce(topic, b"1").error_code == NONE, START_TIMEOUT_S
            )
            return [converse(wire, topic, number) for number in range(times)]

    ours, theirs = from_both(brokers, outcomes)
    assert ours == theirs
    return ours


def produce(topic: str, *, acks: int = -1) -> Asked:
    return Asked(
        produce_frame(topic, b"value", acks=acks), ApiKey.PRODUCE, PRODUCE_VERSION, acks != 0
    )


def fetch(topic: str, offset: int, *, wait_ms: int = 0) -> Asked:
    return Asked(fetch_frame(topic, offset, wait_ms=wait_ms), ApiKey.FETCH, FETCH_VERSION)


def list_offsets(topic: str, position: int) -> Asked:
    place = ListOffsetsPartition(partition_index=0, timestamp=position)
    asked = ListOffsetsTopic(name=topic, partitions=[place])
    return ask(ApiKey.LIST_OFFSETS, 7, ListOffsetsRequest(replica_id=-1, topics=[asked]))


def found(answer: Any) -> tuple[int, int]:
    partition = answer.topics[0].partitions[0]
    return partition.error_code, partition.offset


@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_list_offsets_behind_a_produce_sees_it(brokers: Brokers, acks: int) -> None:
    def converse(wire: Wire, topic: str, number: int) -> Any:
        return found(talk(wire, produce(topic, acks=acks), list_offsets(topic, LATEST))[-1])

    outcome = same_on_both(brokers, converse)
    assert outcome == [(NONE, number + 2) for number in range(TIMES)]


def test_a_fetch_behind_a_produce_reads_it(brokers: Brokers) -> None:
    def converse(wire: Wire, topic: str, number: int) -> Any:
        *_, fetched = talk(wire, produce(topic), fetch(topic, number + 1))
        partition = fetched.responses[0].partitions[0]
        return partition.error_code, partition.high_watermark, len(partition.records)

    outcome = same_on_both(brokers, converse)
    assert all(code == NONE and size > 0 for code, _, size in outcome)


def test_a_produce_behind_a_long_poll_waits_for_its_end(brokers: Brokers) -> None:
    """And does not end it, although both are about the same partition."""

    def converse(wire: Wire, topic: str, number: int) -> Any:
        begun = time.monotonic()
        fetched, produced = talk(wire, fetch(topic, number + 1, wait_ms=100), produce(topic))
        took_s = time.monotonic() - begun
        partition = fetched.responses[0].partitions[0]
        offset = produced.responses[0].partition_responses[0].base_offset
        return len(partition.records), offset, took_s >= 0.1

    outcome = same_on_both(brokers, converse, times=10)
    assert outcome == [(0, number + 1, True) for number in range(10)]


def test_list_offsets_behind_a_deletion_of_records_sees_the_new_start(brokers: Brokers) -> None:
    def converse(wire: Wire, topic: str, number: int) -> Any:
        talk(wire, produce(topic))
        place = DeleteRecordsPartition(partition_index=0, offset=number + 1)
        asked = DeleteRecordsTopic(name=topic, partitions=[place])
        request = DeleteRecordsRequest(topics=[asked], timeout_ms=TIMEOUT_MS)
        delete = ask(ApiKey.DELETE_RECORDS, 2, request)
        return found(talk(wire, delete, list_offsets(topic, EARLIEST))[-1])

    outcome = same_on_both(brokers, converse)
    assert outcome == [(NONE, number + 1) for number in range(TIMES)]


def create(topic: str) -> Asked:
    asked = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    return ask(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[asked], timeout_ms=TIMEOUT_MS))


def delete_topic(topic: str) -> Asked:
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=TIMEOUT_MS)
    return ask(ApiKey.DELETE_TOPICS, 5, request)


def test_a_topic_is_created_behind_its_deletion(brokers: Brokers) -> None:
    def converse(wire: Wire, topic: str, number: int) -> Any:
        deleted, created = talk(wire, delete_topic(topic), create(topic))
        return deleted.responses[0].error_code, created.topics[0].error_code

    outcome = same_on_both(brokers, converse)
    assert outcome == [(NONE, NONE)] * TIMES


def commit(group: str, topic: str, offset: int) -> Asked:
    place = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[place])],
    )
    return ask(ApiKey.OFFSET_COMMIT, 8, request)


def commit_code(answer: Any) -> int:
    code: int = answer.topics[0].partitions[0].error_code
    return code


def find_coordinator(wire: Wire, group: str) -> int:
    request = FindCoordinatorRequest(coordinator_keys=[group])
    (answer,) = talk(wire, ask(ApiKey.FIND_COORDINATOR, 4, request))
    code: int = answer.coordinators[0].error_code
    return code


def test_an_offset_is_fetched_behind_its_commit(brokers: Brokers) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"

    def is_ready(wire: Wire, topic: str) -> bool:
        is_known = find_coordinator(wire, group) == NONE
        return is_known and commit_code(talk(wire, commit(group, topic, 0))[0]) == NONE

    def converse(wire: Wire, topic: str, number: int) -> Any:
        if number == 0:
            wait_until("a coordinator", lambda: is_ready(wire, topic), START_TIMEOUT_S)
        asked = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=[asked])]
        )
        committed, read = talk(
            wire, commit(group, topic, number), ask(ApiKey.OFFSET_FETCH, 8, request)
        )
        offset = read.groups[0].topics[0].partitions[0].committed_offset
        return commit_code(committed), offset

    outcome = same_on_both(brokers, converse)
    assert outcome == [(NONE, number) for number in range(TIMES)]


def test_what_was_altered_or_created_is_described_behind_it(brokers: Brokers) -> None:
    """Kafka's broker answers from a copy that may be older, so it is not compared."""
    topic = create_topic(brokers.penstock)
    with connect(brokers.penstock) as wire:
        for number in range(TIMES):
            value = str(1_000_000 + number)
            setting = AlterableConfig(name="retention.ms", config_operation=SET, value=value)
            resource = AlterConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[setting]
            )
            wanted = DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE,
                resource_name=topic,
                configuration_keys=["retention.ms"],
            )
            new = f"{topic}-{number}"
            metadata = MetadataRequest(
                topics=[MetadataRequestTopic(name=new)], allow_auto_topic_creation=False
            )
            *_, described, _, listed = talk(
                wire,
                ask(
                    ApiKey.INCREMENTAL_ALTER_CONFIGS,
                    1,
                    IncrementalAlterConfigsRequest(resources=[resource]),
                ),
                ask(ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[wanted])),
                create(new),
                ask(ApiKey.METADATA, 9, metadata),
            )
            assert described.results[0].configs[0].value == value
            assert listed.topics[0].error_code == NONE
            assert listed.topics[0].partitions[0].leader_id >= 0


def test_a_new_topic_can_be_asked_for_its_end_at_once(brokers: Brokers) -> None:
    """Refused, a consumer that begins at the end would come back behind what was produced."""
    with connect(brokers.penstock) as wire:
        for _ in range(TIMES):
            topic = f"topic-{uuid.uuid4().hex[:8]}"
            created, listed = talk(wire, create(topic), list_offsets(topic, LATEST))
            assert created.topics[0].error_code == NONE
            assert found(listed) == (NONE, 0)
