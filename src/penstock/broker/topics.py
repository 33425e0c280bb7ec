"""Makes, grows and deletes topics: one commit each, which every broker then carries out.

A topic exists once it is committed; each broker makes its replicas when it hears of it. The answer
waits until all living brokers have done so and the new partitions have leaders, within a bound
and never longer than its asker wants: what is late comes later. When the only broker of a new
partition is this one and its disk can't hold it, the change is taken back and the asker told why. A
deletion is one commit too, and the files go afterwards.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from math import inf
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import UUID

from penstock.broker.leader_waits import LeaderWaits
from penstock.broker.local_replicas import RETRY_S, LocalReplicas
from penstock.broker.partitions import Partitions
from penstock.broker.schema_settings import fault_of_validation
from penstock.cluster.changes import Change, TopicDeleted
from penstock.cluster.coordinator import Cluster
from penstock.cluster.topic import Topic
from penstock.cluster.topic_decisions import Grown, Growth, NewTopic, Outcome
from penstock.cluster.topic_names import check_topic_name, is_internal
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused, StartRefused
from penstock.model.ids import Offset, PartitionIndex, TopicId, TopicName
from penstock.replication.exchange import Exchange
from penstock.replication.replica import Replica

__all__ = [
    "Growth",
    "NewTopic",
    "Outcome",
    "Topic",
    "TopicDirectories",
    "Topics",
    "check_topic_name",
    "is_internal",
]

logger = logging.getLogger(__name__)

# How long an answer waits for the other brokers to have heard, and for partitions to have leaders.
EVERYWHERE_TIMEOUT_S = 3.0
# Longer than a repaired only copy waits for others that its log may have forgotten.
LEADERS_TIMEOUT_S = 5.0

T = TypeVar("T")


class TopicDirectories(Protocol):
    """Where the topics of this node lie on disk; both calls block."""

    def list_topic_directories(self) -> list[TopicId]: ...

    def log_directories(self) -> list[Path]: ...


class Topics:
    def __init__(
        self,
        *,
        cluster: Cluster,
        partitions: Partitions,
        exchange: Exchange,
        directory: TopicDirectories,
        executor: Executor,
        clock: Clock,
        retry_s: float = RETRY_S,
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._exchange = exchange
        self._directory = directory
        self._executor = executor
        self._clock = clock
        self._replicas = LocalReplicas(
            cluster=cluster, partitions=partitions, exchange=exchange, retry_s=retry_s
        )
        self._leaders = LeaderWaits(exchange.leaders)
        cluster.on_change(self._heard)
        self._creating: dict[str, asyncio.Task[dict[str, Outcome]]] = {}
        # Topics that could neither be made here nor taken back; a new one of that name may take
        # their place, unless there was room for them at last.
        self._abandoned: set[TopicId] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    # Start and stop

    async def open_all(self) -> None:
        """Opens every replica that belongs to this node."""
        found = await self._in_worker(self._directory.list_topic_directories)
        if found and self._cluster.is_new:
            # Data that the metadata does not know may be all that is left.
            raise StartRefused(
                "The log of the cluster's metadata is missing while the data directory holds "
                f"{len(found)} topic(s); restore the directory 'metadata' or use a new one."
            )
        await self._replicas.open_all()

    async def take_part(self) -> None:
        """Returns when this node holds what it should and leads what only it can lead.

        Within a bound: what is late comes later. Only for a node whose copy of the metadata is up
        to date, as it is after registration.
        """
        await self._replicas.idle()
        await self.remove_strays()
        alone = (self._cluster.broker_id,)
        waiting = [
            replica
            for topic in self._cluster.topics()
            for index, replica in self._partitions.of_topic(topic.topic_id).items()
            if replica.stopped_because is None
            and not replica.is_settled
            and index < topic.partitions
            and topic.assignments[index].hosts == alone
        ]
        # One after the other: by the time the first has settled, most of the others have, too, and
        # cost nothing.
        deadline = self._deadline(LEADERS_TIMEOUT_S)
        for replica in waiting:
            if not replica.is_settled:
                await self._until_settled(replica, self._left(deadline, LEADERS_TIMEOUT_S))

    async def _until_settled(self, replica: Replica, timeout_s: float) -> None:
        try:
            await replica.settled(timeout_s)
        except (TimeoutError, Refused) as error:
            logger.warning("%s is not in use yet: %s", replica.partition, error or "out of time")

    async def remove_strays(self) -> None:
        """Removes what is left of topics deleted, and of replicas moved, while this node was away.

        Only for a node whose copy of the metadata is up to date: to an old one, a new topic looks
        like a deleted one.
        """
        if self._cluster.is_new:
            return
        found = await self._in_worker(self._directory.list_topic_directories)
        strays: dict[TopicId, list[PartitionIndex]] = {topic_id: [] for topic_id in found}
        by_name = {topic_id.hex: topic_id for topic_id in found}
        for path in await self._in_worker(self._directory.log_directories):
            if path.parent.name in by_name:
                strays[by_name[path.parent.name]].append(PartitionIndex(int(path.name)))
        await self._replicas.remove_strays(strays)

    async def close(self) -> None:
        """Waits for creations and removals that are under way."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._replicas.close()

    # Finding: what is committed, as far as this node knows

    def find(self, name: str) -> Topic | None:
        return self._cluster.topic(name)

    def find_by_id(self, topic_id: UUID) -> Topic | None:
        return self._cluster.topic_by_id(topic_id)

    def all(self) -> Collection[Topic]:
        return self._cluster.topics()

    @property
    def partitions_per_page_max(self) -> int:
        """How many partitions one answer may describe."""
        return self._cluster.int_setting("max.request.partition.size.limit")

    # Creating

    @property
    def makes_missing(self) -> bool:
        """Whether clients get topics made by asking for them."""
        return self._cluster.bool_setting("auto.create.topics.enable")

    async def create(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False, wait_s: float = inf
    ) -> dict[str, Outcome]:
        """One outcome per name; a topic's partitions are in use when this returns, or the time is
        up and they will be."""
        faults = {new.name: fault_of_validation(new.configs) for new in wanted}
        refused: dict[str, Outcome] = {name: fault for name, fault in faults.items() if fault}
        allowed = [new for new in wanted if new.name not in refused]
        if validate_only:
            outcomes, _ = await self._cluster.create_topics(
                allowed, abandoned=self._still_abandoned(), validate_only=True
            )
            return outcomes | refused
        task = self._start(self._create(allowed, self._deadline(wait_s)))
        for new in allowed:
            self._creating.setdefault(new.name, task)
        # Shielded: a client that hangs up must not leave a topic half made.
        return await asyncio.shield(task) | refused

    async def ensure(self, wanted: Sequence[NewTopic]) -> dict[str, Outcome]:
        """The topics, made if they are missing; one that another caller makes is waited for."""
        missing = [new for new in wanted if self._is_missing(new.name)]
        under_way = {self._creating[new.name] for new in missing if new.name in self._creating}
        untouched = [new for new in missing if new.name not in self._creating]
        outcomes = await self.create(untouched) if untouched else {}
        if under_way:
            await asyncio.wait(under_way)
        return {new.name: self._ensured(new.name, outcomes.get(new.name)) for new in wanted}

    async def ensure_internal(
        self, name: str, *, partitions: int, configs: Mapping[str, str]
    ) -> Topic:
        """A topic of the broker's own, made on first use."""
        new = NewTopic(name=name, partitions=partitions, configs=configs, internal=True)
        outcome = (await self.ensure([new]))[name]
        if isinstance(outcome, Refused):
            raise outcome
        return outcome

    def _is_missing(self, name: str) -> bool:
        # One that is being made here is waited for until it can be used.
        return self._cluster.topic(name) is None or name in self._creating

    def _ensured(self, name: str, outcome: Outcome | None) -> Outcome:
        if isinstance(outcome, Refused) and outcome.reason != Reason.TOPIC_ALREADY_EXISTS:
            return outcome
        topic = self._cluster.topic(name)
        if topic is not None:
            return topic
        return Refused(Reason.LEADER_NOT_AVAILABLE, f"Topic '{name}' is being created.")

    async def _create(self, wanted: Sequence[NewTopic], deadline: float) -> dict[str, Outcome]:
        task = asyncio.current_task()
        try:
            outcomes, offset = await self._cluster.create_topics(
                wanted, abandoned=self._still_abandoned()
            )
            return await self._made_everywhere(outcomes, {}, offset, deadline)
        finally:
            for new in wanted:
                if self._creating.get(new.name) is task:
                    del self._creating[new.name]

    def _still_abandoned(self) -> frozenset[TopicId]:
        """Without those that were made or taken back after all."""
        self._abandoned = {
            topic_id
            for topic_id in self._abandoned
            if self._cluster.topic_by_id(topic_id) is not None
            and self._replicas.failure(topic_id) is not None
        }
        return frozenset(self._abandoned)

    # Growing

    async def grow(
        self, wanted: Sequence[Growth], *, validate_only: bool = False, wait_s: float = inf
    ) -> dict[str, Outcome]:
        """One outcome per name; the new partitions are in use when this returns, or the time is up
        and they will be."""
        if validate_only:
            outcomes, _ = await self._cluster.grow_topics(wanted, validate_only=True)
            return _topics_of(outcomes)
        return await asyncio.shield(self._start(self._grow(wanted, self._deadline(wait_s))))

    async def _grow(self, wanted: Sequence[Growth], deadline: float) -> dict[str, Outcome]:
        outcomes, offset = await self._cluster.grow_topics(wanted)
        first = {name: each.first for name, each in outcomes.items() if isinstance(each, Grown)}
        return await self._made_everywhere(_topics_of(outcomes), first, offset, deadline)

    # Waiting until a change is carried out

    def _heard(self, change: Change) -> None:
        if isinstance(change, TopicDeleted):
            self._leaders.topic_deleted(change.topic.topic_id)

    async def _made_everywhere(
        self,
        outcomes: dict[str, Outcome],
        first: Mapping[str, int],
        offset: Offset,
        deadline: float,
    ) -> dict[str, Outcome]:
        """The outcomes, once the new partitions, from `first` of each topic on, are in use."""
        topics = [outcome for outcome in outcomes.values() if isinstance(outcome, Topic)]
        if not topics:
            return outcomes
        await self._replicas.settled(topic.topic_id for topic in topics)
        failed = self._failed_here(topics, first)
        if failed:
            await self._take_back(failed, first)
        made = [topic for topic in topics if topic.name not in failed]
        await self._cluster.known_everywhere(offset, self._left(deadline, EVERYWHERE_TIMEOUT_S))
        new = [
            key
            for topic in made
            if self._cluster.topic_by_id(topic.topic_id) is not None
            for key in topic.partition_ids(first.get(topic.name, 0))
        ]
        await self._leaders.wait(new, self._left(deadline, LEADERS_TIMEOUT_S))
        return {**outcomes, **{name: refused for name, (_, refused) in failed.items()}}

    def _failed_here(
        self, topics: Sequence[Topic], first: Mapping[str, int]
    ) -> dict[str, tuple[Topic, Refused]]:
        """Topics that nobody holds, because only this node could and its disk refused."""
        failed: dict[str, tuple[Topic, Refused]] = {}
        for topic in topics:
            refused = self._replicas.failure(topic.topic_id)
            new = topic.assignments[first.get(topic.name, 0) :]
            own = (self._cluster.broker_id,)
            if refused is not None and any(each.hosts == own for each in new):
                failed[topic.name] = topic, refused
        return failed

    async def _take_back(
        self, failed: Mapping[str, tuple[Topic, Refused]], first: Mapping[str, int]
    ) -> None:
        unmade = [(topic, first.get(topic.name, 0)) for topic, _ in failed.values()]
        try:
            await self._cluster.withdraw(unmade)
        except Refused as refused:
            logger.warning("topics without replicas can't be removed: %s", refused.detail)
            self._abandoned.update(topic.topic_id for topic, start in unmade if start == 0)
        await self._replicas.settled(topic.topic_id for topic, _ in unmade)

    # Deleting

    async def delete(
        self, chosen: Sequence[TopicName | TopicId], *, wait_s: float = inf
    ) -> list[Outcome]:
        """One outcome per choice; the files go in the background."""
        if not self._cluster.bool_setting("delete.topic.enable"):
            raise Refused(Reason.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        return await asyncio.shield(self._start(self._delete(chosen, self._deadline(wait_s))))

    async def _delete(
        self, chosen: Sequence[TopicName | TopicId], deadline: float
    ) -> list[Outcome]:
        outcomes, offset = await self._cluster.delete_topics(chosen)
        topics = [outcome for outcome in outcomes if isinstance(outcome, Topic)]
        if topics:
            await self._replicas.settled(topic.topic_id for topic in topics)
            await self._cluster.known_everywhere(offset, self._left(deadline, EVERYWHERE_TIMEOUT_S))
        return outcomes

    # Inside

    def _deadline(self, wait_s: float) -> float:
        return self._clock.monotonic() + wait_s

    def _left(self, deadline: float, bound_s: float) -> float:
        return max(0.0, min(bound_s, deadline - self._clock.monotonic()))

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Refused):
            context = {"message": "a change of topics failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    async def _in_worker(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _topics_of(outcomes: Mapping[str, Grown | Refused]) -> dict[str, Outcome]:
    return {
        name: each.topic if isinstance(each, Grown) else each for name, each in outcomes.items()
    }
