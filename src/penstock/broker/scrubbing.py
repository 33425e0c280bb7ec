"""Reads everything that this node holds back, again and again, so slowly that nobody notices.

A disk forgets bits, and a batch that nobody reads for a year can't be fetched from another replica
once those have forgotten theirs. One task goes from log to log, in slices: between two slices it
holds no thread and no file. Where it came to is not kept over a restart: the first pass reads what
recovery did not, as fast as the limits allow, and each later one takes its time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from penstock.model.clock import Clock
from penstock.model.errors import Refused
from penstock.model.ids import Offset
from penstock.model.limits import MIB
from penstock.replication.replica import Replica

logger = logging.getLogger(__name__)

# No pass is faster, also not the first.
BYTES_PER_S_MAX = 32 * MIB
# Small batches cost more time than their bytes tell, so time has a limit too: of one thread's.
SHARE_MAX = 0.1
SLICE_BYTES = MIB // 2
# What is left to do is reckoned again after so long; and little data is read the sooner for it.
PAUSE_S_MAX = 600.0
# Replicas whose sizes are asked for in one go before the loop may serve clients again.
REPLICAS_PER_TURN = 500


class Scrubbing:
    """Passes over all replicas of a node, each in about `period_s`; with 0 there are none."""

    def __init__(
        self,
        *,
        replicas: Callable[[], Sequence[Replica]],
        clock: Clock,
        period_s: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._replicas = replicas
        self._clock = clock
        self._period_s = period_s
        self._sleep = sleep
        self._is_stopping = False
        # Of the pass under way: what is still to come, when it should end, and how fast it goes.
        self._rest: list[Replica] = []
        self._end_s = 0.0
        self._bytes_per_s = float(BYTES_PER_S_MAX)
        # Of the log under way.
        self._read_bytes = 0
        self._reckoned_s = 0.0

    def stop(self) -> None:
        """A slice ends at its next batch; the owner of the passes cancels their task."""
        self._is_stopping = True

    async def run(self) -> None:
        if self._period_s <= 0:
            return
        await self.run_pass(in_s=0.0)
        while True:
            # With nothing to read at all, a pass takes no time.
            await self._sleep(min(PAUSE_S_MAX, self._period_s))
            await self.run_pass(in_s=self._period_s)

    async def run_pass(self, *, in_s: float) -> None:
        """Over all that is there now; damage that it finds stops that partition alone."""
        self._rest = list(reversed(self._replicas()))
        self._end_s = self._clock.monotonic() + in_s
        await self._reckon()
        while self._rest and not self._is_stopping:
            replica = self._rest.pop()
            # Nothing was ever written to it: most partitions of a new cluster are such.
            if replica.size_bytes > 0:
                await self._scrub(replica)

    async def _scrub(self, replica: Replica) -> None:
        try:
            await self._scrub_in_slices(replica)
        except Refused as refused:
            logger.error("scrubbing %s: %s", replica.partition, refused)
        except Exception:
            # A bug must not end the scrub of all other partitions, nor go unseen.
            logger.exception("scrubbing %s failed", replica.partition)

    async def _scrub_in_slices(self, replica: Replica) -> None:
        """Up to where the log ended at first: a busy one would never be done."""
        offset, end = Offset(-1), Offset(0)
        self._read_bytes = 0
        while offset < end and not self._is_stopping:
            begun_s = self._clock.monotonic()
            start = Offset(max(offset, 0))
            found = await replica.scrub(lambda: self._is_stopping, start, SLICE_BYTES)
            if offset < 0:
                end = Offset(found.end_offset)
            if found.offset <= offset:
                # It is closed under our eyes, or was cut back.
                return
            offset = Offset(found.offset)
            self._read_bytes += found.size
            await self._pause(found.size, self._clock.monotonic() - begun_s, replica)

    async def _pause(self, size: int, taken_s: float, replica: Replica) -> None:
        """For as long as the slice should have taken at the limits."""
        if self._clock.monotonic() - self._reckoned_s >= PAUSE_S_MAX:
            await self._reckon(replica)
        fair_s = max(size / self._bytes_per_s, taken_s / SHARE_MAX)
        await self._sleep(min(fair_s - taken_s, PAUSE_S_MAX))

    async def _reckon(self, current: Replica | None = None) -> None:
        """How fast it must go to be done in time; logs grow and go while a pass lasts."""
        left = 0 if current is None else max(0, current.size_bytes - self._read_bytes)
        for count, replica in enumerate(self._rest, 1):
            if count % REPLICAS_PER_TURN == 0:
                await self._sleep(0)
            left += replica.size_bytes
        self._reckoned_s = self._clock.monotonic()
        left_s = self._end_s - self._reckoned_s
        is_late = left >= BYTES_PER_S_MAX * left_s
        self._bytes_per_s = BYTES_PER_S_MAX if is_late else max(1.0, left / left_s)
