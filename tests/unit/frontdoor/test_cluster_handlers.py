"""Proves what the handlers of cluster requests answer, in every version that they serve."""

import asyncio
from base64 import urlsafe_b64encode
from typing import Any
from uuid import UUID

import pytest

from penstock.broker import leaderships
from penstock.broker.leaderships import DEAD_BROKER_TOLD_S
from penstock.broker.quorum import Member, QuorumView
from penstock.broker.reassignments import Moving
from penstock.frontdoor.kafka.api import Call
from penstock.frontdoor.kafka.handlers import (
    alter_partition_reassignments,
    describe_cluster,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    find_coordinator,
    list_partition_reassignments,
    metadata,
    unregister_broker,
)
from penstock.model.errors import Reason
from penstock.model.ids import BrokerId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.kafka.messages.describe_cluster import DescribeClusterRequest
from penstock.protocol.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    QuorumPartition,
    QuorumTopic,
)
from penstock.protocol.kafka.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from penstock.protocol.kafka.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from penstock.protocol.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.kafka.messages.unregister_broker import UnregisterBrokerRequest
from tests.unit.broker.lone_leaderships import TOPIC, MadeUpCluster, broker, topic_on
from tests.unit.frontdoor.cluster_world import World

METADATA_TOPIC = "__cluster_metadata"
# How long anything may take on a machine that is busy with other things.
PATIENCE_S = 60.0


def world(*assignments: tuple[int, ...]) -> World:
    topic = topic_on(*(assignments or ((1, 2, 3), (2, 3, 1))))
    return World(MadeUpCluster(broker(1, "a"), broker(2, "b"), broker(3), topics=(topic,)))


# Who and where


