"""What `validate` of a state machine notices: each line breaks one thing that belongs together."""

from collections.abc import Callable
from uuid import UUID

import pytest

from penstock.cluster.brokers import Broker
from penstock.cluster.records import BrokerStored, TopicStored
from penstock.cluster.state import ClusterState
from penstock.cluster.topic import Assignment, Topic
from penstock.groups.records import CommittedOffset, GroupMetadata, GroupStored, OffsetStored
from penstock.groups.state import GroupsState
from penstock.groups.transitions import GroupState
from penstock.model.endpoint import Endpoint
from penstock.model.ids import (
    BrokerId,
    DirectoryId,
    GroupId,
    LogIndex,
    MemberId,
    ReplicaId,
    Term,
    TopicId,
    TopicName,
)
from penstock.raft.entries import HardState
from penstock.raft.node import RaftNode
from penstock.replication.producer_states import Producer, ProducerBatch, ProducerStates
from tests.unit.groups.driver import GROUP, Driver
from tests.unit.raft.groups import Group, rid

ONE, TWO = BrokerId(1), BrokerId(2)
TOPIC = TopicName("orders")


def _cluster(*replicas: BrokerId) -> ClusterState:
    state = ClusterState()
    directory = DirectoryId("d")
    place = Endpoint("localhost", 9092)
    state.apply(BrokerStored(broker=Broker(id=ONE, directory=directory, kafka=place, peer=place)))
    assignment = Assignment(replicas=replicas, founders=(ReplicaId(ONE, directory),))
    topic = Topic(
        name=TOPIC,
        topic_id=TopicId(UUID(int=1)),
        assignments=(assignment,),
        configs={},
        internal=False,
    )
    state.apply(TopicStored(topic=topic))
    return state


def test_metadata_that_names_only_known_brokers_is_valid() -> None:
    _cluster(ONE).validate()


@pytest.mark.parametrize("replicas", [(TWO,), (ONE, ONE)])
def test_metadata_with_a_bad_assignment_is_not(replicas: tuple[BrokerId, ...]) -> None:
    with pytest.raises(AssertionError):
        _cluster(*replicas).validate()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state._ids.clear(),
        lambda state: state._names_by_collision_key.clear(),
        lambda state: state.replica_counts.update([ONE]),
        lambda state: state.preferred_counts.update([ONE]),
        lambda state: state.removed_brokers.add(ONE),
    ],
)
def test_metadata_whose_indexes_differ_from_it_is_not(
    spoil: Callable[[ClusterState], object],
) -> None:
    state = _cluster(ONE)
    spoil(state)
    with pytest.raises(AssertionError):
        state.validate()


def _groups() -> GroupsState:
    state = GroupsState()
    committed = CommittedOffset(7, -1, "", 0)
    state.apply(OffsetStored(GROUP, TOPIC, 0, committed))
    return state


def test_stored_groups_with_members_have_a_leader_among_them() -> None:
    driver = Driver()
    driver.stable({})
    record = driver.group.generation_record()
    state = _groups()
    state.apply(record)
    state.validate()
    broken = GroupMetadata(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader=MemberId("stranger"),
        state_timestamp_ms=0,
        members=record.metadata.members,
    )
    state.apply(GroupStored(GroupId("other"), broken))
    with pytest.raises(AssertionError, match="stranger"):
        state.validate()


def test_no_trace_is_kept_of_offsets_that_are_gone() -> None:
    state = _groups()
    state._offsets[GROUP][TOPIC].clear()
    with pytest.raises(AssertionError, match="a topic without offsets"):
        state.validate()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda group: group.members.unsynced.add(MemberId("stranger")),
        lambda group: setattr(group.members, "leader", MemberId("stranger")),
        lambda group: setattr(group.members, "_joining", 1),
        lambda group: group.members._supporters.clear(),
        lambda group: setattr(group, "state", GroupState.EMPTY),
        lambda group: setattr(group, "generation", 0),
    ],
)
def test_a_group_whose_members_do_not_fit_its_state_is_not_valid(
    spoil: Callable[[object], object],
) -> None:
    group = _stable()
    group.validate()
    spoil(group)
    with pytest.raises(AssertionError):
        group.validate()


def _stable():  # type: ignore[no-untyped-def]
    driver = Driver()
    driver.stable({})
    return driver.group


def no_commit_behind_the_log(node: RaftNode) -> None:
    node._core.commit_index = LogIndex(node.last_index + 1)


def no_entry_of_a_later_term(node: RaftNode) -> None:
    node._core.hard_state = HardState(Term(0), None)


def no_leader_that_follows_another(node: RaftNode) -> None:
    node._core.leader = rid(2)


@pytest.mark.parametrize(
    "spoil", [no_commit_behind_the_log, no_entry_of_a_later_term, no_leader_that_follows_another]
)
def test_the_core_notices(spoil: Callable[[RaftNode], None]) -> None:
    group = Group.of(3)
    node = group.elect(1).node
    node.validate()
    spoil(node)
    with pytest.raises(AssertionError):
        node.validate()


def test_batches_of_a_producer_lie_in_the_order_of_the_log() -> None:
    states = ProducerStates()
    first, second = ProducerBatch(0, 0, 5, 6, 0), ProducerBatch(1, 1, 7, 7, 0)
    states._producers[1] = Producer(0, 0, (first, second))
    states.validate()
    states._producers[1] = Producer(0, 0, (second, first))
    with pytest.raises(AssertionError):
        states.validate()
