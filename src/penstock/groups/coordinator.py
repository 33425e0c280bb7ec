"""Runs the groups of one __consumer_offsets partition: their clock, their waiters, their records.

Groups decide (`group.py`, `offsets.py`), the host makes their records durable, and this answers. An
answer that says something is stored leaves only after it is. A name has one group: a classic one, a
consumer group (KIP-848, `consumer_groups.py`) or a share group (KIP-932, `share_groups.py`).

It is active while this node leads the partition and the host has loaded. Otherwise it holds no
group: clients that waited look for the coordinator elsewhere, and the one that comes next
goes on from the stored generations, with a whole session for every member to be heard of.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

from penstock.groups.alarm_clock import AlarmClock, TimerKey
from penstock.groups.assignors import Assignor
from penstock.groups.catalog import TopicCatalog
from penstock.groups.classic_groups import ClassicGroups
from penstock.groups.classic_members import ClassicMembers
from penstock.groups.commands import (
    NO_MEMBER,
    CommitOffsets,
    ConsumerAnswer,
    ConsumerDescription,
    ConsumerHeartbeat,
    Departure,
    GroupDescription,
    Join,
    JoinAnswer,
    ShareAnswer,
    ShareDescription,
    ShareHeartbeat,
    Sync,
    SyncAnswer,
)
from penstock.groups.consumer_decisions import JOIN_EPOCH
from penstock.groups.consumer_groups import ConsumerGroups
from penstock.groups.consumer_reads import (
    check_commit,
    check_fetch,
    summarize,
    summarize_classic,
)
from penstock.groups.durability import Waiters, durable, raise_refusal, told_to_clients
from penstock.groups.effects import Timer
from penstock.groups.group import Group
from penstock.groups.modern_group import ModernGroup
from penstock.groups.offsets import (
    FetchedTopic,
    WantedTopic,
    decide_commit,
    decide_end,
    decide_expiry,
    decide_group_removal,
    decide_offset_removal,
    decide_topic_removal,
    read_offsets,
)
from penstock.groups.records import GroupRecord
from penstock.groups.settings import GroupSettings
from penstock.groups.share_group import ShareGroup
from penstock.groups.share_groups import QueueStates, ShareGroups
from penstock.groups.state import GroupsState
from penstock.groups.subscriptions import CONSUMER_PROTOCOL_TYPE
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId, TopicName
from penstock.replication.hosting import Host
from penstock.replication.replica import Replica

logger = logging.getLogger(__name__)

# Removals in the background go in portions, so that a produce beside them never waits long.
RECORDS_PER_REMOVAL_MAX = 1_000

T = TypeVar("T")


# A request that comes while the state is being loaded waits this long at most: loading takes
# milliseconds, and an error would send the client into its back-off.
LOADING_WAIT_S = 1.0
# A coordinator whose partition's other replicas don't confirm for so long that it leads is about to
# step down. Clients wait much longer for an answer.
READ_S_MAX = 5.0


class Coordinator:
    def __init__(
        self,
        *,
        host: Host[GroupsState, GroupRecord],
        settings: GroupSettings,
        clock: Clock,
        new_uuid: Callable[[], UUID],
        catalog: TopicCatalog,
        assignors: Mapping[str, Assignor],
        share_assignors: Mapping[str, Assignor],
        settings_of: Callable[[GroupId], GroupSettings],
        queues: QueueStates,
    ) -> None:
        self._host = host
        self._catalog = catalog
        self._settings = settings
        self._clock = clock
        self._new_uuid = new_uuid
        self._is_active = False
        self._is_closed = False
        # Requests that wait until the state is loaded.
        self._loading = Waiters()
        self._on_active: Callable[[Coordinator], None] | None = None
        self._alarms = AlarmClock(clock, self._expire)
        common: dict[str, Any] = {
            "host": host,
            "clock": clock,
            "alarms": self._alarms,
            "catalog": catalog,
            "settings_of": settings_of,
        }
        self._consumers = ConsumerGroups(
            **common, assignors=assignors, become_classic=self._become_classic
        )
        self._shares = ShareGroups(**common, assignors=share_assignors, queues=queues)
        self._classic_members = ClassicMembers(
            consumers=self._consumers,
            alarms=self._alarms,
            catalog=catalog,
            new_member_id=self._new_member_id,
        )
        self._classic = ClassicGroups(
            host=host, settings=settings, clock=clock, alarms=self._alarms
        )

    def start(self, on_active: "Callable[[Coordinator], None] | None" = None) -> None:
        """Follows the leadership of its partition from now on; calls back when active."""
        self._on_active = on_active
        self._host.on_ready(self._become_active)
        self._host.on_lost(self._become_inactive)
        self._host.start()

    async def close(self) -> None:
        self._is_closed = True
        self._become_inactive()
        await self._host.close()

    def _become_active(self) -> None:
        if self._is_closed:
            return
        self._is_active = True
        self._classic.start()
        self._consumers.start()
        self._shares.start()
        self._loading.wake()
        if self._on_active is not None:
            self._on_active(self)

    def _become_inactive(self) -> None:
        """Nothing of the groups stays here: from now on they are another node's."""
        self._is_active = False
        self._classic.stop()
        self._consumers.stop()
        self._shares.stop()
        self._alarms.stop()
        self._loading.wake()

    def check_ready(self) -> None:
        if self._is_active:
            return
        if self._is_closed:
            raise Refused(Reason.NOT_COORDINATOR)
        replica = self._host.replica
        if replica.stopped_because is not None:
            # A stopped replica shows an empty log, and going on would forget every offset.
            raise Refused(Reason.COORDINATOR_NOT_AVAILABLE, str(replica.stopped_because))
        if replica.is_leader:
            raise Refused(Reason.COORDINATOR_LOAD_IN_PROGRESS)
        raise Refused(Reason.NOT_COORDINATOR)

    @property
    def replica(self) -> Replica:
        return self._host.replica

    @property
    def is_active(self) -> bool:
        return self._is_active

    @property
    def is_loading(self) -> bool:
        """This node leads the partition, but does not know its groups yet."""
        is_waiting = not self._is_active and not self._is_closed
        return is_waiting and self._host.replica.is_leader

    def validate(self) -> None:
        """Asserts what every step leaves true; for tests, which call it often."""
        self._classic.validate()

    # Membership

    async def consumer_heartbeat(self, command: ConsumerHeartbeat) -> ConsumerAnswer:
        """A member of the new protocol joins, lives or leaves; answered once that is stored."""
        await self._until_ready()
        decided = self.decide_at_once(command)
        answer, stored = decided or await self._begin_consumer_group(command)
        await durable(stored)
        return answer

    def decide_at_once(
        self, command: ConsumerHeartbeat
    ) -> tuple[ConsumerAnswer, asyncio.Future[None] | None] | None:
        """The answer, and what it has to wait for; None where deciding itself may have to wait."""
        if not self._is_active or not self._host.is_ready:
            return None
        group = self._host.state.consumer(command.group_id)
        return None if group is None else self._consumers.decide(group, command)

    async def _begin_consumer_group(
        self, command: ConsumerHeartbeat
    ) -> tuple[ConsumerAnswer, asyncio.Future[None] | None]:
        """The first member also ends a classic group that has the name. Its offsets stay, and its
        members become those of the consumer group."""
        group_id = command.group_id
        classic = self._classic.view(group_id)
        is_share = self._host.state.share(group_id) is not None
        if command.member_epoch != JOIN_EPOCH or is_share:
            await self._confirm()
            raise Refused(Reason.GROUP_ID_NOT_FOUND, f"there is no consumer group {group_id}")
        if classic is None or classic.is_empty:
            is_stored = self._host.state.metadata(group_id) is not None
            ended = decide_end(self._host.state, group_id) if is_stored else []
            decided = self._consumers.decide(ModernGroup(group_id), command, ended)
        else:
            decided = self._consumers.upgrade(classic, command)
        if classic is not None and self._host.state.modern(group_id) is not None:
            self._classic.end(classic, Reason.REBALANCE_IN_PROGRESS)
            self._consumers.upgrade_done(group_id)
        return decided

    def _become_classic(self, group: Group, is_settled: bool) -> None:
        """The last member of the new protocol is gone."""
        self._classic.adopt(group, is_settled=is_settled)

    async def share_heartbeat(self, command: ShareHeartbeat) -> ShareAnswer:
        """As above. Another group that has the name keeps it, even when nobody is in it."""
        await self._until_ready()
        group = self._any_view(command.group_id)
        if not isinstance(group, ShareGroup):
            if group is not None or command.member_epoch != JOIN_EPOCH:
                await self._confirm()
                raise Refused(Reason.GROUP_ID_NOT_FOUND, f"no share group {command.group_id}")
            group = ShareGroup(command.group_id)
        answer, stored = self._shares.decide(group, command)
        await durable(stored)
        if command.topics is not None and await self._shares.queues_made(command.group_id):
            return await self._told_of_queues(command, answer)
        return answer

    async def _told_of_queues(self, command: ShareHeartbeat, before: ShareAnswer) -> ShareAnswer:
        """The answer with partitions whose queues were not there at first; as it was, if it can't
        be had: the next heartbeat will bring them."""
        try:
            await self._until_ready()
            group = self._any_view(command.group_id)
            if not isinstance(group, ShareGroup):
                return before
            again = replace(command, member_epoch=before.member_epoch)
            answer, stored = self._shares.decide(group, again)
            await durable(stored)
        except Refused:
            return before
        return answer

    def topic_changed(self, topic: str) -> None:
        """It was made, deleted or given more partitions."""
        if self._is_active and self._host.is_ready:
            self._consumers.topic_changed(topic)
            self._shares.topic_changed(topic)
            self._classic.topic_changed(topic)

    async def join(self, command: Join) -> JoinAnswer:
        """Answered when the generation begins, or at once when the member can't be in it."""
        await self._until_ready()
        modern = self._host.state.modern(command.group_id)
        if isinstance(modern, ShareGroup):
            return JoinAnswer(refused=Reason.INCONSISTENT_GROUP_PROTOCOL)
        if modern is not None and modern.profiles:
            joined, stored = self._classic_members.join(modern, command)
            await durable(stored)
            return joined
        if self._classic.get(command.group_id) is None:
            if command.member_id != NO_MEMBER:
                unknown = Reason.UNKNOWN_MEMBER_ID
                return JoinAnswer(refused=unknown, member_id=command.member_id)
            if modern is not None:
                # Its offsets stay. Whatever is stored of the classic group comes after this.
                raise_refusal(self._host.submit(decide_end(self._host.state, command.group_id)))
        return await self._classic.join(command, self._new_member_id(command))

    def _new_member_id(self, command: Join) -> MemberId:
        prefix = command.client_id if command.instance_id is None else command.instance_id
        return MemberId(f"{prefix}-{self._new_uuid()}")

    async def sync(self, command: Sync) -> SyncAnswer:
        """Answered once the leader's assignment is durable."""
        await self._until_ready()
        consumer = self._host.state.consumer(command.group_id)
        if consumer is None:
            return await self._classic.sync(command)
        synced, stored = self._classic_members.sync(consumer, command)
        await durable(stored)
        return synced

    def heartbeat(
        self, group_id: GroupId, member_id: MemberId, instance_id: str | None, generation: int
    ) -> None:
        """Raises what the member has to hear."""
        self.check_ready()
        consumer = self._host.state.consumer(group_id)
        if consumer is None:
            self._classic.heartbeat(group_id, member_id, instance_id, generation)
        else:
            self._classic_members.heartbeat(consumer, member_id, instance_id, generation)

    async def leave(self, group_id: GroupId, departures: list[Departure]) -> list[Reason | None]:
        await self._until_ready()
        for departure in departures:
            logger.debug("group %s: %s leaves: %s", group_id, departure[:2], departure.reason)
        consumer = self._host.state.consumer(group_id)
        if consumer is not None:
            refusals, stored = self._classic_members.leave(consumer, departures)
            await durable(stored)
            return refusals
        outcomes, stores = self._classic.leave(group_id, departures)
        for store in stores:
            await durable(store)
        return outcomes

    # Offsets

    async def commit(self, command: CommitOffsets) -> list[Reason | None]:
        """For each offset why it is refused, or None once it is durable."""
        await self._until_ready()
        modern = self._host.state.modern(command.group_id)
        if modern is not None:
            return await self._commit_as_consumer(modern, command)
        group = self._classic.view(command.group_id)
        if group is not None:
            group.check_commit(command.member_id, command.instance_id, command.generation)
            self._classic.keep_session(group, command.member_id)
        elif command.generation >= 0:
            raise Refused(command.unknown_group, f"there is no group {command.group_id}")
        return await self._store_offsets(command)

    async def _commit_as_consumer(
        self, group: ModernGroup, command: CommitOffsets
    ) -> list[Reason | None]:
        refusals = check_commit(group, command, self._catalog)
        allowed = zip(command.offsets, refusals, strict=True)
        kept = tuple(offset for offset, refusal in allowed if refusal is None)
        outcomes = iter(await self._store_offsets(replace(command, offsets=kept)))
        return [next(outcomes) if refusal is None else refusal for refusal in refusals]

    async def _store_offsets(self, command: CommitOffsets) -> list[Reason | None]:
        records, outcomes = decide_commit(
            command, now_ms=self._clock.now_ms(), settings=self._settings
        )
        await durable(self._host.submit(records))
        return outcomes

    async def fetch(
        self,
        group_id: GroupId,
        wanted: Sequence[WantedTopic] | None,
        member_id: MemberId | None = None,
        member_epoch: int = -1,
    ) -> list[FetchedTopic]:
        """What every commit that was answered before left behind, under any coordinator.

        Never an offset that a crash could take back: it waits for commits that are under way.
        """
        await self._until_ready()

        def look(state: GroupsState) -> tuple[list[FetchedTopic], Refused | None]:
            group, refused = state.consumer(group_id), None
            try:
                if group is not None:
                    check_fetch(group, member_id, member_epoch)
            except Refused as refusal:
                refused = refusal
            return read_offsets(state, group_id, wanted), refused

        fetched, refused = await self._confirmed(self._host.read(look))
        if refused is not None:
            raise refused
        return fetched

    def committed(self) -> Iterator[tuple[GroupId, TopicName, dict[int, int]]]:
        """What all groups have committed; the leadership may end between two."""
        if not self._is_active:
            return
        for group_id in list(self._host.state.group_ids()):
            for topic, partitions in list(self._host.state.offsets(group_id).items()):
                yield group_id, topic, {index: each.offset for index, each in partitions.items()}

    def count(self) -> int:
        return sum(1 for _ in self._host.state.group_ids()) if self._is_active else 0

    async def _confirmed(self, reading: Awaitable[T]) -> T:
        """What a majority has to confirm, which may never answer."""
        try:
            async with asyncio.timeout(READ_S_MAX):
                return await reading
        except TimeoutError:
            detail = f"no majority confirms that this broker leads {self.replica.partition}"
            raise Refused(Reason.COORDINATOR_NOT_AVAILABLE, detail) from None
        except Refused as refused:
            raise told_to_clients(refused) from refused

    async def _confirm(self) -> None:
        """Before it says that something is not there: a coordinator that was replaced and does not
        know it yet lacks what the next one has stored. Where a record is stored, that is proof."""
        await self._confirmed(self.replica.confirm())

    async def remove_offsets(
        self, group_id: GroupId, partitions: Sequence[tuple[TopicName, int]]
    ) -> list[Reason | None]:
        await self._until_ready()
        group = self._any_view(group_id)
        if group is None or isinstance(group, ShareGroup):
            await self._confirm()
            raise Refused(Reason.GROUP_ID_NOT_FOUND)
        is_consumer = isinstance(group, ModernGroup) or (
            group.protocol_type == CONSUMER_PROTOCOL_TYPE
        )
        if not group.is_empty and not is_consumer:
            raise Refused(Reason.NON_EMPTY_GROUP)
        records, outcomes = decide_offset_removal(self._host.state, group, partitions)
        await durable(self._host.submit(records))
        if not records:
            await self._confirm()
        return outcomes

    async def remove_topics(self, is_gone: Callable[[TopicName], bool]) -> None:
        """Forgets the offsets of topics that are gone. What to remove is decided before the first
        wait, so that commits to a new topic of the same name are safe from it."""
        if self._is_active and self._host.is_ready:
            await self._remove(decide_topic_removal(self._host.state, is_gone))

    async def remove_queues(self, is_gone: Callable[[UUID], bool]) -> None:
        """Share groups forget the topics that are gone, by their ids."""
        if self._is_active and self._host.is_ready:
            await self._shares.forget_topics(is_gone)

    async def expire(self) -> None:
        """Forgets what nobody needs any more."""
        if not self._is_active or not self._host.is_ready:
            return
        now_ms, state = self._clock.now_ms(), self._host.state
        retention_ms = self._settings.offsets_retention_ms
        records: list[GroupRecord] = []
        for group_id in state.group_ids():
            group = self._any_view(group_id)
            assert group is not None
            records += decide_expiry(state, group, now_ms=now_ms, retention_ms=retention_ms)
        await self._remove(records)

    async def _remove(self, records: Sequence[GroupRecord]) -> None:
        stores = [
            self._host.submit(records[start : start + RECORDS_PER_REMOVAL_MAX])
            for start in range(0, len(records), RECORDS_PER_REMOVAL_MAX)
        ]
        for outcome in await asyncio.gather(*stores, return_exceptions=True):
            if isinstance(outcome, Refused):
                # Tried again with the next expiry, or at the next start.
                logger.warning("offsets could not be removed: %s", outcome.detail)
            elif outcome is not None:
                raise outcome
        if self._is_active:
            self._classic.drop_idle()

    # Administration

    async def describe(self, group_id: GroupId) -> GroupDescription | None:
        await self._until_ready()
        group = self._classic.view(group_id)
        return None if group is None else group.describe()

    async def describe_consumer(self, group_id: GroupId) -> ConsumerDescription | None:
        await self._until_ready()
        group = self._host.state.consumer(group_id)
        return None if group is None else self._consumers.describe(group)

    async def describe_share(self, group_id: GroupId) -> ShareDescription | None:
        await self._until_ready()
        return self._shares.describe(group) if (group := self._host.state.share(group_id)) else None

    async def share_groups(self, group_id: GroupId) -> ShareGroups:
        await self._until_ready()
        if (group := self._any_view(group_id)) is None or isinstance(group, ShareGroup):
            return self._shares
        raise Refused(Reason.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")

    async def list_groups(self) -> list[GroupDescription]:
        """All groups, without their members."""
        await self._until_ready()
        group_ids = dict.fromkeys(self._host.state.group_ids()) | dict.fromkeys(self._classic)
        return [self._summary(group_id) for group_id in group_ids]

    async def remove_groups(self, group_ids: Sequence[GroupId]) -> list[Reason | None]:
        await self._until_ready()
        shares = await self._shares.delete(group_ids)
        records: list[GroupRecord] = []
        outcomes: list[Reason | None] = []
        for group_id in group_ids:
            group = self._any_view(group_id)
            if group_id in shares:
                outcomes.append(shares[group_id])
            elif group is None:
                outcomes.append(Reason.GROUP_ID_NOT_FOUND)
            elif not group.is_empty:
                outcomes.append(Reason.NON_EMPTY_GROUP)
            else:
                records += decide_group_removal(self._host.state, group_id)
                if isinstance(group, Group):
                    self._classic.end(group)
                outcomes.append(None)
        await durable(self._host.submit(records))
        if not records:
            await self._confirm()
        return outcomes

    # Groups

    async def _until_ready(self) -> None:
        """Waits a little for a state that is being loaded."""
        if self.is_loading:
            await self._loading.wait(LOADING_WAIT_S)
        self.check_ready()
        if not self._host.is_ready:
            # It is on its way back after a failed write.
            raise Refused(Reason.COORDINATOR_LOAD_IN_PROGRESS)

    def _any_view(self, group_id: GroupId) -> Group | ModernGroup | None:
        return self._host.state.modern(group_id) or self._classic.view(group_id)

    def _summary(self, group_id: GroupId) -> GroupDescription:
        modern = self._host.state.modern(group_id)
        if modern is not None:
            return summarize(modern)
        group = self._classic.get(group_id)
        metadata = self._host.state.metadata(group_id)
        return summarize_classic(group_id, group, metadata)

    # Time

    def _expire(self, key: TimerKey) -> None:
        group_id, timer, member_id = key
        group = self._classic.get(group_id)
        # A classic group joins and syncs as a whole: what its members had before is over.
        is_of_member = timer in (Timer.JOIN, Timer.SYNC) and member_id != NO_MEMBER
        if group is None or is_of_member:
            share = self._host.state.share(group_id)
            (self._shares if share else self._consumers).expire(group_id, timer, member_id)
        else:
            self._classic.expire(group, timer, member_id)
