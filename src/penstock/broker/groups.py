"""Consumer groups of this node: finds the coordinator of a group and checks what it need not know.

The coordinators live on the partitions of __consumer_offsets, which is made on first use. There is
one beside every replica of it on this node, and those whose replica leads are active. What doors
need to speak of groups is exported here.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias
from uuid import UUID, uuid4

from penstock.broker.group_settings import TEXT_LENGTH_MAX, SettingsOfGroups
from penstock.broker.later import Later, Task, settled
from penstock.broker.leaderships import Leaderships
from penstock.broker.partitions import Partitions
from penstock.broker.topics import Topic, Topics
from penstock.cluster.changes import (
    AssignmentsChanged,
    Change,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from penstock.cluster.coordinator import Cluster
from penstock.groups.assignors import load_assignors, load_share_assignors
from penstock.groups.catalog import KnownTopic
from penstock.groups.commands import (
    CommitOffsets,
    ConsumerAnswer,
    ConsumerDescription,
    ConsumerHeartbeat,
    ConsumerMemberDescription,
    Departure,
    GroupDescription,
    Join,
    JoinAnswer,
    JoinedMember,
    MemberDescription,
    MemberProtocol,
    OffsetToCommit,
    ShareAnswer,
    ShareDescription,
    ShareHeartbeat,
    Sync,
    SyncAnswer,
)
from penstock.groups.coordinator import Coordinator
from penstock.groups.durability import durable
from penstock.groups.offsets import FetchedOffset, FetchedTopic, WantedTopic
from penstock.groups.partitioner import partition_of
from penstock.groups.records import CommittedOffset, GroupRecord
from penstock.groups.share_groups import QueueStates
from penstock.groups.state import GroupsState
from penstock.model.clock import Clock
from penstock.model.endpoint import Endpoint
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, GroupId, MemberId, TopicId, TopicName
from penstock.model.limits import Limits
from penstock.replication.hosting import Host
from penstock.replication.replica import Replica

__all__ = [
    "CommitOffsets",
    "CommittedOffset",
    "ConsumerAnswer",
    "ConsumerDescription",
    "ConsumerHeartbeat",
    "ConsumerMemberDescription",
    "Departure",
    "FetchedOffset",
    "FetchedTopic",
    "GroupDescription",
    "GroupHost",
    "Groups",
    "Join",
    "JoinAnswer",
    "JoinedMember",
    "MemberDescription",
    "MemberProtocol",
    "OffsetToCommit",
    "QueueStates",
    "ShareAnswer",
    "ShareDescription",
    "ShareHeartbeat",
    "Sync",
    "SyncAnswer",
    "WantedTopic",
]

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = TopicName("__consumer_offsets")
SHARE_STATE_TOPIC = TopicName("__share_group_state")
# A generation is one record, and that of a large group goes far beyond what producers may send.
# The coordinators keep to limits of their own; this one tells followers and tools what to expect.
OFFSETS_MESSAGE_BYTES_MAX = 32 * 1024 * 1024

GroupHost: TypeAlias = Host[GroupsState, GroupRecord]


class Groups:
    def __init__(
        self,
        *,
        cluster: Cluster,
        partitions: Partitions,
        topics: Topics,
        leaderships: Leaderships,
        clock: Clock,
        limits: Limits,
        make_host: Callable[[Replica], GroupHost],
        queues: QueueStates,
        new_uuid: Callable[[], UUID] = uuid4,
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._topics = topics
        self._leaderships = leaderships
        self._clock = clock
        self._settings = SettingsOfGroups(cluster, limits)
        self._make_host = make_host
        self._new_uuid = new_uuid
        self._queues = queues
        self._assignors = load_assignors(self._settings.shared().consumer_assignors)
        self._share_assignors = load_share_assignors(self._settings.shared().share_assignors)
        # By partition of the topic, for those that have a replica here.
        self._coordinators: dict[int, Coordinator] = {}
        self._making: asyncio.Task[Topic] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        cluster.on_change(self._on_change)

    # Life

    async def load(self) -> None:
        """Back to where the groups were; while that lasts, clients are asked to come back."""
        self._partitions.on_added(self._added)
        self._partitions.on_removed(self._removed)
        for replica in self._partitions.all():
            self._added(replica)
        self._run(self._expire_for_ever())

    async def close(self) -> None:
        """Anyone who still waits is answered; a snapshot makes the next start quick."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if self._making is not None:
            self._making.cancel()
            tasks.append(self._making)  # type: ignore[arg-type]  # only waited for
        await asyncio.gather(*tasks, return_exceptions=True)
        coordinators, self._coordinators = self._coordinators, {}
        await asyncio.gather(*(coordinator.close() for coordinator in coordinators.values()))

    def _added(self, replica: Replica) -> None:
        topic, index = replica.partition
        if topic != OFFSETS_TOPIC:
            return
        before = self._coordinators.get(index)
        if before is not None:
            if before.replica is replica:
                return
            # The topic was deleted and made again.
            self._run(before.close())
        coordinator = Coordinator(
            host=self._make_host(replica),
            settings=self._settings.shared(),
            clock=self._clock,
            new_uuid=self._new_uuid,
            catalog=_ClusterTopics(self._cluster),
            assignors=self._assignors,
            share_assignors=self._share_assignors,
            settings_of=self._settings.of,
            queues=self._queues,
        )
        self._coordinators[index] = coordinator
        coordinator.start(self._became_active)

    def _removed(self, replica: Replica) -> None:
        topic, index = replica.partition
        coordinator = self._coordinators.get(index) if topic == OFFSETS_TOPIC else None
        if coordinator is not None and coordinator.replica is replica:
            del self._coordinators[index]
            self._run(coordinator.close())

    def _became_active(self, coordinator: Coordinator) -> None:
        # A topic may have been deleted while nobody was there to forget its offsets.
        self._run(self._forget_lost_topics([coordinator]))

    async def _ensure_topic(self) -> Topic:
        topic = self._cluster.topic(OFFSETS_TOPIC)
        if topic is not None:
            return topic
        if self._making is None or self._making.done():
            self._making = asyncio.get_running_loop().create_task(self._make_topic())
        try:
            # Shielded: others wait for it too.
            return await asyncio.shield(self._making)
        except Refused as refused:
            raise Refused(Reason.COORDINATOR_NOT_AVAILABLE, refused.detail) from refused

    async def _make_topic(self) -> Topic:
        return await self._topics.ensure_internal(
            OFFSETS_TOPIC,
            partitions=self._cluster.int_setting("offsets.topic.num.partitions"),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": self._cluster.broker_setting("offsets.topic.segment.bytes"),
                "max.message.bytes": str(OFFSETS_MESSAGE_BYTES_MAX),
            },
        )

    # Membership

    async def find_coordinator(self, group_id: GroupId) -> tuple[BrokerId, Endpoint]:
        """The broker that leads the group's partition."""
        _check_group_id(group_id)
        topic = await self._ensure_topic()
        return self._leader_of(topic, partition_of(group_id, topic.partitions))

    async def find_share_coordinator(
        self, group_id: GroupId, topic_id: TopicId, partition: int
    ) -> tuple[BrokerId, Endpoint]:
        """The broker that leads the partition on which the state of this queue is kept."""
        topic = self._cluster.topic(SHARE_STATE_TOPIC)
        if topic is None:
            detail = f"there is no {SHARE_STATE_TOPIC}: nobody has used a queue yet"
            raise Refused(Reason.COORDINATOR_NOT_AVAILABLE, detail)
        key = GroupId(f"{group_id}:{topic_id}:{partition}")
        return self._leader_of(topic, partition_of(key, topic.partitions))

    def _leader_of(self, topic: Topic, partition: int) -> tuple[BrokerId, Endpoint]:
        broker = self._leaderships.reachable_leader(topic.topic_id, partition)
        if broker is None:
            detail = f"{topic.name}-{partition} has no leader now"
            raise Refused(Reason.COORDINATOR_NOT_AVAILABLE, detail)
        return broker.id, broker.kafka

    async def join(self, command: Join) -> JoinAnswer:
        _check_group_id(command.group_id)
        self._check_join(command)
        await self._ensure_topic()
        return await self._coordinator(command.group_id).join(command)

    async def sync(self, command: Sync) -> SyncAnswer:
        _check_group_id(command.group_id)
        return await self._coordinator(command.group_id).sync(command)

    def heartbeat(
        self, group_id: GroupId, member_id: MemberId, instance_id: str | None, generation: int
    ) -> None:
        _check_group_id(group_id)
        coordinator = self._coordinator(group_id)
        # While its group is on its way back nobody's session runs, so the member is fine.
        if not coordinator.is_loading:
            coordinator.heartbeat(group_id, member_id, instance_id, generation)

    async def leave(self, group_id: GroupId, departures: list[Departure]) -> list[Reason | None]:
        """For each who leaves the reason why it can't, or None."""
        _check_group_id(group_id)
        return await self._coordinator(group_id).leave(group_id, departures)

    def consumer_heartbeat(self, command: ConsumerHeartbeat) -> Later[ConsumerAnswer]:
        """A member of the new protocol (KIP-848) joins, lives or leaves. One that only lives is
        answered at once: there may be thousands of them a second."""
        _check_group_id(command.group_id)
        self._check_consumer(command)
        if command.member_epoch == 0:
            return Task(self._join_consumers(command))
        coordinator = self._coordinator(command.group_id)
        decided = coordinator.decide_at_once(command)
        if decided is None:
            return Task(coordinator.consumer_heartbeat(command))
        answer, stored = decided
        return settled(answer) if stored is None else Task(_when_durable(answer, stored))

    async def _join_consumers(self, command: ConsumerHeartbeat) -> ConsumerAnswer:
        await self._ensure_topic()
        if not command.member_id:
            command = replace(command, member_id=MemberId(str(self._new_uuid())))
        return await self._coordinator(command.group_id).consumer_heartbeat(command)

    async def share_heartbeat(self, command: ShareHeartbeat) -> ShareAnswer:
        """A member of a share group (KIP-932) joins, lives or leaves."""
        _check_group_id(command.group_id)
        texts = [command.client_id, command.member_id, command.rack_id, *(command.topics or ())]
        _check_texts(texts)
        if command.member_epoch == 0:
            await self._ensure_topic()
        return await self._coordinator(command.group_id).share_heartbeat(command)

    def _check_consumer(self, command: ConsumerHeartbeat) -> None:
        if command.assignor is not None and command.assignor not in self._assignors:
            known = ", ".join(self._assignors)
            detail = f"there is no assignor {command.assignor}; there are {known}"
            raise Refused(Reason.UNSUPPORTED_ASSIGNOR, detail)
        texts = [command.client_id, command.member_id, command.instance_id, command.rack_id]
        _check_texts([*texts, command.expression, *(command.topics or ())])

    def _check_join(self, command: Join) -> None:
        settings = self._settings.shared()
        shortest, longest = settings.session_timeout_ms_min, settings.session_timeout_ms_max
        if not shortest <= command.session_timeout_ms <= longest:
            detail = f"a session timeout must be between {shortest} and {longest} ms"
            raise Refused(Reason.INVALID_SESSION_TIMEOUT, detail)
        texts = [command.client_id, command.instance_id or "", command.protocol_type]
        texts += [name for name, _ in command.protocols]
        # Room for the unique part of a member id, which begins with the client's or instance's.
        if max(map(len, texts)) > TEXT_LENGTH_MAX - 40:
            raise Refused(Reason.INVALID_REQUEST, "a name in the request is too long")
        metadata_bytes = sum(len(metadata) for _, metadata in command.protocols)
        if metadata_bytes > settings.member_metadata_bytes_max:
            detail = f"{metadata_bytes} bytes of metadata are too many for one member"
            raise Refused(Reason.INVALID_REQUEST, detail)

    # Offsets

    async def commit_offsets(self, command: CommitOffsets) -> list[Reason | None]:
        """For each offset why it is refused, or None once it is durable."""
        _check_group_id(command.group_id)
        is_known = [self._exists(item.topic, item.partition) for item in command.offsets]
        known = [item for item, ok in zip(command.offsets, is_known, strict=True) if ok]
        if command.offsets and not known:
            return [Reason.UNKNOWN_TOPIC_OR_PARTITION] * len(command.offsets)
        await self._ensure_topic()
        coordinator = self._coordinator(command.group_id)
        outcomes = iter(await coordinator.commit(replace(command, offsets=tuple(known))))
        return [next(outcomes) if ok else Reason.UNKNOWN_TOPIC_OR_PARTITION for ok in is_known]

    async def fetch_offsets(
        self,
        group_id: GroupId,
        wanted: Sequence[WantedTopic] | None,
        member_id: MemberId | None = None,
        member_epoch: int = -1,
    ) -> list[FetchedTopic]:
        """Committed offsets of these partitions, or of all that the group has committed.

        Members of the new protocol say who they are.
        """
        _check_group_id(group_id)
        coordinator = self._coordinator(group_id)
        return await coordinator.fetch(group_id, wanted, member_id, member_epoch)

    def committed(self) -> Iterator[tuple[GroupId, TopicName, dict[int, int]]]:
        """The offsets that groups coordinated here have committed, by group, topic and partition;
        groups that only commit are among them. Callers may wait between two."""
        for coordinator in list(self._coordinators.values()):
            yield from coordinator.committed()

    def counts(self) -> Iterator[int]:
        """How many groups this node coordinates, in parts; callers may wait between two."""
        for coordinator in list(self._coordinators.values()):
            yield coordinator.count()

    async def delete_offsets(
        self, group_id: GroupId, partitions: Sequence[tuple[TopicName, int]]
    ) -> list[Reason | None]:
        _check_group_id(group_id)
        is_known = [self._exists(*item) for item in partitions]
        known = [item for item, ok in zip(partitions, is_known, strict=True) if ok]
        outcomes = iter(await self._coordinator(group_id).remove_offsets(group_id, known))
        return [next(outcomes) if ok else Reason.UNKNOWN_TOPIC_OR_PARTITION for ok in is_known]

    def _exists(self, topic_name: TopicName, partition: int) -> bool:
        topic = self._cluster.topic(topic_name)
        return topic is not None and 0 <= partition < topic.partitions

    # Administration

    async def describe(self, group_id: GroupId) -> GroupDescription | None:
        """None when there is no such group."""
        return await self._coordinator(group_id).describe(group_id)

    async def describe_consumer(self, group_id: GroupId) -> ConsumerDescription | None:
        """None when there is no such group of the new protocol."""
        return await self._coordinator(group_id).describe_consumer(group_id)

    async def describe_share(self, group_id: GroupId) -> ShareDescription | None:
        """None when there is no such share group."""
        return await self._coordinator(group_id).describe_share(group_id)

    async def make_queues(
        self, group_id: GroupId, topic_id: TopicId, starts: Mapping[int, int]
    ) -> None:
        """For a share group that may have no members, on one topic; makes the group too. Raises
        Refused if a group of another type has this name."""
        _check_group_id(group_id)
        _check_texts([group_id])
        await self._ensure_topic()
        shares = await self._coordinator(group_id).share_groups(group_id)
        await shares.make_queues(group_id, topic_id, starts)

    async def alter_share_offsets(
        self, group_id: GroupId, offsets: Mapping[tuple[TopicId, int], int]
    ) -> Mapping[tuple[TopicId, int], Refused | None]:
        """Where the queues of a share group without members start; for each why it does not."""
        _check_group_id(group_id)
        _check_texts([group_id])
        await self._ensure_topic()
        shares = await self._coordinator(group_id).share_groups(group_id)
        return await shares.alter_offsets(group_id, offsets)

    async def delete_share_offsets(
        self, group_id: GroupId, topic_ids: Collection[TopicId]
    ) -> Mapping[TopicId, Refused | None]:
        """Forgets the queues of a share group without members on these topics."""
        _check_group_id(group_id)
        shares = await self._coordinator(group_id).share_groups(group_id)
        return await shares.delete_offsets(group_id, topic_ids)

    async def list_groups(self, states: Collection[str] = ()) -> list[GroupDescription]:
        """The groups that this broker coordinates, or those of them in one of these states; without
        their members."""
        wanted = {state.strip().lower() for state in states}
        groups: list[GroupDescription] = []
        for coordinator in list(self._coordinators.values()):
            if coordinator.is_active or coordinator.is_loading:
                groups += await coordinator.list_groups()
        return [group for group in groups if not wanted or group.state.lower() in wanted]

    async def delete(self, group_ids: Sequence[GroupId]) -> list[Reason | None]:
        """For each group why it can't be deleted, or None once it is."""
        by_coordinator: dict[Coordinator, list[GroupId]] = {}
        outcomes: dict[GroupId, Reason | None] = {}
        for group_id in dict.fromkeys(group_ids):
            try:
                by_coordinator.setdefault(self._coordinator(group_id), []).append(group_id)
            except Refused as refused:
                outcomes[group_id] = refused.reason
        for coordinator, own in by_coordinator.items():
            outcomes.update(zip(own, await _removed(coordinator, own), strict=True))
        return [outcomes[group_id] for group_id in group_ids]

    # Inside

    def _coordinator(self, group_id: GroupId) -> Coordinator:
        topic = self._cluster.topic(OFFSETS_TOPIC)
        if topic is not None:
            coordinator = self._coordinators.get(partition_of(group_id, topic.partitions))
            if coordinator is not None:
                return coordinator
        raise Refused(Reason.NOT_COORDINATOR)

    def _on_change(self, change: Change) -> None:
        if isinstance(change, TopicCreated | TopicDeleted | PartitionsAdded | AssignmentsChanged):
            for coordinator in self._coordinators.values():
                coordinator.topic_changed(change.topic.name)
        if isinstance(change, TopicDeleted):
            self._run(self._forget_topic(change.topic))

    async def _forget_topic(self, topic: Topic) -> None:
        coordinators = list(self._coordinators.values())
        gone = [each.remove_topics(lambda name: name == topic.name) for each in coordinators]
        queues = [
            each.remove_queues(lambda known: known == topic.topic_id) for each in coordinators
        ]
        await asyncio.gather(*gone, *queues)

    async def _forget_lost_topics(self, coordinators: Collection[Coordinator]) -> None:
        """A topic that this node does not know may be one that it does not know yet."""
        try:
            await self._cluster.catch_up()
        except Refused as refused:
            logger.info("offsets of deleted topics are kept for now: %s", refused.detail)
            return
        by_id = self._cluster.topic_by_id
        gone = [each.remove_topics(lambda name: not self._knows(name)) for each in coordinators]
        queues = [each.remove_queues(lambda known: by_id(known) is None) for each in coordinators]
        await asyncio.gather(*gone, *queues)

    def _knows(self, topic: TopicName) -> bool:
        return self._cluster.topic(topic) is not None

    async def _expire_for_ever(self) -> None:
        while True:
            interval_ms = self._cluster.int_setting("offsets.retention.check.interval.ms")
            await asyncio.sleep(interval_ms / 1000)
            active = [each for each in self._coordinators.values() if each.is_active]
            await asyncio.gather(*(coordinator.expire() for coordinator in active))
            # Once more, for those that could not be removed with their topic.
            if active:
                await self._forget_lost_topics(active)

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            logger.error("work on groups in the background failed", exc_info=bug)


