"""What topics hold is added up over brokers, and left out where nobody can say."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client.inventory import Inventory, TopicHoldings
from penstock.client.kafka_connection import KafkaConnection
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from penstock.protocol.kafka.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.unit.client.wire.fake_broker import TOPIC, FakeCluster

EARLIEST = -2


def offsets(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
    """Partition 0 begins at 10 and ends at 110, partition 1 at 11 and 111."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=one.partition_index,
                        offset=one.partition_index + (10 if one.timestamp == EARLIEST else 110),
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def sizes(*bytes_of: int) -> Any:
    parts = [
        DescribeLogDirsPartition(partition_index=index, partition_size=size)
        for index, size in enumerate(bytes_of)
    ]
    topic = DescribeLogDirsTopic(name=TOPIC, partitions=parts)
    answer = DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="/d", topics=[topic])])
    return lambda request, version: answer


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """Two nodes that hold both partitions, and each leads one; the second lags behind."""
    with FakeCluster(2) as made:
        made.leaders = {0: (1, 1), 1: (2, 1)}
        for node in made.nodes.values():
            node.handlers[ApiKey.LIST_OFFSETS] = offsets
        made[1].handlers[ApiKey.DESCRIBE_LOG_DIRS] = sizes(500, 600)
        made[2].handlers[ApiKey.DESCRIBE_LOG_DIRS] = sizes(400, 700)
        yield made


def held(cluster: FakeCluster) -> TopicHoldings:
    with KafkaConnection(cluster.bootstrap, timeout_s=5.0) as connection:
        (found,) = Inventory(connection).topics()
    return found


def test_records_and_bytes_add_up_over_leaders(cluster: FakeCluster) -> None:
    found = held(cluster)
    assert (found.name, found.partitions, found.internal) == (TOPIC, 2, False)
    assert found.records == 200
    assert found.bytes == 500 + 700, "one copy of each partition, the largest"


def test_a_broker_that_is_down_makes_a_count_unknown_and_not_wrong(cluster: FakeCluster) -> None:
    cluster[2].close()
    found = held(cluster)
    assert found.records is None
    assert found.bytes == 500 + 600, "the other one has copies too"


def test_a_partition_without_a_leader_makes_a_count_unknown(cluster: FakeCluster) -> None:
    cluster.leaders[1] = (-1, 1)
    assert held(cluster).records is None
