"""Runs the groups of one __consumer_offsets partition: their clock, their waiters, their records.

Groups decide (`group.py`, `offsets.py`), the host makes their records durable, and this answers. An
answer that says something is stored leaves only after it is. A name has one group, of the classic
protocol or of the new one (KIP-848), whose members `consumer_groups.py` keeps.

It is active while this node leads the partition and the host has loaded. Otherwise it holds no
group: clients that waited look for the coordinator elsewhere, and the one that comes next
goes on from the stored generations, with a whole session for every member to be heard of.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast
from uuid import UUID

from penstock.groups.alarm_clock import AlarmClock, TimerKey
from penstock.groups.assignors import Assignor
from penstock.groups.catalog import TopicCatalog
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
    Sync,
    SyncAnswer,
)
from penstock.groups.consumer_decisions import JOIN_EPOCH
from penstock.groups.consumer_groups import ConsumerGroups
from penstock.groups.consumer_reads import check_commit, check_fetch, summarize
from penstock.groups.effects import Answer, CancelTimer, Effect, SetTimer, Store, Ticket, Timer
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
from penstock.groups.state import GroupsState
from penstock.groups.subscriptions import CONSUMER_PROTOCOL_TYPE
from penstock.groups.transitions import GroupState
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId, TopicName
from penstock.replication.hosting import Host
from penstock.replication.replica import Replica

logger = logging.getLogger(__name__)

# Removals in the background go in portions, so that a produce beside them never waits long.
RECORDS_PER_REMOVAL_MAX = 1_000

_TOO_LARGE = (Reason.MESSAGE_TOO_LARGE, Reason.RECORD_LIST_TOO_LARGE)

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
        settings_of: Callable[[GroupId], GroupSettings],
    ) -> None:
        self._host = host
        self._catalog = catalog
        self._settings = settings
        self._clock = clock
        self._new_uuid = new_uuid
        self._is_in_office = False
        self._is_closed = False
        # Requests that wait until the state is loaded.
        self._waiting: set[asyncio.Future[None]] = set()
        self._on_office: Callable[[Coordinator], None] | None = None
        self._alarms = AlarmClock(clock, self._expire)
        self._consumers = ConsumerGroups(
            host=host,
            clock=clock,
            alarms=self._alarms,
            catalog=catalog,
            assignors=assignors,
            settings_of=settings_of,
        )
        # Classic groups with members or members to be; all others are only in the host's state.
        self._groups: dict[GroupId, Group] = {}

    def start(self, on_office: "Callable[[Coordinator], None] | None" = None) -> None:
        """Follows the leadership of its partition from now on; calls back when active."""
        self._on_office = on_office
        self._host.on_ready(self._take_office)
        self._host.on_lost(self._leave_office)
        self._host.start()

    async def close(self) -> None:
        self._is_closed = True
        self._leave_office()
        await self._host.close()

    def _take_office(self) -> None:
        """Groups go on in the generation they had."""
        if self._is_closed:
            return
        self._is_in_office = True
        for group_id, metadata in self._host.state.generations().items():
            if metadata.members:
                group = self._restored(group_id)
                self._groups[group_id] = group
                self._perform(group, group.start_sessions())
        self._consumers.start()
        self._wake_waiting()
        if self._on_office is not None:
            self._on_office(self)

    def _leave_office(self) -> None:
        """Nothing of the groups stays here: from now on they are another node's."""
        self._is_in_office = False
        groups, self._groups = self._groups, {}
        for group in groups.values():
            self._perform(group, group.close())
        self._consumers.stop()
        self._alarms.stop()
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def check_ready(self) -> None:
        if self._is_in_office:
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
    def is_in_office(self) -> bool:
        return self._is_in_office

    @property
    def is_loading(self) -> bool:
        """This node leads the partition, but does not know its groups yet."""
        is_waiting = not self._is_in_office and not self._is_closed
        return is_waiting and self._host.replica.is_leader

    # Membership

    async def consumer_heartbeat(self, command: ConsumerHeartbeat) -> ConsumerAnswer:
        """A member of the new protocol joins, lives or leaves; answered once that is stored."""
        await self._until_ready()
        group = self._host.state.modern(command.group_id)
        if group is not None:
            answer, stored = self._consumers.decide(group, command)
        else:
            answer, stored = await self._begin_consumer_group(command)
        if stored is not None:
            await _durable(stored)
        return answer

    async def _begin_consumer_group(
        self, command: ConsumerHeartbeat
    ) -> tuple[ConsumerAnswer, asyncio.Future[None] | None]:
        """The first member also ends an empty classic group that has the name; its offsets stay."""
        group_id = command.group_id
        classic = self._view(group_id)
        if command.member_epoch != JOIN_EPOCH or (classic and not classic.is_empty):
            await self._confirm()
            raise Refused(Reason.GROUP_ID_NOT_FOUND, f"there is no consumer group {group_id}")
        is_stored = self._host.state.metadata(group_id) is not None
        ended = decide_end(self._host.state, group_id) if is_stored else []
        decided = self._consumers.decide(ModernGroup(group_id), command, ended)
        if classic is not None:
            self._perform(classic, classic.close())
            self._groups.pop(group_id, None)
        return decided

    def topic_changed(self, topic: str) -> None:
        """It was made, deleted or given more partitions."""
        if self._is_in_office and self._host.is_ready:
            self._consumers.topic_changed(topic)

    async def join(self, command: Join) -> JoinAnswer:
        """Answered when the generation begins, or at once when the member can't be in it."""
        await self._until_ready()
        modern = self._host.state.modern(command.group_id)
        if modern is not None and modern.profiles:
            inconsistent = Reason.INCONSISTENT_GROUP_PROTOCOL
            return JoinAnswer(refused=inconsistent, member_id=command.member_id)
        group = self._groups.get(command.group_id)
        if group is None:
            if command.member_id != NO_MEMBER:
                unknown = Reason.UNKNOWN_MEMBER_ID
                return JoinAnswer(refused=unknown, member_id=command.member_id)
            if modern is not None:
                # Its offsets stay. Whatever is stored of the classic group comes after this.
                _raise_refusal(self._host.submit(decide_end(self._host.state, command.group_id)))
            group = self._view(command.group_id) or self._new_group(command.group_id)
            self._groups[command.group_id] = group
        answer: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        logger.debug("group %s: %s joins: %s", group.group_id, command.client_id, command.reason)
        prefix = command.client_id if command.instance_id is None else command.instance_id
        new_member_id = MemberId(f"{prefix}-{self._new_uuid()}")
        self._perform(group, group.join(command, Ticket(answer), new_member_id))
        self._drop_if_idle(group)
        return await answer

    async def sync(self, command: Sync) -> SyncAnswer:
        """Answered once the leader's assignment is durable."""
        await self._until_ready()
        group = self._groups.get(command.group_id)
        if group is None:
            return SyncAnswer(refused=Reason.UNKNOWN_MEMBER_ID)
        answer: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        self._perform(group, group.sync(command, Ticket(answer)))
        return await answer

    def heartbeat(
        self, group_id: GroupId, member_id: MemberId, instance_id: str | None, generation: int
    ) -> None:
        """Raises what the member has to be told; costs the same in a group of any size."""
        self.check_ready()
        group = self._groups.get(group_id)
        if group is None:
            raise Refused(Reason.UNKNOWN_MEMBER_ID)
        session_ms = group.heartbeat(member_id, instance_id, generation)
        self._alarms.set((group_id, Timer.SESSION, member_id), session_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise Refused(Reason.REBALANCE_IN_PROGRESS)

    async def leave(self, group_id: GroupId, departures: list[Departure]) -> list[Reason | None]:
        await self._until_ready()
        group = self._groups.get(group_id)
        if group is None:
            return [Reason.UNKNOWN_MEMBER_ID] * len(departures)
        for departure in departures:
            logger.debug("group %s: %s leaves: %s", group_id, departure[:2], departure.reason)
        outcomes, effects = group.leave(departures)
        stores = self._perform(group, effects)
        self._drop_if_idle(group)
        for store in stores:
            await _durable(store)
        return outcomes

    # Offsets

    async def commit(self, command: CommitOffsets) -> list[Reason | None]:
        """For each offset why it is refused, or None once it is durable."""
        await self._until_ready()
        modern = self._host.state.modern(command.group_id)
        if modern is not None:
            return await self._commit_as_consumer(modern, command)
        group = self._view(command.group_id)
        if group is not None:
            group.check_commit(command.member_id, command.instance_id, command.generation)
            self._keep_session(group, command.member_id)
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
        await _durable(self._host.submit(records))
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
            group, refused = state.modern(group_id), None
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

    async def _confirmed(self, reading: Awaitable[T]) -> T:
        """What a majority has to confirm, which may never answer."""
        try:
            async with asyncio.timeout(READ_S_MAX):
                return await reading
        except TimeoutError:
            detail = f"no majority confirms that this broker leads {self.replica.partition}"
            raise Refused(Reason.COORDINATOR_NOT_AVAILABLE, detail) from None
        except Refused as refused:
            raise _told_to_clients(refused) from refused

    async def _confirm(self) -> None:
        """Before it says that something is not there: a coordinator that was replaced and does not
        know it yet lacks what the next one has stored. Where a record is stored, that is proof."""
        await self._confirmed(self.replica.confirm())

    async def remove_offsets(
        self, group_id: GroupId, partitions: Sequence[tuple[TopicName, int]]
    ) -> list[Reason | None]:
        await self._until_ready()
        group = self._any_view(group_id)
        if group is None:
            await self._confirm()
            raise Refused(Reason.GROUP_ID_NOT_FOUND)
        is_consumer = isinstance(group, ModernGroup) or (
            group.protocol_type == CONSUMER_PROTOCOL_TYPE
        )
        if not group.is_empty and not is_consumer:
            raise Refused(Reason.NON_EMPTY_GROUP)
        records, outcomes = decide_offset_removal(self._host.state, group, partitions)
        await _durable(self._host.submit(records))
        if not records:
            await self._confirm()
        return outcomes

    async def remove_topics(self, is_gone: Callable[[TopicName], bool]) -> None:
        """Forgets the offsets of topics that are gone. What to remove is decided before the first
        wait, so that commits to a new topic of the same name are safe from it."""
        if self._is_in_office and self._host.is_ready:
            await self._remove(decide_topic_removal(self._host.state, is_gone))

    async def expire(self) -> None:
        """Forgets what nobody needs any more."""
        if not self._is_in_office or not self._host.is_ready:
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
        if self._is_in_office:
            for group in list(self._groups.values()):
                self._drop_if_idle(group)

    # Administration

    async def describe(self, group_id: GroupId) -> GroupDescription | None:
        await self._until_ready()
        group = self._view(group_id)
        return None if group is None else group.describe()

    async def describe_consumer(self, group_id: GroupId) -> ConsumerDescription | None:
        await self._until_ready()
        group = self._host.state.modern(group_id)
        return None if group is None else self._consumers.describe(group)

    async def list_groups(self) -> list[GroupDescription]:
        """All groups, without their members."""
        await self._until_ready()
        group_ids = dict.fromkeys(self._host.state.group_ids()) | dict.fromkeys(self._groups)
        return [self._summary(group_id) for group_id in group_ids]

    async def remove_groups(self, group_ids: Sequence[GroupId]) -> list[Reason | None]:
        await self._until_ready()
        records: list[GroupRecord] = []
        outcomes: list[Reason | None] = []
        for group_id in group_ids:
            group = self._any_view(group_id)
            if group is None:
                outcomes.append(Reason.GROUP_ID_NOT_FOUND)
            elif not group.is_empty:
                outcomes.append(Reason.NON_EMPTY_GROUP)
            else:
                records += decide_group_removal(self._host.state, group_id)
                if isinstance(group, Group):
                    self._perform(group, group.close())
                    self._groups.pop(group_id, None)
                outcomes.append(None)
        await _durable(self._host.submit(records))
        if not records:
            await self._confirm()
        return outcomes

    # Groups

    async def _until_ready(self) -> None:
        """Waits a little for a state that is being loaded."""
        if self.is_loading:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(waiter)
            timer = asyncio.get_running_loop().call_later(LOADING_WAIT_S, _give_up, waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiting.discard(waiter)
        self.check_ready()
        if not self._host.is_ready:
            # It is on its way back after a failed write.
            raise Refused(Reason.COORDINATOR_LOAD_IN_PROGRESS)

    def _any_view(self, group_id: GroupId) -> Group | ModernGroup | None:
        return self._host.state.modern(group_id) or self._view(group_id)

    def _view(self, group_id: GroupId) -> Group | None:
        """The classic group as it is now; one without members is made from what is stored of it."""
        group, state = self._groups.get(group_id), self._host.state
        if group is None and state.exists(group_id) and state.modern(group_id) is None:
            return self._restored(group_id)
        return group

    def _restored(self, group_id: GroupId) -> Group:
        metadata = self._host.state.metadata(group_id)
        if metadata is None:
            return self._new_group(group_id)
        return Group.restored(group_id, metadata, settings=self._settings, clock=self._clock)

    def _new_group(self, group_id: GroupId) -> Group:
        return Group(group_id, settings=self._settings, clock=self._clock)

    def _summary(self, group_id: GroupId) -> GroupDescription:
        modern = self._host.state.modern(group_id)
        if modern is not None:
            return summarize(modern)
        group = self._groups.get(group_id)
        metadata = self._host.state.metadata(group_id)
        if group is not None:
            state, protocol_type = group.state, group.protocol_type
        else:
            state, protocol_type = GroupState.EMPTY, metadata.protocol_type if metadata else ""
        return GroupDescription(
            group_id=group_id, state=state.value, protocol_type=protocol_type, protocol=""
        )

    def _drop_if_idle(self, group: Group) -> None:
        """A group that nobody is in and that is not stored must not stay forever."""
        if group.is_forgettable and not self._host.state.exists(group.group_id):
            self._groups.pop(group.group_id, None)

    def _keep_session(self, group: Group, member_id: MemberId) -> None:
        """A commit shows that the member lives, as well as a heartbeat does."""
        member = group.members.get(member_id)
        if member is not None:
            key = (group.group_id, Timer.SESSION, member_id)
            self._alarms.set(key, member.session_timeout_ms)

    # Effects

    def _perform(self, group: Group, effects: list[Effect]) -> list[asyncio.Future[None]]:
        """Carries out what the group wants; returns the writes that are under way for it."""
        stores = []
        for effect in effects:
            if isinstance(effect, Answer):
                _answer(effect)
            elif isinstance(effect, SetTimer):
                key = (group.group_id, effect.timer, effect.member_id)
                self._alarms.set(key, effect.delay_ms)
            elif isinstance(effect, CancelTimer):
                self._alarms.cancel((group.group_id, effect.timer, effect.member_id))
            else:
                stored = self._host.submit((effect.record,))
                stored.add_done_callback(partial(self._stored, group, effect))
                stores.append(stored)
        return stores

    def _stored(self, group: Group, store: Store, stored: asyncio.Future[None]) -> None:
        failure = stored.exception()
        refused: Reason | None = None
        if failure is not None:
            assert isinstance(failure, Refused), failure
            refused = _told_to_clients(failure).reason
            logger.warning("group %s could not be stored: %s", group.group_id, failure.detail)
        else:
            metadata, count = store.record.metadata, len(store.record.metadata.members)
            text = "group %s: generation %d with %d members is stored"
            logger.debug(text, group.group_id, metadata.generation, count)
        self._perform(group, group.stored(store, refused))

    # Time

    def _expire(self, key: TimerKey) -> None:
        group_id, timer, member_id = key
        group = self._groups.get(group_id)
        if group is None:
            self._consumers.expire(group_id, timer, member_id)
        else:
            self._perform(group, group.expire(timer, member_id))
            self._drop_if_idle(group)


def _raise_refusal(stored: asyncio.Future[None]) -> None:
    """Of a write that nobody waits for: those that come after it fail with it."""
    if stored.done() and isinstance(refused := stored.exception(), Refused):
        raise _told_to_clients(refused) from refused
    stored.add_done_callback(lambda done: done.exception())


def _give_up(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _answer(effect: Answer) -> None:
    waiting = cast("asyncio.Future[JoinAnswer | SyncAnswer]", effect.ticket)
    # Its connection may have closed meanwhile.
    if not waiting.done():
        waiting.set_result(effect.answer)


async def _durable(stored: asyncio.Future[None]) -> None:
    """Shielded: a client that goes away must not cancel a write that others wait for too."""
    try:
        await asyncio.shield(stored)
    except Refused as refused:
        raise _told_to_clients(refused) from refused


def _told_to_clients(refused: Refused) -> Refused:
    """A write that failed is a passing state, and every client knows what to do when this node is
    not its coordinator: look for it and try again. Most do not expect a storage error here."""
    if refused.reason is Reason.COORDINATOR_LOAD_IN_PROGRESS:
        return refused
    if refused.reason in _TOO_LARGE:
        return Refused(Reason.UNKNOWN_SERVER_ERROR, refused.detail)
    return Refused(Reason.NOT_COORDINATOR, refused.detail)
