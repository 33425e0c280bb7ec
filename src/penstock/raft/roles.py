"""Which role a replica plays, and every way from one role to another.

FOLLOWER -- no leader for an election time-out --> PRE_CANDIDATE
PRE_CANDIDATE -- a quorum would vote for it --> CANDIDATE (term + 1)
FOLLOWER -- the leader hands over --> CANDIDATE (term + 1)
CANDIDATE -- a quorum voted, its own vote durable --> LEADER
PRE_CANDIDATE, CANDIDATE -- time-out --> PRE_CANDIDATE; refused by a quorum --> FOLLOWER
LEADER -- no quorum answers, it removed itself, or its host wants it --> FOLLOWER
any -- a higher term, or a leader of its own term --> FOLLOWER

A replica that lost the tail of its log is in doubt. It asks for pre-votes like the others, if only
to learn whether anybody can lead, but stands only if its log reaches again as far as it once did,
and wins only with the votes of all.
"""

from penstock.model.ids import BrokerId, LogEnd, ReplicaId, Term
from penstock.raft.core import Core
from penstock.raft.entries import HardState
from penstock.raft.leader import Leader
from penstock.raft.messages import (
    AppendRequest,
    CommitNotice,
    Heartbeat,
    InstallSnapshot,
    Message,
    PeerFault,
    StaleTerm,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.quorum import Ballot, Outcome, VoteTally
from penstock.raft.ready import Role

FromLeader = AppendRequest | Heartbeat | CommitNotice | InstallSnapshot
FROM_LEADER = (AppendRequest, Heartbeat, CommitNotice, InstallSnapshot)


class Roles:
    __slots__ = ("_core", "_elapsed", "_hurries_left", "_tally", "_timeout", "leader", "role")

    def __init__(self, core: Core) -> None:
        self._core = core
        self.role = Role.FOLLOWER
        # The leadership, while this replica holds it.
        self.leader: Leader | None = None
        self._tally: VoteTally | None = None
        # Ticks since a leader was heard from, and how many of them start an election.
        self._elapsed = 0
        self._timeout = 0
        # How often the next election may still come soon, because the leader is known to be gone.
        self._hurries_left = 0
        self._restart_timer()

    # Time

    def tick(self) -> bool:
        """One unit of time passed; says whether there may be something to do."""
        leader = self.leader
        if leader is not None:
            if not leader.tick():
                self.become_follower(self._core.term, None)
                return True
            return leader.has_work_after_tick()
        self._elapsed += 1
        if self._elapsed < self._timeout:
            return False
        if self.campaign():
            return True
        self._restart_timer()
        return False

    def campaign(self) -> bool:
        if self.leader is not None or not self._core.memberships.may_campaign(self._core.id):
            return False
        self._become_pre_candidate()
        return True

    def heard_from_leader(self) -> None:
        self._elapsed = 0

    def leader_lost(self, node: BrokerId, turn: int) -> bool:
        """Only shortens the time-out; says whether it was about the leader known here."""
        core = self._core
        if self.leader is not None or core.leader is None or core.leader.node != node:
            return False
        self._enter(Role.FOLLOWER, None, None)
        self._elapsed = 0
        # Not all at once: all know the same order, and the first wins unless it lacks something.
        left = sorted(voter for voter in core.memberships.current.voters if voter.node != node)
        place = left.index(core.id) if core.id in left else 0
        self._timeout = 1 + 2 * ((place + turn) % max(1, len(left)))
        self._hurries_left = core.settings.leader_lost_hurries_max
        return True

    # Terms

    def adopts_term(self, message: Message) -> bool:
        """Settles whose term counts; says whether the message is still to be handled."""
        if message.term < self._core.term:
            self._answer_earlier_term(message)
            return False
        if isinstance(message, VoteRequest):
            if self.is_loyal_to_leader() and not message.transfer:
                self.introduce_to(message.sender)
                return False
            if message.pre:
                return True
        elif isinstance(message, VoteResponse) and message.pre and message.granted:
            return True
        from_leader = isinstance(message, FROM_LEADER)
        self.become_follower(message.term, message.sender if from_leader else None)
        return True

    def is_loyal_to_leader(self) -> bool:
        """While a leader is heard from, nobody else is elected: a replica that was cut off and
        comes back does not disturb a group that works."""
        return self._core.leader is not None and (
            self.leader is not None or self._elapsed < self._core.settings.election_ticks
        )

    def introduce_to(self, replica: ReplicaId) -> None:
        """A leader tells a member that lost sight of it who leads, and asks what it still has:
        it may be a replica that was given up and made again."""
        if self.leader is not None:
            progress = self.leader.replication.progress.get(replica)
            if progress is not None:
                self.leader.replication.unreachable(replica)
                self.leader.replication.send_heartbeat(progress, 0)

    def _answer_earlier_term(self, message: Message) -> None:
        """Without an answer, a leader or candidate of an earlier term would never learn."""
        core = self._core
        if isinstance(message, FROM_LEADER):
            core.promise_term(StaleTerm(core.id, message.sender, core.term))
        elif isinstance(message, VoteRequest):
            self._answer_vote(message, granted=False)

    def accept_leader(self, message: FromLeader) -> None:
        core = self._core
        if self.leader is not None or (core.leader or message.sender) != message.sender:
            raise PeerFault(f"{message.sender} also says that it leads in term {message.term}")
        if core.leader is None:
            self.become_follower(core.term, message.sender)
        self._elapsed = 0
        self._hurries_left = 0

    # Elections

    def on_vote_request(self, message: VoteRequest) -> None:
        granted = self.may_vote_for(message) and self.is_fresh_enough(message)
        if granted and not message.pre:
            self._elapsed = 0
            # However soon this replica meant to stand itself, the one it voted for has its time.
            self._timeout = max(self._timeout, self._core.settings.election_ticks)
            if self._core.hard_state.vote is None:
                self._core.hard_state = HardState(self._core.term, message.sender)
        self._answer_vote(message, granted)

    def may_vote_for(self, message: VoteRequest) -> bool:
        """One vote per term; a pre-vote is about a later term and takes none."""
        core = self._core
        if message.pre:
            return message.term > core.term
        vote = core.hard_state.vote
        return vote == message.sender or (vote is None and core.leader is None)

    def is_fresh_enough(self, message: VoteRequest) -> bool:
        """A replica with every committed entry has a log at least as fresh as a quorum's."""
        end = LogEnd(message.last_term, message.last_index)
        return self._core.covers(end, message.accepted_end)

    def _answer_vote(self, request: VoteRequest, granted: bool) -> None:
        core = self._core
        term = request.term if request.pre and granted else core.term
        if request.pre and not granted:
            # Not an earlier term than the one who asks has, or the answer would count as stale; and
            # where some are in doubt, the answers of all voters count.
            term = max(term, Term(request.term - 1))
        core.promise_term(self._vote(request.sender, term, request.pre, granted))
        self.introduce_to(request.sender)

    def _vote(self, to: ReplicaId, term: Term, pre: bool, granted: bool) -> VoteResponse:
        core = self._core
        return VoteResponse(core.id, to, term, pre, granted, core.log_end, core.lost_end)

    def on_vote_response(self, message: VoteResponse) -> None:
        expected = Role.PRE_CANDIDATE if message.pre else Role.CANDIDATE
        if self.role is not expected or self._tally is None:
            return
        if message.pre and message.granted and message.term != self._core.term + 1:
            return
        ballot = Ballot(message.granted, message.log_end, message.lost_end)
        self._tally.record(message.sender, ballot)
        self._settle_election()

    def _settle_election(self) -> None:
        core, tally = self._core, self._tally
        assert tally is not None
        outcome = tally.outcome()
        if outcome is Outcome.LOST or (outcome is Outcome.WON and not self._may_stand()):
            stuck = tally.stuck(core.accepted_end)
            self.become_follower(core.term, None)
            core.stuck = stuck
        elif outcome is Outcome.WON and self.role is Role.PRE_CANDIDATE:
            self._become_candidate(transfer=False)
        elif outcome is Outcome.WON:
            self._become_leader()

    def _may_stand(self) -> bool:
        core = self._core
        return core.covers(core.log_end, core.accepted_end)

    def on_timeout_now(self, message: TimeoutNow) -> None:
        core = self._core
        if (
            message.sender == core.leader
            and not core.is_in_doubt
            and core.memberships.may_campaign(core.id)
        ):
            self._become_candidate(transfer=True)

    # Transitions

    def retire(self, leader: Leader) -> None:
        leader.name_successor()
        self.become_follower(self._core.term, None)

    def become_follower(self, term: Term, leader: ReplicaId | None) -> None:
        core = self._core
        if term > core.term:
            core.hard_state = HardState(term, None)
        if self.leader is not None:
            core.reads_refused += self.leader.reads.drain()
            self.leader = None
        self._enter(Role.FOLLOWER, leader, None)
        self._restart_timer()

    def _become_pre_candidate(self) -> None:
        core = self._core
        tally = VoteTally(core.memberships.current.voters)
        self._enter(Role.PRE_CANDIDATE, None, tally)
        self._restart_timer()
        self._ask_for_votes(Term(core.term + 1), pre=True, transfer=False)
        tally.record(core.id, Ballot(self._may_stand(), core.log_end, core.lost_end))
        self._settle_election()

    def _become_candidate(self, *, transfer: bool) -> None:
        core = self._core
        core.hard_state = HardState(Term(core.term + 1), core.id)
        self._enter(Role.CANDIDATE, None, VoteTally(core.memberships.current.voters))
        self._restart_timer()
        self._ask_for_votes(core.term, pre=False, transfer=transfer)
        # The own vote counts like any other: once it is durable.
        core.promise_term(self._vote(core.id, core.term, False, True))

    def _become_leader(self) -> None:
        core = self._core
        self._enter(Role.LEADER, core.id, None)
        self.leader = Leader(core)

    def _enter(self, role: Role, leader: ReplicaId | None, tally: VoteTally | None) -> None:
        core = self._core
        self.role, self._tally = role, tally
        core.leader = leader
        if leader is not None:
            core.stuck = None
        core.has_news = True

    def _ask_for_votes(self, term: Term, *, pre: bool, transfer: bool) -> None:
        """A real campaign waits for its term to be durable: else a crash could make this replica
        win the same term twice, with different logs."""
        core = self._core
        log = core.log
        for voter in sorted(core.memberships.current.voters - {core.id}):
            request = VoteRequest(
                core.id,
                voter,
                term,
                log.last_index,
                log.last_term,
                pre,
                transfer,
                core.accepted_end,
            )
            core.promise_term(request)

    def _restart_timer(self) -> None:
        core, settings = self._core, self._core.settings
        self._elapsed = 0
        if self._hurries_left > 0:
            # Votes were split, or the first in the order lacked something.
            self._hurries_left -= 1
            self._timeout = 2 + core.random_below(settings.hurry_ticks_max)
        else:
            self._timeout = settings.election_ticks + core.random_below(settings.election_ticks)
