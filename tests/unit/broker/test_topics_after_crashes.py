"""A crash at any point of making, growing or deleting topics heals at the next start."""

import asyncio
from collections.abc import Awaitable, Callable
from copy import deepcopy
from uuid import UUID

import pytest

from penstock.broker.topics import Growth, NewTopic
from penstock.model.errors import Refused, StartRefused
from penstock.model.ids import TopicName
from tests.unit.broker.fake_disk import Disk, Node

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
            assert node.cluster.unfinished() == []
            assert node.cluster.doomed() == []
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


def test_a_directory_lost_after_the_topic_was_made_is_damage_and_not_an_empty_log() -> None:
    async def body() -> None:
        disk = Disk()
        node = await prepare(disk)
        old = node.cluster.topic("old")
        assert old is not None
        disk.directories.discard((old.topic_id, 1))
        node = await restarted(disk)
        first, second = node.topics.describe(old)
        assert (first.leader, second.leader) == (0, -1)
        assert second.offline == [0]

    asyncio.run(body())


def test_directories_that_the_metadata_does_not_know_are_left_alone() -> None:
    async def body() -> None:
        disk = Disk()
        await prepare(disk)
        stranger = (UUID(int=4711), 0)
        disk.directories.add(stranger)
        node = await restarted(disk)
        assert node.served() == OLD
        assert stranger in disk.directories

    asyncio.run(body())


def test_topics_without_any_metadata_refuse_the_start() -> None:
    async def body() -> None:
        disk = Disk()
        await prepare(disk)
        disk.log.clear()
        with pytest.raises(StartRefused, match=r"2 topic\(s\)"):
            await Node.start(disk)

    asyncio.run(body())


def test_a_topic_that_finds_no_room_at_start_is_finished_when_there_is_some() -> None:
    async def body() -> None:
        disk = Disk()
        node = await prepare(disk)
        # Crash after the first commit: the topic is announced, and nothing of it is made.
        await node.cluster.create_topics([NewTopic(name="new", partitions=2, configs={})])
        await node.cluster.grow_topics([Growth(name="old", partitions=3)])
        disk.room = 0
        node = await Node.start(disk)
        assert node.served() == OLD
        outcomes = await node.topics.create([NewTopic(name="new", configs={})])
        assert isinstance(outcomes["new"], Refused), "its name is taken"
        disk.room = 10
        for _ in range(1000):
            await asyncio.sleep(0.001)
            if not node.cluster.unfinished():
                break
        assert node.served() == {"old": 3, "doomed": 1, "new": 2}
        await node.topics.close()

    asyncio.run(body())
