"""Plans leave nothing behind, keep copies apart, spread evenly, and move no more than they must."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.placement_plan import (
    Move,
    NoRoom,
    Replicas,
    Site,
    plan_drain,
    plan_rebalance,
)
from penstock.model.ids import TopicPartition
from tests.unit.client.fake_cluster import at

Placed = dict[TopicPartition, Replicas]


def sites(*nodes: int, **racks: str) -> list[Site]:
    return [Site(node, racks.get(f"r{node}")) for node in nodes]


def after(placed: Mapping[TopicPartition, Replicas], moves: Sequence[Move]) -> Placed:
    assert len({move.place for move in moves}) == len(moves)
    return {**placed, **{move.place: move.replicas for move in moves}}


def loads(placed: Placed) -> Counter[int]:
    return Counter(node for replicas in placed.values() for node in replicas)


def leads(placed: Placed) -> Counter[int]:
    return Counter(replicas[0] for replicas in placed.values())


def spread(count: Counter[int], nodes: Sequence[int]) -> int:
    return max(count[node] for node in nodes) - min(count[node] for node in nodes)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Site], Placed]:
    nodes = draw(st.integers(1, 6))
    racks = [None, "a", "b", "c"] if draw(st.booleans()) else [None]
    members = [Site(node, draw(st.sampled_from(racks))) for node in range(1, nodes + 1)]
    placed: Placed = {}
    for number in range(draw(st.integers(0, 15))):
        factor = draw(st.integers(1, min(3, nodes)))
        order = draw(st.permutations(range(1, nodes + 1)))
        placed[at(f"t{number % 3}", number)] = tuple(order[:factor])
    return members, placed


def rack_count(members: Sequence[Site], replicas: Replicas) -> int:
    racks = {site.node: site.rack for site in members}
    return len({racks[node] for node in replicas})


@given(clusters())
def test_a_drained_node_holds_nothing_and_copies_stay_apart(
    cluster: tuple[list[Site], Placed],
) -> None:
    members, placed = cluster
    try:
        outcome = after(placed, plan_drain(1, members, placed))
    except NoRoom:
        assert any(1 in replicas and len(replicas) == len(members) for replicas in placed.values())
        return
    for place, replicas in outcome.items():
        assert 1 not in replicas
        assert len(set(replicas)) == len(replicas) == len(placed[place])
        # Only the copy that left was replaced.
        assert len(set(replicas) - set(placed[place])) == (1 if 1 in placed[place] else 0)


@given(clusters())
def test_a_rebalanced_cluster_is_even_and_stays_as_it_is(
    cluster: tuple[list[Site], Placed],
) -> None:
    members, placed = cluster
    outcome = after(placed, plan_rebalance(members, placed))
    nodes = [site.node for site in members]
    for place, replicas in outcome.items():
        assert len(set(replicas)) == len(replicas) == len(placed[place])
        assert rack_count(members, replicas) >= rack_count(members, placed[place])
    if len({site.rack for site in members}) == 1:
        assert spread(loads(outcome), nodes) <= 1
    assert plan_rebalance(members, outcome) == []


def test_racks_are_used_before_the_least_loaded_node() -> None:
    placed = {at("t", 0): (1, 2), at("t", 1): (3, 1)}
    moves = plan_drain(2, sites(1, 2, 3, 4, r1="a", r2="b", r3="b", r4="a"), placed)
    assert moves == [Move(at("t", 0), (1, 3))]


def test_leaders_go_to_replicas_that_are_there_already() -> None:
    placed = {at("t", 0): (1, 2, 3), at("t", 1): (1, 3, 2), at("t", 2): (2, 3, 4)}
    outcome = after(placed, plan_drain(1, sites(1, 2, 3, 4), placed))
    assert outcome[at("t", 0)] == (3, 2, 4)
    assert leads(outcome) == {2: 2, 3: 1} or leads(outcome) == {2: 1, 3: 2}


def test_no_room_is_one_sentence_unless_fewer_copies_will_do() -> None:
    placed = {at("orders", 4): (1, 2, 3)}
    with pytest.raises(NoRoom, match=r"orders-4 has 3 copies .* node 2: add a node") as caught:
        plan_drain(2, sites(1, 2, 3), placed)
    assert str(caught.value).endswith(".")
    assert plan_drain(2, sites(1, 2, 3), placed, can_shrink=True) == [Move(at("orders", 4), (1, 3))]
    # The last copy is never given up.
    with pytest.raises(NoRoom, match="1 copy"):
        plan_drain(1, sites(1), {at("t", 0): (1,)}, can_shrink=True)


def test_a_new_node_gets_its_share_and_nothing_else_moves() -> None:
    placed: Placed = {
        at("t", number): ((1, 2, 3), (2, 3, 1), (3, 1, 2))[number % 3] for number in range(12)
    }
    moves = plan_rebalance(sites(1, 2, 3, 4), placed)
    outcome = after(placed, moves)
    assert loads(outcome) == {1: 9, 2: 9, 3: 9, 4: 9}
    assert leads(outcome) == {1: 3, 2: 3, 3: 3, 4: 3}
    for place, replicas in outcome.items():
        assert set(replicas) - set(placed[place]) <= {4}


def test_leaders_are_spread_without_moving_data() -> None:
    placed = {at("t", number): (1, 2, 3) for number in range(9)}
    outcome = after(placed, plan_rebalance(sites(1, 2, 3), placed))
    assert leads(outcome) == {1: 3, 2: 3, 3: 3}
    assert all(set(replicas) == {1, 2, 3} for replicas in outcome.values())


def test_leaders_are_spread_by_way_of_others() -> None:
    # Node 1 can give only to 2, and only 2 can give to 3.
    placed = {
        at("a", 0): (1, 2),
        at("a", 1): (1, 2),
        at("a", 2): (1, 2),
        at("b", 0): (2, 3),
        at("b", 1): (2, 3),
        at("c", 0): (4, 3),
        at("c", 1): (4, 3),
        at("d", 0): (3, 4),
        at("d", 1): (4, 1),
        at("d", 2): (4, 1),
    }
    outcome = after(placed, plan_rebalance(sites(1, 2, 3, 4), placed))
    assert spread(leads(outcome), [1, 2, 3, 4]) <= 1


def test_copies_that_share_a_rack_are_spread() -> None:
    members = sites(1, 2, 3, 4, r1="a", r2="a", r3="b", r4="c")
    outcome = after({}, plan_rebalance(members, {at("t", 0): (1, 2)}))
    ((first, second),) = outcome.values()
    assert first == 1
    assert second in (3, 4)


def test_dead_and_drained_nodes_keep_what_they_have() -> None:
    placed = {at("t", 0): (9, 1), at("t", 1): (1, 9)}
    outcome = after(placed, plan_rebalance(sites(1, 2), placed))
    assert all(9 in replicas for replicas in outcome.values())


def test_a_large_cluster_is_planned_quickly() -> None:
    placed: Placed = {at("t", number): (1, 2, 3) for number in range(3000)}
    outcome = after(placed, plan_rebalance(sites(*range(1, 11)), placed))
    assert spread(loads(outcome), range(1, 11)) <= 1
    assert spread(leads(outcome), range(1, 11)) <= 1
