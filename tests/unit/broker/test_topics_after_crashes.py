"""A crash at any point of making, growing or deleting topics heals at the next start."""

import asyncio
from collections.abc import Awaitable, Callable
from copy import deepcopy
from uuid import UUID

import pytest

from penstock.broker.topics import Growth, NewTopic
from penstock.model.errors import StartRefused
from penstock.model.ids import TopicName
from tests.unit.broker.fake_disk import Disk, Node
from tests.waiting import until

Work = Callable[[Node], Awaitable[object]]


async def prepare(disk: Disk) -> Node:
    node = await Node.start(disk)
    await node.topics.create(
        [NewTopic(name="old", partitions=2, configs={}), NewTopic(name="doomed", configs={})]
    )
    return node


async def states_during(work: Work) -> list[Disk]:
    """What a crash would leave after each commit and around each step on the disk."""
    disk = Disk()
    node = await prepare(disk)
    left: list[Disk] = [deepcopy(disk)]
    node.partitions.before_create = lambda name: left.append(deepcopy(disk))
    running = asyncio.ensure_future(work(node))
    while not running.done():
        await asyncio.sleep(0)
        if (disk.log, disk.directories) != (left[-1].log, left[-1].directories):
            left.append(deepcopy(disk))
    await running
    await node.topics.close()
    left.append(deepcopy(disk))
    return left


async def restarted(disk: Disk) -> Node:
    node = await Node.start(disk)
    await node.topics.close()
    return node


def check(work: Work, *allowed: dict[str, int]) -> None:
    async def body() -> None:
        states = await states_during(work)
        assert len(states) > 2
        for state in states:
            node = await restarted(state)
            served = node.served()
            assert served in allowed
            assert node.running() == served
            assert len(node.disk.directories) == sum(served.values()), "nothing is left over"
            again = await restarted(state)
            assert again.served() == served
        assert node.served() == allowed[-1], "what was answered holds"

    asyncio.run(body())


OLD = {"old": 2, "doomed": 1}


def test_creation() -> None:
    wanted = [NewTopic(name="new", partitions=3, configs={})]
    check(lambda node: node.topics.create(wanted), OLD, {**OLD, "new": 3})


def test_growth() -> None:
    wanted = [Growth(name="old", partitions=5)]
    check(lambda node: node.topics.grow(wanted), OLD, {**OLD, "old": 5})


def test_deletion() -> None:
    check(lambda node: node.topics.delete([TopicName("doomed")]), OLD, {"old": 2})


async def test_what_is_left_of_topics_deleted_meanwhile_is_removed() -> None:
    disk = Disk()
    await prepare(disk)
    disk.directories.add((UUID(int=4711), 0))
    node = await restarted(disk)
    assert node.served() == OLD
    assert len(disk.directories) == 3


async def test_topics_without_any_metadata_refuse_the_start() -> None:
    disk = Disk()
    await prepare(disk)
    disk.log.clear()
    with pytest.raises(StartRefused, match=r"2 topic\(s\)"):
        await Node.start(disk, registers=False)


async def test_replicas_that_find_no_room_are_made_when_there_is_some() -> None:
    disk = Disk()
    node = await prepare(disk)
    # Crash after the commit: the topic exists, and nothing of it is made.
    disk.room = 0
    await node.cluster.create_topics([NewTopic(name="new", partitions=2, configs={})])
    await node.cluster.grow_topics([Growth(name="old", partitions=3)])
    node = await Node.start(disk)
    assert node.served() == {"old": 3, "doomed": 1, "new": 2}
    assert node.running() == {"doomed": 1}
    disk.room = 10
    await until(lambda: node.running() == node.served())
    await node.topics.close()
