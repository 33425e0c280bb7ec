"""How far a queue is in one partition, as operators and clients see it."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.broker.leaderships import Leaderships
from penstock.broker.partitions import Partitions
from penstock.broker.share_coordinators import CALL_S_MAX, Peers
from penstock.model.errors import Refused
from penstock.model.ids import BrokerId, TopicId
from penstock.queues import calls
from penstock.queues.commands import WAITING_MAX
from penstock.queues.decisions import QueueSummary
from penstock.queues.layout import QueueKey
from penstock.queues.records import UNRESOLVED

logger = logging.getLogger(__name__)

UNKNOWN_LAG: Final = -1
Place: TypeAlias = tuple[TopicId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOffset:
    """How far a group has come with a partition."""

    # The first offset that is not done with; -1 while nobody has polled it.
    start: int
    leader_epoch: int
    # Records that are not done with; -1 where that is not known.
    lag: int
    # Behind the start.
    delivery_complete_count: int
    # On their way to the dead-letter topic, arrived there, and brought back from it.
    dying_count: int = 0
    sent_count: int = 0
    redriven_count: int = 0
    # Why they are still on their way, if something is wrong.
    trouble: str = ""
    # What an operator should know of it, if anything.
    note: str = ""


def queue_offset(summary: QueueSummary | None, end: int, trouble: str) -> QueueOffset:
    if summary is None or summary.start == UNRESOLVED:
        term = -1 if summary is None else summary.term
        return QueueOffset(
            start=UNRESOLVED, leader_epoch=term, lag=UNKNOWN_LAG, delivery_complete_count=0
        )
    left = end - summary.start - summary.done_count
    return QueueOffset(
        start=summary.start,
        leader_epoch=summary.term,
        lag=UNKNOWN_LAG if end < 0 else max(0, left),
        delivery_complete_count=summary.done_count,
        dying_count=summary.dying_count,
        sent_count=summary.letters.sent_count,
        redriven_count=summary.letters.redriven_count,
        trouble=trouble,
        note=_full(summary) if summary.waiting_count >= WAITING_MAX else "",
    )


def _full(summary: QueueSummary) -> str:
    return (
        f"{summary.waiting_count} records wait for their time or for an earlier one, and the limit"
        f" is {WAITING_MAX}: nothing new is delivered until there are fewer"
    )


class PartitionEnds:
    """Where data partitions end, as their leaders say."""

    def __init__(
        self, own: BrokerId, partitions: Partitions, leaderships: Leaderships, peers: Peers
    ) -> None:
        self._own = own
        self._partitions = partitions
        self._leaderships = leaderships
        self._peers = peers
        peers.serve(calls.ENDS, self._answer)

    async def of(self, keys: Iterable[QueueKey]) -> dict[Place, int]:
        """As far as their leaders can be asked."""
        by_leader: dict[BrokerId, list[Place]] = {}
        for topic_id, partition in {(key.topic_id, key.partition) for key in keys}:
            leader = self._leaderships.reachable_leader(topic_id, partition)
            if leader is not None:
                by_leader.setdefault(leader.id, []).append((topic_id, partition))
        answers = await asyncio.gather(
            *(self._ask(node, places) for node, places in by_leader.items())
        )
        return {place: end for answer in answers for place, end in answer.items() if end >= 0}

    async def _ask(self, node: BrokerId, places: Sequence[Place]) -> dict[Place, int]:
        if node == self._own:
            return {place: self._end(place) for place in places}
        payload = calls.encode_places(places)
        try:
            answer = await self._peers.call(node, calls.ENDS, payload, CALL_S_MAX)
            ends = calls.decoded(answer, calls.read_ends)
        except Refused as refused:
            logger.info("node %d does not say where partitions end: %s", node, refused.detail)
            return {}
        return dict(zip(places, ends, strict=False))

    async def _answer(self, _: BrokerId, payload: bytes) -> bytes:
        places = calls.decoded(payload, calls.read_places)
        return calls.encode_ends(map(self._end, places))

    def _end(self, place: Place) -> int:
        try:
            replica = self._partitions.get_by_id(*place)
            replica.check_leader()
        except Refused:
            return -1
        return replica.high_watermark if replica.is_settled else -1
