"""The cluster's metadata as the rest of the broker sees it: reads of what is committed, changes.

A change is decided on the newest state and appended; once it is committed it becomes visible to
readers, and then listeners hear of it. A change that began goes on to its end even if the caller
is gone: otherwise a commit could pass unnoticed.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from penstock.cluster.changes import Change
from penstock.cluster.config_decisions import (
    ConfigRules,
    Edit,
    Resource,
    decide_edits,
    decide_replacement,
)
from penstock.cluster.config_definitions import effective_broker_setting
from penstock.cluster.published import Published
from penstock.cluster.records import ClusterRecord, ProducerIdsTaken
from penstock.cluster.state import ClusterState
from penstock.cluster.topic import Topic
from penstock.cluster.topic_decisions import (
    Growth,
    NewTopic,
    Outcome,
    Rules,
    decide_creation,
    decide_deletion,
    decide_files_removed,
    decide_growth,
    decide_ready,
    decide_withdrawal,
)
from penstock.model.clock import Clock
from penstock.model.endpoint import Endpoint
from penstock.model.errors import Refused, StartRefused
from penstock.model.ids import BrokerId, TopicId, TopicName
from penstock.model.topic_config import TopicConfig
from penstock.replication.hosting import Host

# Large enough that a restart or a burst of producers rarely waits for a commit.
PRODUCER_IDS_PER_BLOCK = 1_000

T = TypeVar("T")
Decision = Callable[[ClusterState], tuple[Sequence[ClusterRecord], T]]
Listener = Callable[[Change], None]


class Cluster:
    def __init__(
        self,
        *,
        host: Host[ClusterState, ClusterRecord],
        broker_id: BrokerId,
        cluster_id: str,
        static_broker_config: Mapping[str, str],
        clock: Clock,
        new_uuid: Callable[[], UUID],
        advertised: Endpoint = Endpoint("127.0.0.1", 0),  # noqa: B008  (an immutable tuple)
    ) -> None:
        self.broker_id = broker_id
        self.cluster_id = cluster_id
        self.advertised = advertised
        self.static_broker_config = dict(static_broker_config)
        self._host = host
        self._clock = clock
        self._new_uuid = new_uuid
        self._published = Published(self.static_broker_config, str(broker_id))
        self._listeners: list[Listener] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    async def load(self) -> None:
        damage = self._host.replica.stopped_because
        if damage is not None:
            # Going on without it would show an empty cluster to everyone.
            raise StartRefused(f"The cluster's metadata can't be read: {damage}.")
        await self._host.load()
        self._published.load(self._host.state)

    def on_change(self, listener: Listener) -> None:
        self._listeners.append(listener)

    # Reads: only what is committed, and of topics only the partitions that exist

    def topic(self, name: str) -> Topic | None:
        return self._published.topics.get(TopicName(name))

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        return self._published.topics_by_id.get(TopicId(topic_id))

    def topics(self) -> Collection[Topic]:
        return self._published.topics.values()

    def topic_config(self, name: str) -> TopicConfig:
        topic = self._published.topics[TopicName(name)]
        return self._published.config_of(topic.configs)

    def config_for(self, configs: Mapping[str, str]) -> TopicConfig:
        """The effective settings of a topic with these settings of its own."""
        return self._published.config_of(configs)

    @property
    def controller_id(self) -> BrokerId:
        return self.broker_id

    @property
    def brokers(self) -> Mapping[BrokerId, Endpoint]:
        return {self.broker_id: self.advertised}

    def unfinished(self) -> list[Topic]:
        """Topics with partitions that were committed but not yet made; for start-up."""
        return [topic for topic in self._host.state.topics.values() if not topic.is_finished]

    @property
    def is_new(self) -> bool:
        """Nothing was ever committed."""
        return self._host.replica.log_end_offset == 0

    def may_have_files(self, topic_id: TopicId) -> bool:
        return topic_id in self._host.state.topics or topic_id in self._host.state.doomed

    def doomed(self) -> list[TopicId]:
        """Deleted topics whose files may still be there."""
        return list(self._host.state.doomed)

    # Settings

    @property
    def broker_settings(self) -> Mapping[str, str]:
        """The settings of this broker that are not at their default."""
        return self._published.broker_settings

    def dynamic_broker_config(self, broker: str) -> Mapping[str, str]:
        return self._published.dynamic.get(broker, {})

    def broker_setting(self, name: str) -> str:
        return effective_broker_setting(name, self._published.broker_settings)

    def int_setting(self, name: str) -> int:
        return int(self.broker_setting(name))

    def bool_setting(self, name: str) -> bool:
        return self.broker_setting(name) == "true"

    # Changes

    async def create_topics(
        self,
        wanted: Sequence[NewTopic],
        *,
        abandoned: Collection[TopicId] = (),
        validate_only: bool = False,
    ) -> dict[str, Outcome]:
        """The topics are committed but not made: `mark_ready` follows once they are on disk."""

        def decision(state: ClusterState) -> tuple[Sequence[ClusterRecord], dict[str, Outcome]]:
            records, outcomes = decide_creation(state, wanted, self._rules(), abandoned)
            return ([] if validate_only else records), outcomes

        return await self._decide(decision)

    async def grow_topics(
        self, wanted: Sequence[Growth], *, validate_only: bool = False
    ) -> dict[str, Outcome]:
        def decision(state: ClusterState) -> tuple[Sequence[ClusterRecord], dict[str, Outcome]]:
            records, outcomes = decide_growth(state, wanted, self._rules())
            return ([] if validate_only else records), outcomes

        return await self._decide(decision)

    async def mark_ready(self, topics: Sequence[Topic]) -> None:
        """All partitions of these topics exist."""
        await self._decide(lambda state: decide_ready(state, topics))

    async def withdraw(self, topics: Sequence[Topic]) -> None:
        """Takes a creation or growth back that could not be finished."""
        await self._decide(lambda state: decide_withdrawal(state, topics))

    async def delete_topics(self, chosen: Sequence[TopicName | TopicId]) -> list[Outcome]:
        return await self._decide(lambda state: decide_deletion(state, chosen))

    async def files_removed(self, topic_id: TopicId) -> None:
        """Nothing of this deleted topic is left on disk."""
        await self._decide(lambda state: decide_files_removed(state, topic_id))

    async def replace_configs(
        self,
        wanted: Sequence[tuple[Resource, Mapping[str, str | None]]],
        *,
        validate_only: bool = False,
    ) -> list[Refused | None]:
        """One answer per resource: None when it was changed."""
        return await self._alter(wanted, decide_replacement, validate_only)

    async def edit_configs(
        self, wanted: Sequence[tuple[Resource, Sequence[Edit]]], *, validate_only: bool = False
    ) -> list[Refused | None]:
        """One answer per resource: None when it was changed."""
        return await self._alter(wanted, decide_edits, validate_only)

    async def allocate_producer_ids(self) -> range:
        """A block of ids that nobody else ever gets, durable before it is used."""

        def decision(state: ClusterState) -> tuple[Sequence[ClusterRecord], range]:
            first = state.next_producer_id
            block = range(first, first + PRODUCER_IDS_PER_BLOCK)
            return [ProducerIdsTaken(next_producer_id=block.stop)], block

        return await self._decide(decision)

    async def _alter(
        self,
        wanted: Iterable[tuple[Resource, T]],
        decide: Callable[[ClusterState, Resource, T, ConfigRules], list[ClusterRecord]],
        validate_only: bool,
    ) -> list[Refused | None]:
        def decision(state: ClusterState) -> tuple[Sequence[ClusterRecord], list[Refused | None]]:
            records: list[ClusterRecord] = []
            answers: list[Refused | None] = []
            for resource, change in wanted:
                try:
                    records.extend(decide(state, resource, change, self._config_rules()))
                    answers.append(None)
                except Refused as refused:
                    answers.append(refused)
            return ([] if validate_only else records), answers

        return await self._decide(decision)

    # How a change comes about

    async def _decide(self, decision: Decision[T]) -> T:
        return await asyncio.shield(self._start(self._decide_and_publish(decision)))

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        # A refusal whose caller is gone concerns nobody; anything else is a bug.
        if error is not None and not isinstance(error, Refused):
            context = {"message": "a change of metadata failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    async def _decide_and_publish(self, decision: Decision[T]) -> T:
        appended: list[ClusterRecord] = []

        def noting(state: ClusterState) -> tuple[Sequence[ClusterRecord], T]:
            records, answer = decision(state)
            appended.extend(records)
            return records, answer

        # Commits resolve in the order of the appends, so changes are published in that order.
        answer = await self._host.decide(noting)
        for record in appended:
            for change in self._published.apply(record):
                self._tell(change)
        return answer

    def _tell(self, change: Change) -> None:
        for listener in self._listeners:
            listener(change)

    def _rules(self) -> Rules:
        return Rules(
            brokers=(self.broker_id,),
            partitions_default=self.int_setting("num.partitions"),
            replication_factor_default=self.int_setting("default.replication.factor"),
            broker_settings=self._published.broker_settings,
            new_topic_id=lambda: TopicId(self._new_uuid()),
        )

    def _config_rules(self) -> ConfigRules:
        return ConfigRules(
            brokers=(self.broker_id,), broker_settings=self._published.broker_settings
        )
