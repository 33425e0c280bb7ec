"""Who belongs to the metadata's own group, and who of them votes."""

from penstock.cluster.brokers import DRAINED
from penstock.cluster.metadata_group import metadata_members
from penstock.cluster.records import BrokerConfigStored, BrokerRemoved, BrokerStored
from penstock.cluster.state import ClusterState
from penstock.model.ids import BrokerId
from tests.unit.cluster.fakes import broker

FOUNDERS = [broker(number).replica_id for number in (1, 2, 3)]


def state_of(*numbers: int) -> ClusterState:
    state = ClusterState()
    for number in numbers:
        state.apply(BrokerStored(broker=broker(number)))
    return state


def voters(state: ClusterState, own: int = 1) -> list[int]:
    return [each.node for each in metadata_members(state, FOUNDERS, broker(own).replica_id).voters]


def learners(state: ClusterState, own: int = 1) -> list[int]:
    return [
        each.node for each in metadata_members(state, FOUNDERS, broker(own).replica_id).learners
    ]


def test_founders_belong_to_it_before_they_register() -> None:
    """Else the first one to register would vote the others out."""
    assert voters(ClusterState()) == [1, 2, 3]
    assert voters(state_of(2)) == [1, 2, 3]


def test_five_vote_and_the_rest_learn() -> None:
    state = state_of(0, 1, 2, 3, 4, 5, 6)
    assert voters(state) == [1, 0, 2, 3, 4]
    assert learners(state) == [5, 6]


def test_the_asker_comes_first_so_that_the_controller_stays() -> None:
    assert voters(state_of(1, 2, 3), own=3) == [3, 1, 2]
    assert voters(state_of(1, 2, 3), own=9) == [1, 2, 3]


def test_a_removed_founder_is_out_until_it_comes_back() -> None:
    state = state_of(1, 2, 3)
    state.apply(BrokerRemoved(broker=BrokerId(2)))
    assert voters(state) == [1, 3]
    state.apply(BrokerStored(broker=broker(2, directory="new")))
    members = metadata_members(state, FOUNDERS, broker(1).replica_id)
    assert broker(2, directory="new").replica_id in members.voters


def test_a_new_directory_replaces_the_old_one() -> None:
    state = state_of(1, 2)
    state.apply(BrokerStored(broker=broker(3, directory="new")))
    members = metadata_members(state, FOUNDERS, broker(1).replica_id)
    assert members.voters[2] == (3, "new")
    assert members.learners == []


def test_a_drained_broker_learns_only() -> None:
    state = state_of(1, 2, 3)
    state.apply(BrokerConfigStored(broker="1", configs={DRAINED: "true"}))
    assert voters(state) == [2, 3]
    assert learners(state) == [1]
    for number in "23":
        state.apply(BrokerConfigStored(broker=number, configs={DRAINED: "true"}))
    assert voters(state) == [1], "somebody has to vote"
