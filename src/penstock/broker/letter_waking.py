"""Wakes queues with dead letters that nobody polls.

A queue is opened when somebody asks for it. One with letters on their way must not wait for that
if its leader is another one now. Share coordinators know such queues, and ask their leaders.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from penstock.broker.leaderships import Leaderships
from penstock.broker.share_coordinators import CALL_S_MAX, Peers, ShareCoordinators
from penstock.cluster.coordinator import Cluster
from penstock.model.errors import Refused
from penstock.model.ids import BrokerId, GroupId, TopicId
from penstock.queues import calls
from penstock.queues.layout import QueueKey
from penstock.queues.leading import LedQueue

logger = logging.getLogger(__name__)

# How often they are woken, and how many at a time; in turn, if there are more.
WAKE_S: Final = 2.0
WOKEN_MAX: Final = 1_000


def by_leader(leaderships: Leaderships, keys: Iterable[QueueKey]) -> dict[BrokerId, list[QueueKey]]:
    """Which nodes lead these queues; without those that nobody leads now."""
    found: dict[BrokerId, list[QueueKey]] = {}
    for key in keys:
        leader = leaderships.reachable_leader(key.topic_id, key.partition)
        if leader is not None:
            found.setdefault(leader.id, []).append(key)
    return found


class LetterWaking:
    def __init__(
        self,
        *,
        cluster: Cluster,
        leaderships: Leaderships,
        coordinators: ShareCoordinators,
        peers: Peers,
        lead: Callable[[GroupId, TopicId, int], LedQueue],
    ) -> None:
        self._cluster = cluster
        self._leaderships = leaderships
        self._coordinators = coordinators
        self._peers = peers
        self._lead = lead
        self._task: asyncio.Task[None] | None = None
        # Those whose turn is still to come.
        self._left: Iterator[QueueKey] = iter(())
        peers.serve(calls.WAKE, self._answer)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(WAKE_S)
            led = by_leader(self._leaderships, self._next())
            await asyncio.gather(*(self._ask(*each) for each in led.items()))

    def _next(self) -> list[QueueKey]:
        keys = list(islice(self._left, WOKEN_MAX))
        if not keys:
            self._left = self._coordinators.with_letters()
            keys = list(islice(self._left, WOKEN_MAX))
        return keys

    async def _ask(self, node: BrokerId, keys: list[QueueKey]) -> None:
        if node == self._cluster.broker_id:
            self._wake(keys)
            return
        try:
            await self._peers.call(node, calls.WAKE, calls.encode_keys(keys), CALL_S_MAX)
        except Refused as refused:
            logger.info("node %d does not send dead letters now: %s", node, refused.detail)

    async def _answer(self, _: BrokerId, payload: bytes) -> bytes:
        self._wake(calls.decoded(payload, calls.read_keys))
        return b""

    def _wake(self, keys: Iterable[QueueKey]) -> None:
        for key in keys:
            try:
                self._lead(*key).open()
            except Refused as refused:
                logger.debug("%s is not opened: %s", key, refused.detail)
