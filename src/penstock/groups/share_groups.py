"""Runs the share groups (KIP-932) of one coordinator.

A partition is handed to members only after the state of its queue is durable, which somebody else
sees to (`QueueStates`). That happens beside the heartbeats: they are answered without partitions
that are not ready, and the next one afterwards brings them. Only the answer to a member that joins
waits a little for its queues. One job at a time works on a group's queues, so that what is asked
for and what is deleted never overtake each other.

Who leaves, or is out of time, has no leases any more: those who lead its queues hear of it.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias
from uuid import UUID
from weakref import WeakValueDictionary

from penstock.groups.commands import ShareDescription, ShareHeartbeat
from penstock.groups.consumer_decisions import Decision, Surroundings
from penstock.groups.consumer_reads import describe
from penstock.groups.durability import durable
from penstock.groups.modern_groups import ModernGroups
from penstock.groups.modern_records import (
    EpochRecord,
    GroupEpoch,
    GroupKind,
    NamedPartitions,
    NamedTopics,
)
from penstock.groups.share_decisions import (
    decide_heartbeat,
    decide_leave,
    deleted,
    deleting,
    deleting_of,
    forgotten,
    initialized,
    initializing,
    missing_queues,
    starts_of,
)
from penstock.groups.share_group import ShareGroup
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId, TopicId

logger = logging.getLogger(__name__)

# The keeper of the queues answers within milliseconds, or its node is gone. The next heartbeat asks
# again.
INITIALIZE_S_MAX = 30.0
# How long the answer to a member that joins, or reads other topics, waits for its queues.
FIRST_ANSWER_S_MAX = 2.0
DELETE_S_MAX = 30.0
ALTER_S_MAX = 30.0
_NOTHING_TO_DELETE = (
    Reason.UNKNOWN_TOPIC_OR_PARTITION,
    "There is no offset information to delete.",
)

_NOT_MADE = (Reason.COORDINATOR_NOT_AVAILABLE, "the queues of the group can't be made now")

Place: TypeAlias = tuple[TopicId, int]


class QueueStates(Protocol):
    """Keeps how far each group has come in the queue of each partition."""

    async def initialize(
        self, group_id: GroupId, partitions: Mapping[TopicId, Mapping[int, int]]
    ) -> None:
        """Durable when it returns. Each partition comes with where its queue starts, -1 for where
        the group's settings say. One whose state is there already keeps it."""

    async def delete_offsets(
        self, group_id: GroupId, topics: Collection[TopicId]
    ) -> Mapping[TopicId, Refused | None]:
        """For each topic why its state is still there, or None."""

    async def alter_offsets(
        self, group_id: GroupId, offsets: Mapping[Place, int]
    ) -> Mapping[Place, Refused | None]:
        """For each partition why its queue does not start there now, or None."""

    async def members_gone(self, group_id: GroupId, member_ids: Collection[MemberId]) -> None:
        """Records that they have are for others from now on."""


