"""Who is in a group and in which state it is: what every event of a group looks at or changes.

`Group` adds what the events do. Both are sans-IO: changes that the host has to carry out are
collected as effects.
"""

from collections.abc import Iterable, Mapping
from typing import Self

from penstock.groups.commands import (
    NO_MEMBER,
    GroupDescription,
    JoinAnswer,
    MemberDescription,
    MemberProtocol,
    SyncAnswer,
)
from penstock.groups.effects import Answer, CancelTimer, Effect, SetTimer, Ticket, Timer
from penstock.groups.members import Member, Members
from penstock.groups.records import GroupMetadata, GroupStored
from penstock.groups.settings import GroupSettings
from penstock.groups.subscriptions import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from penstock.groups.transitions import TRANSITIONS, GroupState
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId


class Membership:
    def __init__(self, group_id: GroupId, *, settings: GroupSettings, clock: Clock) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        # Empty while the group only commits offsets.
        self.protocol_type = ""
        self.protocol: str | None = None
        self.members = Members()
        self.state_timestamp_ms = clock.now_ms()
        # What this generation reads; None when that can't be known.
        self.topics: frozenset[str] | None = None
        # No member knows that it leads: this was a consumer group (KIP-848) before, without a
        # rebalance since then. So nobody looks for new partitions, either.
        self.is_leaderless = False
        self._settings = settings
        self._clock = clock
        self._effects: list[Effect] = []

    @classmethod
    def restored(
        cls, group_id: GroupId, metadata: GroupMetadata, *, settings: GroupSettings, clock: Clock
    ) -> Self:
        """A group as its last stored generation left it."""
        group = cls(group_id, settings=settings, clock=clock)
        group.generation = metadata.generation
        group.protocol_type = metadata.protocol_type
        group.protocol = metadata.protocol
        group.state_timestamp_ms = metadata.state_timestamp_ms
        group._restore_members(metadata)
        group.is_leaderless = bool(metadata.members) and metadata.leader is None
        group.topics = group._subscribed_topics()
        return group

    def _restore_members(self, metadata: GroupMetadata) -> None:
        for stored in metadata.members:
            member = Member(
                member_id=stored.member_id,
                instance_id=stored.instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                rebalance_timeout_ms=stored.rebalance_timeout_ms,
                session_timeout_ms=stored.session_timeout_ms,
                protocols=(MemberProtocol(metadata.protocol or "", stored.subscription),),
                assignment=stored.assignment,
            )
            self.members.add(member)
        if self.members:
            self.state = GroupState.STABLE
        if metadata.leader is not None and metadata.leader in self.members:
            self.members.leader = metadata.leader

    def adopt(self, members: Iterable[Member], *, generation: int, protocol_type: str) -> None:
        """The members of what was a group of another type."""
        assert not self.members
        for member in members:
            self.members.add(member)
        self.state, self.generation = GroupState.STABLE, generation
        self.protocol_type, self.protocol = protocol_type, self.members.select_protocol()
        self.topics = self._subscribed_topics()

    # What others may know and do

    @property
    def is_empty(self) -> bool:
        """Nobody is in it, though somebody may be about to be."""
        return self.state is GroupState.EMPTY

    @property
    def is_forgettable(self) -> bool:
        """Nobody is in it and nobody is about to be."""
        return self.state is GroupState.EMPTY and not self.members.pending

    def is_subscribed_to(self, topic: str) -> bool:
        """When in doubt a group of consumers is taken to be subscribed."""
        if self.topics is not None:
            return topic in self.topics
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def heartbeat(self, member_id: MemberId, instance_id: str | None, generation: int) -> int:
        """The session's length, to be counted from now; raises when this is not a member."""
        member = self._check_member(member_id, instance_id)
        self._check_generation(member, generation)
        return member.session_timeout_ms

    def check_commit(self, member_id: MemberId, instance_id: str | None, generation: int) -> None:
        """Raises unless offsets may be committed with these credentials now."""
        if generation < 0 and self.state is GroupState.EMPTY:
            return
        if generation < 0 and member_id == NO_MEMBER and instance_id is None:
            detail = f"group {self.group_id} has members, and only they may commit"
            raise Refused(Reason.UNKNOWN_MEMBER_ID, detail)
        member = self._check_member(member_id, instance_id)
        self._check_generation(member, generation)
        if self.state is GroupState.COMPLETING_REBALANCE:
            raise Refused(Reason.REBALANCE_IN_PROGRESS)

    def describe(self) -> GroupDescription:
        is_stable = self.state is GroupState.STABLE
        return GroupDescription(
            group_id=self.group_id,
            state=self.state.value,
            protocol_type=self.protocol_type,
            protocol=(self.protocol or "") if is_stable else "",
            members=tuple(
                MemberDescription(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    metadata=member.metadata(self.protocol) if is_stable else b"",
                    assignment=member.assignment,
                )
                for member in self.members
            ),
        )

    def validate(self) -> None:
        """Asserts what every sequence of events leaves true; for tests, which call it often."""
        members, state = self.members, self.state
        members.validate()
        if state is GroupState.EMPTY:
            assert not members, f"an empty group has {len(members)} members"
        if state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert members, "a generation of nobody"
            assert self.generation > 0
            assert self.protocol is not None
        if state is not GroupState.COMPLETING_REBALANCE:
            assert all(member.sync_ticket is None for member in members), "a sync waits in vain"

    # Checks

    def _check_member(self, member_id: MemberId, instance_id: str | None) -> Member:
        if instance_id is not None:
            existing = self.members.static_id(instance_id)
            if existing is not None and existing != member_id:
                detail = f"instance {instance_id} of group {self.group_id} is now {existing}"
                raise Refused(Reason.FENCED_INSTANCE_ID, detail)
            if existing is None:
                raise Refused(Reason.UNKNOWN_MEMBER_ID)
        member = self.members.get(member_id)
        if member is None:
            raise Refused(Reason.UNKNOWN_MEMBER_ID)
        return member

    def _check_generation(self, member: Member, generation: int) -> None:
        if generation not in (self.generation, member.own_generation):
            detail = f"group {self.group_id} is at generation {self.generation}"
            raise Refused(Reason.ILLEGAL_GENERATION, detail)

    # Changes

    def _enter(self, state: GroupState) -> None:
        assert (self.state, state) in TRANSITIONS, f"{self.state} -> {state}"
        self.state = state
        self.state_timestamp_ms = self._clock.now_ms()

    def _remove(self, member: Member) -> None:
        """What it waited for is answered, so that its client joins again if it is still there."""
        unknown = Reason.UNKNOWN_MEMBER_ID
        self._answer_join(member, JoinAnswer(refused=unknown))
        self._answer_sync(member, SyncAnswer(refused=unknown))
        self._cancel_timer(Timer.SESSION, member.member_id)
        self.members.remove(member)

    def _forget_pending(self, member_id: MemberId) -> None:
        self.members.pending.discard(member_id)
        self._cancel_timer(Timer.SESSION, member_id)

    def generation_record(self, assignments: Mapping[str, bytes] | None = None) -> GroupStored:
        """This generation with these assignments, or with the ones that its members have."""
        members = tuple(
            member.stored(
                self.protocol,
                member.assignment
                if assignments is None
                else assignments.get(member.member_id, b""),
            )
            for member in self.members
        )
        metadata = GroupMetadata(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol,
            leader=None if self.is_leaderless else self.members.leader,
            state_timestamp_ms=self.state_timestamp_ms,
            members=members,
        )
        return GroupStored(self.group_id, metadata)

    def _topics_of(self, member: Member) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or self.protocol is None:
            return None
        return subscribed_topics(member.metadata(self.protocol))

    def _subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        topics: set[str] = set()
        for member in self.members:
            found = self._topics_of(member)
            if found is None:
                return None
            topics |= found
        return frozenset(topics)

    # Effects

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _answer(self, ticket: Ticket, answer: JoinAnswer | SyncAnswer) -> None:
        self._effects.append(Answer(ticket, answer))

    def _answer_join(self, member: Member, answer: JoinAnswer) -> None:
        ticket = self.members.take_join(member)
        if ticket is not None:
            self._answer(ticket, answer)

    def _answer_sync(self, member: Member, answer: SyncAnswer) -> None:
        ticket, member.sync_ticket = member.sync_ticket, None
        if ticket is not None:
            self._answer(ticket, answer)
            # It was excused from heartbeats while it waited, so its session starts again.
            self._reset_session(member)

    def _reset_session(self, member: Member) -> None:
        self._set_timer(Timer.SESSION, member.session_timeout_ms, member.member_id)

    def _set_timer(self, timer: Timer, delay_ms: int, member_id: MemberId = NO_MEMBER) -> None:
        self._effects.append(SetTimer(timer, delay_ms, member_id))

    def _cancel_timer(self, timer: Timer, member_id: MemberId = NO_MEMBER) -> None:
        self._effects.append(CancelTimer(timer, member_id))
