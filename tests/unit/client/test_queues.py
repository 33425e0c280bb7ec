"""Queues are listed over all brokers and described by their coordinators."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client.errors import BrokerUnreachable, ClientError, GroupNotFound
from penstock.client.queues import QueuePartition, Queues
from penstock.client.wire.queue_member import NotAQueue
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.protocol.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from penstock.protocol.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.kafka.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from penstock.protocol.kafka.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from penstock.protocol.kafka.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.protocol.kafka.messages.share_group_describe import (
    DescribedShareAssignment,
    DescribedShareGroup,
    DescribedShareGroupMember,
    DescribedShareTopicPartitions,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from tests.unit.client.wire.fake_broker import TOPIC, TOPIC_ID, FakeCluster, at

SETTING = "share.auto.offset.reset"
DEFAULT, OF_THE_GROUP = 5, 8


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """Node N is the coordinator of the queue qN."""
    with FakeCluster(2) as made:
        for number, node in made.nodes.items():
            node.handlers |= {
                ApiKey.FIND_COORDINATOR: lambda request, version: find(made, request),
                ApiKey.LIST_GROUPS: listed(f"q{number}"),
                ApiKey.SHARE_GROUP_DESCRIBE: described(f"q{number}"),
                ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: lambda request, version: offsets(),
                ApiKey.DESCRIBE_CONFIGS: settings(DEFAULT, "by_duration:P1D"),
                ApiKey.LIST_OFFSETS: ends,
            }
        yield made


@pytest.fixture
def queues(cluster: FakeCluster) -> Queues:
    return Queues(cluster.bootstrap, timeout_s=5.0)


def find(cluster: FakeCluster, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    (name,) = request.coordinator_keys
    port = cluster[int(name[-1])].port
    found = Coordinator(key=name, host="127.0.0.1", port=port)
    return FindCoordinatorResponse(coordinators=[found])


def listed(*names: str, kind: str = "share") -> Any:
    def handle(request: ListGroupsRequest, version: int) -> ListGroupsResponse:
        is_asked_for = request.types_filter in ([], [kind])
        found = [ListedGroup(group_id=name, group_type=kind) for name in names]
        return ListGroupsResponse(groups=found if is_asked_for else [])

    return handle


def described(name: str, **fields: Any) -> Any:
    member = DescribedShareGroupMember(
        member_id="m1",
        member_epoch=4,
        client_id="penstock",
        client_host="/127.0.0.1",
        subscribed_topic_names=[TOPIC],
        assignment=DescribedShareAssignment(
            topic_partitions=[
                DescribedShareTopicPartitions(
                    topic_id=TOPIC_ID, topic_name=TOPIC, partitions=[1, 0]
                )
            ]
        ),
    )
    group = {
        "group_state": "Stable",
        "group_epoch": 5,
        "assignor_name": "simple",
        "members": [member],
        **fields,
    }

    def handle(request: ShareGroupDescribeRequest, version: int) -> ShareGroupDescribeResponse:
        assert request.group_ids == [name]
        return ShareGroupDescribeResponse(groups=[DescribedShareGroup(group_id=name, **group)])

    return handle


def offsets(code: int = 0) -> DescribeShareGroupOffsetsResponse:
    parts = [
        DescribeShareGroupOffsetsResponsePartition(
            partition_index=1, start_offset=7, leader_epoch=2, lag=3
        ),
        DescribeShareGroupOffsetsResponsePartition(
            partition_index=0, start_offset=-1, leader_epoch=0, lag=-1, error_code=code
        ),
    ]
    topic = DescribeShareGroupOffsetsResponseTopic(
        topic_name=TOPIC, topic_id=TOPIC_ID, partitions=parts
    )
    group = DescribeShareGroupOffsetsResponseGroup(group_id="q", topics=[topic])
    return DescribeShareGroupOffsetsResponse(groups=[group])


def ends(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
    """Partition 0 holds offsets 40 to 49."""
    (one,) = request.topics[0].partitions
    part = ListOffsetsPartitionResponse(
        partition_index=one.partition_index, offset=40 if one.timestamp == -2 else 50
    )
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[part])])


@pytest.mark.parametrize(("start", "waiting"), [("earliest", 10), ("latest", 0), ("by_", None)])
def test_what_waits_for_a_queue_that_has_not_begun_counts(
    cluster: FakeCluster, queues: Queues, start: str, waiting: int | None
) -> None:
    cluster.leaders = {0: (1, 1), 1: (2, 1)}
    for node in cluster.nodes.values():
        node.handlers[ApiKey.DESCRIBE_CONFIGS] = settings(OF_THE_GROUP, start)
    found = queues.describe("q1")
    assert [(one.start, one.lag) for one in found.partitions] == [(None, waiting), (7, 3)]
    assert found.lag == 3 + (waiting or 0)


def test_queues_of_all_brokers_are_listed(queues: Queues) -> None:
    found = queues.all()
    assert [(one.group, one.state, one.topics, one.lag) for one in found] == [
        ("q1", "stable", (TOPIC,), 3),
        ("q2", "stable", (TOPIC,), 3),
    ]


def test_a_broker_that_is_down_hides_nothing_of_the_others(
    cluster: FakeCluster, queues: Queues
) -> None:
    cluster[1].handlers[ApiKey.LIST_GROUPS] = listed("q1", "q2")
    cluster[1].handlers[ApiKey.SHARE_GROUP_DESCRIBE] = described("q1")
    del cluster[2].handlers[ApiKey.LIST_GROUPS]
    assert [one.group for one in queues.all()] == ["q1", "q2"]
    del cluster[1].handlers[ApiKey.LIST_GROUPS]
    with pytest.raises(BrokerUnreachable, match="No broker answers"):
        queues.all()


def test_a_queue_that_was_deleted_since_it_was_listed_is_left_out(
    cluster: FakeCluster, queues: Queues
) -> None:
    cluster[2].handlers[ApiKey.SHARE_GROUP_DESCRIBE] = described(
        "q2", error_code=69, error_message="Group q2 not found."
    )
    assert [one.group for one in queues.all()] == ["q1"]


def test_a_queue_is_described_by_partition_and_member(queues: Queues) -> None:
    found = queues.describe("q2")
    unknown = {"start": None, "lag": None, "leader_epoch": 0}
    assert found.partitions == (
        QueuePartition(topic=TOPIC, partition=0, **unknown),
        QueuePartition(topic=TOPIC, partition=1, start=7, lag=3, leader_epoch=2),
    )
    (member,) = found.members
    assert member.partitions == (at(0), at(1))
    assert (found.epoch, found.assignor, found.lag) == (5, "simple", 3)


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_that_is_not_ready_is_asked_again(
    cluster: FakeCluster, queues: Queues, code: int
) -> None:
    ready = cluster[1].handlers[ApiKey.SHARE_GROUP_DESCRIBE]
    answers = [described("q1", error_code=code)]
    cluster[1].handlers[ApiKey.SHARE_GROUP_DESCRIBE] = lambda request, version: (
        answers.pop() if answers else ready
    )(request, version)
    waiting = [offsets(code)]
    cluster[1].handlers[ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS] = lambda request, version: (
        waiting.pop() if waiting else offsets()
    )
    assert queues.describe("q1").group == "q1"
    assert not answers
    assert not waiting


@pytest.mark.parametrize(
    ("fields", "kind", "said"),
    [
        ({"error_code": 69, "error_message": "Group q1 not found."}, GroupNotFound, "q1 does not"),
        ({"group_state": "Dead"}, GroupNotFound, "q1 does not exist"),
        ({"error_code": 30}, ClientError, "refused to describe group q1: group authorization"),
    ],
)
def test_why_there_is_no_description_is_told(
    cluster: FakeCluster, queues: Queues, fields: Any, kind: type[ClientError], said: str
) -> None:
    cluster[1].handlers[ApiKey.SHARE_GROUP_DESCRIBE] = described("q1", **fields)
    with pytest.raises(kind, match=said):
        queues.describe("q1")
    with pytest.raises(ClientError, match="must not be empty"):
        queues.describe("")


def test_a_group_of_another_kind_is_not_called_missing(
    cluster: FakeCluster, queues: Queues
) -> None:
    cluster[1].handlers[ApiKey.SHARE_GROUP_DESCRIBE] = described("q1", error_code=69)
    cluster[2].handlers[ApiKey.LIST_GROUPS] = listed("q1", kind="classic")
    cluster[1].handlers[ApiKey.LIST_GROUPS] = listed()
    with pytest.raises(NotAQueue, match="q1 exists and is not a queue"):
        queues.describe("q1")


def settings(source: int, value: str = "latest") -> Any:
    entry = DescribeConfigsResourceResult(name=SETTING, value=value, config_source=source)
    result = DescribeConfigsResult(resource_type=32, resource_name="q1", configs=[entry])
    return lambda request, version: DescribeConfigsResponse(results=[result])


@pytest.mark.parametrize("source", [DEFAULT, OF_THE_GROUP])
def test_a_new_queue_starts_with_the_oldest_record_unless_it_is_set_otherwise(
    cluster: FakeCluster, queues: Queues, source: int
) -> None:
    cluster[1].handlers |= {
        ApiKey.SHARE_GROUP_DESCRIBE: described(
            "q1", error_code=69, error_message="Group q1 not found."
        ),
        ApiKey.DESCRIBE_CONFIGS: settings(source),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda request, version: IncrementalAlterConfigsResponse(
            responses=[AlterConfigsResourceResponse(resource_type=32, resource_name="q1")]
        ),
    }
    assert queues.begin("q1")
    altered = cluster[1].requests(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    changes = [
        (resource.resource_type, resource.resource_name, one.name, one.value)
        for request in altered
        for resource in request.resources
        for one in resource.configs
    ]
    assert changes == ([(32, "q1", SETTING, "earliest")] if source == DEFAULT else [])


def test_a_queue_that_exists_is_begun_where_it_is(cluster: FakeCluster, queues: Queues) -> None:
    assert not queues.begin("q1")
    assert cluster[1].requests(ApiKey.INCREMENTAL_ALTER_CONFIGS) == []
