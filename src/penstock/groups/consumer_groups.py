"""Runs the consumer groups (KIP-848) of one coordinator, and moves groups between the protocols."""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar

from penstock.groups.commands import ConsumerAnswer, ConsumerDescription, ConsumerHeartbeat
from penstock.groups.consumer_decisions import (
    Decision,
    Surroundings,
    decide_heartbeat,
    decide_leave,
    only_lives,
)
from penstock.groups.consumer_reads import describe
from penstock.groups.conversions import downgraded, is_classic_after, is_settled, upgraded
from penstock.groups.effects import Timer
from penstock.groups.group import Group
from penstock.groups.modern_group import ModernGroup
from penstock.groups.modern_groups import ModernGroups, has_failed
from penstock.groups.modern_records import GroupKind
from penstock.groups.records import GroupRecord, GroupRemoved
from penstock.model.ids import GroupId, MemberId

logger = logging.getLogger(__name__)


class ConsumerGroups(ModernGroups[ModernGroup, ConsumerHeartbeat]):
    kind: ClassVar = GroupKind.CONSUMER

    def __init__(self, *, become_classic: Callable[[Group, bool], None], **common: Any) -> None:
        super().__init__(**common)
        self._become_classic = become_classic
        # When the expressions of a group were looked up last, by the clock's seconds.
        self._looked_up: dict[GroupId, float] = {}

    def stop(self) -> None:
        super().stop()
        self._looked_up.clear()

    def decide(
        self, group: ModernGroup, command: ConsumerHeartbeat, before: Sequence[GroupRecord] = ()
    ) -> tuple[ConsumerAnswer, asyncio.Future[None] | None]:
        group_id, member_id = command.group_id, command.member_id
        has_news = before or group_id in self._stale or group.subscribed_expressions()
        if has_news or not only_lives(group, command):
            return super().decide(group, command, before)
        settings = self._settings_of(group_id)
        session_ms = settings.consumer_session_timeout_ms
        self._alarms.set((group_id, Timer.SESSION, member_id), session_ms)
        interval_ms = settings.consumer_heartbeat_interval_ms
        answer = ConsumerAnswer(
            member_id=member_id,
            member_epoch=command.member_epoch,
            heartbeat_interval_ms=interval_ms,
        )
        return answer, self.under_way(group_id)

    def _decide(
        self, group: ModernGroup, command: ConsumerHeartbeat, around: Surroundings
    ) -> Decision:
        decide = decide_leave if command.member_epoch < 0 else decide_heartbeat
        return decide(group, command, around)

    def _before(self, group: ModernGroup) -> None:
        self._refresh_expressions(group)

    def _refresh_expressions(self, group: ModernGroup) -> None:
        """What expressions match is also looked up after a while in which no topic has changed."""
        if not group.subscribed_expressions():
            return
        group_id, now = group.group_id, self._clock.monotonic()
        interval_s = self._settings_of(group_id).consumer_regex_refresh_interval_ms / 1000
        if group_id in self._stale or group_id not in self._looked_up:
            self._looked_up[group_id] = now
        elif now - self._looked_up[group_id] >= interval_s:
            self._looked_up[group_id] = now
            self._stale.add(group_id)

    def remove(
        self, group: ModernGroup, leavers: Collection[MemberId]
    ) -> asyncio.Future[None] | None:
        """If only members of the classic protocol are left, so is the group."""
        if leavers and is_classic_after(group, leavers, self.surroundings(group.group_id)):
            return self.downgrade(group, group, leavers)
        return super().remove(group, leavers)

    def describe(self, group: ModernGroup) -> ConsumerDescription:
        return describe(group, tuple(self._assignors))

    # Between the protocols

    def upgrade(
        self, classic: Group, command: ConsumerHeartbeat
    ) -> tuple[ConsumerAnswer, asyncio.Future[None] | None]:
        """A classic group gets its first member of the new protocol. Once this returns without a
        failed write, the classic one is over."""
        group_id = command.group_id
        group = upgraded(classic, self.surroundings(group_id))
        is_stored = self._host.state.metadata(group_id) is not None
        ended = [GroupRemoved(group_id)] if is_stored else []
        self._stale.add(group_id)
        answer, stored = self.decide(group, command, (*ended, *group.records()))
        assert stored is not None
        if not has_failed(stored):
            logger.info("group %s is a consumer group from now on", group_id)
        return answer, stored

    def upgrade_done(self, group_id: GroupId) -> None:
        """The timers of the classic group are gone."""
        group = self._host.state.modern(group_id)
        if group is not None:
            self._start_timers(group)

    def downgrade(
        self, group: ModernGroup, after: ModernGroup, leavers: Collection[MemberId]
    ) -> asyncio.Future[None]:
        """Without these members, `group` is of the classic protocol again; `after` is what it has
        become until then."""
        group_id = group.group_id
        settings = self._settings_of(group_id)
        classic = downgraded(after, leavers, self._catalog, settings=settings, clock=self._clock)
        classic.is_leaderless = True
        member_ids = [*group.profiles]
        stored = self.store(group_id, (*group.removal(), classic.generation_record()))
        if not has_failed(stored):
            logger.info("group %s is a classic group from now on", group_id)
            self._stale.discard(group_id)
            self._cancel_timers(group_id, member_ids)
            self._become_classic(classic, not leavers and is_settled(after))
        return stored
