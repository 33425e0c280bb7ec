"""Producer ids for idempotent producers, and what partitions know of their producers."""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from penstock.broker.partitions import Partitions
from penstock.model.errors import Reason, Refused
from penstock.model.ids import ProducerEpoch, ProducerId, TopicName
from penstock.replication.producer_states import Producer as Producer


class ProducerIdentity(NamedTuple):
    producer_id: ProducerId
    epoch: ProducerEpoch


class ProducerIdSource(Protocol):
    async def allocate_producer_ids(self) -> range: ...


class Producers:
    """Gives out ids from blocks that are durable before the first id of them is used."""

    def __init__(self, *, partitions: Partitions, cluster: ProducerIdSource) -> None:
        self._partitions = partitions
        self._cluster = cluster
        self._block: Iterator[int] = iter(())
        self._allocating: asyncio.Task[None] | None = None

    async def identify(self, transactional_id: str | None) -> ProducerIdentity:
        """A new identity: also for a producer that has one, since that one is then spent."""
        if transactional_id is not None:
            raise Refused(Reason.TRANSACTIONAL_ID_REFUSED, "this broker has no transactions")
        while (producer_id := next(self._block, None)) is None:
            if self._allocating is None or self._allocating.done():
                self._allocating = asyncio.get_running_loop().create_task(self._allocate())
            # Shared and shielded: one block serves all who wait, whoever of them gives up.
            await asyncio.shield(self._allocating)
        return ProducerIdentity(ProducerId(producer_id), ProducerEpoch(0))

    async def _allocate(self) -> None:
        self._block = iter(await self._cluster.allocate_producer_ids())

    def describe(self, topic: TopicName, partition: int) -> list[tuple[int, Producer]]:
        return list(self._partitions.get(topic, partition).producers())
