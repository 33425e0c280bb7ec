"""A group whose members come, go and change their protocol at random, and whose coordinator does.

Whatever happens, no partition is used by two, nobody who is in time is put out, and a group that is
left in peace settles: it has the type that its members speak, and every partition is in use.
"""

import asyncio

import pytest

from tests.unit.groups.migration_world import ClassicClient, World

BUSY_TICKS = 60
EVENT_CHANCE = 0.35
# Longer than any session or rebalance, and then some for what follows.
QUIET_TICKS = 75
# Enough for a group to take over what is new.
FEW_TICKS = 15
SEEDS = 30


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_partition_is_used_by_two_while_a_group_moves(seed: int) -> None:
    check_seed(seed)


def check_seed(seed: int) -> None:
    asyncio.run(_play(World(seed)))


async def _play(world: World) -> None:
    for _ in range(BUSY_TICKS):
        if world.random.random() < EVENT_CHANCE:
            await world.happen()
            world.check()
        await world.tick()
    for _ in range(QUIET_TICKS):
        await world.tick()
    await _check_settled(world)
    await world.grow()
    for _ in range(FEW_TICKS):
        await world.tick()
    await _check_settled(world)
    await world.close()


async def _check_settled(world: World) -> None:
    assert world.evicted == []
    if not world.clients:
        return
    partitions = range(world.rig.catalog.topics["t"].partitions)
    used = sorted(partition for client in world.clients for partition in client.used)
    assert used == list(partitions)
    (listed,) = await world.rig.coordinator.list_groups()
    is_classic = all(isinstance(client, ClassicClient) for client in world.clients)
    assert (listed.group_type, listed.state) == ("classic" if is_classic else "consumer", "Stable")
