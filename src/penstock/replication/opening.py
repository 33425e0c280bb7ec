"""What a replica starts from: its log, read as Raft's log, and what is surely committed of it."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import LogIndex, Offset, ReplicaId, Term
from penstock.raft.entries import HardState, Snapshot
from penstock.raft.membership import Membership, MembershipStep
from penstock.raft.node import RaftNode
from penstock.records.own_entries import OwnKind
from penstock.replication.entry_codec import SnapshotContent, decode_log_start, decode_membership
from penstock.replication.index_offsets import IndexOffsets
from penstock.replication.log_starts import LogStarts
from penstock.replication.producer_ledger import ProducerLedger
from penstock.replication.producer_states import ProducerStates
from penstock.replication.raft_log import StoredLog
from penstock.replication.replica_parts import ReplicaParts
from penstock.storage.log import Log


class OpenedLog(NamedTuple):
    """A log that was made or recovered, and what belongs to it."""

    log: Log
    ledger: ProducerLedger
    hard_state: HardState
    founders: Sequence[ReplicaId]
    # The first of a group that was just made stands for election at once.
    leads_first: bool = False
    # It moved away once and came back: what it acknowledged before is gone.
    is_returning: bool = False


def committed_index(log: Log) -> LogIndex:
    """Up to here all is surely committed: checkpoints keep the state of nothing else, and a log
    begins nowhere else."""
    offset = max(log.state_offset, log.start_offset)
    return LogIndex(max(log.index_before(Offset(offset)), log.first_index - 1))


def make_node(opened: OpenedLog, parts: ReplicaParts, stored: StoredLog) -> RaftNode:
    log = opened.log
    return RaftNode(
        replica=parts.own,
        settings=parts.raft_settings,
        log=stored,
        hard_state=opened.hard_state,
        memberships=_memberships(opened, parts),
        random_below=parts.random_below,
        commit_index=committed_index(log),
        has_room=parts.outbound.has_room,
        lost_end=log.doubt.lost,
        accepted_end=log.doubt.accepted,
    )


def _memberships(opened: OpenedLog, parts: ReplicaParts) -> list[MembershipStep]:
    """That before the log is not known any more if a repair had to make the checkpoint again."""
    steps = []
    for index, data in opened.log.memberships():
        membership = Membership(frozenset(opened.founders))
        if data:
            membership = decode_membership(data, may_be_empty=True)
        steps.append(MembershipStep(LogIndex(index), _as_now(membership, parts)))
    return steps


def _as_now(membership: Membership, parts: ReplicaParts) -> Membership:
    """Where this replica was the only voter under a former id, it still is: nobody else could
    vote, so a vote that it forgot can't have made another leader."""
    if len(membership.voters) == 1 and membership.voters <= parts.former:
        return membership._replace(voters=frozenset({parts.own}))
    return membership


def make_offsets(log: Log, commit_index: LogIndex) -> IndexOffsets:
    own = [entry.index for entry in log.own_entries if entry.index > commit_index]
    return IndexOffsets(commit_index, log.offset_after(commit_index), own)


def note_log_starts(starts: LogStarts, log: Log, commit_index: LogIndex) -> None:
    """Those that a crash kept from taking effect are among them."""
    for entry in log.own_entries:
        if entry.kind is OwnKind.LOG_START:
            starts.note(entry.index, decode_log_start(entry.payload))
    starts.apply(commit_index)


def snapshot_of(log: Log, states: ProducerStates) -> Snapshot:
    """What a follower that is behind the log's start needs before it can be sent entries."""
    base = log.base
    content = SnapshotContent(Offset(base.offset), states.snapshot_before(base.offset))
    # A log whose begin is not known here has not been shortened, so nobody is behind its start.
    membership = decode_membership(base.membership)
    payload = content.encode()
    return Snapshot(LogIndex(base.index), Term(base.term), membership, payload, len(payload))
