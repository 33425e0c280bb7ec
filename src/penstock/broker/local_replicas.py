"""Keeps the replicas of this node as the metadata wants them, topic by topic.

Whenever the metadata says something new about a topic, the topic is brought in line: replicas that
are missing here are made, those that moved away or whose topic is gone are given up, and each
group learns who should belong to it. One piece of work per topic runs at a time, and it looks
again if more news came meanwhile. What a full disk refuses is tried again. What an earlier run
left on the disk goes in the same way, so that nobody else touches the files of a topic.
"""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterable, Mapping
from typing import Any

from penstock.broker.partitions import Partitions
from penstock.cluster.changes import (
    AssignmentsChanged,
    BrokersChanged,
    Change,
    ConfigChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from penstock.cluster.coordinator import Cluster
from penstock.cluster.topic import Topic
from penstock.model.errors import Refused
from penstock.model.ids import BrokerId, Offset, PartitionId, PartitionIndex, ReplicaId, TopicId
from penstock.replication.exchange import Exchange

logger = logging.getLogger(__name__)

# Between two attempts to make replicas for which the disk had no room.
RETRY_S = 5.0
# How long somebody waits for a disk that makes replicas; they come about all the same.
SETTLED_TIMEOUT_S = 30.0


class LocalReplicas:
    def __init__(
        self,
        *,
        cluster: Cluster,
        partitions: Partitions,
        exchange: Exchange,
        retry_s: float = RETRY_S,
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._exchange = exchange
        self._retry_s = retry_s
        # Topics whose partitions are opened and not made: those that were known at start.
        self._unopened: set[TopicId] = set()
        self._news: set[TopicId] = set()
        # Partitions that were found on the disk and in no use; some may be in use by now.
        self._strays: dict[TopicId, Collection[PartitionIndex]] = {}
        self._working: dict[TopicId, asyncio.Task[None]] = {}
        self._failures: dict[TopicId, Refused] = {}
        # Topics with replicas that may have moved away, for all that this node could find out.
        self._unsure: set[TopicId] = set()
        self._retrying: asyncio.Task[None] | None = None
        # Questions to the controller that work waits for; the end of the node does not.
        self._asking: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._reported = Offset(-1)
        cluster.on_change(self._changed)
        cluster.on_applied(self._applied)

    async def open_all(self) -> None:
        """Opens every replica that belongs here; a damaged one is there, but stopped."""
        topics = list(self._cluster.topics())
        self._unopened.update(topic.topic_id for topic in topics)
        for topic in topics:
            self._look_after(topic.topic_id)
        self._applied(self._cluster.applied)
        await self.settled((topic.topic_id for topic in topics), None)

    async def close(self) -> None:
        """Waits for what is under way."""
        self._is_closing = True
        if self._retrying is not None:
            self._retrying.cancel()
        for asking in self._asking:
            asking.cancel()
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def settled(
        self, topic_ids: Iterable[TopicId], timeout_s: float | None = SETTLED_TIMEOUT_S
    ) -> None:
        """Returns when these topics are as the metadata wanted them, or could not be made so."""
        working = [self._working[each] for each in topic_ids if each in self._working]
        if working:
            await asyncio.wait(working, timeout=timeout_s)

    async def idle(self) -> None:
        """Returns when nothing is under way."""
        while self._working:
            await asyncio.wait(list(self._working.values()))

    async def remove_strays(self, found: Mapping[TopicId, Collection[PartitionIndex]]) -> None:
        """Removes what belongs to no replica of this node, out of what was found on its disk."""
        strays = {
            topic_id: partitions
            for topic_id, partitions in found.items()
            if self._cluster.topic_by_id(topic_id) is None
            or any(self._is_stray(PartitionId(topic_id, index)) for index in partitions)
        }
        self._strays.update(strays)
        for topic_id in strays:
            self._look_after(topic_id)
        await self.settled(strays, None)

    def _is_stray(self, key: PartitionId) -> bool:
        topic = self._cluster.topic_by_id(key.topic_id)
        is_at_home = topic is not None and self._belongs_here(topic, key.partition)
        return not is_at_home and self._partitions.find(key) is None

    def failure(self, topic_id: TopicId) -> Refused | None:
        """Why the last attempt to make what is missing of this topic failed, if it did."""
        return self._failures.get(topic_id)

    # Following the metadata

    def _changed(self, change: Change) -> None:
        match change:
            case TopicCreated(topic=topic) | PartitionsAdded(topic=topic):
                self._look_after(topic.topic_id)
            case TopicDeleted(topic=topic):
                self._exchange.leaders.forget_topic(topic.topic_id)
                self._look_after(topic.topic_id)
            case AssignmentsChanged(topic=topic):
                # At once, so that nobody takes a group for settled that has another target now.
                self._name_members(topic)
                self._look_after(topic.topic_id)
            case ConfigChanged(topic=topic, config=config):
                self._partitions.set_config(topic.topic_id, config)
            case BrokersChanged():
                for topic in self._cluster.topics():
                    self._name_members(topic)
            case _:
                pass

    def _applied(self, offset: Offset) -> None:
        """Tells the other nodes how far this one is, once what belongs to it is done."""
        if self._working:
            self._start(self._report_after(list(self._working.values()), offset))
        else:
            self._report(offset)

    async def _report_after(self, work: Collection["asyncio.Task[None]"], offset: Offset) -> None:
        await asyncio.wait(work)
        self._report(offset)

    def _report(self, offset: Offset) -> None:
        if offset > self._reported:
            self._reported = offset
            self._exchange.set_metadata_applied(offset)

    # Bringing a topic in line

    def _look_after(self, topic_id: TopicId) -> None:
        self._news.add(topic_id)
        if topic_id not in self._working:
            self._working[topic_id] = self._start(self._work_on(topic_id))

    async def _work_on(self, topic_id: TopicId) -> None:
        try:
            while topic_id in self._news:
                self._news.discard(topic_id)
                topic = self._cluster.topic_by_id(topic_id)
                if topic is None:
                    await self._retire(topic_id)
                else:
                    await self._bring_in_line(topic)
        finally:
            self._news.discard(topic_id)
            self._strays.pop(topic_id, None)
            del self._working[topic_id]

    async def _bring_in_line(self, topic: Topic) -> None:
        await self._give_up_moved(topic)
        known = self._cluster.topic_by_id(topic.topic_id)
        if known is None:
            return
        topic = known
        await self._remove_strays_of(topic)
        own, here = self._cluster.broker_id, self._partitions.of_topic(topic.topic_id)
        missing = [
            index
            for index, assignment in enumerate(topic.assignments)
            if index not in here
            and (own in assignment.hosts or self._may_be_member(topic.partition_id(index)))
        ]
        if missing:
            await self._make(topic, missing)
        self._unopened.discard(topic.topic_id)
        # Settings may have changed while the replicas were being made.
        now = self._cluster.topic_by_id(topic.topic_id)
        if now is not None:
            self._partitions.set_config(now.topic_id, self._cluster.config_for(now.configs))
            self._name_members(now)

    def _may_be_member(self, key: PartitionId) -> bool:
        """Whether the group may count on a replica that was here before this start: a move that was
        changed or cancelled on its way leaves members that neither its begin nor its end names."""
        topic = self._cluster.topic_by_id(key.topic_id)
        return (
            topic is not None
            and topic.assignments[key.partition].previous is not None
            and self._partitions.was_here(key)
        )

    async def _make(self, topic: Topic, missing: list[int]) -> None:
        config = self._cluster.config_for(topic.configs)
        founders = {index: topic.assignments[index].founders for index in missing}
        make = self._partitions.create
        if topic.topic_id in self._unopened:
            make = self._partitions.open
        try:
            await make(topic.name, topic.topic_id, missing, config, founders)
        except Refused as refused:
            logger.error("replicas of %s can't be created: %s", topic.name, refused.detail)
            self._failures[topic.topic_id] = refused
            self._retry_later()
        else:
            self._failures.pop(topic.topic_id, None)

    async def _give_up_moved(self, topic: Topic) -> None:
        """Only by what is committed now: to an old copy of the metadata a replica that moved away
        and back looks like one that moved away, and its group counts on what it acknowledged."""
        self._unsure.discard(topic.topic_id)
        if not self._moved(topic):
            return
        if not await self._is_up_to_date():
            logger.info(
                "moved replicas of %s stay for now: no majority confirms the move", topic.name
            )
            self._unsure.add(topic.topic_id)
            self._retry_later()
            return
        now = self._cluster.topic_by_id(topic.topic_id)
        moved = [] if now is None else self._moved(now)
        try:
            await self._partitions.remove(topic.topic_id, moved)
        except OSError as error:
            logger.warning("files of moved replicas of %s are left: %s", topic.name, error)

    async def _is_up_to_date(self) -> bool:
        """Whether all is known here that was committed when this was called."""
        if self._is_closing:
            return False
        asking = asyncio.get_running_loop().create_task(self._cluster.catch_up())
        self._asking.add(asking)
        try:
            await asyncio.wait([asking])
        finally:
            self._asking.discard(asking)
        error = None if asking.cancelled() else asking.exception()
        if error is not None and not isinstance(error, Refused):
            raise error
        return error is None and not asking.cancelled()

    def _moved(self, topic: Topic) -> list[int]:
        here = sorted(self._partitions.of_topic(topic.topic_id))
        return [index for index in here if not self._belongs_here(topic, index)]

    async def _remove_strays_of(self, topic: Topic) -> None:
        for index in self._strays.pop(topic.topic_id, ()):
            key = PartitionId(topic.topic_id, index)
            if self._is_stray(key):
                logger.info("%s-%d moved away; removing its files", topic.name, index)
                try:
                    await self._partitions.remove_files(key)
                except OSError as error:
                    logger.warning("files of %s-%d are left: %s", topic.name, index, error)

    async def _retire(self, topic_id: TopicId) -> None:
        if topic_id in self._strays:
            logger.info("topic %s was deleted; removing its files", topic_id.hex)
        self._failures.pop(topic_id, None)
        self._unsure.discard(topic_id)
        self._unopened.discard(topic_id)
        await self._partitions.retire_topic(topic_id)
        # Nobody need wait for the files: no other topic ever has this id.
        self._start(self._remove_files(topic_id))

    async def _remove_files(self, topic_id: TopicId) -> None:
        try:
            await self._partitions.remove_topic_files(topic_id)
        except OSError as error:
            logger.warning("files of topic %s are left for the next start: %s", topic_id, error)

    def _belongs_here(self, topic: Topic, index: int) -> bool:
        """Also while it moves: nobody gives a replica up before it is elsewhere."""
        if index >= topic.partitions:
            return False
        assignment = topic.assignments[index]
        return assignment.previous is not None or self._cluster.broker_id in assignment.replicas

    def _name_members(self, topic: Topic) -> None:
        ids: dict[tuple[BrokerId, ...], list[ReplicaId]] = {}
        for index, replica in self._partitions.of_topic(topic.topic_id).items():
            if index < topic.partitions:
                brokers = topic.assignments[index].replicas
                wanted = ids.get(brokers)
                if wanted is None:
                    wanted = ids[brokers] = self._cluster.replica_ids(brokers)
                if wanted:
                    replica.set_wanted(wanted)

    # Trying again

    def _retry_later(self) -> None:
        if not self._is_closing and (self._retrying is None or self._retrying.done()):
            self._retrying = self._start(self._retry())

    async def _retry(self) -> None:
        await asyncio.sleep(self._retry_s)
        self._retrying = None
        for topic_id in [*self._failures, *self._unsure]:
            self._look_after(topic_id)

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            context = {"message": "work on the replicas of a topic failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
