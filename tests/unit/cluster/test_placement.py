"""Where replicas go: balanced, over racks, the same on every node."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.placement import Placement, candidates
from penstock.model.ids import BrokerId
from tests.unit.cluster.fakes import broker


def placement(count: int, *, racks: int = 0, alive: set[int] | None = None) -> Placement:
    living = range(count) if alive is None else alive
    return Placement(
        [broker(n, rack=f"r{n % racks}" if racks else None) for n in range(count)],
        alive=frozenset(BrokerId(n) for n in living),
        replica_counts={},
        preferred_counts={},
    )


@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 60))
def test_replicas_and_leaders_are_spread_evenly(brokers: int, factor: int, count: int) -> None:
    factor = min(factor, brokers)
    placing = placement(brokers)
    placed = [placing.place(factor) for _ in range(count)]
    assert all(len(set(replicas)) == factor for replicas in placed)
    held = Counter(node for replicas in placed for node in replicas)
    led = Counter(replicas[0] for replicas in placed)
    assert max(held.values()) - min(held[BrokerId(n)] for n in range(brokers)) <= 1
    assert max(led.values()) - min(led[BrokerId(n)] for n in range(brokers)) <= 1


@given(st.integers(2, 12), st.integers(1, 4), st.integers(1, 40), st.integers(2, 4))
def test_a_partition_lies_in_as_many_racks_as_it_can(
    brokers: int, factor: int, count: int, racks: int
) -> None:
    factor = min(factor, brokers)
    placing = placement(brokers, racks=racks)
    for _ in range(count):
        used = {node % racks for node in placing.place(factor)}
        assert len(used) == min(factor, racks, brokers)


def test_the_same_brokers_give_the_same_places() -> None:
    first = [placement(5, racks=2).place(3) for _ in range(1)]
    assert first == [placement(5, racks=2).place(3) for _ in range(1)]


def test_what_lies_elsewhere_already_counts() -> None:
    placing = Placement(
        [broker(n) for n in range(3)],
        alive=frozenset({BrokerId(0), BrokerId(1), BrokerId(2)}),
        replica_counts={BrokerId(0): 5, BrokerId(1): 3},
        preferred_counts={BrokerId(0): 5, BrokerId(2): 9},
    )
    assert placing.place(2) == (1, 2)


def test_a_dead_broker_is_no_first_choice_for_a_leader() -> None:
    placing = placement(3, alive={1, 2})
    assert {placing.place(3)[0] for _ in range(6)} == {1, 2}


def test_the_dead_are_skipped_if_there_are_enough_others() -> None:
    brokers = [broker(n) for n in range(4)]
    alive = frozenset({BrokerId(0), BrokerId(2), BrokerId(3)})
    assert [each.id for each in candidates(brokers, alive, 3)] == [0, 2, 3]
    assert candidates(brokers, alive, 4) == brokers


def test_an_extended_partition_keeps_its_replicas_and_may_get_another_leader() -> None:
    placing = Placement(
        [broker(n) for n in range(3)],
        alive=frozenset({BrokerId(0), BrokerId(1), BrokerId(2)}),
        replica_counts={BrokerId(0): 3},
        preferred_counts={BrokerId(0): 3},
    )
    grown = [placing.extend([BrokerId(0)], 3) for _ in range(3)]
    assert all(set(replicas) == {0, 1, 2} for replicas in grown)
    assert {replicas[0] for replicas in grown} == {0, 1, 2}
