"""Follows some partitions of a topic: a read waits at the end of each."""

import asyncio
from collections.abc import Iterable
from typing import Any

from penstock.broker.doors.calls import TopicInfo
from penstock.frontdoor.remote.reading import EARLIEST, Chunk, Reader
from penstock.model.errors import Reason, Refused

# How long a read waits at the end of a partition before it asks again.
WAIT_S = 50.0


class Following:
    """At most one read of each partition is under way; nothing is kept here."""

    def __init__(
        self,
        reader: Reader,
        topic: TopicInfo,
        *,
        records_max: int,
        bytes_max: int,
        skips_trimmed: bool = False,
    ) -> None:
        """The bounds are those of one read: what a follower that stops in the middle costs. With
        `skips_trimmed`, a read of records that are gone brings an empty chunk, which goes on at the
        first one that is kept."""
        self._reader = reader
        self._topic = topic
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._skips_trimmed = skips_trimmed
        self._reading: dict[asyncio.Future[Chunk], int] = {}

    def read(self, partition: int, offset: int) -> None:
        self._reading[asyncio.ensure_future(self._read(partition, offset))] = partition

    async def _read(self, partition: int, offset: int) -> Chunk:
        try:
            return await self._reader.read(
                self._topic,
                partition,
                offset,
                records_max=self._records_max,
                bytes_max=self._bytes_max,
                wait_s=WAIT_S,
            )
        except Refused as refused:
            if refused.reason is not Reason.OFFSET_OUT_OF_RANGE or not self._skips_trimmed:
                raise
            start = await self._reader.find(self._topic, partition, EARLIEST)
            if start <= offset:
                raise
            return Chunk([], start, start, start)

    async def next(
        self, others: Iterable["asyncio.Future[Any]"], timeout_s: float | None = None
    ) -> list[tuple[int, Chunk]]:
        """What was read, by partition. Returns nothing after a while, or when one of the others is
        done. Raises Refused."""
        waiting = [*self._reading, *others]
        done, _ = await asyncio.wait(
            waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        return [
            (self._reading.pop(each), each.result())
            for each in waiting
            if each in done and each in self._reading
        ]

    def close(self) -> None:
        """Gives up what is under way."""
        for each in self._reading:
            each.cancel()
        self._reading.clear()
