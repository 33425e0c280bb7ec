"""The node's housekeeping: retention and compaction, one partition after the other, and a scrub.

One task for all partitions: an idle partition has no timer of its own, and long work never runs
twice at a time. A round asks each replica what is due, which costs microseconds when nothing is.
The scrub goes on beside the rounds (scrubbing.py).
"""

import asyncio
import logging
from typing import Protocol

from penstock.broker.partitions import Partitions
from penstock.broker.scrubbing import Scrubbing
from penstock.model.clock import Clock
from penstock.replication.replica import Replica

logger = logging.getLogger(__name__)

CHECK_INTERVAL = "log.retention.check.interval.ms"
CLEANER_ENABLED = "log.cleaner.enable"
PRODUCER_EXPIRY = "producer.id.expiration.ms"
# The first round waits until the node has started and its clients are back.
FIRST_ROUND_S = 15.0
# Replicas that are asked in one go before the loop may serve clients again.
REPLICAS_PER_TURN = 50


class Settings(Protocol):
    """The broker settings that upkeep follows, which may change at any time."""

    def int_setting(self, name: str) -> int: ...

    def bool_setting(self, name: str) -> bool: ...


class Upkeep:
    """A background task that keeps every replica in order until it is stopped."""

    def __init__(
        self,
        *,
        partitions: Partitions,
        cluster: Settings,
        clock: Clock,
        scrub_period_s: float,
        first_round_s: float = FIRST_ROUND_S,
    ) -> None:
        self._partitions = partitions
        self._settings = cluster
        self._clock = clock
        self._first_round_s = first_round_s
        self._scrubbing = Scrubbing(replicas=self._replicas, clock=clock, period_s=scrub_period_s)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        assert self._task is None
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Ends a scrub at its next batch, and lets other work that began come to its end."""
        self._scrubbing.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        # At once, since a damaged batch should be found before many consumers have read it.
        scrubbing = asyncio.get_running_loop().create_task(self._scrubbing.run())
        try:
            await asyncio.sleep(min(self._first_round_s, self._interval_s()))
            while True:
                await self.maintain_all()
                await asyncio.sleep(self._interval_s())
        finally:
            scrubbing.cancel()
            await asyncio.gather(scrubbing, return_exceptions=True)

    def _interval_s(self) -> float:
        return self._settings.int_setting(CHECK_INTERVAL) / 1000

    async def maintain_all(self) -> None:
        expiry_ms = self._settings.int_setting(PRODUCER_EXPIRY)
        compacts = self._settings.bool_setting(CLEANER_ENABLED)
        for count, replica in enumerate(self._replicas()):
            if count % REPLICAS_PER_TURN == 0:
                await asyncio.sleep(0)
            try:
                await replica.maintain(
                    self._clock.now_ms(), producer_expiry_ms=expiry_ms, compacts=compacts
                )
            except Exception:
                # A bug must not end the upkeep of all other partitions.
                logger.exception("upkeep of %s failed", replica.partition)

    def _replicas(self) -> list[Replica]:
        metadata = self._partitions.metadata
        return [*self._partitions.all(), *([metadata] if metadata is not None else [])]
