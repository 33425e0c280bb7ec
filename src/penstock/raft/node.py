"""One replica of a Raft group: events go in through methods, effects come out of `ready`.

The host calls one method at a time and then takes the `Ready`. It may carry out several writes
one after the other without waiting; whatever depends on them leaves the core only after the
`persisted` that makes it true. There is no clock here, no disk, no socket and no randomness.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Never

from penstock.model.ids import NO_END, BrokerId, LogEnd, LogIndex, ReplicaId, Term
from penstock.raft.core import Core, HasRoom, RandomBelow, Throttle
from penstock.raft.entries import NO_INDEX, EntryKind, HardState, Snapshot
from penstock.raft.follower import Follower
from penstock.raft.leader import Leader
from penstock.raft.log_view import LogView, RaftLog
from penstock.raft.membership import Change, Membership, MembershipHistory, MembershipStep
from penstock.raft.messages import (
    AppendRejection,
    AppendRequest,
    AppendResponse,
    CommitNotice,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    PeerFault,
    StaleTerm,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.progress import ProgressState
from penstock.raft.quorum import Stuck
from penstock.raft.ready import Leadership, ReadState, Ready, Refusal, Role, Write
from penstock.raft.roles import Roles
from penstock.raft.settings import RaftSettings

NOTHING: tuple[Never, ...] = ()
# The last four fields of a Ready.
News = tuple[Sequence[ReadState], Sequence[Hashable], Leadership | None, Membership | None]
NO_NEWS: News = ((), (), None, None)


class ReplicaStatus(NamedTuple):
    """What a leader knows about a member, for in-sync sets and for operators."""

    replica: ReplicaId
    is_voter: bool
    match_index: LogIndex
    state: ProgressState
    recently_active: bool


class RaftNode:
    __slots__ = (
        "_core",
        "_follower",
        "_reported_apply_index",
        "_reported_commit_index",
        "_reported_leadership",
        "_reported_membership",
        "_roles",
        "_touched",
    )

    def __init__(
        self,
        *,
        replica: ReplicaId,
        settings: RaftSettings,
        log: LogView,
        hard_state: HardState,
        memberships: Iterable[MembershipStep],
        random_below: RandomBelow,
        commit_index: LogIndex = NO_INDEX,
        has_room: HasRoom = lambda _: True,
        lost_end: LogEnd = NO_END,
        accepted_end: LogEnd = NO_END,
    ) -> None:
        """`memberships`: the newest committed one and all after it; older ones do no harm.

        `lost_end`: where the log ended before it lost its tail; `accepted_end`: what an operator
        gave up of what is missing everywhere.

        A follower that `has_room` says no of is sent no entries; once there is room, an answer to
        a heartbeat is soon enough.
        """
        self._core = Core(
            replica=replica,
            settings=settings,
            log=RaftLog(log),
            hard_state=hard_state,
            memberships=MembershipHistory(memberships),
            commit_index=LogIndex(max(commit_index, log.first_index - 1)),
            random_below=random_below,
            has_room=has_room,
            lost_end=lost_end,
            accepted_end=accepted_end,
        )
        self._follower = Follower(self._core)
        self._roles = Roles(self._core)
        # Whether anything happened since the last Ready: most calls find that nothing did.
        self._touched = True
        self._reported_leadership = Leadership(hard_state.term, Role.FOLLOWER, None)
        self._reported_membership = self._core.memberships.current
        self._reported_commit_index = self._core.commit_index
        self._reported_apply_index = NO_INDEX

    # What the host may ask at any time

    @property
    def id(self) -> ReplicaId:
        return self._core.id

    @property
    def term(self) -> Term:
        return self._core.term

    @property
    def role(self) -> Role:
        return self._roles.role

    @property
    def leader(self) -> ReplicaId | None:
        return self._core.leader

    def validate(self) -> None:
        """Asserts what every step leaves true; for tests, which call it often."""
        self._core.validate()
        leads = self.role is Role.LEADER
        assert leads == (self._roles.leader is not None)
        assert leads == (self.leader == self.id), "only a leader follows itself"

    @property
    def membership(self) -> Membership:
        return self._core.memberships.current

    @property
    def is_membership_committed(self) -> bool:
        """Until then, what is committed may be held by a majority of the members before alone."""
        return self._core.memberships.current_index <= self._core.commit_index

    @property
    def commit_index(self) -> LogIndex:
        return self._core.commit_index

    @property
    def last_index(self) -> LogIndex:
        return self._core.log.last_index

    @property
    def stable_index(self) -> LogIndex:
        """Everything up to here is durable on this replica."""
        return self._core.log.stable_index

    @property
    def stuck(self) -> Stuck | None:
        """Why nobody may lead, if the last round of voting showed that nobody may."""
        return self._core.stuck

    def is_whole_again(self) -> None:
        """The log has everything again that it lost, or nobody else can have it."""
        self._core.lost_end = self._core.accepted_end = NO_END

    @property
    def has_work(self) -> bool:
        """Whether there may be anything to take from `ready`."""
        return self._touched

    @property
    def has_committed_in_term(self) -> bool:
        """Whether a leader knows its commit index: before, it may be behind an earlier one's."""
        return self._roles.leader is not None and self._roles.leader.has_committed_in_term()

    def is_caught_up(self, replica: ReplicaId) -> bool:
        """Whether a learner may be promoted."""
        return self._roles.leader is not None and self._roles.leader.is_caught_up(replica)

    def replicas(self) -> list[ReplicaStatus]:
        """Every other member as its leader sees it; empty elsewhere."""
        if self._roles.leader is None:
            return []
        voters = self._core.memberships.current.voters
        return [
            ReplicaStatus(
                peer.replica,
                peer.replica in voters,
                LogIndex(peer.match_index),
                peer.state,
                peer.is_active,
            )
            for peer in self._roles.leader.replication.peers
        ]

    # Requests

    def propose(self, payload: object, size_bytes: int, span: int = 1) -> LogIndex | Refusal:
        """Appends data that covers `span` indices; gives the last of them: it is committed when
        the commit index reaches that, if it ever does."""
        leader = self._roles.leader
        if leader is None:
            return Refusal.NOT_LEADER
        assert span >= 1
        self._touched = True
        return leader.propose(payload, size_bytes, span)

    def propose_own(self, kind: EntryKind, payload: object) -> LogIndex | Refusal:
        """Appends an entry that covers one index and is not data: the host's LOG_START."""
        assert kind is EntryKind.LOG_START, "the core proposes the others itself"
        leader = self._touched_leader()
        return Refusal.NOT_LEADER if leader is None else leader.propose_own(kind, payload)

    def change_membership(self, change: Change) -> LogIndex | Refusal:
        leader = self._touched_leader()
        return Refusal.NOT_LEADER if leader is None else leader.change_membership(change)

    def read(self, context: Hashable) -> Refusal | None:
        """Asks for a linearizable read; `Ready.reads` or `reads_refused` will name `context`."""
        leader = self._touched_leader()
        return Refusal.NOT_LEADER if leader is None else leader.read(context)

    def transfer(self, target: ReplicaId) -> Refusal | None:
        """Hands leadership to `target` once it has everything; gives up after a time-out."""
        leader = self._touched_leader()
        return Refusal.NOT_LEADER if leader is None else leader.transfer(target)

    def resign(self) -> None:
        """Steps down at once, for a reason that the host knows, and names a successor."""
        leader = self._touched_leader()
        if leader is not None:
            self._roles.retire(leader)

    def campaign(self) -> None:
        """Stands for election without waiting for the timer, as a new group's first replica."""
        self._touched = True
        self._roles.campaign()

    # Time, and heartbeats that the host exchanges for all groups of a pair of nodes

    def tick(self) -> bool:
        """One unit of time passed; says whether there may be anything to take from `ready`."""
        if self._roles.tick():
            self._touched = True
        return self._touched

    def heartbeat_received(self, sender: ReplicaId, term: Term) -> bool:
        """`sender` says that it leads in `term`; False if that is not the leader known here."""
        core = self._core
        if core.hard_state.term != term or core.leader != sender or self._roles.leader is not None:
            return False
        self._roles.heard_from_leader()
        return True

    def heartbeat_acknowledged(self, sender: ReplicaId, term: Term) -> bool:
        """`sender` accepted our heartbeat for `term`; counts only while we lead in that term."""
        leader = self._roles.leader
        if leader is None or self._core.hard_state.term != term:
            return False
        if leader.on_host_heartbeat_acknowledged(sender):
            self._touched = True
        return True

    def heartbeat_refused(self, sender: ReplicaId, term: Term) -> bool:
        """`sender` does not know us as its leader, so a heartbeat of this group introduces us."""
        if self._roles.leader is None or self._core.hard_state.term != term:
            return False
        self._touched = True
        self._roles.introduce_to(sender)
        return True

    def leader_lost(self, node: BrokerId, turn: int = 0) -> None:
        """The host knows that the process of `node` is gone. If it led, nobody has to wait for a
        time-out; being wrong about it costs an election, not safety. `turn`, the same on every
        replica of a group, shifts who stands first, so that it is not one node for all groups."""
        if self._roles.leader is not None:
            self._roles.leader.replication.process_lost(node)
        elif self._roles.leader_lost(node, turn):
            self._touched = True

    def unreachable(self, replica: ReplicaId) -> None:
        """Messages to `replica` may have been lost."""
        leader = self._touched_leader()
        if leader is not None:
            leader.replication.unreachable(replica)

    def entries_arrived(self) -> None:
        """What was not at hand for a follower can be had now."""
        self._touched = True

    def throttle_by(self, throttle: Throttle | None) -> None:
        """Bounds what followers that catch up are sent from now on."""
        self._core.throttle = throttle
        self._touched = True

    # Snapshots that go to followers

    def send_snapshot(self, replica: ReplicaId, snapshot: Snapshot) -> None:
        """The host has made what `Ready.snapshots_wanted` asked for."""
        leader = self._touched_leader()
        if leader is not None:
            leader.replication.send_snapshot(replica, snapshot)

    def snapshot_failed(self, replica: ReplicaId) -> None:
        leader = self._touched_leader()
        if leader is not None:
            leader.replication.snapshot_failed(replica)

    def _touched_leader(self) -> Leader | None:
        self._touched = True
        return self._roles.leader

    # Messages

    def step(self, message: Message) -> None:
        """Takes a message of another replica; raises PeerFault for what none should send."""
        core = self._core
        if message.to != core.id:
            raise PeerFault(f"a message for {message.to} reached {core.id}")
        self._touched = True
        if message.term == core.hard_state.term or self._roles.adopts_term(message):
            _HANDLERS[type(message)](self, message)

    def _on_vote_request(self, message: VoteRequest) -> None:
        self._roles.on_vote_request(message)

    def _on_vote_response(self, message: VoteResponse) -> None:
        self._roles.on_vote_response(message)

    def _on_timeout_now(self, message: TimeoutNow) -> None:
        self._roles.on_timeout_now(message)

    def _on_append(self, message: AppendRequest) -> None:
        self._roles.accept_leader(message)
        self._follower.on_append(message)

    def _on_heartbeat(self, message: Heartbeat) -> None:
        self._roles.accept_leader(message)
        self._follower.on_heartbeat(message)

    def _on_commit_notice(self, message: CommitNotice) -> None:
        self._roles.accept_leader(message)
        self._follower.on_commit_notice(message)

    def _on_snapshot(self, message: InstallSnapshot) -> None:
        self._roles.accept_leader(message)
        self._follower.on_snapshot(message)

    def _on_append_response(self, message: AppendResponse) -> None:
        if self._roles.leader is not None:
            self._roles.leader.on_append_response(message)

    def _on_append_rejection(self, message: AppendRejection) -> None:
        if self._roles.leader is not None:
            self._roles.leader.on_append_rejection(message)

    def _on_heartbeat_response(self, message: HeartbeatResponse) -> None:
        if self._roles.leader is not None:
            self._roles.leader.on_heartbeat_response(message)

    def _on_stale_term(self, message: StaleTerm) -> None:
        """Its term was all that it had to say."""

    # Effects

    def persisted(self, number: int) -> None:
        """Every write up to `number` is durable, and the host's log shows it."""
        core = self._core
        self._touched = True
        core.log.persisted(number)
        for message in core.outbox.release(number, core.hard_state.term):
            if message.to == core.id:
                self.step(message)
            else:
                core.outbox.send(message)
        if self._roles.leader is not None:
            self._roles.leader.on_persisted()

    def ready(self) -> Ready | None:
        """Everything the host has to do since the last time, or None if there is nothing."""
        if not self._touched:
            return None
        self._touched = False
        core = self._core
        wanted: Sequence[ReplicaId] = NOTHING
        leader = self._roles.leader
        if leader is not None:
            leader.flush()
            if leader.replication.snapshots_wanted:
                wanted = leader.replication.take_snapshots_wanted()
            if not leader.replication.own_is_voter and leader.must_retire():
                self._roles.retire(leader)
        write: Write | None = None
        if core.log.has_unwritten or core.hard_state is not core.outbox.hard_state:
            write = self._take_write()
        messages = core.outbox.take() if core.outbox.sendable else NOTHING
        news = self._take_news() if core.has_news else NO_NEWS
        commit_index, stable_index = core.commit_index, core.log.stable_index
        apply_index = commit_index if commit_index < stable_index else stable_index
        # While a snapshot is being installed nothing is durable; what was applied stays so.
        if apply_index < self._reported_apply_index:
            apply_index = self._reported_apply_index
        if (
            write is None
            and not messages
            and news is NO_NEWS
            and commit_index == self._reported_commit_index
            and apply_index == self._reported_apply_index
            and not wanted
        ):
            return None
        self._reported_commit_index = commit_index
        self._reported_apply_index = apply_index
        # Without the checks of a tuple's constructor, as each write of a log passes here twice.
        return tuple.__new__(Ready, (write, messages, commit_index, apply_index, wanted, *news))

    def _take_write(self) -> Write:
        core = self._core
        hard_state = core.hard_state if core.outbox.lacks(core.hard_state) else None
        log_changed = core.log.has_unwritten
        number = core.outbox.issue(hard_state, log_changed)
        snapshot, entries = core.log.take_unwritten(number) if log_changed else (None, ())
        return tuple.__new__(Write, (number, hard_state, snapshot, entries))

    def _take_news(self) -> News:
        core = self._core
        core.has_news = False
        news: News = (
            core.take_reads(),
            core.take_reads_refused(),
            self._take_leadership(),
            self._take_membership(),
        )
        return news if any(news) else NO_NEWS

    def _take_leadership(self) -> Leadership | None:
        reported, roles, core = self._reported_leadership, self._roles, self._core
        if (
            reported.role is roles.role
            and reported.leader == core.leader
            and reported.term == core.hard_state.term
        ):
            return None
        self._reported_leadership = Leadership(core.term, roles.role, core.leader)
        return self._reported_leadership

    def _take_membership(self) -> Membership | None:
        current = self._core.memberships.current
        if current is self._reported_membership:
            return None
        self._reported_membership = current
        return current


# Keyed by type: a chain of comparisons would cost more than some of the handlers.
_HANDLERS: dict[type[Message], Callable[[RaftNode, Any], None]] = {
    AppendRequest: RaftNode._on_append,
    AppendResponse: RaftNode._on_append_response,
    AppendRejection: RaftNode._on_append_rejection,
    CommitNotice: RaftNode._on_commit_notice,
    Heartbeat: RaftNode._on_heartbeat,
    HeartbeatResponse: RaftNode._on_heartbeat_response,
    InstallSnapshot: RaftNode._on_snapshot,
    VoteRequest: RaftNode._on_vote_request,
    VoteResponse: RaftNode._on_vote_response,
    TimeoutNow: RaftNode._on_timeout_now,
    StaleTerm: RaftNode._on_stale_term,
}
