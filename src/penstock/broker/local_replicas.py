"""Keeps the replicas of this node as the metadata wants them, topic by topic.

Whenever the metadata says something new about a topic, the topic is brought in line: replicas that
are missing here are made, those that moved away or whose topic is gone are given up, and each
group is told who shall belong to it. One piece of work per topic runs at a time, and it looks
again if more news came meanwhile. What a full disk refuses is tried again.
"""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterable
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
from penstock.model.ids import Offset, PartitionId, TopicId
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
        self._working: dict[TopicId, asyncio.Task[None]] = {}
        self._failures: dict[TopicId, Refused] = {}
        self._retrying: asyncio.Task[None] | None = None
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
        if self._retrying is not None:
            self._retrying.cancel()
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
            del self._working[topic_id]

    async def _bring_in_line(self, topic: Topic) -> None:
        await self._give_up_moved(topic)
        own, here = self._cluster.broker_id, self._partitions.of_topic(topic.topic_id)
        missing = [
            index
            for index, assignment in enumerate(topic.assignments)
            if own in assignment.hosts and index not in here
        ]
        if missing:
            await self._make(topic, missing)
        self._unopened.discard(topic.topic_id)
        # Settings may have changed while the replicas were being made.
        now = self._cluster.topic_by_id(topic.topic_id)
        if now is not None:
            self._partitions.set_config(now.topic_id, self._cluster.config_for(now.configs))
            self._name_members(now)

    async def _make(self, topic: Topic, missing: list[int]) -> None:
        config = self._cluster.config_for(topic.configs)
        founders = {index: topic.assignments[index].founders for index in missing}
        make = self._partitions.create
        if topic.topic_id in self._unopened:
            make = self._partitions.open
        try:
            await make(topic.name, topic.topic_id, missing, config, founders)
        except Refused as refused:
            logger.error("replicas of %s can't be made: %s", topic.name, refused.detail)
            self._failures[topic.topic_id] = refused
            self._retry_later()
        else:
            self._failures.pop(topic.topic_id, None)

    async def _give_up_moved(self, topic: Topic) -> None:
        moved = [
            index
            for index in sorted(self._partitions.of_topic(topic.topic_id))
            if not self._belongs_here(topic, index)
        ]
        if not moved:
            return
        try:
            await self._partitions.remove(topic.topic_id, moved)
        except OSError as error:
            logger.warning("files of moved replicas of %s are left: %s", topic.name, error)

    async def _retire(self, topic_id: TopicId) -> None:
        self._failures.pop(topic_id, None)
        self._unopened.discard(topic_id)
        await self._partitions.retire_topic(topic_id)
        # Nobody need wait for the files: no other topic ever has this id.
        self._start(self.remove_files(topic_id))

    async def remove_files(self, topic_id: TopicId) -> None:
        try:
            await self._partitions.remove_topic_files(topic_id)
        except OSError as error:
            logger.warning("files of topic %s are left for the next start: %s", topic_id, error)

    async def remove_if_moved(self, key: PartitionId) -> None:
        """Removes the files of a partition that this node neither has nor shall have."""
        topic = self._cluster.topic_by_id(key.topic_id)
        if topic is None or self._partitions.find(key) is not None or key.topic_id in self._working:
            return
        if not self._belongs_here(topic, key.partition):
            logger.info("%s-%d moved away; removing its files", topic.name, key.partition)
            try:
                await self._partitions.remove_files(key)
            except OSError as error:
                logger.warning("files of %s-%d are left: %s", topic.name, key.partition, error)

    def _belongs_here(self, topic: Topic, index: int) -> bool:
        """Also while it moves: nobody gives a replica up before it is elsewhere."""
        if index >= topic.partitions:
            return False
        assignment = topic.assignments[index]
        return assignment.previous is not None or self._cluster.broker_id in assignment.replicas

    def _name_members(self, topic: Topic) -> None:
        for index, replica in self._partitions.of_topic(topic.topic_id).items():
            if index < topic.partitions:
                wanted = self._cluster.replica_ids(topic.assignments[index].replicas)
                if wanted:
                    replica.set_wanted(wanted)

    # Trying again

    def _retry_later(self) -> None:
        if self._retrying is None or self._retrying.done():
            self._retrying = self._start(self._retry())

    async def _retry(self) -> None:
        await asyncio.sleep(self._retry_s)
        self._retrying = None
        for topic_id in list(self._failures):
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
