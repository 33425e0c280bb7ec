"""What is seen of a cluster and how moves are ordered, watched and given up on."""

from typing import cast

import pytest

from penstock.client.cluster import ClusterClient
from penstock.client.errors import ClientError
from penstock.client.kafka_connection import KafkaConnection
from penstock.client.moves import (
    MOVES_AT_ONCE,
    Patience,
    StillMoving,
    carry_out,
    lead_by,
    lead_by_preferred,
)
from penstock.client.placement_plan import Move, Site
from penstock.protocol.kafka.error_codes import ErrorCode
from tests.unit.client.fake_cluster import FakeCluster, at


class Time:
    """A clock that only moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def client_of(fake: FakeCluster) -> ClusterClient:
    return ClusterClient(cast("KafkaConnection", fake))


def patience(wait_s: float = 60.0) -> Patience:
    time = Time()
    return Patience(wait_s, monotonic=time.monotonic, sleep=time.sleep)


def ignore(amount: int) -> None:
    """Nobody looks at the progress."""


def test_nodes_are_seen_with_state_role_and_rack() -> None:
    fake = FakeCluster(5)
    fake.voters = {1, 2, 3}
    fake.down = {3}
    fake.drained = {4}
    fake.racks = {2: "west"}
    fake.add("orders", 0, 2, 3, 7)
    view = client_of(fake).view()
    assert (view.cluster_id, view.controller) == ("fake", 1)
    assert [node.node for node in view.nodes] == [1, 2, 3, 4, 5, 7]
    assert [node.is_up for node in view.nodes] == [True, True, False, True, True, False]
    assert [node.role for node in view.nodes] == ["voter"] * 3 + ["learner"] * 2 + [None]
    assert [node.node for node in view.nodes if node.is_drained] == [4]
    # A node that is only known from its replicas has no address.
    assert view.node(7).endpoint is None
    assert view.sites() == [Site(1), Site(2, "west"), Site(5)]
    assert [one.place for one in view.held_by(3)] == [at("orders", 0)]


def test_partitions_that_lack_a_copy_are_known() -> None:
    fake = FakeCluster()
    fake.add("orders", 0, 1, 2)
    fake.add("orders", 1, 2, 3)
    fake.down = {3}
    partitions = client_of(fake).partitions()
    assert [one.is_under_replicated for one in partitions] == [False, True]


def test_an_unknown_node_is_told_with_the_known_ones() -> None:
    with pytest.raises(ClientError, match="There is no node 9; the cluster has 1, 2, 3"):
        client_of(FakeCluster()).view().node(9)


def test_moves_are_ordered_a_few_at_a_time_and_watched_to_their_end() -> None:
    fake = FakeCluster(4)
    moves = []
    for number in range(2 * MOVES_AT_ONCE + 1):
        fake.add("t", number, 1, 2, 3)
        moves.append(Move(at("t", number), (4, 2, 3)))
    seen: list[int] = []
    carry_out(client_of(fake), moves, patience=patience(), advance=seen.append)
    assert all(replicas == [4, 2, 3] for replicas in fake.replicas.values())
    assert sum(seen) == len(moves)
    assert [len(order) for order in fake.orders] == [MOVES_AT_ONCE, MOVES_AT_ONCE, 1]


def test_a_move_that_is_not_listed_yet_is_not_taken_for_done() -> None:
    """Another broker may answer that has not heard of the order yet."""
    fake = FakeCluster(4)
    fake.add("t", 0, 1, 2)
    fake.blind_looks = 3
    moves = [Move(at("t", 0), (4, 2))]
    carry_out(client_of(fake), moves, patience=patience(), advance=ignore)
    assert fake.replicas[at("t", 0)] == [4, 2]


def test_waiting_ends_with_how_much_is_left() -> None:
    fake = FakeCluster(4, steps_per_move=10**9)
    fake.add("t", 0, 1)
    fake.add("t", 1, 1)
    moves = [Move(at("t", 0), (4,)), Move(at("t", 1), (4,))]
    with pytest.raises(StillMoving, match="2 of 2 partitions still"):
        carry_out(client_of(fake), moves, patience=patience(3.0), advance=ignore)


def test_a_topic_that_is_deleted_meanwhile_is_no_obstacle() -> None:
    fake = FakeCluster(4, steps_per_move=10**9)
    fake.add("t", 0, 1)
    time = Time()

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        fake.moving.clear()
        fake.replicas.clear()

    waiting = Patience(60.0, monotonic=time.monotonic, sleep=sleep)
    carry_out(client_of(fake), [Move(at("t", 0), (4,))], patience=waiting, advance=ignore)


def test_between_two_controllers_an_order_is_given_again() -> None:
    fake = FakeCluster(4)
    fake.add("t", 0, 1)
    fake.failures = [ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT]
    client_of(fake).reassign([Move(at("t", 0), (4,))])
    assert fake.orders == [[(at("t", 0), [4])]]


def test_a_refusal_is_told_with_the_partition() -> None:
    fake = FakeCluster()
    fake.add("t", 0, 1)
    fake.failures = [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    with pytest.raises(ClientError, match="refused the move of t-0: invalid replica assignment"):
        client_of(fake).reassign([Move(at("t", 0), (9,))])


def test_leaders_become_the_preferred_ones() -> None:
    fake = FakeCluster()
    fake.add("t", 0, 1, 2, leader=2)
    fake.add("t", 1, 2, 1)
    assert lead_by_preferred(client_of(fake), patience=patience()) == 0
    assert fake.leaders == {at("t", 0): 1, at("t", 1): 2}


def test_a_preferred_leader_that_is_down_is_left_for_later() -> None:
    fake = FakeCluster()
    fake.add("t", 0, 1, 2, leader=2)
    fake.down = {1}
    assert lead_by_preferred(client_of(fake), patience=patience()) == 0
    with pytest.raises(ClientError, match=r"did not become the leader of .*: preferred"):
        lead_by(client_of(fake), at("t", 0), 1, patience=patience(2.0))
