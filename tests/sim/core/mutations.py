"""Bugs to inject into the core, each by replacing one method: what the tests must notice.

A mutation is what somebody could plausibly write; the docstring of each names the rule it breaks.
"""

from collections.abc import Hashable
from typing import Any

from penstock.model.ids import BrokerId, DirectoryId, LogEnd, LogIndex, ReplicaId, Term
from penstock.raft import quorum, replication
from penstock.raft.core import Core
from penstock.raft.entries import Entry, HardState
from penstock.raft.follower import Follower
from penstock.raft.leader import Leader
from penstock.raft.log_view import RaftLog
from penstock.raft.membership import MembershipHistory, MembershipStep
from penstock.raft.messages import (
    AppendResponse,
    InstallSnapshot,
    Message,
    TimeoutNow,
    VoteRequest,
)
from penstock.raft.node import RaftNode
from penstock.raft.progress import REPLICATE, Progress
from penstock.raft.reads import PendingReads
from penstock.raft.ready import ReadState, Role, Write
from penstock.raft.replication import Replication
from penstock.raft.roles import Roles
from tests.sim.core.cluster import Cluster
from tests.sim.mutation import Mutations

ALL = Mutations()
mutation = ALL.add

_take_write = RaftNode._take_write
_follow_membership = Replication.follow_membership


# The eleven of the first prototype


@mutation("vote not persisted", (RaftNode, "_take_write"))
def vote_not_persisted(self: RaftNode) -> Write:
    write = _take_write(self)
    if write.hard_state is None:
        return write
    return write._replace(hard_state=HardState(write.hard_state.term, None))


@mutation("term not persisted", (RaftNode, "_take_write"))
def term_not_persisted(self: RaftNode) -> Write:
    return _take_write(self)._replace(hard_state=None)


@mutation("ack before persist", (Core, "promise_entries"))
def ack_before_persist(self: Core, message: Message, index: int) -> None:
    self.outbox.send(message)


@mutation("vote ignoring log freshness", (Roles, "is_fresh_enough"))
def vote_ignoring_freshness(self: Roles, message: VoteRequest) -> bool:
    return True


@mutation("vote comparing index only", (Roles, "is_fresh_enough"))
def vote_comparing_index_only(self: Roles, message: VoteRequest) -> bool:
    return message.last_index >= self._core.log.last_index


@mutation("old-term entries committed by count (Figure 8)", (Leader, "committable_index"))
def figure_eight(self: Leader) -> int:
    return self.replication.quorum_match_index()


@mutation("unconditional truncation on append", (Follower, "store"))
def unconditional_truncation(
    self: Follower, previous_index: int, entries: tuple[Entry, ...]
) -> None:
    if previous_index < self._core.log.last_index:
        self._core.truncate(previous_index + 1)
    self._core.append(entries)


@mutation("missing previous-term check", (Follower, "agrees_at"))
def missing_previous_term_check(self: Follower, index: int, term: int) -> bool:
    return self._core.log.term_at(index) is not None


