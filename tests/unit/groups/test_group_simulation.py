"""Consumers that join, leave, crash, stall and come back never own one partition twice, every
request is answered, and once the faults end everything is assigned to anyone who is there."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.groups.transitions import GroupState
from tests.unit.groups.simulation import (
    HEARTBEAT_MS,
    PARTITIONS,
    REBALANCE_MS,
    SESSION_MS,
    Client,
    World,
)

FAULTS = (
    "start",
    "start",
    "leave",
    "crash",
    "pause",
    "long pause",
    "reconnect",
    "replace",
    "restart broker",
    "disk full",
    "disk healed",
)
steps = st.lists(
    st.tuples(st.sampled_from(FAULTS), st.integers(0, 9), st.sampled_from((0, 3, 40, 120, 2_500))),
    min_size=1,
    max_size=14,
)

# Its client gives up on a join, and the next one overtakes it.
A_LATE_JOIN = [("replace", 0, 120), ("disk full", 0, 120), ("reconnect", 0, 0)]


def act(world: World, fault: str, choice: int, cooperative: bool) -> None:
    clients = world.live_clients()
    if fault == "start":
        # Instances are unique, as their users have to take care.
        instance_id = f"i{len(world.clients)}" if choice % 3 == 0 else None
        client = Client(world, cooperative=cooperative, instance_id=instance_id)
        world.clients.append(client)
    elif fault == "restart broker":
        world.restart()
    elif fault in ("disk full", "disk healed"):
        world.fails_to_store = fault == "disk full"
    elif clients:
        act_on(clients[choice % len(clients)], fault, cooperative)


def act_on(client: Client, fault: str, cooperative: bool) -> None:
    world = client.world
    if fault == "leave":
        client.leave()
    elif fault == "crash":
        client.crash()
    elif fault == "pause":
        client.pause(SESSION_MS // 2)
    elif fault == "long pause":
        client.pause(SESSION_MS + REBALANCE_MS + 1_000)
    elif fault == "reconnect":
        client.reconnect()
    elif client.instance_id is not None:
        client.crash()
        again = Client(world, cooperative=cooperative, instance_id=client.instance_id)
        world.clients.append(again)


def settle(world: World) -> None:
    world.fails_to_store = False
    world.run(3 * (SESSION_MS + REBALANCE_MS) + 10 * HEARTBEAT_MS)


@pytest.mark.parametrize("cooperative", [False, True])
@settings(max_examples=400, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), plan=steps)
@example(seed=105603349, plan=A_LATE_JOIN)
def test_no_partition_has_two_owners(
    cooperative: bool, seed: int, plan: list[tuple[str, int, int]]
) -> None:
    world = World(seed)
    act(world, "start", 1, cooperative)
    for fault, choice, pause_ms in plan:
        act(world, fault, choice, cooperative)
        world.run(pause_ms)
    settle(world)
    clients = world.live_clients()
    owned = [partition for client in clients for partition in client.owned]
    assert sorted(owned) == (sorted(PARTITIONS) if clients else [])
    assert all(client.is_joined for client in clients)
    expected = GroupState.STABLE if clients else GroupState.EMPTY
    assert world.group.state is expected
    assert set(world.group.members.ids()) == {client.member_id for client in clients}
    # Heartbeats come and go; joins and syncs wait only for a rebalance, and there is none.
    assert all(request.client.is_joined for request in world.parked)


@pytest.mark.parametrize("cooperative", [False, True])
def test_a_thousand_consumers_arrive_together(cooperative: bool) -> None:
    world = World(seed=7)
    for _ in range(1_000):
        world.clients.append(Client(world, cooperative=cooperative, instance_id=None))
    world.run(60_000)
    assert world.group.state is GroupState.STABLE
    assert len(world.group.members) == 1_000
    assert world.group.generation <= 3
