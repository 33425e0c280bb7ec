"""The effects that the core asks of its host, and the answers it gives to requests."""

from collections.abc import Hashable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from penstock.model.ids import LogIndex, ReplicaId, Term
from penstock.raft.entries import Entry, HardState, Snapshot
from penstock.raft.membership import Membership
from penstock.raft.messages import Message


class Role(Enum):
    FOLLOWER = auto()
    PRE_CANDIDATE = auto()
    CANDIDATE = auto()
    LEADER = auto()


class Refusal(Enum):
    """Why a request can't be served here and now: an expected outcome, not an error."""

    NOT_LEADER = auto()
    # Leadership is being handed over.
    TRANSFERRING = auto()
    # Too much is uncommitted, or too many reads wait.
    OVERLOADED = auto()
    # No entry of the leader's own term is committed yet, or the last change is not.
    CHANGE_TOO_EARLY = auto()
    LEARNER_BEHIND = auto()
    INVALID_CHANGE = auto()
    NOT_A_VOTER = auto()


class Write(NamedTuple):
    """To be made durable, all of it, before `persisted(number)`.

    Writes are carried out in the order of their numbers. The snapshot, if any, replaces the whole
    log; then the entries replace whatever the log holds from the first one's first index on.
    """

    number: int
    hard_state: HardState | None
    snapshot: Snapshot | None
    entries: tuple[Entry, ...]


class Leadership(NamedTuple):
    term: Term
    role: Role
    leader: ReplicaId | None


class ReadState(NamedTuple):
    """The read named `context` may be served once everything up to `index` is applied."""

    context: Hashable
    index: LogIndex  # type: ignore[assignment]  # hides tuple.index, which nobody needs here


class Ready(NamedTuple):
    write: Write | None
    # May be sent at once: what they promise is durable already.
    messages: Sequence[Message]
    # Safe on a quorum, and never taken back.
    commit_index: LogIndex
    # The part of it that this replica itself holds durably: its log can serve and apply it.
    apply_index: LogIndex
    # Followers behind the log's start: the host answers each with `send_snapshot`.
    snapshots_wanted: Sequence[ReplicaId]
    reads: Sequence[ReadState]
    # Reads that can't be confirmed here any more: to be asked again, of the new leader.
    reads_refused: Sequence[Hashable]
    # What changed since the last Ready, else None.
    leadership: Leadership | None
    membership: Membership | None
