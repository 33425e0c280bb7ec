"""Partitions that move between brokers, and leaderships that move between their replicas.

A partition's own leader brings its group to where the metadata wants it; here is who asks for a
move, who ends it once the group is there, and who gives internal topics more replicas as brokers
join.
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from math import inf
from typing import NamedTuple
from uuid import UUID

from penstock.broker.leader_waits import LeaderWaits
from penstock.broker.partitions import Partitions
from penstock.cluster.changes import AssignmentsChanged, Change, TopicDeleted
from penstock.cluster.coordinator import Cluster
from penstock.cluster.reassignment_decisions import Ended, Move
from penstock.cluster.topic import Assignment, Topic
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, PartitionId, PartitionIndex, TopicId
from penstock.replication.exchange import Exchange

logger = logging.getLogger(__name__)

TRANSFER = "partition.transfer"
TRANSFER_TIMEOUT_S = 3.0
# How often moves are looked at; a group needs longer than that to move anyway.
REVIEW_S = 0.5
# How long a change waits for the other brokers to hear of it.
EVERYWHERE_TIMEOUT_S = 3.0


class Moving(NamedTuple):
    """A partition on its way."""

    topic: str
    partition: int
    # Where it may lie now, and which of these are new and which are to go.
    replicas: list[int]
    adding: list[int]
    removing: list[int]


class Reassignments:
    def __init__(
        self, *, cluster: Cluster, partitions: Partitions, exchange: Exchange, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._exchange = exchange
        self._clock = clock
        self._waits = LeaderWaits(exchange.leaders)
        self._moving: set[TopicId] = set()
        self._task: asyncio.Task[None] | None = None
        exchange.serve(TRANSFER, self._transfer_for)
        cluster.on_change(self._changed)

    def start(self) -> None:
        assert self._task is None
        self._moving = {topic.topic_id for topic in self._cluster.topics() if topic.is_moving}
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # Moves

    async def reassign(
        self,
        topic: str,
        partition: int,
        replicas: Sequence[int] | None,
        *,
        can_change_factor: bool = True,
        wait_s: float = inf,
    ) -> None:
        """Starts a move, or cancels one when no replicas are given; it goes on by itself.

        Returns when all brokers have heard of it, or once it was decided and the time is up.
        """
        deadline = self._clock.monotonic() + wait_s
        move = Move(topic, partition, replicas, can_change_factor)
        end = await self._cluster.move(move)
        left_s = max(0.0, deadline - self._clock.monotonic())
        await self._cluster.known_everywhere(end, min(left_s, EVERYWHERE_TIMEOUT_S))

    def current(self) -> list[Moving]:
        """Every partition that has still to gain or to give up a replica."""
        return [
            moving
            for topic in self._cluster.topics()
            if topic.is_moving
            for index, assignment in enumerate(topic.assignments)
            if (moving := _moving(topic, index, assignment)) is not None
        ]

    def _changed(self, change: Change) -> None:
        match change:
            case AssignmentsChanged(topic=topic) if topic.is_moving:
                self._moving.add(topic.topic_id)
            case AssignmentsChanged(topic=topic) | TopicDeleted(topic=topic):
                self._moving.discard(topic.topic_id)
            case _:
                pass

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(REVIEW_S)
            try:
                await self.review()
            except Refused as refused:
                logger.debug("moves will be checked again later: %s", refused.detail)
            except Exception:
                # A bug must not end all moves to come, nor go unseen.
                logger.exception("managing moves failed")

    async def review(self) -> None:
        """Ends moves that this node leads to their end; the controller starts those it wants."""
        ended = [
            Ended(topic.partition_id(index), assignment)
            for topic_id in sorted(self._moving)
            if (topic := self._cluster.topic_by_id(topic_id)) is not None
            for index, assignment in enumerate(topic.assignments)
            if assignment.previous is not None and self._is_there(topic.partition_id(index))
        ]
        if ended:
            await self._cluster.end_moves(ended)
        if self._cluster.is_controller:
            await self._cluster.grow_internal_topics()

    def _is_there(self, key: PartitionId) -> bool:
        replica = self._partitions.find(key)
        return replica is not None and replica.is_leader and replica.is_reconciled

    # Leaderships

    async def elect(
        self, topic: str, partition: int, timeout_s: float, *, is_unclean: bool = False
    ) -> None:
        """Gives the partition's leadership to its first replica; an unclean election only looks
        whether there is a leader, since a group without one can't be given one."""
        known = self._cluster.topic(topic)
        if known is None or not 0 <= partition < known.partitions:
            detail = f"There is no partition {partition} of a topic '{topic}'."
            raise Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, detail)
        key = known.partition_id(partition)
        preferred = known.assignments[partition].replicas[0]
        leader = self._leader_of(key)
        if leader == preferred or (is_unclean and leader is not None):
            detail = f"Broker {leader} already leads {topic}-{partition}."
            raise Refused(Reason.ELECTION_NOT_NEEDED, detail)
        if is_unclean:
            detail = f"No replica of {topic}-{partition} can lead it without a majority."
            raise Refused(Reason.ELIGIBLE_LEADERS_NOT_AVAILABLE, detail)
        if leader is None or not self._exchange.is_alive(preferred):
            detail = f"Broker {preferred} can't lead {topic}-{partition} at the moment."
            raise Refused(Reason.PREFERRED_LEADER_NOT_AVAILABLE, detail)
        await self._transfer(leader, key, preferred, timeout_s)

    def _leader_of(self, key: PartitionId) -> BrokerId | None:
        info = self._exchange.leaders.get(key)
        return info.leader if info is not None and self._exchange.is_alive(info.leader) else None

    async def _transfer(
        self, leader: BrokerId, key: PartitionId, to: BrokerId, timeout_s: float
    ) -> None:
        request = json.dumps([key.topic_id.hex, key.partition, to]).encode()
        deadline = self._clock.monotonic() + timeout_s
        await self._exchange.call(leader, TRANSFER, request, min(timeout_s, TRANSFER_TIMEOUT_S))
        left_s = max(0.0, deadline - self._clock.monotonic())
        if not await self._waits.wait([key], left_s, lambda info: info.leader == to):
            raise Refused(Reason.REQUEST_TIMED_OUT, f"Broker {to} does not lead {key} yet.")

    async def _transfer_for(self, _: BrokerId, payload: bytes) -> bytes:
        try:
            hex_id, partition, to = json.loads(payload)
            key = PartitionId(TopicId(UUID(hex=hex_id)), PartitionIndex(int(partition)))
            target = BrokerId(int(to))
        except (TypeError, ValueError, AttributeError) as error:
            raise Refused(Reason.INVALID_REQUEST, f"not a transfer: {error!r}") from None
        self._partitions.get_by_id(key.topic_id, key.partition).transfer(target)
        return b""


def _moving(topic: Topic, index: int, assignment: Assignment) -> Moving | None:
    if assignment.previous is None:
        return None
    adding = [node for node in assignment.replicas if node not in assignment.previous]
    removing = [node for node in assignment.previous if node not in assignment.replicas]
    if not adding and not removing:
        # On its way back after a cancellation, which clients need not wait for.
        return None
    return Moving(topic.name, index, list(assignment.hosts), list(adding), list(removing))
