"""Runs the consumer groups (KIP-848) of one coordinator: their sessions, and what they store.

`consumer_decisions.py` decides. Everything that a member is told is stored before, also when
another request has asked for it: an answer waits for the writes of its group that are under way.

After a change of the coordinator the next one goes on with the same epochs and assignments. Every
member has a whole session to be heard of, and one that has to give partitions up its whole time.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from penstock.groups.alarm_clock import AlarmClock
from penstock.groups.assignors import Assignor
from penstock.groups.catalog import TopicCatalog
from penstock.groups.commands import ConsumerAnswer, ConsumerDescription, ConsumerHeartbeat
from penstock.groups.consumer_decisions import (
    AWAY_EPOCH,
    Decision,
    Surroundings,
    decide_heartbeat,
    decide_leave,
    decide_removal,
)
from penstock.groups.consumer_reads import describe
from penstock.groups.effects import Timer
from penstock.groups.expressions import compile_expression
from penstock.groups.modern_group import ModernGroup, ModernMember
from penstock.groups.modern_records import MemberState
from penstock.groups.records import GroupRecord
from penstock.groups.settings import GroupSettings
from penstock.groups.state import GroupsState
from penstock.model.clock import Clock
from penstock.model.ids import GroupId, MemberId
from penstock.replication.hosting import Host

logger = logging.getLogger(__name__)


class ConsumerGroups:
    def __init__(
        self,
        *,
        host: Host[GroupsState, GroupRecord],
        clock: Clock,
        alarms: AlarmClock,
        catalog: TopicCatalog,
        assignors: Mapping[str, Assignor],
        settings_of: Callable[[GroupId], GroupSettings],
    ) -> None:
        self._host = host
        self._clock = clock
        self._alarms = alarms
        self._catalog = catalog
        self._assignors = assignors
        self._settings_of = settings_of
        # Groups whose topics may have changed since they were looked at last, or that have an
        # expression whose topics were not looked up yet.
        self._stale: set[GroupId] = set()
        # The last write of each group; done ones are dropped when they are met.
        self._writes: dict[GroupId, asyncio.Future[None]] = {}

    def start(self) -> None:
        """This node coordinates the groups from now on."""
        for group in self._host.state.modern_groups().values():
            self._stale.add(group.group_id)
            for member in group.members():
                self._start_timers(group, member)

    def _start_timers(self, group: ModernGroup, member: ModernMember) -> None:
        self._keep_session(group.group_id, member.member_id)
        is_away = member.current.epoch == AWAY_EPOCH
        if member.current.state is MemberState.UNREVOKED_PARTITIONS and not is_away:
            key = (group.group_id, Timer.REVOCATION, member.member_id)
            self._alarms.set(key, member.profile.rebalance_timeout_ms)

    def stop(self) -> None:
        self._stale.clear()
        self._writes.clear()

    def topic_changed(self, topic: str) -> None:
        for group in self._host.state.modern_groups().values():
            if group.is_subscribed_to(topic) or group.subscribed_expressions():
                self._stale.add(group.group_id)

    # Members

    def decide(
        self, group: ModernGroup, command: ConsumerHeartbeat, before: Sequence[GroupRecord] = ()
    ) -> tuple[ConsumerAnswer, asyncio.Future[None] | None]:
        """The answer, and what it has to wait for. `before` are records to be stored with it."""
        group_id = command.group_id
        settings = self._settings_of(group_id)
        around = self._surroundings(group_id, settings)
        leaves = command.member_epoch < 0
        decision = (decide_leave if leaves else decide_heartbeat)(group, command, around)
        stored = self._under_way(group_id)
        if decision.records or before:
            stored = self._store(group_id, (*before, *decision.records))
            if _has_failed(stored):
                return decision.answer, stored
        if decision.is_unresolved:
            self._stale.add(group_id)
        elif not leaves:
            self._stale.discard(group_id)
        self._set_timers(group_id, decision, settings)
        return decision.answer, stored

    def _surroundings(self, group_id: GroupId, settings: GroupSettings) -> Surroundings:
        return Surroundings(
            catalog=self._catalog,
            assignors=self._assignors,
            compile_expression=compile_expression,
            members_max=settings.consumer_group_size_max,
            heartbeat_interval_ms=settings.consumer_heartbeat_interval_ms,
            now_ms=self._clock.now_ms(),
            is_stale=group_id in self._stale,
        )

    def _store(self, group_id: GroupId, records: Sequence[GroupRecord]) -> asyncio.Future[None]:
        stored = self._host.submit(records)
        self._writes[group_id] = stored
        stored.add_done_callback(_log_failure)
        return stored

    def _under_way(self, group_id: GroupId) -> asyncio.Future[None] | None:
        stored = self._writes.get(group_id)
        if stored is not None and stored.done():
            del self._writes[group_id]
            return None
        return stored

    def _set_timers(self, group_id: GroupId, decision: Decision, settings: GroupSettings) -> None:
        member_id, after = decision.answer.member_id, decision.after
        revocation = (group_id, Timer.REVOCATION, member_id)
        if after is None:
            self._alarms.cancel((group_id, Timer.SESSION, member_id))
            self._alarms.cancel(revocation)
        elif after.current.epoch == AWAY_EPOCH:
            # Its session goes on, and ends unless it is back by then.
            self._alarms.cancel(revocation)
        else:
            session = (group_id, Timer.SESSION, member_id)
            self._alarms.set(session, settings.consumer_session_timeout_ms)
            if after.current is decision.before:
                return
            if after.current.state is MemberState.UNREVOKED_PARTITIONS:
                self._alarms.set(revocation, after.profile.rebalance_timeout_ms)
            else:
                self._alarms.cancel(revocation)

    def _keep_session(self, group_id: GroupId, member_id: MemberId) -> None:
        session_ms = self._settings_of(group_id).consumer_session_timeout_ms
        self._alarms.set((group_id, Timer.SESSION, member_id), session_ms)

    # Time

    def expire(self, group_id: GroupId, timer: Timer, member_id: MemberId) -> None:
        """A member was not heard of for its session, or did not give up what it has to."""
        group = self._host.state.modern(group_id)
        member = None if group is None else group.member(member_id)
        if group is None or member is None or not self._host.is_ready:
            return
        is_giving_up = member.current.state is MemberState.UNREVOKED_PARTITIONS
        if timer is Timer.REVOCATION and not is_giving_up:
            return
        logger.info("group %s: %s is out of time (%s)", group_id, member_id, timer.name.lower())
        around = self._surroundings(group_id, self._settings_of(group_id))
        if _has_failed(self._store(group_id, decide_removal(group, [member_id], around))):
            # It is tried again.
            self._keep_session(group_id, member_id)
            return
        for each in (Timer.SESSION, Timer.REVOCATION):
            self._alarms.cancel((group_id, each, member_id))

    # Administration

    def describe(self, group: ModernGroup) -> ConsumerDescription:
        return describe(group, tuple(self._assignors))


def _has_failed(stored: asyncio.Future[None]) -> bool:
    """Whether nothing of a write was even applied."""
    return stored.done() and stored.exception() is not None


def _log_failure(stored: asyncio.Future[None]) -> None:
    if not stored.cancelled() and (failure := stored.exception()) is not None:
        logger.warning("a consumer group could not be stored: %s", failure)