@pytest.mark.parametrize("version", range(14))
def test_metadata_tells_of_brokers_and_leaders_that_are_there(version: int) -> None:
    here = world()
    here.cluster.announce(0, leader=3, term=5, in_sync=(3, 1))
    here.cluster.announce(1, leader=2, term=2, in_sync=(2, 3))
    here.cluster.dead = {2}
    here.cluster.controller_id = BrokerId(3)
    topics: Any = [] if version == 0 else None
    just_now = here.ask(metadata.API, version, MetadataRequest(topics=topics))
    assert [each.node_id for each in just_now.brokers] == [1, 2, 3]
    here.now = DEAD_BROKER_TOLD_S
    answer = here.ask(metadata.API, version, MetadataRequest(topics=topics))
    assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [
        (1, "host-1", 9093),
        (3, "host-3", 9095),
    ]
    if version >= 1:
        assert [each.rack for each in answer.brokers] == ["a", None]
        assert answer.controller_id == 3
    led, unled = answer.topics[0].partitions
    assert (led.error_code, led.leader_id) == (0, 3)
    assert (led.replica_nodes, led.isr_nodes) == ([1, 2, 3], [3, 1])
    assert (unled.error_code, unled.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    if version >= 5:
        assert led.offline_replicas == unled.offline_replicas == [2]
    if version >= 7:
        assert (led.leader_epoch, unled.leader_epoch) == (5, 2)


def test_a_broker_that_lost_its_cluster_sends_old_connections_away() -> None:
    """With a code where the version has one, else by ending the connection: no answer at all."""
    here = world()
    here.cluster.dead = {2, 3}
    everything = MetadataRequest(topics=None)
    answer = here.ask(metadata.API, 13, everything)
    assert [each.node_id for each in answer.brokers] == [1, 2, 3]
    here.now = 4.0
    assert here.ask(metadata.API, 13, everything).error_code == ErrorCode.REBOOTSTRAP_REQUIRED
    assert here.ask(metadata.API, 12, everything) is None
    assert here.ask(find_coordinator.API, 4, FindCoordinatorRequest()) is None
    here.peer.opened_at = 3.0
    assert len(here.ask(metadata.API, 12, everything).brokers) == 3
    here.peer.opened_at = 0.0
    here.cluster.dead = {3}
    assert len(here.ask(metadata.API, 12, everything).brokers) == 3
    here.now += DEAD_BROKER_TOLD_S
    assert len(here.ask(metadata.API, 12, everything).brokers) == 2


def test_an_answer_about_a_partition_that_just_lost_its_leader_waits_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # So long that it can only be the new leader which ends the wait.
    monkeypatch.setattr(leaderships, "ELECTION_WAIT_S", 2 * PATIENCE_S)
    here = world()
    here.cluster.announce(0, leader=3, term=5, in_sync=(3, 1))
    here.cluster.announce(1, leader=2, term=2, in_sync=(2, 3))
    here.cluster.dead = {2}
    here.cluster.controller_id = BrokerId(3)
    named = [MetadataRequestTopic(name=TOPIC)]
    request = MetadataRequest(topics=named, allow_auto_topic_creation=False)

    async def ask() -> Any:
        waiting = asyncio.ensure_future(here.answer(metadata.API, 12, request))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        here.cluster.announce(1, leader=3, term=3, in_sync=(3, 1))
        return await asyncio.wait_for(waiting, PATIENCE_S)

    answer = asyncio.run(ask())
    assert [each.leader_id for each in answer.topics[0].partitions] == [3, 3]


def test_a_partition_that_stays_without_a_leader_holds_up_nobody() -> None:
    here = world()
    here.cluster.announce(0, leader=2, term=2, in_sync=(2, 3))
    here.cluster.announce(1, leader=2, term=2, in_sync=(2, 3))
    here.cluster.dead = {2}
    here.cluster.controller_id = BrokerId(3)
    named = [MetadataRequestTopic(name=TOPIC)]
    request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
    here.ask(metadata.API, 12, request)
    here.now = 1.0
    answer = here.ask(metadata.API, 12, request)
    assert [each.leader_id for each in answer.topics[0].partitions] == [-1, -1]


def test_topic_partitions_tell_the_same() -> None:
    here = world()
    here.cluster.announce(0, leader=3, term=5, in_sync=(3, 1))
    request = describe_topic_partitions.DescribeTopicPartitionsRequest()
    (topic,) = here.ask(describe_topic_partitions.API, 0, request).topics
    assert [each.leader_id for each in topic.partitions] == [3, -1]
    assert topic.partitions[1].error_code == ErrorCode.LEADER_NOT_AVAILABLE


@pytest.mark.parametrize("version", range(3))
def test_a_broker_that_is_gone_is_fenced(version: int) -> None:
    here = world()
    here.cluster.dead = {3}
    request = DescribeClusterRequest(include_fenced_brokers=version >= 2)
    answer = here.ask(describe_cluster.API, version, request)
    told = [(each.broker_id, each.is_fenced) for each in answer.brokers]
    assert told == [(1, False), (2, False), *([(3, True)] if version >= 2 else [])]
    assert answer.controller_id == 2
    assert [each.rack for each in answer.brokers][:2] == ["a", "b"]


# Preferred leaders


@pytest.mark.parametrize("version", range(3))
def test_preferred_leaders_are_elected(version: int) -> None:
    here = world()
    here.reassignments.refusals[TOPIC, 1] = Reason.ELECTION_NOT_NEEDED
    wanted = [TopicPartitions(topic=TOPIC, partitions=[0, 1, 0])]
    request = ElectLeadersRequest(topic_partitions=wanted, timeout_ms=2_000)
    answer = here.ask(elect_leaders.API, version, request)
    (topic,) = answer.replica_election_results
    results = [(each.partition_id, each.error_code) for each in topic.partition_result]
    assert results == [(0, 0), (1, ErrorCode.ELECTION_NOT_NEEDED)]
    assert topic.partition_result[0].error_message is None
    assert here.reassignments.asked == [(TOPIC, 0, 2.0, False), (TOPIC, 1, 2.0, False)]


def test_a_topic_that_is_named_again_and_again_costs_no_more_than_its_partitions() -> None:
    """One request may name very many, and nobody else is served while it is read."""
    compared = 0

    class Index(int):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return int(self) == other

        __hash__ = int.__hash__

    here = world()
    wanted = [
        TopicPartitions(topic=TOPIC, partitions=[Index(10 * part + i) for i in range(15)])
        for part in range(20)
    ]
    call = Call(here.services, ApiKey.ELECT_LEADERS, 2, None, here.peer, 0.0)
    answer = asyncio.run(elect_leaders.handle(call, ElectLeadersRequest(topic_partitions=wanted)))
    (topic,) = answer.replica_election_results
    assert [each.partition_id for each in topic.partition_result] == list(range(205))
    assert compared < 3 * 300


@pytest.mark.parametrize("version", range(3))
def test_of_all_partitions_only_those_that_needed_it_are_told(version: int) -> None:
    here = world()
    here.reassignments.refusals[TOPIC, 0] = Reason.ELECTION_NOT_NEEDED
    here.reassignments.refusals[TOPIC, 1] = Reason.PREFERRED_LEADER_NOT_AVAILABLE
    request = ElectLeadersRequest(topic_partitions=None)
    (topic,) = here.ask(elect_leaders.API, version, request).replica_election_results
    (result,) = topic.partition_result
    assert result.partition_id == 1
    assert result.error_code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_a_topic_whose_partitions_need_no_election_is_told_without_them() -> None:
    here = world()
    here.reassignments.refusals[TOPIC, 0] = Reason.ELECTION_NOT_NEEDED
    here.reassignments.refusals[TOPIC, 1] = Reason.ELECTION_NOT_NEEDED
    request = ElectLeadersRequest(topic_partitions=None)
    (topic,) = here.ask(elect_leaders.API, 2, request).replica_election_results
    assert (topic.topic, topic.partition_result) == (TOPIC, [])


@pytest.mark.parametrize("version", [1, 2])
def test_an_election_may_be_unclean_but_of_no_other_kind(version: int) -> None:
    here = world()
    wanted = [TopicPartitions(topic=TOPIC, partitions=[0])]
    request = ElectLeadersRequest(election_type=1, topic_partitions=wanted, timeout_ms=2_000)
    assert here.ask(elect_leaders.API, version, request).error_code == ErrorCode.NONE
    assert here.reassignments.asked == [(TOPIC, 0, 2.0, True)]
    request.election_type = 2
    answer = here.ask(elect_leaders.API, version, request)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert len(here.reassignments.asked) == 1


@pytest.mark.parametrize("timeout_ms", [-1, 0])
def test_without_time_nobody_is_elected_or_moved(timeout_ms: int) -> None:
    here = world()
    wanted = [TopicPartitions(topic=TOPIC, partitions=[0])]
    election = ElectLeadersRequest(topic_partitions=wanted, timeout_ms=timeout_ms)
    elected = here.ask(elect_leaders.API, 2, election)
    move = reassignment(ReassignablePartition(partition_index=0, replicas=[3]))
    move.timeout_ms = timeout_ms
    moved = here.ask(alter_partition_reassignments.API, 1, move)
    assert elected.error_code == moved.error_code == ErrorCode.REQUEST_TIMED_OUT
    (result,) = elected.replica_election_results[0].partition_result
    (partition,) = moved.responses[0].partitions
    assert result.error_code == partition.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert here.reassignments.asked == []


# Moves


def reassignment(*partitions: ReassignablePartition) -> AlterPartitionReassignmentsRequest:
    return AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=TOPIC, partitions=list(partitions))]
    )


