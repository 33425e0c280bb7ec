"""Runs the members of consumer groups (KIP-848) that speak the classic protocol.

`classic_decisions.py` decides. As everywhere, what a member is told is stored before. Besides its
session, such a member has a time to join again once it was told to, and one to sync after that.
"""

import asyncio
from collections.abc import Callable, Sequence

from penstock.groups.alarm_clock import AlarmClock
from penstock.groups.catalog import TopicCatalog
from penstock.groups.classic_decisions import (
    classic_member,
    decide_join,
    has_to_join,
    leaving,
    synced,
)
from penstock.groups.commands import Departure, Join, JoinAnswer, Sync, SyncAnswer
from penstock.groups.consumer_groups import ConsumerGroups
from penstock.groups.effects import Timer
from penstock.groups.modern_group import ModernGroup, ModernMember
from penstock.groups.modern_groups import has_failed
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId

Stored = asyncio.Future[None] | None


class ClassicMembers:
    """Answers come with the write that they have to wait for."""

    def __init__(
        self,
        *,
        consumers: ConsumerGroups,
        alarms: AlarmClock,
        catalog: TopicCatalog,
        new_member_id: Callable[[Join], MemberId],
    ) -> None:
        self._consumers = consumers
        self._alarms = alarms
        self._catalog = catalog
        self._new_member_id = new_member_id

    def join(self, group: ModernGroup, command: Join) -> tuple[JoinAnswer, Stored]:
        around = self._consumers.surroundings(group.group_id)
        try:
            decision = decide_join(group, command, self._new_member_id(command), around)
        except Refused as refused:
            return JoinAnswer(refused=refused.reason), None
        after = decision.after
        if after is None:
            return decision.answer, None
        if decision.classic is not None:
            return decision.answer, self._consumers.downgrade(group, decision.classic, ())
        stored = self._consumers.under_way(group.group_id)
        if decision.records:
            stored = self._consumers.store(group.group_id, decision.records)
            if has_failed(stored):
                return decision.answer, stored
        self._consumers.is_looked_at(group.group_id)
        if decision.is_target_due:
            self._consumers.targets.need(group.group_id)
        self._joined(group.group_id, after)
        return decision.answer, stored

    def _joined(self, group_id: GroupId, member: ModernMember) -> None:
        self._consumers.keep_session(group_id, member)
        self._alarms.cancel((group_id, Timer.JOIN, member.member_id))
        key = (group_id, Timer.SYNC, member.member_id)
        self._alarms.set(key, member.profile.rebalance_timeout_ms)

    def sync(self, group: ModernGroup, command: Sync) -> tuple[SyncAnswer, Stored]:
        try:
            answer = synced(group, command, self._catalog)
        except Refused as refused:
            member = group.member(command.member_id)
            if refused.reason is Reason.REBALANCE_IN_PROGRESS and member is not None:
                self._has_to_join(group.group_id, member)
            return SyncAnswer(refused=refused.reason), None
        self._alarms.cancel((group.group_id, Timer.SYNC, command.member_id))
        member = group.member(command.member_id)
        assert member is not None
        self._consumers.keep_session(group.group_id, member)
        return answer, self._consumers.under_way(group.group_id)

    def heartbeat(
        self, group: ModernGroup, member_id: MemberId, instance_id: str | None, generation: int
    ) -> None:
        """Raises what the member has to be told."""
        member = classic_member(group, member_id, instance_id, generation)
        self._consumers.keep_session(group.group_id, member)
        is_stale = self._consumers.is_stale(group.group_id)
        if has_to_join(group, member, is_stale=is_stale):
            self._has_to_join(group.group_id, member)
            raise Refused(Reason.REBALANCE_IN_PROGRESS)

    def _has_to_join(self, group_id: GroupId, member: ModernMember) -> None:
        """Its time counts from when it was told first."""
        key = (group_id, Timer.JOIN, member.member_id)
        if not self._alarms.is_set(key):
            self._alarms.set(key, member.profile.rebalance_timeout_ms)

    def leave(
        self, group: ModernGroup, departures: Sequence[Departure]
    ) -> tuple[list[Reason | None], Stored]:
        outcomes, leavers = leaving(group, departures)
        return outcomes, self._consumers.remove(group, leavers)
