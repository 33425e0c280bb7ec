"""Consumer groups of this node: finds the coordinator of a group and checks what it need not know.

The coordinators live on the partitions of __consumer_offsets, which is made on first use. What
doors need to speak of groups is exported here.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from typing import TypeAlias
from uuid import UUID, uuid4

from penstock.broker.partitions import Partitions
from penstock.broker.topics import Topics
from penstock.cluster.changes import Change, TopicDeleted
from penstock.cluster.coordinator import Cluster
from penstock.groups.commands import (
    CommitOffsets,
    Departure,
    GroupDescription,
    Join,
    JoinAnswer,
    JoinedMember,
    MemberDescription,
    MemberProtocol,
    OffsetToCommit,
    Sync,
    SyncAnswer,
)
from penstock.groups.coordinator import Coordinator
from penstock.groups.offsets import FetchedOffset, FetchedTopic, WantedTopic, read_offsets
from penstock.groups.partitioner import partition_of
from penstock.groups.records import CommittedOffset, GroupRecord
from penstock.groups.settings import GroupSettings
from penstock.groups.state import GroupsState
from penstock.model.clock import Clock
from penstock.model.endpoint import Endpoint
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, GroupId, MemberId, TopicName
from penstock.model.limits import Limits
from penstock.replication.hosting import Host
from penstock.replication.replica import Replica

__all__ = [
    "CommitOffsets",
    "CommittedOffset",
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
    "Sync",
    "SyncAnswer",
    "WantedTopic",
]

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = TopicName("__consumer_offsets")
# A generation is one record, and that of a large group goes far beyond what producers may send.
# The coordinators keep to limits of their own; this one tells followers and tools what to expect.
OFFSETS_MESSAGE_BYTES_MAX = 32 * 1024 * 1024
# Texts are stored with a 16-bit length in bytes, and a character takes up to four of them.
TEXT_LENGTH_MAX = 8_000

GroupHost: TypeAlias = Host[GroupsState, GroupRecord]


class Groups:
    def __init__(
        self,
        *,
        cluster: Cluster,
        partitions: Partitions,
        topics: Topics,
        clock: Clock,
        limits: Limits,
        make_host: Callable[[Replica], GroupHost],
        new_uuid: Callable[[], UUID] = uuid4,
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._topics = topics
        self._clock = clock
        self._limits = limits
        self._make_host = make_host
        self._new_uuid = new_uuid
        # One per partition of the topic; none until the topic exists.
        self._coordinators: list[Coordinator] = []
        self._starting: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        cluster.on_change(self._on_change)

    # Life

    async def load(self) -> None:
        """Back to where the groups were; while it runs, clients are told to come back."""
        self._run(self._expire_for_ever())
        topic = self._cluster.topic(OFFSETS_TOPIC)
        if topic is not None:
            await self._start_coordinators(topic.partitions)

    async def close(self) -> None:
        """Whoever still waits is answered; a snapshot makes the next start quick."""
        if self._starting is not None:
            self._tasks.add(self._starting)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(coordinator.close() for coordinator in self._coordinators))

    async def _start_coordinators(self, count: int) -> None:
        settings = self._settings()
        self._coordinators = [
            Coordinator(
                host=self._make_host(self._partitions.get(OFFSETS_TOPIC, index)),
                settings=settings,
                clock=self._clock,
                new_uuid=self._new_uuid,
            )
            for index in range(count)
        ]
        await asyncio.gather(*(coordinator.load() for coordinator in self._coordinators))
        # A crash may have come between a topic's deletion and that of its offsets.
        await self._forget_topics(lambda topic: self._cluster.topic(topic) is None)

    async def _ensure_coordinators(self) -> None:
        if self._coordinators:
            return
        if self._starting is None or self._starting.done():
            self._starting = asyncio.get_running_loop().create_task(self._make_coordinators())
        try:
            # Shielded: others wait for it too.
            await asyncio.shield(self._starting)
        except Refused as refused:
            raise Refused(Reason.COORDINATOR_NOT_AVAILABLE, refused.detail) from refused

    async def _make_coordinators(self) -> None:
        topic = await self._topics.ensure_internal(
            OFFSETS_TOPIC,
            partitions=self._cluster.int_setting("offsets.topic.num.partitions"),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": self._cluster.broker_setting("offsets.topic.segment.bytes"),
                "max.message.bytes": str(OFFSETS_MESSAGE_BYTES_MAX),
            },
        )
        await self._start_coordinators(topic.partitions)

    def _settings(self) -> GroupSettings:
        setting = self._cluster.int_setting
        members_max = min(setting("group.max.size"), self._limits.group_members_max)
        return GroupSettings(
            session_timeout_ms_min=setting("group.min.session.timeout.ms"),
            session_timeout_ms_max=setting("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=setting("group.initial.rebalance.delay.ms"),
            members_max=members_max,
            offset_metadata_length_max=min(setting("offset.metadata.max.bytes"), TEXT_LENGTH_MAX),
            offsets_retention_ms=setting("offsets.retention.minutes") * 60_000,
        )

    # Membership

    async def find_coordinator(self, group_id: GroupId) -> tuple[BrokerId, Endpoint]:
        _check_group_id(group_id)
        await self._ensure_coordinators()
        return self._cluster.broker_id, self._cluster.advertised

    async def join(self, command: Join) -> JoinAnswer:
        _check_group_id(command.group_id)
        self._check_join(command)
        await self._ensure_coordinators()
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

    def _check_join(self, command: Join) -> None:
        settings = self._settings()
        shortest, longest = settings.session_timeout_ms_min, settings.session_timeout_ms_max
        if not shortest <= command.session_timeout_ms <= longest:
            detail = f"a session timeout must lie between {shortest} and {longest} ms"
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
        await self._ensure_coordinators()
        coordinator = self._coordinator(command.group_id)
        outcomes = iter(await coordinator.commit(replace(command, offsets=tuple(known))))
        return [next(outcomes) if ok else Reason.UNKNOWN_TOPIC_OR_PARTITION for ok in is_known]

    async def fetch_offsets(
        self, group_id: GroupId, wanted: Sequence[WantedTopic] | None
    ) -> list[FetchedTopic]:
        """Committed offsets of these partitions, or of all that the group has committed."""
        _check_group_id(group_id)
        if not self._coordinators:
            return read_offsets(GroupsState(), group_id, wanted)
        return await self._coordinator(group_id).fetch(group_id, wanted)

    async def delete_offsets(
        self, group_id: GroupId, partitions: Sequence[tuple[TopicName, int]]
    ) -> list[Reason | None]:
        _check_group_id(group_id)
        if not self._coordinators:
            raise Refused(Reason.GROUP_ID_NOT_FOUND)
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
        if not self._coordinators:
            return None
        return await self._coordinator(group_id).describe(group_id)

    async def list_groups(self, states: Collection[str] = ()) -> list[GroupDescription]:
        """All groups, or those in one of these states, without their members."""
        wanted = {state.strip().lower() for state in states}
        groups = [
            group for coordinator in self._coordinators for group in await coordinator.list_groups()
        ]
        return [group for group in groups if not wanted or group.state.lower() in wanted]

    async def delete(self, group_ids: Sequence[GroupId]) -> list[Reason | None]:
        """For each group why it can't be deleted, or None once it is."""
        if not self._coordinators:
            return [Reason.GROUP_ID_NOT_FOUND] * len(group_ids)
        outcomes: dict[GroupId, Reason | None] = {}
        for coordinator in self._coordinators:
            own = [g for g in dict.fromkeys(group_ids) if self._coordinator(g) is coordinator]
            if own:
                outcomes.update(zip(own, await _removed(coordinator, own), strict=True))
        return [outcomes[group_id] for group_id in group_ids]

    # Inside

    def _coordinator(self, group_id: GroupId) -> Coordinator:
        if not self._coordinators:
            raise Refused(Reason.NOT_COORDINATOR)
        return self._coordinators[partition_of(group_id, len(self._coordinators))]

    def _on_change(self, change: Change) -> None:
        if isinstance(change, TopicDeleted):
            name = change.topic.name
            self._run(self._forget_topics(lambda topic: topic == name))

    async def _forget_topics(self, is_gone: Callable[[TopicName], bool]) -> None:
        await asyncio.gather(*(c.remove_topics(is_gone) for c in self._coordinators))

    async def _expire_for_ever(self) -> None:
        while True:
            interval_ms = self._cluster.int_setting("offsets.retention.check.interval.ms")
            await asyncio.sleep(interval_ms / 1000)
            await asyncio.gather(*(coordinator.expire() for coordinator in self._coordinators))
            # Once more, for those that could not be removed with their topic.
            await self._forget_topics(lambda topic: self._cluster.topic(topic) is None)

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            logger.error("work on groups in the background failed", exc_info=bug)


async def _removed(coordinator: Coordinator, group_ids: list[GroupId]) -> list[Reason | None]:
    try:
        return await coordinator.remove_groups(group_ids)
    except Refused as refused:
        return [refused.reason] * len(group_ids)


def _check_group_id(group_id: GroupId) -> None:
    if not group_id or len(group_id) > TEXT_LENGTH_MAX:
        raise Refused(Reason.INVALID_GROUP_ID, "a group id must not be empty or very long")