@mutation("quorum off by one", (quorum, "majority"), (replication, "majority"))
def quorum_off_by_one(voters: int) -> int:
    return max(1, voters // 2)


@mutation("heartbeat commit not clamped to the match index", (Replication, "_commit_for"))
def commit_not_clamped(self: Replication, progress: Progress) -> LogIndex:
    return self._core.commit_index


@mutation("two votes in a term", (Roles, "may_vote_for"))
def two_votes_in_a_term(self: Roles, message: VoteRequest) -> bool:
    if not message.pre:
        self._core.hard_state = HardState(self._core.term, None)
    return True


# Heartbeats


@mutation("stale heartbeat counted for another term", (RaftNode, "heartbeat_received"))
def stale_heartbeat_counted(self: RaftNode, sender: ReplicaId, term: Term) -> bool:
    self._roles.heard_from_leader()
    return True


@mutation("stale heartbeat answer counted for another term", (RaftNode, "heartbeat_acknowledged"))
def stale_heartbeat_answer_counted(self: RaftNode, sender: ReplicaId, term: Term) -> bool:
    if self._roles.leader is None:
        return False
    self._roles.leader.on_host_heartbeat_acknowledged(sender)
    return True


@mutation("a leader without a quorum keeps its leadership", (Replication, "take_quorum_activity"))
def leader_without_quorum_stays(self: Replication) -> bool:
    return True


# Elections


@mutation("campaign before its own term is durable", (Roles, "_ask_for_votes"))
def campaign_before_durable(self: Roles, term: Term, *, pre: bool, transfer: bool) -> None:
    core = self._core
    for voter in sorted(core.memberships.current.voters - {core.id}):
        core.outbox.send(
            VoteRequest(
                core.id, voter, term, core.log.last_index, core.log.last_term, pre, transfer
            )
        )


@mutation("promises of votes leave before the sync", (Core, "promise_term"))
def vote_before_persist(self: Core, message: Message) -> None:
    self.outbox.send(message)


@mutation("a replica that hears from its leader votes for others", (Roles, "is_loyal_to_leader"))
def disloyal(self: Roles) -> bool:
    return False


@mutation("no pre-vote: a cut-off replica raises its term", (Roles, "_become_pre_candidate"))
def no_pre_vote(self: Roles) -> None:
    self._become_candidate(transfer=False)


@mutation("a learner campaigns", (MembershipHistory, "may_campaign"))
def learner_campaigns(self: MembershipHistory, replica: ReplicaId) -> bool:
    return True


# Replication


@mutation("leader counts itself before its own persistence", (Replication, "quorum_match_index"))
def own_ack_before_persist(self: Replication) -> int:
    self.own.match_index = self._core.log.last_index
    return quorum.quorum_index([voter.match_index for voter in self._voters])


@mutation("follower commits beyond what the append proves", (Follower, "_learn_commit"))
def learns_commit_blindly(self: Follower, commit_index: LogIndex) -> None:
    self._core.commit_to(LogIndex(min(commit_index, self._core.log.last_index)))


@mutation("the window starts again without asking where the logs agree", (Progress, "probe"))
def probe_becomes_replicate(self: Progress) -> None:
    self.replicate()


@mutation(
    "an acknowledgement says the end of the log, not of the append", (Follower, "_acknowledge")
)
def acknowledges_whole_log(self: Follower, message: Any, index: LogIndex) -> None:
    core = self._core
    last_index = core.log.last_index
    core.promise_entries(
        AppendResponse(core.id, message.sender, core.term, last_index, core.commit_index),
        last_index,
    )


@mutation("data is sent from its middle", (RaftLog, "entry_start"))
def sends_from_the_middle(self: RaftLog, index: int) -> int:
    return index


@mutation("a leader whose host wants it to resign stays", (Roles, "retire"))
def resigning_leader_stays(self: Roles, leader: Leader) -> None:
    leader.name_successor()


@mutation("the death of any node ends loyalty to the leader", (Roles, "leader_lost"))
def any_death_ends_loyalty(self: Roles, node: BrokerId, turn: int) -> bool:
    if self.leader is None:
        self._enter(Role.FOLLOWER, None, None)
    return True


# Empty disks


@mutation("a node that comes back with an empty disk keeps its identity", (Cluster, "_new_id"))
def empty_disk_keeps_identity(self: Cluster, node: BrokerId) -> ReplicaId:
    return ReplicaId(node, DirectoryId("d"))


# Membership


@mutation("a learner is promoted whatever was committed before", (Leader, "is_caught_up"))
def promoted_by_state_alone(self: Leader, replica: ReplicaId) -> bool:
    progress = self.replication.progress.get(replica)
    return progress is not None and progress.state is REPLICATE and progress.recently_active


@mutation("learner counted in the quorum", (Replication, "follow_membership"))
def learner_counted(self: Replication) -> None:
    _follow_membership(self)
    self._voters = [*self.peers, self.own]


@mutation("second change before the first is committed", (Leader, "last_change_is_committed"))
def second_change_too_early(self: Leader) -> bool:
    return True


@mutation("change before a commit in the own term", (Leader, "may_change_membership"))
def change_before_own_commit(self: Leader) -> bool:
    return self.last_change_is_committed()


@mutation("promote before caught up", (Leader, "is_caught_up"))
def promote_before_caught_up(self: Leader, replica: ReplicaId) -> bool:
    return True


@mutation("a truncated change is kept", (MembershipHistory, "truncate"))
def truncated_change_kept(self: MembershipHistory, index: int) -> bool:
    steps = self._steps
    self._steps = [step for step in steps if step.index < index] or steps[:1]
    return False


@mutation("a leader that removed itself stays", (Leader, "must_retire"))
def removed_leader_stays(self: Leader) -> bool:
    return False


# Snapshots


@mutation("snapshot accepted backwards", (Follower, "is_ahead_of_commit"))
def snapshot_backwards(self: Follower, index: int) -> bool:
    return True


@mutation("snapshot installed whatever is here already", (Follower, "on_snapshot"))
def snapshot_installed_always(self: Follower, message: InstallSnapshot) -> None:
    core, snapshot = self._core, message.snapshot
    core.log.restore(snapshot)
    core.memberships.replace(MembershipStep(snapshot.index, snapshot.membership))
    core.commit_index = snapshot.index
    self._acknowledge(message, snapshot.index)


@mutation("a snapshot's membership is ignored", (MembershipHistory, "replace"))
def snapshot_membership_ignored(self: MembershipHistory, step: Any) -> None:
    self._steps[:-1] = []


# Reads and transfer


@mutation("read served without confirmation by a quorum", (Replication, "quorum_read_round"))
def read_without_quorum(self: Replication) -> int:
    return self.own.read_round


@mutation("read confirmed by a round sent before it", (PendingReads, "add"))
def read_joins_old_round(self: PendingReads, context: Hashable, index: LogIndex) -> None:
    self.round = max(self.round, 1)
    self._waiting.append((self.round, ReadState(context, index)))


@mutation("read served before a commit in the own term", (Leader, "read"))
def early_read(self: Leader, context: Hashable) -> None:
    self.reads.add(context, self._core.commit_index)


@mutation("transfer to a lagging node", (Leader, "_hand_over_if_caught_up"))
def transfer_to_lagging(self: Leader, progress: Progress) -> None:
    self._core.outbox.send(TimeoutNow(self._core.id, progress.replica, self._core.term))


@mutation("the call to take over counts from anyone", (Roles, "on_timeout_now"))
def anyone_may_hand_over(self: Roles, message: TimeoutNow) -> None:
    if self.role is not Role.LEADER:
        self._become_candidate(transfer=True)


# Replicas that lost the tail of their log


@mutation("a vote in doubt counts towards a majority", (quorum.VoteTally, "outcome"))
def doubt_makes_a_majority(self: quorum.VoteTally) -> quorum.Outcome:
    """Who may have forgotten something makes no majority without the others."""
    granted = {voter for voter, ballot in self._answers.items() if ballot.granted}
    if quorum.is_quorum(granted, self._voters):
        return quorum.Outcome.WON
    return quorum.Outcome.LOST if self.is_complete else quorum.Outcome.PENDING


@mutation("a replica in doubt compares with the log that is left", (Core, "covers"))
def compares_what_is_left(self: Core, end: LogEnd, accepted_end: LogEnd) -> bool:
    """What was acknowledged counts, not what is left of it."""
    return end >= self.log_end


@mutation("a group that lost something committed does not notice", (quorum.VoteTally, "stuck"))
def never_stuck(self: quorum.VoteTally, accepted_end: LogEnd) -> None:
    """A partition that can't go on says so."""


@mutation("what was given up makes up for what is there", (Core, "covers"))
def given_up_covers_all(self: Core, end: LogEnd, accepted_end: LogEnd) -> bool:
    """An operator gives up what no copy has, and nothing else."""
    return max(end, accepted_end) >= max(self.log_end, self.lost_end)
