"""Offsets by leader and by group: many questions at once, coordinators followed, refusals told."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client.errors import ClientError, GroupActive
from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.errors import UnknownTopic
from penstock.client.wire.settings import WireSettings
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.protocol.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorResponse,
)
from penstock.protocol.kafka.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.protocol.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.protocol.kafka.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tests.unit.client.wire.fake_broker import HANG_UP, TOPIC, FakeBroker, FakeCluster, at


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(2) as made:
        made.leaders = {0: (1, 1), 1: (2, 1), 2: (1, 1)}
        for node in made.nodes.values():
            node.handlers |= {
                ApiKey.LIST_OFFSETS: list_offsets,
                ApiKey.FIND_COORDINATOR: lambda request, version: coordinator(made[2]),
            }
        yield made


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[WireCluster]:
    with WireCluster(WireSettings(bootstrap=cluster.bootstrap, retry_timeout_s=5.0)) as made:
        yield made


def list_offsets(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
    """Partition n ends at 10 n and has nothing after the time 1000."""
    parts = [
        ListOffsetsPartitionResponse(
            partition_index=one.partition_index,
            offset=-1 if one.timestamp > 1_000 else 10 * one.partition_index,
        )
        for one in request.topics[0].partitions
    ]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=parts)])


def coordinator(node: FakeBroker, code: int = 0) -> FindCoordinatorResponse:
    found = Coordinator(key="g", host="127.0.0.1", port=node.port, error_code=code)
    # Old versions name one coordinator, new ones several.
    return FindCoordinatorResponse(
        host="127.0.0.1", port=node.port, error_code=code, coordinators=[found]
    )


def committed(code: int = 0) -> OffsetCommitResponse:
    part = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name=TOPIC, partitions=[part])])


def in_turn(*answers: object) -> Any:
    left = list(answers)
    return lambda request, version: left.pop(0) if len(left) > 1 else left[0]


def test_each_leader_is_asked_once_about_all_its_partitions(
    cluster: FakeCluster, client: WireCluster
) -> None:
    partitions = [at(index) for index in range(3)]
    assert client.latest(partitions) == {at(0): 0, at(1): 10, at(2): 20}
    assert client.at_timestamp({at(0): 1_001, at(2): 5}) == {at(0): None, at(2): 20}
    asked = cluster[1].requests(ApiKey.LIST_OFFSETS)[0].topics[0].partitions
    assert [one.partition_index for one in asked] == [0, 2]
    assert len(cluster[2].requests(ApiKey.LIST_OFFSETS)) == 1
    assert client.earliest([]) == {}


@pytest.mark.parametrize("trouble", [HANG_UP, 6, 78])
def test_trouble_of_one_leader_is_sat_out(
    cluster: FakeCluster, client: WireCluster, trouble: object
) -> None:
    if isinstance(trouble, int):
        part = ListOffsetsPartitionResponse(partition_index=1, error_code=trouble)
        trouble = ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[part])]
        )
    answers = [trouble]
    cluster[2].handlers[ApiKey.LIST_OFFSETS] = lambda request, version: (
        answers.pop() if answers else list_offsets(request, version)
    )
    assert client.latest([at(0), at(1)]) == {at(0): 0, at(1): 10}
    assert len(cluster[1].requests(ApiKey.LIST_OFFSETS)) == 1


def test_a_refused_lookup_is_told(cluster: FakeCluster, client: WireCluster) -> None:
    part = ListOffsetsPartitionResponse(partition_index=0, error_code=29)
    refused = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[part])])
    cluster[1].handlers[ApiKey.LIST_OFFSETS] = lambda request, version: refused
    with pytest.raises(ClientError, match="refused the offsets of partition 0 of topic orders"):
        client.latest([at(0)])


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_is_found_again_when_it_moves(
    cluster: FakeCluster, client: WireCluster, code: int
) -> None:
    cluster[2].handlers[ApiKey.OFFSET_COMMIT] = in_turn(committed(code), HANG_UP, committed())
    client.commit("g", {at(0): 5}, metadata="note")
    request: OffsetCommitRequest = cluster[2].requests(ApiKey.OFFSET_COMMIT)[-1]
    (one,) = request.topics[0].partitions
    assert (one.committed_offset, one.committed_metadata) == (5, "note")
    assert len(cluster[2].requests(ApiKey.OFFSET_COMMIT)) == 3


def test_a_coordinator_that_is_not_there_yet_is_waited_for(
    cluster: FakeCluster, client: WireCluster
) -> None:
    cluster[2].handlers[ApiKey.OFFSET_COMMIT] = in_turn(committed())
    for node in cluster.nodes.values():
        node.handlers[ApiKey.FIND_COORDINATOR] = in_turn(
            coordinator(cluster[2], 15), coordinator(cluster[2])
        )
    client.commit("g", {at(0): 5})
    client.commit("g", {})


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (25, GroupActive, "Group g has active members"),
        (3, UnknownTopic, "Topic orders does not exist"),
        (12, ClientError, "offsets of group g of partition 0 of topic orders: offset metadata"),
    ],
)
def test_a_refused_commit_is_told(
    cluster: FakeCluster, client: WireCluster, code: int, kind: type[ClientError], said: str
) -> None:
    cluster[2].handlers[ApiKey.OFFSET_COMMIT] = in_turn(committed(code))
    with pytest.raises(kind, match=said):
        client.commit("g", {at(0): 5})


@pytest.mark.parametrize("newest", [1, 5, 7, 8, 10])
def test_committed_offsets_are_read_in_every_version(newest: int) -> None:
    old = [OffsetFetchResponsePartition(partition_index=0, committed_offset=5)]
    old.append(OffsetFetchResponsePartition(partition_index=1, committed_offset=-1))
    new = [OffsetFetchResponsePartitions(partition_index=0, committed_offset=5)]
    new.append(OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1))
    group = OffsetFetchResponseGroup(
        group_id="g", topics=[OffsetFetchResponseTopics(name=TOPIC, partitions=new)]
    )
    answer = OffsetFetchResponse(
        topics=[OffsetFetchResponseTopic(name=TOPIC, partitions=old)], groups=[group]
    )
    versions = {ApiKey.OFFSET_FETCH: (0, newest), ApiKey.FIND_COORDINATOR: (0, newest // 2)}
    with FakeCluster(versions=versions) as cluster:
        cluster[1].handlers |= {
            ApiKey.FIND_COORDINATOR: lambda request, version: coordinator(cluster[1]),
            ApiKey.OFFSET_FETCH: lambda request, version: answer,
        }
        with WireCluster(WireSettings(bootstrap=cluster.bootstrap)) as client:
            found = client.committed("g", [at(0), at(1), at(2)])
            assert found == {at(0): 5, at(1): None, at(2): None}
            assert client.committed("g", []) == {}


@pytest.mark.parametrize(
    ("value", "found"), [("1048576", 1 << 20), (None, None), ("many", None), ("refused", None)]
)
def test_how_large_a_batch_may_be_is_asked_for(
    cluster: FakeCluster, client: WireCluster, value: str | None, found: int | None
) -> None:
    setting = DescribeConfigsResourceResult(name="max.message.bytes", value=value)
    result = DescribeConfigsResult(
        error_code=29 if value == "refused" else 0, resource_name=TOPIC, configs=[setting]
    )
    answer = DescribeConfigsResponse(results=[result])
    for node in cluster.nodes.values():
        node.handlers[ApiKey.DESCRIBE_CONFIGS] = lambda request, version: answer
    assert client.message_bytes_max(TOPIC) == found
