"""Runs the groups of one __consumer_offsets partition: their clock, their waiters, their records.

Groups decide (`group.py`, `offsets.py`), the host makes their records durable, and this answers. An
answer that says something is stored leaves only after it is.

It is active while this node leads the partition and the host has loaded. Otherwise it holds no
group: clients that waited look for the coordinator elsewhere, and the one that comes next
goes on from the stored generations, with a whole session for every member to be heard of.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar, cast
from uuid import UUID

from penstock.groups.commands import (
    NO_MEMBER,
    CommitOffsets,
    Departure,
    GroupDescription,
    Join,
    JoinAnswer,
    Sync,
    SyncAnswer,
)
from penstock.groups.deadlines import Deadlines
from penstock.groups.effects import Answer, CancelTimer, Effect, SetTimer, Store, Ticket, Timer
from penstock.groups.group import Group
from penstock.groups.offsets import (
    FetchedTopic,
    WantedTopic,
    decide_commit,
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

# A timer this late means that the whole process stood still, so that heartbeats may lie unread.
# Sessions that ended meanwhile get the grace to be heard of before they count as over.
STALL_S = 0.5
GRACE_AFTER_STALL_S = 2.0
# Removals in the background go in portions, so that a produce beside them never waits long.
RECORDS_PER_REMOVAL_MAX = 1_000

_TOO_LARGE = (Reason.MESSAGE_TOO_LARGE, Reason.RECORD_LIST_TOO_LARGE)

T = TypeVar("T")
TimerKey = tuple[GroupId, Timer, MemberId]


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
    ) -> None:
        self._host = host
        self._settings = settings
        self._clock = clock
        self._new_uuid = new_uuid
        self._is_in_office = False
        self._is_closed = False
        # Requests that wait until the state is loaded.
        self._waiting: set[asyncio.Future[None]] = set()
        self._on_office: Callable[[Coordinator], None] | None = None
        # Groups with members or members to be; all others are only in the host's state.
        self._groups: dict[GroupId, Group] = {}
        self._deadlines: Deadlines[TimerKey] = Deadlines()
        self._wake_up: asyncio.TimerHandle | None = None
        self._wake_up_at = 0.0

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
        self._wake_waiting()
        if self._on_office is not None:
            self._on_office(self)

    def _leave_office(self) -> None:
        """Nothing of the groups stays here: from now on they are another node's."""
        self._is_in_office = False
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        groups, self._groups = self._groups, {}
        for group in groups.values():
            self._perform(group, group.close())
        self._deadlines = Deadlines()
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

    async def join(self, command: Join) -> JoinAnswer:
        """Answered when the generation begins, or at once when the member can't be in it."""
        await self._until_ready()
        group = self._groups.get(command.group_id)
        if group is None:
            if command.member_id != NO_MEMBER:
                unknown = Reason.UNKNOWN_MEMBER_ID
                return JoinAnswer(refused=unknown, member_id=command.member_id)
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
        self._set_deadline((group_id, Timer.SESSION, member_id), session_ms)
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
        group = self._view(command.group_id)
        if group is not None:
            group.check_commit(command.member_id, command.instance_id, command.generation)
            self._keep_session(group, command.member_id)
        elif command.generation >= 0:
            raise Refused(command.unknown_group, f"there is no group {command.group_id}")
        records, outcomes = decide_commit(
            command, now_ms=self._clock.now_ms(), settings=self._settings
        )
        await _durable(self._host.submit(records))
        return outcomes

    async def fetch(
        self, group_id: GroupId, wanted: Sequence[WantedTopic] | None
    ) -> list[FetchedTopic]:
        """What every commit that was answered before left behind, under any coordinator.

        Never an offset that a crash could take back: it waits for commits that are under way.
        """
        await self._until_ready()
        return await self._confirmed(
            self._host.read(lambda state: read_offsets(state, group_id, wanted))
        )

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
        group = self._view(group_id)
        if group is None:
            await self._confirm()
            raise Refused(Reason.GROUP_ID_NOT_FOUND)
        is_consumer = group.protocol_type == CONSUMER_PROTOCOL_TYPE
        if group.state is not GroupState.EMPTY and not is_consumer:
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
            group = self._view(group_id)
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
            group = self._view(group_id)
            if group is None:
                outcomes.append(Reason.GROUP_ID_NOT_FOUND)
            elif group.state is not GroupState.EMPTY:
                outcomes.append(Reason.NON_EMPTY_GROUP)
            else:
                records += decide_group_removal(self._host.state, group_id)
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

    def _view(self, group_id: GroupId) -> Group | None:
        """The group as it is now; one without members is made from what is stored of it."""
        group = self._groups.get(group_id)
        if group is None and self._host.state.exists(group_id):
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
            self._set_deadline(key, member.session_timeout_ms)

    # Effects

    def _perform(self, group: Group, effects: list[Effect]) -> list[asyncio.Future[None]]:
        """Carries out what the group wants; returns the writes that are under way for it."""
        stores = []
        for effect in effects:
            if isinstance(effect, Answer):
                _answer(effect)
            elif isinstance(effect, SetTimer):
                key = (group.group_id, effect.timer, effect.member_id)
                self._set_deadline(key, effect.delay_ms)
            elif isinstance(effect, CancelTimer):
                self._deadlines.cancel((group.group_id, effect.timer, effect.member_id))
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

    def _set_deadline(self, key: TimerKey, delay_ms: int) -> None:
        at = self._clock.monotonic() + delay_ms / 1000
        self._deadlines.set(key, at)
        if self._wake_up is None or at < self._wake_up_at:
            self._schedule()

    def _schedule(self) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        at = self._deadlines.next_at()
        if at is not None and self._is_in_office:
            delay_s = max(at - self._clock.monotonic(), 0)
            self._wake_up = asyncio.get_running_loop().call_later(delay_s, self._on_time)
            self._wake_up_at = at

    def _on_time(self) -> None:
        self._wake_up = None
        now = self._clock.monotonic()
        has_stalled = now - self._wake_up_at > STALL_S
        while (key := self._deadlines.pop_due(now)) is not None:
            group_id, timer, member_id = key
            if has_stalled and timer is Timer.SESSION:
                self._deadlines.set(key, now + GRACE_AFTER_STALL_S)
                continue
            group = self._groups.get(group_id)
            if group is not None:
                self._perform(group, group.expire(timer, member_id))
                self._drop_if_idle(group)
        self._schedule()


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
