"""Where partitions move, how a move ends or is called off, and how internal topics spread."""

import pytest

from penstock.cluster.brokers import DRAINED
from penstock.cluster.reassignment_decisions import (
    Ended,
    Move,
    decide_ends,
    decide_internal_growth,
    decide_move,
)
from penstock.cluster.records import BrokerConfigStored, BrokerStored
from penstock.cluster.state import ClusterState
from penstock.cluster.topic import Assignment, Topic
from penstock.cluster.topic_decisions import decide_creation
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId
from tests.unit.cluster.fakes import broker
from tests.unit.cluster.test_topic_decisions import applied, new, rules, with_brokers


def with_topic(brokers: int, *places: list[int]) -> ClusterState:
    state = with_brokers(brokers)
    wanted = new("t", assignments=list(enumerate(places)))
    applied(state, decide_creation(state, [wanted], rules())[0])
    return state


def topic_of(state: ClusterState, name: str = "t") -> Topic:
    topic = state.topic(name)
    assert topic is not None
    return topic


def moved(state: ClusterState, replicas: list[int] | None, partition: int = 0) -> Assignment:
    applied(state, decide_move(state, Move("t", partition, replicas))[0])
    return topic_of(state).assignments[partition]


def test_a_move_names_where_it_goes_and_where_it_came_from() -> None:
    state = with_topic(4, [0, 1, 2])
    founders = topic_of(state).assignments[0].founders
    now = moved(state, [3, 1, 2])
    assert (now.replicas, now.founders, now.previous) == ((3, 1, 2), founders, (0, 1, 2))
    assert now.hosts == (3, 1, 2, 0)


def test_another_order_is_no_move() -> None:
    state = with_topic(3, [0, 1, 2])
    now = moved(state, [2, 0, 1])
    assert (now.replicas, now.previous) == ((2, 0, 1), None)
    assert decide_move(state, Move("t", 0, [2, 0, 1]))[0] == [], "asked again, it is done"


def test_a_second_move_keeps_the_place_to_go_back_to() -> None:
    state = with_topic(5, [0, 1])
    moved(state, [2, 1])
    now = moved(state, [3, 4])
    assert (now.replicas, now.previous) == ((3, 4), (0, 1))
    back = moved(state, None)
    assert (back.replicas, back.previous) == ((0, 1), (0, 1)), "still to be brought in line"


@pytest.mark.parametrize(
    ("move", "reason"),
    [
        (Move("u", 0, [0]), Reason.UNKNOWN_TOPIC_OR_PARTITION),
        (Move("t", 1, [0]), Reason.UNKNOWN_TOPIC_OR_PARTITION),
        (Move("t", -1, [0]), Reason.UNKNOWN_TOPIC_OR_PARTITION),
        (Move("t", 0, None), Reason.NO_REASSIGNMENT_IN_PROGRESS),
        (Move("t", 0, []), Reason.INVALID_REPLICA_ASSIGNMENT),
        (Move("t", 0, [0, 0]), Reason.INVALID_REPLICA_ASSIGNMENT),
        (Move("t", 0, [9]), Reason.INVALID_REPLICA_ASSIGNMENT),
        (Move("t", 0, [0], can_change_factor=False), Reason.INVALID_REPLICATION_FACTOR),
    ],
)
def test_a_bad_move_is_refused(move: Move, reason: Reason) -> None:
    with pytest.raises(Refused) as caught:
        decide_move(with_topic(3, [0, 1]), move)
    assert caught.value.reason == reason


def test_a_move_ends_unless_it_goes_elsewhere_by_now() -> None:
    state = with_topic(4, [0], [1])
    first, second = moved(state, [2]), moved(state, [2], 1)
    topic = topic_of(state)
    ended = [Ended(topic.partition_id(0), first), Ended(topic.partition_id(1), second)]
    moved(state, [3], 1)
    applied(state, decide_ends(state, ended)[0])
    now = topic_of(state).assignments
    assert (now[0].replicas, now[0].previous) == ((2,), None)
    assert (now[1].replicas, now[1].previous) == ((3,), (1,))
    assert decide_ends(state, ended)[0] == []


# Internal topics


FACTORS = {"__consumer_offsets": 3}


def internal(brokers: int = 1) -> ClusterState:
    state = with_brokers(brokers)
    wanted = new("__consumer_offsets", internal=True, partitions=6)
    applied(state, decide_creation(state, [wanted, new("mine")], rules())[0])
    return state


def grow(state: ClusterState, *alive: int) -> Topic:
    living = frozenset(BrokerId(number) for number in alive)
    applied(state, decide_internal_growth(state, FACTORS, living)[0])
    return topic_of(state, "__consumer_offsets")


def test_internal_topics_rise_to_three_as_brokers_join() -> None:
    state = internal()
    assert grow(state, 0).assignments[0].replicas == (0,)
    for number in (1, 2):
        state.apply(BrokerStored(broker=broker(number)))
    topic = grow(state, 0, 1, 2)
    assert all(set(each.replicas) == {0, 1, 2} for each in topic.assignments)
    assert all(each.previous == (0,) for each in topic.assignments)
    # Broker 0 leads the three partitions of the users' topic.
    assert state.preferred_counts == {0: 3, 1: 3, 2: 3}, "leaders are spread"
    assert topic_of(state, "mine").assignments[0].replicas == (0,), "users' topics stay"
    assert decide_internal_growth(state, FACTORS, frozenset())[0] == [], "it is moving"


def test_only_living_and_usable_brokers_get_internal_replicas() -> None:
    state = internal()
    for number in (1, 2, 3):
        state.apply(BrokerStored(broker=broker(number)))
    state.apply(BrokerConfigStored(broker="3", configs={DRAINED: "true"}))
    assert grow(state, 0, 1, 3).assignments[0].replicas == (0,), "not enough of them yet"
    assert set(grow(state, 0, 1, 2, 3).assignments[0].replicas) == {0, 1, 2}
