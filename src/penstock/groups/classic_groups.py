"""Runs the groups of the classic protocol of one coordinator: their waiters, timers and writes.

Groups decide (`group.py`) and say what has to happen; this carries it out. Only groups with members
or members to be are here. All others are only in the host's state.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast

from penstock.groups.alarm_clock import AlarmClock
from penstock.groups.commands import Departure, Join, JoinAnswer, Sync, SyncAnswer
from penstock.groups.durability import told_to_clients
from penstock.groups.effects import Answer, CancelTimer, Effect, SetTimer, Store, Ticket, Timer
from penstock.groups.group import Group
from penstock.groups.records import GroupRecord
from penstock.groups.settings import GroupSettings
from penstock.groups.state import GroupsState
from penstock.groups.transitions import GroupState
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId
from penstock.replication.hosting import Host

logger = logging.getLogger(__name__)


class ClassicGroups:
    def __init__(
        self,
        *,
        host: Host[GroupsState, GroupRecord],
        settings: GroupSettings,
        clock: Clock,
        alarms: AlarmClock,
    ) -> None:
        self._host = host
        self._settings = settings
        self._clock = clock
        self._alarms = alarms
        self._groups: dict[GroupId, Group] = {}

    def __iter__(self) -> Iterator[GroupId]:
        return iter(self._groups)

    def get(self, group_id: GroupId) -> Group | None:
        """One with members or members to be."""
        return self._groups.get(group_id)

    def view(self, group_id: GroupId) -> Group | None:
        """The group as it is now; one without members is made from what is stored of it."""
        group, state = self._groups.get(group_id), self._host.state
        if group is None and state.exists(group_id) and state.modern(group_id) is None:
            return self._restored(group_id)
        return group

    def start(self) -> None:
        """Groups go on in the generation they had."""
        for group_id, metadata in self._host.state.generations().items():
            if metadata.members:
                self.adopt(self._restored(group_id))

    def stop(self) -> None:
        for group in list(self._groups.values()):
            self.end(group)

    def adopt(self, group: Group, *, is_settled: bool = False) -> None:
        """One that this coordinator did not run until now."""
        self._groups[group.group_id] = group
        self._perform(group, group.start_sessions(is_settled=is_settled))

    def end(self, group: Group, *why: Reason) -> None:
        """Answers all who wait; nothing of the group stays here."""
        self._perform(group, group.close(*why))
        self._groups.pop(group.group_id, None)

    def topic_changed(self, topic: str) -> None:
        for group in list(self._groups.values()):
            self._perform(group, group.topic_changed(topic))

    def drop_idle(self) -> None:
        for group in list(self._groups.values()):
            self._drop_if_idle(group)

    def validate(self) -> None:
        """Asserts what every step leaves true; for tests, which call it often."""
        for group in self._groups.values():
            group.validate()

    # Members

    async def join(self, command: Join, new_member_id: MemberId) -> JoinAnswer:
        """Answered when the generation begins, or at once when the member can't be in it."""
        group_id = command.group_id
        group = self._groups.get(group_id) or self.view(group_id) or self._new(group_id)
        self._groups[group_id] = group
        answer: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        logger.debug("group %s: %s joins: %s", group_id, command.client_id, command.reason)
        self._perform(group, group.join(command, Ticket(answer), new_member_id))
        self._drop_if_idle(group)
        return await answer

    async def sync(self, command: Sync) -> SyncAnswer:
        """Answered once the leader's assignment is durable."""
        group = self._groups.get(command.group_id)
        if group is None:
            return SyncAnswer(refused=Reason.UNKNOWN_MEMBER_ID)
        answer: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        self._perform(group, group.sync(command, Ticket(answer)))
        return await answer

    def heartbeat(
        self, group_id: GroupId, member_id: MemberId, instance_id: str | None, generation: int
    ) -> None:
        """Raises what the member has to hear; costs the same in a group of any size."""
        group = self._groups.get(group_id)
        if group is None:
            raise Refused(Reason.UNKNOWN_MEMBER_ID)
        session_ms = group.heartbeat(member_id, instance_id, generation)
        self._alarms.set((group_id, Timer.SESSION, member_id), session_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise Refused(Reason.REBALANCE_IN_PROGRESS)

    def leave(
        self, group_id: GroupId, departures: list[Departure]
    ) -> tuple[list[Reason | None], Sequence[asyncio.Future[None]]]:
        """For each who leaves why it can't, or None; and the writes to wait for."""
        group = self._groups.get(group_id)
        if group is None:
            return [Reason.UNKNOWN_MEMBER_ID] * len(departures), ()
        outcomes, effects = group.leave(departures)
        stores = self._perform(group, effects)
        self._drop_if_idle(group)
        return outcomes, stores

    def keep_session(self, group: Group, member_id: MemberId) -> None:
        """A commit shows that the member lives, as well as a heartbeat does."""
        member = group.members.get(member_id)
        if member is not None:
            key = (group.group_id, Timer.SESSION, member_id)
            self._alarms.set(key, member.session_timeout_ms)

    def expire(self, group: Group, timer: Timer, member_id: MemberId) -> None:
        self._perform(group, group.expire(timer, member_id))
        self._drop_if_idle(group)

    # Inside

    def _restored(self, group_id: GroupId) -> Group:
        metadata = self._host.state.metadata(group_id)
        if metadata is None:
            return self._new(group_id)
        return Group.restored(group_id, metadata, settings=self._settings, clock=self._clock)

    def _new(self, group_id: GroupId) -> Group:
        return Group(group_id, settings=self._settings, clock=self._clock)

    def _drop_if_idle(self, group: Group) -> None:
        """A group that nobody is in and that is not stored must not stay forever."""
        if group.is_forgettable and not self._host.state.exists(group.group_id):
            self._groups.pop(group.group_id, None)

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
            refused = told_to_clients(failure).reason
            logger.warning("group %s could not be stored: %s", group.group_id, failure.detail)
        else:
            metadata, count = store.record.metadata, len(store.record.metadata.members)
            text = "group %s: generation %d with %d members is stored"
            logger.debug(text, group.group_id, metadata.generation, count)
        self._perform(group, group.stored(store, refused))


def _answer(effect: Answer) -> None:
    waiting = cast("asyncio.Future[JoinAnswer | SyncAnswer]", effect.ticket)
    # Its connection may have closed meanwhile.
    if not waiting.done():
        waiting.set_result(effect.answer)