async def _when_durable(answer: ConsumerAnswer, stored: asyncio.Future[None]) -> ConsumerAnswer:
    await durable(stored)
    return answer


async def _removed(coordinator: Coordinator, group_ids: list[GroupId]) -> list[Reason | None]:
    try:
        return await coordinator.remove_groups(group_ids)
    except Refused as refused:
        return [refused.reason] * len(group_ids)


def _check_group_id(group_id: GroupId) -> None:
    if not group_id or len(group_id) > TEXT_LENGTH_MAX:
        raise Refused(Reason.INVALID_GROUP_ID, "a group id must not be empty or very long")


def _check_texts(texts: Sequence[str | None]) -> None:
    for text in texts:
        if text is not None and len(text) > TEXT_LENGTH_MAX:
            raise Refused(Reason.INVALID_REQUEST, "a name in the request is too long")


class _ClusterTopics:
    """The cluster's topics in the words of groups."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def find(self, name: str) -> KnownTopic | None:
        topic = self._cluster.topic(name)
        return None if topic is None else _known(topic)

    def find_by_id(self, topic_id: UUID) -> KnownTopic | None:
        topic = self._cluster.topic_by_id(topic_id)
        return None if topic is None else _known(topic)

    def all(self) -> Iterator[KnownTopic]:
        return map(_known, self._cluster.topics())


def _known(topic: Topic) -> KnownTopic:
    return KnownTopic(topic.topic_id, topic.name, topic.partitions)
