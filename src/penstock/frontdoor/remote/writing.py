"""Writes the records of one request to a topic: finds it, places each record, brings them there.

Keys choose partitions as Kafka's Java client does. Records without a key stay together. Partitions
are written side by side, and each has its own outcome.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, Final, NamedTuple

from penstock.broker.doors.calls import TopicInfo
from penstock.frontdoor.remote.publishing import Publisher, row_bytes
from penstock.frontdoor.remote.topics import Topics
from penstock.model.errors import Reason, Refused
from penstock.records.key_hash import partition_of
from penstock.records.rows import Row

_MOVED: Final = (Reason.UNKNOWN_TOPIC_ID, Reason.UNKNOWN_TOPIC_OR_PARTITION)

# A record and the partition that the client chose for it, if it did.
Wanted = tuple[Row, int | None]


class Outcome(NamedTuple):
    """What became of the records of a request that belong to one partition."""

    partition: int
    # Which records of the request, in order.
    indexes: Sequence[int]
    # The place of each, or why none has one.
    offsets: Sequence[int] | Refused


class Writer:
    def __init__(self, topics: Topics, publisher: Publisher) -> None:
        self._topics = topics
        self._publisher = publisher

    async def write(
        self, name: str, wanted: Sequence[Wanted], key: str | None = None
    ) -> list[Outcome]:
        """`key` is an idempotency key. Raises Refused if nothing of it can be tried."""
        return await (await self.begin(name, wanted, key))

    async def begin(
        self, name: str, wanted: Sequence[Wanted], key: str | None = None
    ) -> Coroutine[Any, Any, list[Outcome]]:
        """Returns what is to be awaited for the outcomes. Requests without a key that begin one
        after another are written in this order, although their outcomes may be awaited later."""
        topic = await self._topics.find(name, may_create=True)
        return self._finish(name, wanted, key, self._begin(topic, wanted, key))

    async def _finish(
        self,
        name: str,
        wanted: Sequence[Wanted],
        key: str | None,
        writing: Awaitable[list[Outcome]],
    ) -> list[Outcome]:
        outcomes = await writing
        if all(_has_moved(each) for each in outcomes):
            # It was deleted since we last asked, and perhaps made again: nothing was written.
            self._topics.forget(name)
            topic = await self._topics.find(name, may_create=True)
            outcomes = await self._begin(topic, wanted, key)
        return outcomes

    def _begin(
        self, topic: TopicInfo, wanted: Sequence[Wanted], key: str | None
    ) -> Awaitable[list[Outcome]]:
        places = self._places(topic, wanted, key)
        if len(places) == 1:
            ((partition, indexes),) = places.items()
            rows = [row for row, _ in wanted]
            return _alone(self._write_to(topic, partition, indexes, rows, key))
        writing = [
            self._write_to(topic, partition, indexes, [wanted[index][0] for index in indexes], key)
            for partition, indexes in places.items()
        ]
        return asyncio.gather(*writing)

    def _places(
        self, topic: TopicInfo, wanted: Sequence[Wanted], key: str | None
    ) -> dict[int, list[int]]:
        """Which records go to which partition."""
        count = topic.partitions
        keyless: int | None = None
        places: dict[int, list[int]] = {}
        for index, (row, partition) in enumerate(wanted):
            if partition is not None:
                if not 0 <= partition < count:
                    detail = (
                        f"Record {index} is for partition {partition}, but topic {topic.name} has "
                        f"{count}, numbered from 0."
                    )
                    raise Refused(Reason.INVALID_REQUEST, detail)
            elif row.key is not None:
                partition = partition_of(row.key, count)
            else:
                if keyless is None:
                    keyless = self._keyless(topic, wanted, key)
                partition = keyless
            places.setdefault(partition, []).append(index)
        return places

    def _keyless(self, topic: TopicInfo, wanted: Sequence[Wanted], key: str | None) -> int:
        """One for all of a request; a repeated request must come to the same."""
        if key is not None:
            return partition_of(key.encode(), topic.partitions)
        if topic.partitions == 1:
            return 0
        return self._publisher.choose(topic, sum(row_bytes(row) for row, _ in wanted))

    def _write_to(
        self,
        topic: TopicInfo,
        partition: int,
        indexes: Sequence[int],
        rows: Sequence[Row],
        key: str | None,
    ) -> Coroutine[Any, Any, Outcome]:
        try:
            writing = self._publisher.publish(topic, partition, rows, key)
        except Refused as refused:
            return _refused(Outcome(partition, indexes, refused))
        return _outcome(partition, indexes, writing)


async def _outcome(
    partition: int, indexes: Sequence[int], writing: Awaitable[Sequence[int]]
) -> Outcome:
    try:
        return Outcome(partition, indexes, await writing)
    except Refused as refused:
        return Outcome(partition, indexes, refused)


async def _refused(outcome: Outcome) -> Outcome:
    return outcome


async def _alone(writing: Awaitable[Outcome]) -> list[Outcome]:
    return [await writing]


def _has_moved(outcome: Outcome) -> bool:
    return isinstance(outcome.offsets, Refused) and outcome.offsets.reason in _MOVED
