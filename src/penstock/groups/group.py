"""One group between two stored generations: who joins, syncs, leaves, and what follows from it.

Sans-IO: an event goes in, effects come out; the coordinator answers, keeps the time and stores.
Only generations are replicated (`state.py`); what is here can be lost, and members then join again.
The rules are Kafka's classic protocol, with these differences:

- a parked request that its own client repeats is answered instead of being forgotten;
- a static member that comes back with other topics starts a rebalance even when the chosen protocol
  stays the same, since the leader would never learn of them otherwise;
- a pending member that leaves starts no rebalance, since it was never in one;
- a group that was never stable is not stored.
"""

from penstock.groups.commands import (
    NO_MEMBER,
    Departure,
    Join,
    JoinAnswer,
    JoinedMember,
    Sync,
    SyncAnswer,
)
from penstock.groups.effects import Effect, Purpose, Store, Ticket, Timer
from penstock.groups.members import Member
from penstock.groups.membership import Membership
from penstock.groups.settings import GroupSettings
from penstock.groups.transitions import CAN_REBALANCE, GroupState
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

# A rebalance that nobody came to is tried again; members may ask for no timeout at all.
RETRY_MS_MIN = 1_000


class Group(Membership):
    """Public methods return the effects of what they did, in the order to carry them out."""

    def __init__(self, group_id: GroupId, *, settings: GroupSettings, clock: Clock) -> None:
        super().__init__(group_id, settings=settings, clock=clock)
        # The first rebalance of an empty group waits for more members, at most this much longer.
        self._is_first_rebalance = False
        self._first_rebalance_left_ms = 0
        self._joined_while_waiting = False
        self._is_storing_assignment = False

    def start_sessions(self, *, is_settled: bool = False) -> list[Effect]:
        """After a restart every member has a whole session to be heard of again."""
        for member in self.members:
            self._reset_session(member)
        is_due = self.is_leaderless and not is_settled
        if is_due or len(self.members) > self._settings.members_max:
            self._prepare_rebalance()
        return self._take_effects()

    def topic_changed(self, topic: str) -> list[Effect]:
        """Leaders look at the topics themselves, so this is for a group without one."""
        if self.is_leaderless and self.state is STABLE and self.is_subscribed_to(topic):
            self._prepare_rebalance()
        return self._take_effects()

    # Joining

    def join(self, command: Join, ticket: Ticket, new_member_id: MemberId) -> list[Effect]:
        """`new_member_id` is for a member that has none yet."""
        member_id = command.member_id
        if not self._has_room_for(command):
            self._turn_away(member_id)
            self._refuse_join(ticket, Reason.GROUP_MAX_SIZE_REACHED, NO_MEMBER)
        elif not self._supports(command):
            self._refuse_join(ticket, Reason.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif member_id == NO_MEMBER:
            self._join_as_new(command, ticket, new_member_id)
        elif member_id in self.members.pending and command.instance_id is None:
            self._add(command, ticket, member_id)
        else:
            self._join_again(command, ticket)
        return self._take_effects()

    def _has_room_for(self, command: Join) -> bool:
        limit = self._settings.members_max
        if command.member_id == NO_MEMBER and len(self.members.pending) >= limit:
            return False
        if self.state is EMPTY:
            return True
        member = self._member_of(command)
        if self.state is PREPARING:
            # Those that wait are counted, not the members: a limit that was lowered then takes
            # effect by leaving out the last ones to come back.
            is_waiting = member is not None and member.join_ticket is not None
            return is_waiting or self.members.joining < limit
        return member is not None or len(self.members) < limit

    def _member_of(self, command: Join) -> Member | None:
        """The member that joins again, or the one that a static member takes the place of."""
        member_id = command.member_id
        if member_id == NO_MEMBER and command.instance_id is not None:
            member_id = self.members.static_id(command.instance_id) or NO_MEMBER
        return self.members.get(member_id)

    def _turn_away(self, member_id: MemberId) -> None:
        """Also out of the group, when there is no room for it to come back."""
        member = self.members.get(member_id)
        if member is not None:
            self._remove(member)
        self._forget_pending(member_id)
        self._complete_join_if_ready()

    def _refuse_join(self, ticket: Ticket, refused: Reason, member_id: MemberId) -> None:
        self._answer(ticket, JoinAnswer(refused=refused, member_id=member_id))

    def _supports(self, command: Join) -> bool:
        names = [name for name, _ in command.protocols]
        if self.state is EMPTY:
            return bool(command.protocol_type and names)
        return command.protocol_type == self.protocol_type and self.members.support_any(names)

    def _join_as_new(self, command: Join, ticket: Ticket, new_member_id: MemberId) -> None:
        if command.instance_id is not None:
            existing = self.members.static_id(command.instance_id)
            if existing is not None:
                self._replace_static(command, ticket, self.members[existing], new_member_id)
            else:
                self._add(command, ticket, new_member_id)
        elif command.takes_member_id:
            self.members.pending.add(new_member_id)
            self._set_timer(Timer.SESSION, command.session_timeout_ms, new_member_id)
            self._refuse_join(ticket, Reason.MEMBER_ID_REQUIRED, new_member_id)
        else:
            self._add(command, ticket, new_member_id)

    def _add(self, command: Join, ticket: Ticket, member_id: MemberId) -> None:
        if not self.members:
            self.protocol_type = command.protocol_type
        if self._is_first_rebalance:
            self._joined_while_waiting = True
        member = Member(
            member_id=member_id,
            instance_id=command.instance_id,
            client_id=command.client_id,
            client_host=command.client_host,
            rebalance_timeout_ms=command.rebalance_timeout_ms,
            session_timeout_ms=command.session_timeout_ms,
            protocols=command.protocols,
            is_new=True,
            join_ticket=ticket,
        )
        self.members.add(member)
        self._set_timer(Timer.SESSION, self._settings.new_member_join_timeout_ms, member_id)
        self._rebalance()

    def _join_again(self, command: Join, ticket: Ticket) -> None:
        try:
            member = self._check_member(command.member_id, command.instance_id)
        except Refused as refused:
            self._refuse_join(ticket, refused.reason, command.member_id)
            return
        is_changed = member.protocols != command.protocols
        is_leader = member.member_id == self.members.leader
        if self.state is PREPARING or is_changed or (self.state is STABLE and is_leader):
            # A leader that joins again wants a rebalance, be it for topics that only it sees.
            self._update(member, command, ticket)
            self._rebalance()
        else:
            # It may not have received the answer to its last join.
            tells_members = is_leader and self.state is COMPLETING
            self._answer(ticket, self._joined(member, tells_members=tells_members))

    def _update(self, member: Member, command: Join, ticket: Ticket) -> None:
        # Its client has given up on the request that waits, else it would not have sent another.
        self._answer_join(member, JoinAnswer(refused=Reason.REBALANCE_IN_PROGRESS))
        self.members.set_protocols(member, command.protocols)
        member.rebalance_timeout_ms = command.rebalance_timeout_ms
        member.session_timeout_ms = command.session_timeout_ms
        self.members.park_join(member, ticket)

    def _replace_static(
        self, command: Join, ticket: Ticket, member: Member, new_member_id: MemberId
    ) -> None:
        """KIP-345: the instance continues under a new id, and who had the old one is fenced."""
        leader_before = self.members.leader
        topics_before = self._topics_of(member)
        fenced = Reason.FENCED_INSTANCE_ID
        self._answer_join(member, JoinAnswer(refused=fenced, member_id=member.member_id))
        self._answer_sync(member, SyncAnswer(refused=fenced))
        self._cancel_timer(Timer.SESSION, member.member_id)
        self.members.rename(member, new_member_id)
        # Its place in the group is not new, so while it waits its session can't end it.
        member.is_new = False
        member.client_id, member.client_host = command.client_id, command.client_host
        self._update(member, command, ticket)
        self._reset_session(member)
        if self.state is STABLE and not self._would_change(member, topics_before):
            self._effects.append(
                Store(
                    record=self.generation_record(),
                    purpose=Purpose.REPLACED,
                    member_id=new_member_id,
                    ticket=ticket,
                    leader_before=leader_before,
                    can_skip_assignment=command.can_skip_assignment,
                )
            )
        else:
            self._rebalance()

    def _would_change(self, member: Member, topics_before: frozenset[str] | None) -> bool:
        """Whether the next generation would differ because of this member."""
        if self.members.select_protocol() != self.protocol:
            return True
        return self._topics_of(member) != topics_before

    # The join phase

    def _rebalance(self) -> None:
        if self.state in CAN_REBALANCE:
            self._prepare_rebalance()
        else:
            self._complete_join_if_ready()

    def _prepare_rebalance(self) -> None:
        if self.state is COMPLETING:
            self._reset_assignments(Reason.REBALANCE_IN_PROGRESS)
        self.members.unsynced.clear()
        self._cancel_timer(Timer.SYNC)
        if self.state is EMPTY:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._is_first_rebalance = True
            self._joined_while_waiting = False
            self._first_rebalance_left_ms = max(self.members.rebalance_timeout_ms - delay_ms, 0)
            self._set_timer(Timer.JOIN, delay_ms)
            self._enter(PREPARING)
            return
        self._enter(PREPARING)
        self._set_timer(Timer.JOIN, self.members.rebalance_timeout_ms)
        self._complete_join_if_ready()

    def _complete_join_if_ready(self) -> None:
        is_waiting = self.state is PREPARING and not self._is_first_rebalance
        if is_waiting and self.members.all_joined:
            self._complete_join()

    def _expire_join(self) -> None:
        if self.state is not PREPARING:
            return
        if self._joined_while_waiting and self._first_rebalance_left_ms:
            delay_ms = min(self._settings.initial_rebalance_delay_ms, self._first_rebalance_left_ms)
            self._joined_while_waiting = False
            self._first_rebalance_left_ms -= delay_ms
            self._set_timer(Timer.JOIN, delay_ms)
        else:
            self._complete_join()

    def _complete_join(self) -> None:
        self._cancel_timer(Timer.JOIN)
        # Static members keep their place until their session ends: they may be restarting.
        gone = [m for m in self.members if m.join_ticket is None and m.instance_id is None]
        for member in gone:
            self._remove(member)
        if self.members and not self.members.elect_joined_leader():
            # Only static members are left and none is back; their sessions will end it.
            self._set_timer(Timer.JOIN, max(self.members.rebalance_timeout_ms, RETRY_MS_MIN))
            return
        self._is_first_rebalance = self._joined_while_waiting = False
        self.is_leaderless = False
        self.generation += 1
        self.protocol = self.members.select_protocol() if self.members else None
        self.topics = self._subscribed_topics()
        self._enter(COMPLETING if self.members else EMPTY)
        if self.members:
            self._answer_joins()
        else:
            self._effects.append(Store(record=self.generation_record(), purpose=Purpose.EMPTIED))

    def _answer_joins(self) -> None:
        self.members.unsynced.update(self.members.ids())
        for member in self.members:
            is_leader = member.member_id == self.members.leader
            self._answer_join(member, self._joined(member, tells_members=is_leader))
            member.is_new, member.own_generation = False, None
            self._reset_session(member)
        self._set_timer(Timer.SYNC, self.members.rebalance_timeout_ms)

    def _joined(self, member: Member, *, tells_members: bool) -> JoinAnswer:
        return JoinAnswer(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.members.leader or NO_MEMBER,
            members=self._joined_members() if tells_members else (),
        )

    def _joined_members(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol))
            for member in self.members
        )

    # The sync phase

    def sync(self, command: Sync, ticket: Ticket) -> list[Effect]:
        try:
            member = self._check_sync(command)
        except Refused as refused:
            self._answer(ticket, SyncAnswer(refused=refused.reason))
            return self._take_effects()
        self.members.unsynced.discard(member.member_id)
        if not self.members.unsynced:
            self._cancel_timer(Timer.SYNC)
        if self.state is STABLE:
            self._answer(ticket, self._synced(member))
        else:
            self._answer_sync(member, SyncAnswer(refused=Reason.REBALANCE_IN_PROGRESS))
            member.sync_ticket = ticket
            if member.member_id == self.members.leader and not self._is_storing_assignment:
                self._assign(command)
        return self._take_effects()

    def _assign(self, command: Sync) -> None:
        """Takes what the leader has decided; the members get it once it is stored."""
        record = self.generation_record(command.assignments)
        if record.metadata.size > self._settings.generation_bytes_max:
            self._reset_assignments(Reason.UNKNOWN_SERVER_ERROR)
            self._rebalance()
            return
        self._is_storing_assignment = True
        self._effects.append(Store(record=record, purpose=Purpose.ASSIGNED))

    def _check_sync(self, command: Sync) -> Member:
        member = self._check_member(command.member_id, command.instance_id)
        self._check_generation(member, command.generation)
        for said, known in (
            (command.protocol_type, self.protocol_type),
            (command.protocol, self.protocol),
        ):
            if said is not None and said != known:
                raise Refused(Reason.INCONSISTENT_GROUP_PROTOCOL)
        if self.state is PREPARING:
            raise Refused(Reason.REBALANCE_IN_PROGRESS)
        return member

    def stored(self, store: Store, refused: Reason | None) -> list[Effect]:
        """How a `Store` ended; `refused` when it is not durable and will not be."""
        if store.purpose is Purpose.ASSIGNED:
            self._assignment_stored(store, refused)
        elif store.purpose is Purpose.REPLACED:
            self._replacement_stored(store, refused)
        return self._take_effects()

    def _assignment_stored(self, store: Store, refused: Reason | None) -> None:
        metadata = store.record.metadata
        # Another rebalance may have begun meanwhile; the members were told then.
        if self.state is not COMPLETING or metadata.generation != self.generation:
            return
        if refused is not None:
            self._reset_assignments(refused)
            self._rebalance()
            return
        self._is_storing_assignment = False
        for stored in metadata.members:
            member = self.members[stored.member_id]
            member.assignment = stored.assignment
            self._answer_sync(member, self._synced(member))
        self._enter(STABLE)

    def _replacement_stored(self, store: Store, refused: Reason | None) -> None:
        member = self.members.get(store.member_id)
        if member is None or member.join_ticket is not store.ticket:
            return
        if refused is not None:
            self._answer_join(member, JoinAnswer(refused=refused))
            self._reset_session(member)
        elif self.state is STABLE:
            self._answer_join(member, self._joined_without_rebalance(member, store))
            self._reset_session(member)

    def _joined_without_rebalance(self, member: Member, store: Store) -> JoinAnswer:
        """A leader that came back must not assign: the group would not take it (KIP-814).

        Clients that can't be told so are given the leader's old id, so that they do not see
        themselves in it.
        """
        is_leader = member.member_id == self.members.leader
        skips = is_leader and store.can_skip_assignment
        leader = self.members.leader if store.can_skip_assignment else store.leader_before
        return JoinAnswer(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=leader or NO_MEMBER,
            skip_assignment=skips,
            members=self._joined_members() if skips else (),
        )

    def _synced(self, member: Member) -> SyncAnswer:
        return SyncAnswer(
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            assignment=member.assignment,
        )

    def _reset_assignments(self, refused: Reason) -> None:
        self._is_storing_assignment = False
        for member in self.members:
            member.assignment = b""
            self._answer_sync(member, SyncAnswer(refused=refused))

    def _expire_sync(self) -> None:
        if self.state not in (COMPLETING, STABLE) or not self.members.unsynced:
            return
        for member_id in list(self.members.unsynced):
            self._remove(self.members[member_id])
        self._prepare_rebalance()

    # Leaving

    def leave(self, departures: list[Departure]) -> tuple[list[Reason | None], list[Effect]]:
        """For each who leaves the reason why it can't, or None."""
        members_before = len(self.members)
        outcomes = [self._leave_one(departure) for departure in departures]
        if len(self.members) < members_before:
            self._rebalance()
        elif None in outcomes:
            self._complete_join_if_ready()
        return outcomes, self._take_effects()

    def _leave_one(self, departure: Departure) -> Reason | None:
        member_id, instance_id, _ = departure
        if member_id == NO_MEMBER:
            # An operator removes a static member without knowing its present id.
            found = self.members.static_id(instance_id) if instance_id is not None else None
            if found is None:
                return Reason.UNKNOWN_MEMBER_ID
            self._remove(self.members[found])
        elif member_id in self.members.pending:
            self._forget_pending(member_id)
        else:
            try:
                self._remove(self._check_member(member_id, instance_id))
            except Refused as refused:
                return refused.reason
        return None

    # Time

    def expire(self, timer: Timer, member_id: MemberId) -> list[Effect]:
        """A timer that this group had set has fired."""
        if timer is Timer.JOIN:
            self._expire_join()
        elif timer is Timer.SYNC:
            self._expire_sync()
        else:
            self._expire_session(member_id)
        return self._take_effects()

    def _expire_session(self, member_id: MemberId) -> None:
        member = self.members.get(member_id)
        if member_id in self.members.pending:
            self._forget_pending(member_id)
            self._complete_join_if_ready()
        elif member is not None and not member.is_excused:
            self._remove(member)
            self._rebalance()

    def close(self, refused: Reason = Reason.NOT_COORDINATOR) -> list[Effect]:
        """The group is deleted, or coordinated elsewhere from now on, or of another type."""
        for member in self.members:
            self._answer_join(member, JoinAnswer(refused=refused, member_id=member.member_id))
            self._answer_sync(member, SyncAnswer(refused=refused))
        for member_id in (*self.members.ids(), *self.members.pending):
            self._cancel_timer(Timer.SESSION, member_id)
        self._cancel_timer(Timer.JOIN)
        self._cancel_timer(Timer.SYNC)
        self._enter(DEAD)
        return self._take_effects()
