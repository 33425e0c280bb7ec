"""Makes, grows and deletes topics: the metadata first, then the partitions on disk.

A topic comes about in two commits. The first gives it a name and an id; then its partitions are
made; the second says that they exist, and only then do clients see the topic. A crash in between
is healed at start: what the second commit does not cover is made then, while a directory that it
does cover and that is missing is damage. When a partition can't be made, the first commit is taken
back. A deletion is one commit that also dooms the files; they go afterwards, and what a crash
leaves of them goes at the next start.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple, Protocol, TypeVar

from penstock.broker.partitions import Partitions
from penstock.cluster.changes import (
    Change,
    ConfigChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from penstock.cluster.coordinator import Cluster
from penstock.cluster.topic import Topic
from penstock.cluster.topic_decisions import Growth, NewTopic, Outcome
from penstock.cluster.topic_names import check_topic_name, is_internal
from penstock.model.errors import Reason, Refused, StartRefused
from penstock.model.ids import TopicId, TopicName

__all__ = [
    "Growth",
    "NewTopic",
    "Outcome",
    "PartitionView",
    "Topic",
    "TopicDirectories",
    "Topics",
    "check_topic_name",
    "is_internal",
]

logger = logging.getLogger(__name__)

# Between two attempts to finish topics that a full disk left unfinished at start.
RETRY_S = 5.0
NO_LEADER = -1

T = TypeVar("T")


class TopicDirectories(Protocol):
    """Where the topics of this node lie on disk; both calls block."""

    def list_topic_directories(self) -> list[TopicId]: ...

    def remove_topic(self, topic_id: TopicId) -> None: ...


class PartitionView(NamedTuple):
    """A partition as clients are told of it."""

    partition: int
    leader: int
    term: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]


class Topics:
    def __init__(
        self,
        *,
        cluster: Cluster,
        partitions: Partitions,
        directory: TopicDirectories,
        executor: Executor,
        retry_s: float = RETRY_S,
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._directory = directory
        self._executor = executor
        self._retry_s = retry_s
        self._creating: dict[str, asyncio.Task[dict[str, Outcome]]] = {}
        # Topics that could neither be finished nor taken back; a new one of that name may take
        # their place, and they are forgotten with the next creation that the disk lets through.
        self._abandoned: set[TopicId] = set()
        # Growths go one after the other, since two of one topic could leave a gap between ready
        # partitions; deletions too, since a growth must not put partitions into a deleted topic.
        self._growing = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._retrying: asyncio.Task[None] | None = None
        cluster.on_change(self._changed)

    # Start and stop

    async def open_all(self) -> None:
        """Opens every partition, finishes what was being made, removes what was being deleted."""
        self._check_directories(await self._in_worker(self._directory.list_topic_directories))
        await asyncio.gather(*(self._open(topic) for topic in self._cluster.topics()))
        left = await self._make(self._cluster.unfinished())
        for topic, refused in left:
            logger.error("topic %s is not finished yet: %s", topic.name, refused.detail)
        if left:
            self._retrying = self._start(self._finish_later([topic for topic, _ in left]))
        for topic_id in self._cluster.doomed():
            self._start(self._remove(topic_id))

    async def close(self) -> None:
        """Waits for creations and removals that are under way."""
        if self._retrying is not None:
            self._retrying.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _open(self, topic: Topic) -> None:
        config = self._cluster.config_for(topic.configs)
        await self._partitions.open(topic.name, topic.topic_id, range(topic.ready), config)

    async def _finish_later(self, topics: Sequence[Topic]) -> None:
        while topics:
            await asyncio.sleep(self._retry_s)
            async with self._growing:
                topics = [topic for topic, _ in await self._make(topics)]

    def _check_directories(self, found: Sequence[TopicId]) -> None:
        """Data that the metadata does not know is never removed: it may be all that is left."""
        if found and self._cluster.is_new:
            raise StartRefused(
                "The log of the cluster's metadata is missing while the data directory holds "
                f"{len(found)} topic(s); restore the directory 'metadata' or use a new one."
            )
        for topic_id in found:
            if not self._cluster.may_have_files(topic_id):
                logger.warning("the directory of topic %s belongs to no topic; left", topic_id.hex)

    # What clients are told

    def describe(
        self, topic: Topic, first: int = 0, last: int | None = None
    ) -> list[PartitionView]:
        """The partitions of the topic from `first` up to but not including `last`."""
        end = topic.partitions if last is None else min(last, topic.partitions)
        broker = int(self._cluster.broker_id)
        return [self._view(topic.name, index, broker) for index in range(first, end)]

    def _view(self, topic: TopicName, index: int, broker: int) -> PartitionView:
        replica = self._partitions.get(topic, index)
        if replica.stopped_because is not None:
            return PartitionView(index, NO_LEADER, replica.term, [broker], [], [broker])
        return PartitionView(index, broker, replica.term, [broker], [broker], [])

    # Creating

    async def create(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, Outcome]:
        """One outcome per name; a topic's partitions are in use when this returns."""
        if validate_only:
            return await self._cluster.create_topics(
                wanted, abandoned=frozenset(self._abandoned), validate_only=True
            )
        task = self._start(self._create(wanted))
        for new in wanted:
            self._creating.setdefault(new.name, task)
        # Shielded: a client that hangs up must not leave a topic half made.
        return await asyncio.shield(task)

    async def ensure(self, wanted: Sequence[NewTopic]) -> dict[str, Outcome]:
        """The topics, made if they are missing; one that another caller makes is waited for."""
        missing = [new for new in wanted if self._cluster.topic(new.name) is None]
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

    def _ensured(self, name: str, outcome: Outcome | None) -> Outcome:
        topic = self._cluster.topic(name)
        if topic is not None:
            return topic
        if isinstance(outcome, Refused) and outcome.reason != Reason.TOPIC_ALREADY_EXISTS:
            return outcome
        return Refused(Reason.LEADER_NOT_AVAILABLE, f"Topic '{name}' is being made.")

    async def _create(self, wanted: Sequence[NewTopic]) -> dict[str, Outcome]:
        task = asyncio.current_task()
        try:
            return await self._create_and_make(wanted)
        finally:
            for new in wanted:
                if self._creating.get(new.name) is task:
                    del self._creating[new.name]

    async def _create_and_make(self, wanted: Sequence[NewTopic]) -> dict[str, Outcome]:
        abandoned = frozenset(self._abandoned)
        outcomes = await self._cluster.create_topics(wanted, abandoned=abandoned)
        self._forget_abandoned(abandoned)
        topics = [outcome for outcome in outcomes.values() if isinstance(outcome, Topic)]
        return {**outcomes, **await self._make_or_withdraw(topics)}

    def _forget_abandoned(self, abandoned: Iterable[TopicId]) -> None:
        for topic_id in abandoned:
            if topic_id in self._abandoned:
                self._abandoned.discard(topic_id)
                self._start(self._remove(topic_id))

    # Growing

    async def grow(
        self, wanted: Sequence[Growth], *, validate_only: bool = False
    ) -> dict[str, Outcome]:
        """One outcome per name; the new partitions are in use when this returns."""
        if validate_only:
            return await self._cluster.grow_topics(wanted, validate_only=True)
        return await asyncio.shield(self._start(self._grow(wanted)))

    async def _grow(self, wanted: Sequence[Growth]) -> dict[str, Outcome]:
        async with self._growing:
            outcomes = await self._cluster.grow_topics(wanted)
            topics = [outcome for outcome in outcomes.values() if isinstance(outcome, Topic)]
            return {**outcomes, **await self._make_or_withdraw(topics)}

    # Making what the first commit announced

    async def _make_or_withdraw(self, topics: Sequence[Topic]) -> dict[str, Outcome]:
        """The refusals, by name, of topics that could not be made; those are taken back."""
        failed = await self._make(topics)
        if failed:
            await self._withdraw([topic for topic, _ in failed])
        return {topic.name: refused for topic, refused in failed}

    async def _make(self, topics: Sequence[Topic]) -> list[tuple[Topic, Refused]]:
        """Makes the missing partitions and commits that they exist; answers what failed."""
        if not topics:
            return []
        refusals = await asyncio.gather(*(self._make_one(topic) for topic in topics))
        pairs = list(zip(topics, refusals, strict=True))
        made = [topic for topic, refused in pairs if refused is None]
        failed = [(topic, refused) for topic, refused in pairs if refused is not None]
        try:
            await self._cluster.mark_ready(made)
        except Refused as refused:
            return [*failed, *((topic, refused) for topic in made)]
        return failed

    async def _make_one(self, topic: Topic) -> Refused | None:
        config = self._cluster.config_for(topic.configs)
        missing = [
            index for index in range(topic.ready, topic.partitions) if not self._has(topic, index)
        ]
        try:
            await self._partitions.create(topic.name, topic.topic_id, missing, config)
        except Refused as refused:
            return refused
        return None

    def _has(self, topic: Topic, index: int) -> bool:
        try:
            self._partitions.get_by_id(topic.topic_id, index)
        except Refused:
            return False
        return True

    async def _withdraw(self, topics: Sequence[Topic]) -> None:
        new = [topic.topic_id for topic in topics if topic.ready == 0]
        try:
            await self._cluster.withdraw(topics)
        except Refused as refused:
            logger.warning("unfinished topics can't be taken back yet: %s", refused.detail)
            self._abandoned.update(new)
        for topic_id in new:
            self._start(self._remove(topic_id))

    # Deleting

    async def delete(self, chosen: Sequence[TopicName | TopicId]) -> list[Outcome]:
        """One outcome per choice; the files go in the background."""
        if not self._cluster.bool_setting("delete.topic.enable"):
            raise Refused(Reason.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        async with self._growing:
            return await self._cluster.delete_topics(chosen)

    async def _remove(self, topic_id: TopicId) -> None:
        """Replicas and files of a topic that is gone."""
        try:
            await self._partitions.delete(topic_id)
            # Again for what never became a replica.
            await self._in_worker(lambda: self._directory.remove_topic(topic_id))
            await self._cluster.files_removed(topic_id)
        except (OSError, Refused) as error:
            logger.warning("files of topic %s are left for the next start: %s", topic_id, error)

    # Following the metadata

    def _changed(self, change: Change) -> None:
        match change:
            case TopicDeleted(topic=topic):
                self._start(self._remove(topic.topic_id))
            case ConfigChanged(topic=topic, config=config):
                self._partitions.set_config(topic.name, config)
            case TopicCreated(topic=topic) | PartitionsAdded(topic=topic):
                # Settings may have changed while the partitions were being made.
                config = self._cluster.config_for(topic.configs)
                self._partitions.set_config(topic.name, config)

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
