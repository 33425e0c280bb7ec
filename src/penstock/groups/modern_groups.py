"""Runs groups whose partitions the broker assigns: their sessions, and what they store.

A coordinator has one object for its consumer groups (`consumer_groups.py`) and one for its share
groups (`share_groups.py`), which add how a heartbeat is decided. Everything that a member is told
is stored before, also when another request has asked for it: an answer waits for the writes of its
group that are under way.

After a change of the coordinator the next one goes on with the same epochs and assignments. Every
member has a whole session to be heard of, and one that has to give partitions up its whole time.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import ClassVar, Generic, TypeVar

from penstock.groups.alarm_clock import AlarmClock
from penstock.groups.assignors import Assignor
from penstock.groups.catalog import TopicCatalog
from penstock.groups.commands import ConsumerAnswer, ConsumerHeartbeat, ShareHeartbeat
from penstock.groups.consumer_decisions import (
    AWAY_EPOCH,
    Decision,
    Surroundings,
    decide_removal,
)
from penstock.groups.effects import Timer
from penstock.groups.expressions import compile_expression
from penstock.groups.modern_group import ModernGroup, ModernMember
from penstock.groups.modern_records import GroupKind, MemberState
from penstock.groups.records import GroupRecord
from penstock.groups.settings import GroupSettings
from penstock.groups.state import GroupsState
from penstock.groups.target_maker import TargetMaker
from penstock.model.clock import Clock
from penstock.model.ids import GroupId, MemberId
from penstock.replication.hosting import Host

logger = logging.getLogger(__name__)

# Those of a member.
_TIMERS = (Timer.SESSION, Timer.REVOCATION, Timer.JOIN, Timer.SYNC)

G = TypeVar("G", bound=ModernGroup)
C = TypeVar("C", ConsumerHeartbeat, ShareHeartbeat)


class ModernGroups(ABC, Generic[G, C]):
    kind: ClassVar[GroupKind]

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
        self.targets = TargetMaker(
            host=host, catalog=catalog, assignors=assignors, store=self.store
        )

    def start(self) -> None:
        """This node coordinates the groups from now on."""
        for group in self._groups():
            self._stale.add(group.group_id)
            self._start_timers(group)

    def _groups(self) -> Iterator[ModernGroup]:
        groups = self._host.state.modern_groups().values()
        return (group for group in groups if group.kind is self.kind)

    def _start_timers(self, group: ModernGroup) -> None:
        for member in group.members():
            self.keep_session(group.group_id, member)
            is_away = member.current.epoch == AWAY_EPOCH
            if member.current.state is MemberState.UNREVOKED_PARTITIONS and not is_away:
                timer = Timer.REVOCATION if member.profile.classic is None else Timer.JOIN
                key = (group.group_id, timer, member.member_id)
                self._alarms.set(key, member.profile.rebalance_timeout_ms)

    def stop(self) -> None:
        self._stale.clear()
        self._writes.clear()
        self.targets.stop()

    def topic_changed(self, topic: str) -> None:
        for group in self._groups():
            if group.is_subscribed_to(topic) or group.subscribed_expressions():
                self._stale.add(group.group_id)

    # Members

    @abstractmethod
    def _decide(self, group: G, command: C, around: Surroundings) -> Decision: ...

    def decide(
        self, group: G, command: C, before: Sequence[GroupRecord] = ()
    ) -> tuple[ConsumerAnswer, asyncio.Future[None] | None]:
        """The answer, and what it has to wait for. `before` are records to be stored with it."""
        group_id = command.group_id
        leaves = command.member_epoch < 0
        if not leaves:
            self.targets.raise_failure(group_id)
            self._before(group)
        around = self.surroundings(group_id)
        decision: Decision = self._decide(group, command, around)
        if leaves and decision.after is None:
            return decision.answer, self.remove(group, {decision.answer.member_id})
        stored = self.under_way(group_id)
        if decision.records or before:
            stored = self.store(group_id, (*before, *decision.records))
            if has_failed(stored):
                return decision.answer, stored
        if decision.is_unresolved:
            self._stale.add(group_id)
        elif not leaves:
            self._stale.discard(group_id)
        if decision.is_target_due:
            self.targets.need(group_id)
        self._set_timers(group_id, decision)
        self._decided(group_id, decision)
        return decision.answer, stored

    def remove(
        self, group: ModernGroup, leavers: Collection[MemberId]
    ) -> asyncio.Future[None] | None:
        """Members are gone."""
        group_id = group.group_id
        if not leavers:
            return self.under_way(group_id)
        stored = self.store(group_id, decide_removal(group, leavers, self.surroundings(group_id)))
        if not has_failed(stored):
            self._cancel_timers(group_id, leavers)
            self._removed(group_id, leavers)
        return stored

    def _before(self, group: G) -> None:
        """For what a member that stays has to find done."""

    def _decided(self, group_id: GroupId, decision: Decision) -> None:
        """For what else has to follow."""

    def _removed(self, group_id: GroupId, leavers: Collection[MemberId]) -> None:
        """For what else has to end with them."""

    def surroundings(self, group_id: GroupId) -> Surroundings:
        settings = self._settings_of(group_id)
        own = settings.of_kind(self.kind)
        return Surroundings(
            catalog=self._catalog,
            assignors=self._assignors,
            compile_expression=compile_expression,
            members_max=own.members_max,
            classic_members_max=settings.members_max,
            migration=settings.consumer_migration,
            heartbeat_interval_ms=own.heartbeat_interval_ms,
            now_ms=self._clock.now_ms(),
            is_stale=group_id in self._stale,
            is_target_under_way=self.targets.is_under_way(group_id),
        )

    def store(self, group_id: GroupId, records: Sequence[GroupRecord]) -> asyncio.Future[None]:
        stored = self._host.submit(records)
        self._writes[group_id] = stored
        stored.add_done_callback(_log_failure)
        return stored

    def under_way(self, group_id: GroupId) -> asyncio.Future[None] | None:
        stored = self._writes.get(group_id)
        if stored is not None and stored.done():
            del self._writes[group_id]
            return None
        return stored

    def _set_timers(self, group_id: GroupId, decision: Decision) -> None:
        member_id, after = decision.answer.member_id, decision.after
        assert after is not None
        revocation = (group_id, Timer.REVOCATION, member_id)
        if after.current.epoch == AWAY_EPOCH:
            # Its session goes on, and ends unless it is back by then.
            self._alarms.cancel(revocation)
            return
        self.keep_session(group_id, after)
        if after.current is decision.before:
            return
        if after.current.state is MemberState.UNREVOKED_PARTITIONS:
            self._alarms.set(revocation, after.profile.rebalance_timeout_ms)
        else:
            self._alarms.cancel(revocation)

    def keep_session(self, group_id: GroupId, member: ModernMember) -> None:
        classic = member.profile.classic
        session_ms = (
            self._settings_of(group_id).of_kind(self.kind).session_timeout_ms
            if classic is None
            else classic.session_timeout_ms
        )
        self._alarms.set((group_id, Timer.SESSION, member.member_id), session_ms)

    def _cancel_timers(self, group_id: GroupId, member_ids: Collection[MemberId]) -> None:
        for member_id in member_ids:
            for timer in _TIMERS:
                self._alarms.cancel((group_id, timer, member_id))

    def is_stale(self, group_id: GroupId) -> bool:
        return group_id in self._stale

    def is_looked_at(self, group_id: GroupId) -> None:
        """Its topics are known as they are now."""
        self._stale.discard(group_id)

    # Time

    def expire(self, group_id: GroupId, timer: Timer, member_id: MemberId) -> None:
        """A member was not heard of for its session, or did not give up what it has to."""
        group = self._host.state.modern(group_id)
        member = None if group is None else group.member(member_id)
        if group is None or member is None or not self._host.is_ready:
            return
        is_classic = member.profile.classic is not None
        is_giving_up = member.current.state is MemberState.UNREVOKED_PARTITIONS
        if timer is Timer.REVOCATION and not is_giving_up:
            return
        if timer in (Timer.JOIN, Timer.SYNC) and not is_classic:
            return
        logger.info("group %s: %s is out of time (%s)", group_id, member_id, timer.name.lower())
        stored = self.remove(group, {member_id})
        if stored is not None and has_failed(stored):
            # It is tried again.
            self.keep_session(group_id, member)


def has_failed(stored: asyncio.Future[None]) -> bool:
    """Whether nothing of a write was even applied."""
    return stored.done() and stored.exception() is not None


def _log_failure(stored: asyncio.Future[None]) -> None:
    if not stored.cancelled() and (failure := stored.exception()) is not None:
        logger.warning("a group could not be stored: %s", failure)