@pytest.mark.parametrize("version", range(2))
def test_moves_are_begun_and_taken_back(version: int) -> None:
    here = world()
    here.reassignments.refusals[TOPIC, 1] = Reason.NO_REASSIGNMENT_IN_PROGRESS
    request = reassignment(
        ReassignablePartition(partition_index=0, replicas=[3, 2]),
        ReassignablePartition(partition_index=1, replicas=None),
    )
    request.allow_replication_factor_change = version == 0
    answer = here.ask(alter_partition_reassignments.API, version, request)
    assert (answer.error_code, answer.error_message) == (0, None)
    (topic,) = answer.responses
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
        (0, 0),
        (1, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ]
    can_change = version == 0
    assert here.reassignments.asked == [
        (TOPIC, 0, [3, 2], can_change),
        (TOPIC, 1, None, can_change),
    ]


def test_a_partition_is_not_moved_twice_at_once() -> None:
    here = world()
    request = reassignment(
        ReassignablePartition(partition_index=0, replicas=[3]),
        ReassignablePartition(partition_index=0, replicas=[2]),
    )
    answer = here.ask(alter_partition_reassignments.API, 0, request)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert here.reassignments.asked == []


def test_moves_under_way_are_listed_all_or_some() -> None:
    here = world()
    here.reassignments.moving = [
        Moving(TOPIC, 0, [1, 2, 3], [3], [1]),
        Moving(TOPIC, 1, [2, 3], [3], []),
    ]
    everything = ListPartitionReassignmentsRequest(topics=None)
    (topic,) = here.ask(list_partition_reassignments.API, 0, everything).topics
    assert [each.partition_index for each in topic.partitions] == [0, 1]
    first = topic.partitions[0]
    assert (first.replicas, first.adding_replicas, first.removing_replicas) == ([1, 2, 3], [3], [1])
    wanted = [ListPartitionReassignmentsTopics(name=TOPIC, partition_indexes=[1, 7])]
    some = ListPartitionReassignmentsRequest(topics=wanted)
    (topic,) = here.ask(list_partition_reassignments.API, 0, some).topics
    assert [each.partition_index for each in topic.partitions] == [1]
    nothing = ListPartitionReassignmentsRequest(topics=[])
    assert here.ask(list_partition_reassignments.API, 0, nothing).topics == []