class ShareGroups(ModernGroups[ShareGroup, ShareHeartbeat]):
    kind: ClassVar = GroupKind.SHARE

    def __init__(self, *, queues: QueueStates, **common: Any) -> None:
        super().__init__(**common)
        self._queues = queues
        # Each as long as somebody works on the group's queues, or waits for that.
        self._locks: WeakValueDictionary[GroupId, asyncio.Lock] = WeakValueDictionary()
        self._jobs: dict[GroupId, asyncio.Task[None]] = {}
        # Members whose leases are to end, and the jobs that see to it.
        self._leavers: dict[GroupId, set[MemberId]] = {}
        self._releases: dict[GroupId, asyncio.Task[None]] = {}

    def stop(self) -> None:
        super().stop()
        self._leavers.clear()
        for jobs in (self._jobs, self._releases):
            for job in jobs.values():
                job.cancel()
            jobs.clear()

    # Members

    def _decide(self, group: ShareGroup, command: ShareHeartbeat, around: Surroundings) -> Decision:
        decide = decide_leave if command.member_epoch < 0 else decide_heartbeat
        return decide(group, command, around)

    def _decided(self, group_id: GroupId, decision: Decision) -> None:
        if decision.lacks_queues and group_id not in self._jobs:
            job = asyncio.get_running_loop().create_task(self._initialize(group_id))
            self._jobs[group_id] = job
            job.add_done_callback(_log_bug)

    async def queues_made(self, group_id: GroupId) -> bool:
        """Waits a little if queues are being made for the group; whether some may be there now.

        A member that heard nothing of them would ask again only with its next heartbeat, seconds
        later.
        """
        job = self._jobs.get(group_id)
        if job is None:
            return False
        await asyncio.wait([job], timeout=FIRST_ANSWER_S_MAX)
        return job.done()

    def _removed(self, group_id: GroupId, leavers: Collection[MemberId]) -> None:
        self._leavers.setdefault(group_id, set()).update(leavers)
        if group_id not in self._releases:
            job = asyncio.get_running_loop().create_task(self._release(group_id))
            self._releases[group_id] = job
            job.add_done_callback(_log_bug)

    async def _release(self, group_id: GroupId) -> None:
        """One call for all who are gone by then: thousands may be out of time together."""
        try:
            while leavers := self._leavers.pop(group_id, None):
                await durable(self.under_way(group_id))
                group = self._host.state.share(group_id)
                # Who is back already has its leases of now to lose.
                gone = leavers - group.profiles.keys() if group is not None else leavers
                if gone:
                    await self._queues.members_gone(group_id, gone)
        except Refused as refused:
            logger.info("group %s: leases of who left run out: %s", group_id, refused.detail)
        finally:
            if self._releases.get(group_id) is asyncio.current_task():
                del self._releases[group_id]
                self._leavers.pop(group_id, None)

    # Queues

    async def _initialize(self, group_id: GroupId) -> None:
        """Until nothing is missing: members may want more while it works."""
        try:
            async with self._alone(group_id):
                while (group := self._host.state.share(group_id)) is not None:
                    asked = missing_queues(group, self._catalog)
                    if not asked or not await self._make_queues(group, asked):
                        break
        finally:
            # At once: a heartbeat that finds something missing from now on starts the next one.
            if self._jobs.get(group_id) is asyncio.current_task():
                del self._jobs[group_id]

    def _alone(self, group_id: GroupId) -> asyncio.Lock:
        return self._locks.setdefault(group_id, asyncio.Lock())

    async def make_queues(
        self, group_id: GroupId, topic_id: TopicId, starts: Mapping[int, int]
    ) -> None:
        """For those who read queues without being members. The group is made too, so that everyone
        knows of it, and its name is taken."""
        async with self._alone(group_id):
            group = await self._make_group(group_id)
            topic = self._catalog.find_by_id(topic_id)
            if topic is None:
                raise Refused(Reason.UNKNOWN_TOPIC_ID)
            asked: NamedTopics = {topic_id: NamedPartitions(topic.name, frozenset(starts))}
            if not await self._make_queues(group, asked, {topic_id: dict(starts)}):
                raise Refused(*_NOT_MADE)

    async def _make_group(self, group_id: GroupId) -> ShareGroup:
        """One without members, where there is none."""
        state = self._host.state
        if state.share(group_id) is None:
            if state.exists(group_id):
                raise Refused(Reason.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
            epoch = EpochRecord(group_id, GroupEpoch(0, 0), GroupKind.SHARE)
            await durable(self.store(group_id, [epoch]))
        group = self._host.state.share(group_id)
        if group is None:
            raise Refused(Reason.GROUP_ID_NOT_FOUND)
        return group

    async def _make_queues(
        self,
        group: ShareGroup,
        asked: NamedTopics,
        starts: Mapping[UUID, Mapping[int, int]] | None = None,
    ) -> bool:
        """Whether they are there now. In any case the next heartbeat looks at the group again."""
        group_id, starts = group.group_id, starts or starts_of(group, asked)
        try:
            await durable(self.store(group_id, [initializing(group, asked)]))
            async with asyncio.timeout(INITIALIZE_S_MAX):
                wanted = {TopicId(topic_id): each for topic_id, each in starts.items()}
                await self._queues.initialize(group_id, wanted)
            return await self._end_making(group_id, asked)
        except (Refused, TimeoutError) as failure:
            # They may be there or not, and asking again does no harm.
            logger.warning("group %s: its queues can't be made yet: %s", group_id, failure)
            return False
        finally:
            self._stale.add(group_id)

    async def _end_making(self, group_id: GroupId, asked: NamedTopics) -> bool:
        group = self._host.state.share(group_id)
        if group is None:
            return False
        there = (each for each in asked if self._catalog.find_by_id(each) is not None)
        await durable(self.store(group_id, [initialized(group, asked, frozenset(there))]))
        return True

    async def delete(self, group_ids: Sequence[GroupId]) -> dict[GroupId, Reason | None]:
        """For each share group among these why it can't be deleted, or None once it is."""
        shares = [each for each in dict.fromkeys(group_ids) if self._host.state.share(each)]
        removals = await asyncio.gather(*map(self._delete, shares))
        return dict(zip(shares, removals, strict=True))

    async def _delete(self, group_id: GroupId) -> Reason | None:
        """Its queues go first: without the group nobody would know of them."""
        try:
            async with self._alone(group_id):
                group = self._without_members(group_id)
                record = deleting(group)
                assert record.value is not None
                if record.value.deleting:
                    await durable(self.store(group_id, [record]))
                    await self._delete_queues(group_id, record.value.deleting)
                removal = list(self._without_members(group_id).removal())
                await durable(self.store(group_id, removal))
                self._stale.discard(group_id)
        except Refused as refused:
            return refused.reason
        except TimeoutError:
            return Reason.COORDINATOR_NOT_AVAILABLE
        return None

    def _without_members(self, group_id: GroupId) -> ShareGroup:
        group = self._host.state.share(group_id)
        if group is None:
            raise Refused(Reason.GROUP_ID_NOT_FOUND)
        if not group.is_empty:
            raise Refused(Reason.NON_EMPTY_GROUP)
        return group

    async def _delete_queues(self, group_id: GroupId, topics: Collection[UUID]) -> None:
        async with asyncio.timeout(DELETE_S_MAX):
            outcomes = await self._queues.delete_offsets(group_id, [TopicId(t) for t in topics])
        for refused in outcomes.values():
            if refused is not None:
                raise refused

    async def alter_offsets(
        self, group_id: GroupId, offsets: Mapping[Place, int]
    ) -> dict[Place, Refused | None]:
        """Makes the group, and queues on these topics, where they are not there yet."""
        try:
            async with self._alone(group_id):
                await self._make_group(group_id)
                group = self._without_members(group_id)
                lacking = self._lacking(group, {topic_id for topic_id, _ in offsets})
                if lacking and not await self._make_queues(group, lacking):
                    raise Refused(*_NOT_MADE)
                async with asyncio.timeout(ALTER_S_MAX):
                    return dict(await self._queues.alter_offsets(group_id, offsets))
        except TimeoutError:
            detail = "the queues of the group can't be reached"
            raise Refused(Reason.COORDINATOR_NOT_AVAILABLE, detail) from None

    def _lacking(
        self, group: ShareGroup, topic_ids: Collection[UUID]
    ) -> dict[UUID, NamedPartitions]:
        """Of these topics the partitions whose queue is not kept, also of those that nobody moves:
        where they start must not depend on the others."""
        lacking = {}
        for topic in filter(None, map(self._catalog.find_by_id, topic_ids)):
            kept = group.queues.initialized.get(topic.topic_id)
            partitions = frozenset(range(topic.partitions))
            rest = partitions if kept is None else partitions - kept.partitions
            if rest:
                lacking[topic.topic_id] = NamedPartitions(topic.name, rest)
        return lacking

    async def delete_offsets(
        self, group_id: GroupId, topic_ids: Collection[TopicId]
    ) -> dict[TopicId, Refused | None]:
        try:
            async with self._alone(group_id):
                queues = self._without_members(group_id).queues
                known = {*queues.initializing, *queues.initialized, *queues.deleting}
                outcomes: dict[TopicId, Refused | None] = {
                    each: None if each in known else Refused(*_NOTHING_TO_DELETE)
                    for each in topic_ids
                }
                chosen = [each for each in outcomes if each in known]
                if chosen:
                    outcomes |= await self._delete_offsets(group_id, chosen)
                return outcomes
        except TimeoutError:
            detail = "the queues of the group can't be reached"
            raise Refused(Reason.COORDINATOR_NOT_AVAILABLE, detail) from None

    async def _delete_offsets(
        self, group_id: GroupId, topic_ids: Collection[TopicId]
    ) -> dict[TopicId, Refused | None]:
        """What could not be deleted stays noted, until it is deleted or read again."""
        group = self._without_members(group_id)
        await durable(self.store(group_id, [deleting_of(group, topic_ids)]))
        async with asyncio.timeout(DELETE_S_MAX):
            outcomes = dict(await self._queues.delete_offsets(group_id, topic_ids))
        gone = [each for each in topic_ids if outcomes.get(each) is None]
        after = self._host.state.share(group_id)
        if after is not None:
            await durable(self.store(group_id, [deleted(after, gone)]))
        return outcomes

    async def forget_topics(self, is_gone: Callable[[UUID], bool]) -> None:
        """Of topics that were deleted nothing is kept any more."""
        writes = []
        for group in list(self._groups()):
            assert isinstance(group, ShareGroup)
            record = forgotten(group, is_gone)
            if record is not None:
                writes.append(self.store(group.group_id, [record]))
        # One that fails was logged, and is tried again with the next look for lost topics.
        await asyncio.gather(*writes, return_exceptions=True)

    def describe(self, group: ShareGroup) -> ShareDescription:
        return describe(group, tuple(self._assignors))


def _log_bug(job: asyncio.Task[None]) -> None:
    if not job.cancelled() and (bug := job.exception()) is not None:
        logger.error("the queues of a share group were not made", exc_info=bug)
