"""Proves that what idempotent producers had acknowledged is there once and in order, after all.

Each producer keeps several batches in flight and sends again, in order, whatever was not
acknowledged; meanwhile the disk fills up and empties, answers are lost, and the node restarts.
"""

import asyncio
import errno
from collections import deque
from pathlib import Path
from random import Random

import pytest

from penstock.model.errors import Reason, Refused
from penstock.model.limits import Limits
from penstock.model.topic_config import TopicConfig
from penstock.replication.commit import Commit
from penstock.replication.replica import Replica

from .rig import PATIENCE_S, Node, batch, read_values, run

BATCHES = 60
IN_FLIGHT = 5
RETRIABLE = (
    Reason.STORAGE_ERROR,
    Reason.NOT_LEADER_OR_FOLLOWER,
    Reason.THROTTLED,
)


def is_retriable(refused: Refused) -> bool:
    assert refused.reason in RETRIABLE, refused
    return True


class Producer:
    """Sends the numbers 0 to BATCHES - 1, one batch each, as an idempotent client would."""

    def __init__(self, producer_id: int, random: Random) -> None:
        self.producer_id = producer_id
        self.random = random
        self.acknowledged = 0

    def values(self) -> list[bytes]:
        return [b"%d:%d" % (self.producer_id, number) for number in range(BATCHES)]

    async def run(self, replica: Replica) -> None:
        """Until all is acknowledged, or the replica is gone."""
        while self.acknowledged < BATCHES:
            if not await self._send_window(replica):
                await asyncio.sleep(0.001)

    async def _send_window(self, replica: Replica) -> bool:
        """Whether all of it was acknowledged; a batch behind a refused one must be refused too."""
        in_flight: deque[Commit | None] = deque()
        last = min(BATCHES, self.acknowledged + self.random.randint(1, IN_FLIGHT))
        is_refused = False
        for number in range(self.acknowledged, last):
            try:
                in_flight.append(replica.append(self._batch(number)).done)
            except Refused as refused:
                is_refused = is_retriable(refused)
            if self.random.random() < 0.3:
                await asyncio.sleep(self.random.choice((0, 0.002)))
        for done in in_flight:
            try:
                if done is not None:
                    await done
            except Refused as refused:
                return not is_retriable(refused)
            if self.random.random() < 0.1:
                # The answer got lost: this batch and those after it are sent again.
                return False
            self.acknowledged += 1
        return not is_refused

    def _batch(self, number: int) -> bytes:
        return batch(
            b"%d:%d" % (self.producer_id, number),
            producer_id=self.producer_id,
            epoch=0,
            sequence=number,
        )


async def trouble(node: Node, random: Random) -> None:
    """Fills the disk and makes room again, for as long as it is let; full at first, so that
    the first batches of producers that nobody knows yet fail too."""
    while True:
        node.faults.write_error = errno.ENOSPC
        await asyncio.sleep(random.random() * 0.005)
        node.faults.write_error = None
        await asyncio.sleep(random.random() * 0.1)


@pytest.mark.parametrize("seed", range(8))
def test_nothing_acknowledged_is_lost_doubled_or_reordered(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    producers = [Producer(producer_id, random) for producer_id in range(3)]
    config = TopicConfig(segment_bytes=1_500)
    limits = Limits(unflushed_bytes_per_partition_max=2_000)

    async def life(lasts_s: float) -> None:
        node = Node(tmp_path, limits)
        node.start_ticking()
        replica = await node.replica(config)
        troubling = asyncio.create_task(trouble(node, random))
        sending = [asyncio.create_task(producer.run(replica)) for producer in producers]
        await asyncio.wait(sending, timeout=lasts_s)
        for task in (troubling, *sending):
            task.cancel()
        outcomes = await asyncio.gather(*sending, return_exceptions=True)
        assert not [bug for bug in outcomes if isinstance(bug, Exception)]
        node.faults.write_error = None
        await node.stop()

    async def check() -> None:
        node = Node(tmp_path, limits)
        replica = await node.replica(config)
        stored = read_values(replica)
        await node.stop()
        for producer in producers:
            mine = [
                value
                for value in stored
                if (value or b"").startswith(b"%d:" % producer.producer_id)
            ]
            assert mine == producer.values()

    async def scenario() -> None:
        for _ in range(2):
            await life(lasts_s=0.05)
        await life(lasts_s=PATIENCE_S)
        assert [producer.acknowledged for producer in producers] == [BATCHES] * 3
        await check()

    run(scenario)
