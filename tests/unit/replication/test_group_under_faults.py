"""Proves that a group loses, doubles and reorders nothing that it acknowledged, whatever happens.

Idempotent producers send to any leader and send again what was not acknowledged, while nodes are
cut off, crash, restart, and run out of room.
"""

import asyncio
import errno
from pathlib import Path
from random import Random

import pytest

from penstock.model.errors import Refused
from penstock.model.topic_config import TopicConfig
from penstock.replication.replica import Replica
from tests.waiting import until

from .group_rig import Group, group_of, log_bytes
from .rig import batch, read_values

BATCHES = 60


class Producer:
    def __init__(self, producer_id: int, group: Group, random: Random) -> None:
        self.producer_id = producer_id
        self.group = group
        self.random = random
        self.acknowledged = 0

    def value(self, number: int) -> bytes:
        return b"%d:%d" % (self.producer_id, number)

    async def run(self) -> None:
        while self.acknowledged < BATCHES:
            leaders = [replica for replica in self.group.replicas if replica.is_leader]
            if not leaders or not await self._send(self.random.choice(leaders)):
                await asyncio.sleep(0.005)

    async def _send(self, leader: Replica) -> bool:
        """A window of batches; the first that is not acknowledged ends it."""
        last = min(BATCHES, self.acknowledged + self.random.randint(1, 5))
        try:
            waits = [
                leader.append(
                    batch(
                        self.value(number),
                        producer_id=self.producer_id,
                        epoch=0,
                        sequence=number,
                    )
                ).done
                for number in range(self.acknowledged, last)
            ]
            for done in waits:
                if done is not None:
                    await done
                self.acknowledged += 1
        except Refused:
            return False
        return True


async def trouble(group: Group, random: Random, is_over: asyncio.Event) -> None:
    network = group.network
    while not is_over.is_set():
        number = random.choice(sorted(network.nodes))
        match random.randrange(4):
            case 0:
                network.isolate(number)
                await asyncio.sleep(random.random() * 0.3)
                network.heal()
            case 1:
                other = random.choice(sorted(network.nodes))
                network.cut.add((number, other))
                await asyncio.sleep(random.random() * 0.2)
                network.heal()
            case 2:
                faults = network.nodes[number].faults
                faults.write_error = errno.ENOSPC
                await asyncio.sleep(random.random() * 0.1)
                faults.write_error = None
            case 3:
                await group.crash(number)
                await asyncio.sleep(random.random() * 0.1)
                await group.open(group.start_node(number))
        await asyncio.sleep(random.random() * 0.2)


def is_equal(group: Group) -> bool:
    """One leads, as all others know, and they have what it has."""
    ends = {replica.log_end_offset for replica in group.replicas}
    ends |= {replica.high_watermark for replica in group.replicas}
    leading = [replica.id for replica in group.replicas if replica.is_settled]
    return len(ends) == 1 and [replica.leader for replica in group.replicas] == leading * 3


@pytest.mark.parametrize("seed", range(6))
async def test_nothing_acknowledged_is_lost_doubled_or_reordered(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    config = TopicConfig(segment_bytes=2_000)
    async with group_of(tmp_path, 1, 2, 3, config=config) as group:
        producers = [Producer(number, group, random) for number in range(3)]
        is_over = asyncio.Event()
        troubling = asyncio.create_task(trouble(group, random, is_over))
        try:
            await asyncio.gather(*(one.run() for one in producers))
        finally:
            is_over.set()
            await troubling
        assert [replica.stopped_because for replica in group.replicas] == [None] * 3
        await until(lambda: is_equal(group))
        stored = read_values(await group.leader())
        for producer in producers:
            mine = [value for value in stored if value is not None]
            mine = [value for value in mine if value.startswith(b"%d:" % producer.producer_id)]
            assert mine == [producer.value(number) for number in range(BATCHES)]
        await until(lambda: len({len(log_bytes(replica)) for replica in group.replicas}) == 1)
        await until(lambda: log_bytes(group.replica(1)) == log_bytes(group.replica(2)))
        await until(lambda: log_bytes(group.replica(2)) == log_bytes(group.replica(3)))
