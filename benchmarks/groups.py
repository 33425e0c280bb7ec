"""Groups whose partitions the broker assigns (KIP-848): many members that only heartbeat, and how
soon a large group has settled after a member came, one left, and its coordinator was killed."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic
from tests.e2e.cluster_nodes import Cluster

from benchmarks.figures import Figure, Note
from benchmarks.group_members import Line, Member
from benchmarks.modes import Mode
from benchmarks.probe import TimedStart, cpu_seconds, rss_megabytes
from penstock.groups.partitioner import partition_of
from penstock.model.ids import GroupId

TOPIC = "groups"
GROUP = "large"
OFFSETS = "__consumer_offsets"
# A node takes 10,000 connections, and some are for others.
MEMBERS_PER_CONNECTION = 2
# The broker's default, and the shortest that it takes.
INTERVAL_S = 5.0
INTERVALS_MAX = 3.0
TIMEOUT_S = 300.0
CONNECTING_AT_ONCE = 50


def run(mode: Mode, folder: Path) -> Iterator[Figure | Note]:
    yield from quiet_groups(mode, folder)
    yield from large_group(mode, folder)
    text = (
        f"Members heartbeat every {INTERVAL_S:g} s and confirm at once what they are told. "
        f"{MEMBERS_PER_CONNECTION} members of the quiet groups share a connection. The members of "
        "the large group run on the machine of the three nodes."
    )
    yield Note(topic="groups", text=text)


# Members that only heartbeat


def quiet_groups(mode: Mode, folder: Path) -> Iterator[Figure]:
    broker = TimedStart(folder / "quiet")
    try:
        create(broker.bootstrap, mode.group_partitions)
        alone = rss_megabytes(broker.pid)
        found = asyncio.run(heartbeats(mode, broker))
    finally:
        broker.kill()
    name = "10,000 members over 100 groups"
    yield Figure(
        workload=name, name="broker CPU", value=found.used, unit="% of a core", at_most=15.0
    )
    memory = found.memory - alone
    yield Figure(workload=name, name="memory", value=memory, unit="MB", at_most=100.0)
    connections = found.memory_connected - alone
    yield Figure(workload=name, name="of it, for connections", value=connections, unit="MB")


class Quiet(NamedTuple):
    # While all heartbeat, in percent of a core.
    used: float
    # In MB: before anybody has joined, and while all heartbeat.
    memory_connected: float
    memory: float


async def heartbeats(mode: Mode, broker: TimedStart) -> Quiet:
    members = make_members(mode, broker.bootstrap)
    gate, chance = asyncio.Semaphore(CONNECTING_AT_ONCE), Random(1)
    await asyncio.gather(*(connected(member.line, gate) for member in members))
    memory_connected = rss_megabytes(broker.pid)
    tasks = [asyncio.create_task(live(member, gate, chance)) for member in members]
    async with asyncio.timeout(TIMEOUT_S):
        while not _own_all(mode, members):
            await asyncio.sleep(INTERVAL_S / 5)
    # What joining leaves behind is not idling.
    await asyncio.sleep(2 * INTERVAL_S)
    since, begun, beats = cpu_seconds(broker.pid), time.perf_counter(), total_beats(members)
    await asyncio.sleep(max(mode.idle_seconds, 2 * INTERVAL_S))
    seconds = time.perf_counter() - begun
    rate, expected = (total_beats(members) - beats) / seconds, len(members) / INTERVAL_S
    assert rate > 0.8 * expected, f"only {rate:.0f} heartbeats a second, not {expected:.0f}"
    # On a busy machine the members come late: counted is what all of their heartbeats would cost.
    used = 100 * (cpu_seconds(broker.pid) - since) / seconds * max(expected / rate, 1.0)
    fenced = sum(member.fenced for member in members)
    assert not fenced, f"{fenced} members were put out"
    memory = rss_megabytes(broker.pid)
    await end(tasks)
    return Quiet(used, memory_connected, memory)


def _own_all(mode: Mode, members: Sequence[Member]) -> bool:
    owned = sum(member.partition_count for member in members)
    return owned == mode.groups * mode.group_partitions


def make_members(mode: Mode, bootstrap: str) -> list[Member]:
    members: list[Member] = []
    for number in range(0, mode.group_members, MEMBERS_PER_CONNECTION):
        group = f"quiet-{number // MEMBERS_PER_CONNECTION % mode.groups}"
        line = Line([bootstrap], group)
        numbers = range(number, min(number + MEMBERS_PER_CONNECTION, mode.group_members))
        members += [Member(line, group, f"member-{each}", TOPIC) for each in numbers]
    return members


async def connected(line: Line, gate: asyncio.Semaphore) -> None:
    async with gate:
        await line.open()


async def live(member: Member, gate: asyncio.Semaphore, chance: Random) -> None:
    """Joins when it is its turn, and heartbeats from then on."""
    while not member.epoch:
        async with gate:
            with suppress(ConnectionError):
                await member.beat()
    await member.run(INTERVAL_S, chance, _nothing)


def total_beats(members: Sequence[Member]) -> int:
    return sum(member.beats for member in members)


def _nothing() -> None:
    pass


# A large group


def large_group(mode: Mode, folder: Path) -> Iterator[Figure]:
    with Cluster(folder) as cluster:
        cluster.create_topic(TOPIC, partitions=mode.large_group_partitions)
        rounds = asyncio.run(settling(mode, cluster))
    name = "200 members over 2,000 partitions"
    for event, seconds in rounds.items():
        yield Figure(
            workload=name,
            name=f"settled after {event}",
            value=seconds / INTERVAL_S,
            unit="heartbeat intervals",
            at_most=INTERVALS_MAX,
        )


async def settling(mode: Mode, cluster: Cluster) -> dict[str, float]:
    """For each event how long the group took, in seconds."""
    group = LargeGroup(mode, cluster)
    try:
        for _ in range(mode.large_group_members):
            group.add()
        await group.settled()
        seconds = {"a join": await group.join(), "a leave": await group.leave()}
        seconds["kill -9 of the coordinator"] = await group.fail_over()
        return seconds
    finally:
        await end(group.tasks.values())


class LargeGroup:
    def __init__(self, mode: Mode, cluster: Cluster) -> None:
        self._partitions, self._cluster = mode.large_group_partitions, cluster
        self._bootstrap = [node.bootstrap for node in cluster.nodes.values()]
        self._chance = Random(1)
        self._changed = asyncio.Event()
        self._made = 0
        self.tasks: dict[Member, asyncio.Task[None]] = {}

    def add(self) -> Member:
        self._made += 1
        member = Member(Line(self._bootstrap, GROUP), GROUP, f"member-{self._made}", TOPIC)
        running = member.run(INTERVAL_S, self._chance, self._changed.set)
        self.tasks[member] = asyncio.create_task(running)
        return member

    async def settled(self) -> None:
        """Until everybody is in one epoch, and together they own everything."""
        async with asyncio.timeout(TIMEOUT_S):
            while not self._is_settled():
                self._changed.clear()
                await self._changed.wait()

    def _is_settled(self) -> bool:
        epochs = {member.epoch for member in self.tasks}
        owned = sum(member.partition_count for member in self.tasks)
        return len(epochs) == 1 and 0 not in epochs and owned == self._partitions

    async def join(self) -> float:
        started = time.perf_counter()
        self.add()
        await self.settled()
        return time.perf_counter() - started

    async def leave(self) -> float:
        started = time.perf_counter()
        member = next(iter(self.tasks))
        await end([self.tasks.pop(member)])
        await member.beat(-1)
        await self.settled()
        return time.perf_counter() - started

    async def fail_over(self) -> float:
        """Until everybody was answered by the next coordinator, and the group is settled."""
        partitions = AdminClient({"bootstrap.servers": ",".join(self._bootstrap)})
        count = len(partitions.list_topics(OFFSETS, timeout=30).topics[OFFSETS].partitions)
        leader = self._cluster.leader(OFFSETS, partition_of(GroupId(GROUP), count))
        started = time.perf_counter()
        leader.kill()
        beats = {member: member.beats for member in self.tasks}
        async with asyncio.timeout(TIMEOUT_S):
            while any(member.beats <= beats[member] + 1 for member in self.tasks):
                self._changed.clear()
                await self._changed.wait()
        await self.settled()
        return time.perf_counter() - started


async def end(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in list(tasks):
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def create(bootstrap: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(TOPIC, partitions)], operation_timeout=TIMEOUT_S)
    made[TOPIC].result(TIMEOUT_S)
