"""Writes the records of one request to a topic: finds it, places each record, brings them there.

Keys choose partitions as Kafka's Java client does. Records without a key stay together. Partitions
are written side by side, and each batch that the records of one take has its own outcome.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple

from penstock.broker.doors.calls import TopicInfo
from penstock.frontdoor.remote.publishing import UNCERTAIN, Publisher, Submitted, row_bytes
from penstock.frontdoor.remote.topics import Topics
from penstock.model.errors import Reason, Refused
from penstock.model.trace_context import TRACEPARENT, headers_of, parse_traceparent
from penstock.records.key_hash import partition_of
from penstock.records.rows import Row

_MOVED: Final = (Reason.UNKNOWN_TOPIC_ID, Reason.UNKNOWN_TOPIC_OR_PARTITION)

# A record and the partition that the client chose for it, if it did.
Wanted = tuple[Row, int | None]


class Outcome(NamedTuple):
    """What became of the records of a request that share a batch."""

    partition: int
    # Which records of the request, in order.
    indexes: Sequence[int]
    # The place of each, or why none has one.
    offsets: Sequence[int] | Refused


class _Begun(NamedTuple):
    """The records of a request that belong to one partition."""

    partition: int
    indexes: Sequence[int]
    # Or why none of them is tried.
    submitted: Submitted | Refused


class Writer:
    def __init__(self, topics: Topics, publisher: Publisher) -> None:
        self._topics = topics
        self._publisher = publisher

    async def write(
        self, name: str, wanted: Sequence[Wanted], key: str | None = None
    ) -> list[Outcome]:
        """`key` is an idempotency key. Raises Refused if nothing of it can be tried."""
        return await (await self.begin(name, wanted, key))()

    async def begin(
        self, name: str, wanted: Sequence[Wanted], key: str | None = None
    ) -> Callable[[], Coroutine[Any, Any, list[Outcome]]]:
        """Returns what is to be called and awaited for the outcomes. Requests without a key that
        begin one after another are written in this order."""
        topic = await self._topics.find(name, may_create=True)
        begun = self._begin(topic, wanted, key)

        async def finish() -> list[Outcome]:
            outcomes = await _finished(begun)
            if all(map(_has_moved, outcomes)):
                # It was deleted since we last asked, and perhaps made again: nothing was written.
                self._topics.forget(name)
                topic = await self._topics.find(name, may_create=True)
                outcomes = await _finished(self._begin(topic, wanted, key))
            return outcomes

        return finish

    def _begin(self, topic: TopicInfo, wanted: Sequence[Wanted], key: str | None) -> list[_Begun]:
        begun: list[_Begun] = []
        places = self._places(topic, wanted, key)
        for partition, indexes in places.items():
            if len(places) == 1:
                rows = [row for row, _ in wanted]
            else:
                rows = [wanted[index][0] for index in indexes]
            submitted: Submitted | Refused
            try:
                elsewhere = len(wanted) - len(rows)
                submitted = self._publisher.submit(topic, partition, rows, key, elsewhere)
            except Refused as refused:
                submitted = refused
            begun.append(_Begun(partition, indexes, submitted))
        return begun

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


def in_trace(
    wanted: Sequence[Wanted], parent: str | None, state: str | None, key: str | None = None
) -> Sequence[Wanted]:
    """The records of a request that came with W3C's headers `traceparent` and `tracestate`, with
    those of its context, except where a record has its own. What is not well formed is left out.

    A request with an idempotency key may come again with another context. Its records must then
    be cut into the same batches, so they get only the header whose length is fixed.
    """
    context = parse_traceparent(parent, state or "") if parent else None
    if context is None:
        return wanted
    headers = headers_of(context if key is None else context._replace(state=""))
    return [
        (row if _is_traced(row) else row._replace(headers=(*row.headers, *headers)), partition)
        for row, partition in wanted
    ]


def _is_traced(row: Row) -> bool:
    return any(name == TRACEPARENT for name, _ in row.headers)


def refusal_of_all(outcomes: Sequence[Outcome]) -> Refused | None:
    """Why no record was written; None if some were. If some may have been written all the same,
    that counts for more: the request can't be repeated without care."""
    refusals = [each.offsets for each in outcomes if isinstance(each.offsets, Refused)]
    if len(refusals) < len(outcomes):
        return None
    return next((each for each in refusals if each.reason in UNCERTAIN), refusals[0])


async def _finished(begun: Sequence[_Begun]) -> list[Outcome]:
    if len(begun) == 1:
        return await _outcomes(begun[0])
    found = await asyncio.gather(*map(_outcomes, begun))
    return [outcome for each in found for outcome in each]


async def _outcomes(begun: _Begun) -> list[Outcome]:
    partition, indexes, submitted = begun
    if isinstance(submitted, Refused):
        return [Outcome(partition, indexes, submitted)]
    outcomes: list[Outcome] = []
    start = 0
    for records, first in await submitted():
        end = start + records
        offsets = first if isinstance(first, Refused) else range(first, first + records)
        outcomes.append(Outcome(partition, indexes[start:end], offsets))
        start = end
    return outcomes


def _has_moved(outcome: Outcome) -> bool:
    return isinstance(outcome.offsets, Refused) and outcome.offsets.reason in _MOVED
