"""Producer ids for idempotent producers, and what partitions know of their producers."""

import asyncio
import logging
from typing import NamedTuple, Protocol

from penstock.broker.leaderships import Leaderships
from penstock.model.errors import Reason, Refused
from penstock.model.ids import ProducerEpoch, ProducerId, TopicName
from penstock.replication.producer_states import Producer as Producer

logger = logging.getLogger(__name__)

# A block is large; when no more than this is left of it, the next one is fetched.
LEFT_MIN = 500
FETCH_WAIT_S = 1.0


class ProducerIdentity(NamedTuple):
    producer_id: ProducerId
    epoch: ProducerEpoch


class ProducerIdSource(Protocol):
    async def allocate_producer_ids(self) -> range: ...


class Producers:
    """Gives out ids from blocks that are durable before the first id of them is used.

    The next block is fetched when half of the present one is used. So a producer rarely waits for
    the controller, and can begin even while this broker has no contact to it.
    """

    def __init__(self, *, leaderships: Leaderships, cluster: ProducerIdSource) -> None:
        self._leaderships = leaderships
        self._cluster = cluster
        self._block = self._reserve = range(0)
        self._fetching: asyncio.Task[None] | None = None

    def prefetch(self) -> None:
        """Fetches a block ahead of the first producer; what goes wrong is tried again with it."""
        if not self._reserve:
            self._fetch()

    async def identify(self, transactional_id: str | None) -> ProducerIdentity:
        """A new identity: also for a producer that has one, since that one is then spent."""
        if transactional_id is not None:
            raise Refused(Reason.TRANSACTIONAL_ID_REFUSED, "this broker has no transactions")
        while not self._block and not self._reserve:
            await self._until_fetched()
        if not self._block:
            self._block, self._reserve = self._reserve, range(0)
        producer_id, self._block = self._block[0], self._block[1:]
        if len(self._block) <= LEFT_MIN:
            self.prefetch()
        return ProducerIdentity(ProducerId(producer_id), ProducerEpoch(0))

    async def _until_fetched(self) -> None:
        """Not for long: a client that is asked to come back may find a broker that can help."""
        fetching = self._fetch()
        # The task is shared: one block serves all who wait, even if one of them gives up.
        await asyncio.wait([fetching], timeout=FETCH_WAIT_S)
        if not fetching.done():
            raise Refused(Reason.COORDINATOR_LOAD_IN_PROGRESS, "there are no producer ids yet")
        error = fetching.exception()
        if isinstance(error, Refused):
            # The one refusal after which every client tries again.
            raise Refused(Reason.COORDINATOR_LOAD_IN_PROGRESS, error.detail) from error
        fetching.result()

    def _fetch(self) -> asyncio.Task[None]:
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.get_running_loop().create_task(self._allocate())
            self._fetching.add_done_callback(_note_failure)
        return self._fetching

    async def _allocate(self) -> None:
        self._reserve = await self._cluster.allocate_producer_ids()

    def describe(self, topic: TopicName, partition: int) -> list[tuple[int, Producer]]:
        """Every replica knows them; only some may be newer on the leader."""
        return list(self._leaderships.replica(topic, partition).producers())


def _note_failure(fetched: asyncio.Task[None]) -> None:
    if fetched.cancelled():
        return
    error = fetched.exception()
    if isinstance(error, Refused):
        logger.debug("producer ids are fetched later: %s", error.detail)
    elif error is not None:
        logger.error("fetching producer ids failed, which is a bug", exc_info=error)