def test_a_broker_is_forgotten() -> None:
    here = world()
    answer = here.ask(unregister_broker.API, 0, UnregisterBrokerRequest(broker_id=3))
    assert (answer.error_code, answer.error_message) == (0, None)
    assert here.membership.removed == [3]
    answer = here.ask(unregister_broker.API, 0, UnregisterBrokerRequest(broker_id=9))
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert answer.error_message == "There is no broker 9."


# The metadata's own group


def letters(number: int) -> str:
    """A directory's id as it is told between nodes."""
    return urlsafe_b64encode(UUID(int=number).bytes).rstrip(b"=").decode()


def quorum_request(topic: str = METADATA_TOPIC) -> DescribeQuorumRequest:
    partitions = [QuorumPartition(partition_index=0)]
    return DescribeQuorumRequest(topics=[QuorumTopic(topic_name=topic, partitions=partitions)])


@pytest.mark.parametrize("version", range(3))
def test_the_quorum_is_described(version: int) -> None:
    here = world()
    here.quorum.view = QuorumView(
        leader=2,
        term=6,
        high_watermark=40,
        members=[
            Member(1, letters(1), 38, True, True),
            Member(2, letters(2), 41, True, True),
            Member(3, letters(3), 10, False, False),
        ],
    )
    answer = here.ask(describe_quorum.API, version, quorum_request())
    assert answer.error_code == 0
    ((data,),) = [topic.partitions for topic in answer.topics]
    assert (data.leader_id, data.leader_epoch, data.high_watermark) == (2, 6, 40)
    assert [(each.replica_id, each.log_end_offset) for each in data.current_voters] == [
        (1, 38),
        (2, 41),
    ]
    assert [each.replica_id for each in data.observers] == [3]
    if version >= 1:
        times = [each.last_fetch_timestamp for each in data.current_voters]
        assert times == [1_000, -1], "the leader does not fetch"
        assert data.observers[0].last_caught_up_timestamp == -1
    if version >= 2:
        assert data.current_voters[0].replica_directory_id == UUID(int=1)
        assert [each.node_id for each in answer.nodes] == [1, 2, 3]
        assert answer.nodes[1].listeners[0].host == "host-2"


@pytest.mark.parametrize("version", range(3))
def test_only_the_metadata_has_a_quorum_to_describe(version: int) -> None:
    here = world()
    here.quorum.view = QuorumView(leader=2, term=6, high_watermark=40, members=[])
    answer = here.ask(describe_quorum.API, version, quorum_request("orders"))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(3))
def test_a_quorum_without_a_leader_is_an_error(version: int) -> None:
    answer = world().ask(describe_quorum.API, version, quorum_request())
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
