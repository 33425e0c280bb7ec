"""What replicas of a group say to each other. Which group it is about is on the envelope.

Tuples, because several are made per append. Every message names its sender's term; one that
promises something leaves the sender only once what it promises is durable there.
"""

from typing import NamedTuple

from penstock.model.ids import NO_END, LogEnd, LogIndex, ReplicaId, Term
from penstock.raft.entries import Entry, Snapshot


class PeerFault(Exception):
    """A message that no correct replica sends; nothing was changed by it."""


class VoteRequest(NamedTuple):
    sender: ReplicaId
    to: ReplicaId
    # For a pre-vote: the term that the sender would campaign in.
    term: Term
    last_index: LogIndex
    last_term: Term
    # A pre-vote only asks whether a real campaign could win; nobody's term changes.
    pre: bool
    # The leader asked the sender to take over, so hearing from a leader is no reason to refuse.
    transfer: bool
    # An operator gave up everything up to here that no copy has any more.
    accepted_end: LogEnd = NO_END


class VoteResponse(NamedTuple):
    sender: ReplicaId
    to: ReplicaId
    # For a granted pre-vote: the term of the request; else the sender's own.
    term: Term
    pre: bool
    granted: bool
    # Where the sender's log ends, and where it ended before it lost its tail, if it did: then its
    # vote counts only together with those of all other voters.
    log_end: LogEnd = NO_END
    lost_end: LogEnd = NO_END


class AppendRequest(NamedTuple):
    sender: ReplicaId
    to: ReplicaId
    term: Term
    previous_index: LogIndex
    previous_term: Term
    entries: tuple[Entry, ...]
    commit_index: LogIndex


class AppendResponse(NamedTuple):
    """The sender holds the leader's log durably up to `match_index`."""

    sender: ReplicaId
    to: ReplicaId
    term: Term
    match_index: LogIndex
    commit_index: LogIndex


class AppendRejection(NamedTuple):
    """The sender has no entry of the asked term at `previous_index`.

    The hint is its last entry that can agree with a leader that has that term there: what is
    above it is of a later term, so the leader can skip it without asking.
    """

    sender: ReplicaId
    to: ReplicaId
    term: Term
    previous_index: LogIndex
    hint_index: LogIndex
    hint_term: Term


class CommitNotice(NamedTuple):
    """Only to leaders' followers that hold the committed entries already; needs no answer."""

    sender: ReplicaId
    to: ReplicaId
    term: Term
    commit_index: LogIndex


class Heartbeat(NamedTuple):
    sender: ReplicaId
    to: ReplicaId
    term: Term
    commit_index: LogIndex
    # The newest round of reads that an answer confirms.
    read_round: int


class HeartbeatResponse(NamedTuple):
    sender: ReplicaId
    to: ReplicaId
    term: Term
    commit_index: LogIndex
    read_round: int


class InstallSnapshot(NamedTuple):
    sender: ReplicaId
    to: ReplicaId
    term: Term
    snapshot: Snapshot


class TimeoutNow(NamedTuple):
    """The leader hands over: campaign at once."""

    sender: ReplicaId
    to: ReplicaId
    term: Term


class StaleTerm(NamedTuple):
    """The answer to a leader of an earlier term: it learns the sender's term and resigns."""

    sender: ReplicaId
    to: ReplicaId
    term: Term


Message = (
    VoteRequest
    | VoteResponse
    | AppendRequest
    | AppendResponse
    | AppendRejection
    | CommitNotice
    | Heartbeat
    | HeartbeatResponse
    | InstallSnapshot
    | TimeoutNow
    | StaleTerm
)
