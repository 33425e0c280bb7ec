"""The node's housekeeping: retention and compaction, one partition after the other, and a scrub.

One task for all partitions: an idle partition has no timer of its own, and long work never runs
twice at a time. There are two kinds of rounds: one asks each replica for all that may be due, and
one, far more often, asks only whether a log is to be compacted, so that `max.compaction.lag.ms` can
be kept. Both cost microseconds where nothing is due. The scrub goes on beside the rounds
(scrubbing.py).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from penstock.broker.partitions import Partitions
from penstock.broker.scrubbing import Scrubbing
from penstock.cluster.changes import BrokerConfigChanged, Change
from penstock.model.clock import Clock
from penstock.model.ids import PartitionId
from penstock.replication.replica import Replica

logger = logging.getLogger(__name__)

CHECK_INTERVAL = "log.retention.check.interval.ms"
CLEANER_BACKOFF = "log.cleaner.backoff.ms"
CLEANER_ENABLED = "log.cleaner.enable"
PRODUCER_EXPIRY = "producer.id.expiration.ms"
# The first round waits until the node has started and its clients are back.
FIRST_ROUND_S = 15.0
# Between two rounds at least, whatever the settings are: nobody is served during a round's turns.
PAUSE_S_MIN = 0.1
# Replicas that are asked in one go before the loop may serve clients again.
REPLICAS_PER_TURN = 50


class Settings(Protocol):
    """The broker settings that upkeep follows, which may change at any time."""

    def int_setting(self, name: str) -> int: ...

    def bool_setting(self, name: str) -> bool: ...

    def on_change(self, listener: Callable[[Change], None]) -> None: ...


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
        # Replicas whose compaction failed: they are not read again and again for nothing.
        self._failed: set[PartitionId] = set()
        self._settings_changed = asyncio.Event()
        cluster.on_change(self._changed)

    def start(self) -> None:
        assert self._task is None
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Ends a scrub at its next batch, and lets other work that began come to its end."""
        self._scrubbing.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _changed(self, change: Change) -> None:
        if isinstance(change, BrokerConfigChanged) and CLEANER_BACKOFF in change.names:
            self._settings_changed.set()

    async def _run(self) -> None:
        # At once, since a damaged batch should be found before many consumers have read it.
        scrubbing = asyncio.get_running_loop().create_task(self._scrubbing.run())
        try:
            await asyncio.sleep(min(self._first_round_s, self._seconds(CHECK_INTERVAL)))
            while True:
                await self.maintain_all()
                await self._clean_until(self._now() + self._seconds(CHECK_INTERVAL))
        finally:
            scrubbing.cancel()
            await asyncio.gather(scrubbing, return_exceptions=True)

    async def _clean_until(self, end: float) -> None:
        """Looks for logs to compact again and again, until it is time for all of upkeep."""
        looked_at = self._now()
        while (left_s := end - self._now()) > 0:
            self._settings_changed.clear()
            due_s = looked_at + self._seconds(CLEANER_BACKOFF) - self._now()
            if due_s > 0:
                await self._pause(min(due_s, left_s))
            else:
                await self.clean_all()
                looked_at = self._now()
                await asyncio.sleep(PAUSE_S_MIN)

    async def _pause(self, seconds: float) -> None:
        """Not longer than until the setting changes."""
        changed = asyncio.ensure_future(self._settings_changed.wait())
        try:
            await asyncio.wait([changed], timeout=seconds)
        finally:
            changed.cancel()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _seconds(self, setting: str) -> float:
        return self._settings.int_setting(setting) / 1000

    async def maintain_all(self) -> None:
        """All that is due."""
        self._failed.clear()
        expiry_ms = self._settings.int_setting(PRODUCER_EXPIRY)
        compacts = self._settings.bool_setting(CLEANER_ENABLED)

        async def maintain(replica: Replica) -> None:
            await replica.maintain(
                self._clock.now_ms(), producer_expiry_ms=expiry_ms, compacts=compacts
            )

        await self._each(maintain)

    async def clean_all(self) -> None:
        """Only the compactions that are due; one that fails waits for the next `maintain_all`."""
        if not self._settings.bool_setting(CLEANER_ENABLED):
            return
        expiry_ms = self._settings.int_setting(PRODUCER_EXPIRY)

        async def clean(replica: Replica) -> None:
            now_ms = self._clock.now_ms()
            if not replica.is_cleaning_due(now_ms) or replica.key in self._failed:
                return
            if not await replica.clean(now_ms, producer_expiry_ms=expiry_ms):
                self._failed.add(replica.key)

        await self._each(clean)

    async def _each(self, work: Callable[[Replica], Awaitable[None]]) -> None:
        for count, replica in enumerate(self._replicas()):
            if count % REPLICAS_PER_TURN == 0:
                await asyncio.sleep(0)
            try:
                await work(replica)
            except Exception:
                # A bug must not end the upkeep of all other partitions.
                logger.exception("upkeep of %s failed", replica.partition)

    def _replicas(self) -> list[Replica]:
        metadata = self._partitions.metadata
        return [*self._partitions.all(), *([metadata] if metadata is not None else [])]
