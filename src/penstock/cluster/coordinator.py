"""The cluster's metadata as the rest of the broker sees it: reads of what is committed, changes.

Readers see the copy of this node. It follows the metadata log, and every change that it meets
there, made here or elsewhere, is reported to listeners in the order of the log. A change that began
goes on to its end even if the caller is gone. How a change finds its way to the controller is
`deciding`'s.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from penstock.cluster.broker_decisions import decide_removal
from penstock.cluster.brokers import Broker
from penstock.cluster.changes import Change
from penstock.cluster.config_decisions import (
    ConfigRules,
    Edit,
    Resource,
    decide_edits,
    decide_replacement,
)
from penstock.cluster.config_definitions import effective_broker_setting
from penstock.cluster.deciding import (
    DECIDE_TIMEOUT_S,
    ClusterFeed,
    ClusterHost,
    Decided,
    Decider,
    Decision,
)
from penstock.cluster.group_settings import effective_group_setting
from penstock.cluster.lock_decisions import decide_release
from penstock.cluster.published import Published
from penstock.cluster.reassignment_decisions import (
    Ended,
    Move,
    decide_ends,
    decide_internal_growth,
    decide_move,
)
from penstock.cluster.records import ClusterRecord, ProducerIdsTaken
from penstock.cluster.registration import Registration
from penstock.cluster.state import ClusterState
from penstock.cluster.topic import Topic
from penstock.cluster.topic_decisions import (
    Grown,
    Growth,
    NewTopic,
    Outcome,
    Rules,
    decide_creation,
    decide_deletion,
    decide_growth,
    decide_withdrawal,
)
from penstock.cluster.topic_names import INTERNAL_FACTORS
from penstock.model.clock import Clock
from penstock.model.endpoint import Endpoint
from penstock.model.errors import Refused, StartRefused
from penstock.model.ids import BrokerId, DirectoryId, Offset, ReplicaId, TopicId, TopicName
from penstock.model.topic_config import TopicConfig
from penstock.replication.exchange import Exchange

# Large enough that a restart or a burst of producers rarely waits for a commit.
PRODUCER_IDS_PER_BLOCK = 1_000
# How often it is looked whether only nodes that are not brokers are still waited for.
LOOK_S = 0.05

T = TypeVar("T")
Listener = Callable[[Change], None]


class Cluster:
    def __init__(
        self,
        *,
        host: ClusterHost,
        feed: ClusterFeed,
        exchange: Exchange,
        broker_id: BrokerId,
        directory_id: DirectoryId,
        cluster_id: str,
        founders: Sequence[ReplicaId],
        static_broker_config: Mapping[str, str],
        clock: Clock,
        new_uuid: Callable[[], UUID],
        random_below: Callable[[int], int],
        advertised: Endpoint = Endpoint("127.0.0.1", 0),  # noqa: B008  (an immutable tuple)
    ) -> None:
        self.broker_id = broker_id
        self._own = ReplicaId(broker_id, directory_id)
        self.cluster_id = cluster_id
        self.advertised = advertised
        self.static_broker_config = dict(static_broker_config)
        self._host = host
        self._feed = feed
        self._exchange = exchange
        self._new_uuid = new_uuid
        self._published = Published(self.static_broker_config, str(broker_id))
        self._is_loaded = False
        self._listeners: list[Listener] = []
        self._on_applied: list[Callable[[Offset], None]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._decider = Decider(
            host=host,
            feed=feed,
            exchange=exchange,
            broker_id=broker_id,
            clock=clock,
            new_uuid=new_uuid,
            random_below=random_below,
        )
        self._registration = Registration(
            host=host,
            feed=feed,
            exchange=exchange,
            decider=self._decider,
            founders=founders,
            own=self._own,
        )
        feed.on_applied(self._applied)

    async def load(self) -> None:
        """Reads what is known to be committed; whether there is a controller shows later."""
        damage = self._host.replica.stopped_because
        if damage is not None:
            # Going on without it would show an empty cluster to everyone.
            raise StartRefused(f"The cluster's metadata can't be read: {damage}.")
        await self._feed.load()
        self._published.load(self._feed.state)
        self._is_loaded = True
        self._host.start()

    def on_change(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def on_applied(self, callback: Callable[[Offset], None]) -> None:
        """Called after the changes up to that offset were reported."""
        self._on_applied.append(callback)

    # Reads: only what is committed, as far as this node knows

    @property
    def applied(self) -> Offset:
        return self._feed.applied

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
    def is_new(self) -> bool:
        """Nothing of the metadata ever reached this node."""
        return self._host.replica.log_end_offset == 0

    # Brokers

    @property
    def controller_id(self) -> BrokerId:
        """-1 while there is none, or none that this node knows of."""
        return self._decider.controller_id

    @property
    def is_controller(self) -> bool:
        return self._host.is_ready

    @property
    def brokers(self) -> Mapping[BrokerId, Broker]:
        """All that belong to the cluster, dead or alive, by their numbers."""
        return self._published.brokers

    def alive_brokers(self) -> list[BrokerId]:
        return [number for number in self.brokers if self._exchange.is_alive(number)]

    async def known_everywhere(self, offset: Offset, timeout_s: float) -> bool:
        """Whether all living brokers came to `offset` in time."""
        if self._is_known_everywhere(offset):
            return True
        waiting = asyncio.ensure_future(self._exchange.wait_metadata_applied(offset, timeout_s))
        try:
            while not waiting.done() and not self._is_known_everywhere(offset):
                # A node that was removed and still runs hears no more, and is not waited for.
                await asyncio.wait([waiting], timeout=LOOK_S)
            return self._is_known_everywhere(offset)
        finally:
            waiting.cancel()

    def _is_known_everywhere(self, offset: Offset) -> bool:
        applied = self._exchange.metadata_applied
        return all(applied(number) >= offset for number in self.alive_brokers())

    def replica_ids(self, brokers: Iterable[BrokerId]) -> list[ReplicaId]:
        """Those of them that belong to the cluster, with the directories they have now. Of its own
        a node knows it before the cluster does."""
        known, own = self.brokers, self._own
        return [own if n == own.node else known[n].replica_id for n in brokers if n in known]

    async def register(self, broker: Broker) -> None:
        """Makes this node a broker of the cluster; returns when its copy shows it.

        Not decided on the own copy as other changes are: a node that joins has none yet.
        """
        end = await self._shielded(self._registration.register(broker))
        await self._decider.catch_up(end, DECIDE_TIMEOUT_S)

    async def remove_broker(self, number: BrokerId) -> None:
        alive = frozenset(self.alive_brokers())
        await self._decide(lambda state: decide_removal(state, number, alive))

    # Settings

    @property
    def broker_settings(self) -> Mapping[str, str]:
        """The settings of this broker that are not at their default."""
        return self._published.broker_settings

    def dynamic_broker_config(self, broker: str) -> Mapping[str, str]:
        return self._published.dynamic.get(broker, {})

    @property
    def client_metrics(self) -> Mapping[str, Mapping[str, str]]:
        """The settings of each subscription to clients' metrics, by its name."""
        return self._published.client_metrics

    @property
    def group_configs(self) -> Mapping[str, Mapping[str, str]]:
        """The settings of each consumer group that has its own, by its name."""
        return self._published.group_configs

    def group_setting(self, group: str, name: str) -> str:
        configs = self._published.group_configs.get(group, {})
        return effective_group_setting(name, configs, self._published.broker_settings)

    def broker_setting(self, name: str) -> str:
        return effective_broker_setting(name, self._published.broker_settings)

    def int_setting(self, name: str) -> int:
        return int(self.broker_setting(name))

    def bool_setting(self, name: str) -> bool:
        return self.broker_setting(name) == "true"

    # Changes of topics; each answers with the offset up to which others must know it

    async def create_topics(
        self,
        wanted: Sequence[NewTopic],
        *,
        abandoned: Collection[TopicId] = (),
        validate_only: bool = False,
    ) -> Decided[dict[str, Outcome]]:
        def decision(state: ClusterState) -> tuple[Sequence[ClusterRecord], dict[str, Outcome]]:
            records, outcomes = decide_creation(state, wanted, self._rules(), abandoned=abandoned)
            return ([] if validate_only else records), outcomes

        return await self._decide(decision)

    async def grow_topics(
        self, wanted: Sequence[Growth], *, validate_only: bool = False
    ) -> Decided[dict[str, Grown | Refused]]:
        def decision(
            state: ClusterState,
        ) -> tuple[Sequence[ClusterRecord], dict[str, Grown | Refused]]:
            records, outcomes = decide_growth(state, wanted, self._rules())
            return ([] if validate_only else records), outcomes

        return await self._decide(decision)

    async def withdraw(self, unmade: Sequence[tuple[Topic, int]]) -> None:
        """Takes topics back, from the given partition on, that could not be made."""
        await self._decide(lambda state: decide_withdrawal(state, unmade))

    async def delete_topics(self, chosen: Sequence[TopicName | TopicId]) -> Decided[list[Outcome]]:
        return await self._decide(lambda state: decide_deletion(state, chosen))

    async def move(self, move: Move) -> Offset:
        _, end = await self._decide(lambda state: decide_move(state, move))
        return end

    async def end_moves(self, ended: Sequence[Ended]) -> None:
        await self._decide(lambda state: decide_ends(state, ended))

    async def grow_internal_topics(self) -> None:
        """Gives internal topics the replicas that they should have by now."""
        factors, alive = self._internal_factors(), frozenset(self.alive_brokers())
        # Looked at first where it costs nothing: mostly there is nothing to do.
        if decide_internal_growth(self._feed.state, factors, alive)[0]:
            await self._decide(lambda state: decide_internal_growth(state, factors, alive))

    def _internal_factors(self) -> dict[str, int]:
        return {name: self.int_setting(setting) for name, setting in INTERNAL_FACTORS.items()}

    # Changes of settings and ids

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

        block, _ = await self._decide(decision)
        return block

    async def _alter(
        self,
        wanted: Iterable[tuple[Resource, T]],
        decide: Callable[[ClusterState, Resource, T, ConfigRules], list[ClusterRecord]],
        validate_only: bool,
    ) -> list[Refused | None]:
        def decision(state: ClusterState) -> tuple[Sequence[ClusterRecord], list[Refused | None]]:
            records: list[ClusterRecord] = []
            answers: list[Refused | None] = []
            rules = ConfigRules(
                brokers=tuple(state.brokers), broker_settings=self._published.broker_settings
            )
            for resource, change in wanted:
                try:
                    records.extend(decide(state, resource, change, rules))
                    answers.append(None)
                except Refused as refused:
                    answers.append(refused)
            return ([] if validate_only else records), answers

        answers, _ = await self._decide(decision)
        return answers

    # For what only the controller does, and only while it is the controller

    def on_controller(self, begins: Callable[[], None], ends: Callable[[], None]) -> None:
        """This node decides from now on, or does not any more."""
        self._host.on_ready(begins)
        self._host.on_lost(ends)

    @property
    def newest(self) -> ClusterState:
        """What the controller knows, committed or not yet; void on other nodes."""
        return self._host.state

    async def decide_as_controller(self, decision: Decision[T]) -> T:
        """Tries it once, here or not at all; after a refusal it may have been done all the same.

        A decision that stores nothing is answered after a majority has confirmed that this node
        was still the controller when it was taken.
        """
        answer, _ = await self._shielded(self._decider.decide_here(decision))
        return answer

    def append_as_controller(self, records: Sequence[ClusterRecord]) -> None:
        """At once, on top of all that was decided here; nobody waits until it is committed."""
        self._host.submit(records).add_done_callback(_heard)

    async def release_lock(self, name: str, owner: str, token: int) -> None:
        """Raises Refused if it is not held with this token."""
        outcome, _ = await self._decide(lambda state: decide_release(state, name, owner, token))
        if isinstance(outcome, Refused):
            raise outcome

    # How a change comes about, and how it is heard of

    async def catch_up(self) -> None:
        """Returns when this node knows all that was committed when this was called."""
        await self._shielded(self._decider.read_barrier())

    async def _decide(self, decision: Decision[T]) -> Decided[T]:
        return await self._shielded(self._decider.decide(decision))

    async def _shielded(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        # A refusal whose caller is gone concerns nobody; anything else is a bug.
        if error is not None and not isinstance(error, Refused):
            context = {"message": "a change of metadata failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def _applied(self, records: Sequence[ClusterRecord], offset: Offset) -> None:
        if not self._is_loaded:
            # What comes while the copy is read is read with it.
            return
        for record in records:
            for change in self._published.apply(record):
                self._tell(change)
        self._registration.follow(records)
        for callback in self._on_applied:
            callback(offset)

    def _tell(self, change: Change) -> None:
        for listener in self._listeners:
            listener(change)

    def _rules(self) -> Rules:
        return Rules(
            partitions_default=self.int_setting("num.partitions"),
            replication_factor_default=self.int_setting("default.replication.factor"),
            internal_factors=self._internal_factors(),
            broker_settings=self._published.broker_settings,
            alive=frozenset(self.alive_brokers()),
            new_topic_id=lambda: TopicId(self._new_uuid()),
        )


def _heard(done: "asyncio.Future[None]") -> None:
    """A refusal concerns nobody: the next controller knows what is true."""
    if not done.cancelled():
        done.exception()
