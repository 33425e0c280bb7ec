"""What is in a Raft log, and what else must be durable: entries, hard state, snapshots."""

from enum import Enum
from typing import NamedTuple

from penstock.model.ids import LogIndex, ReplicaId, Term
from penstock.raft.membership import Membership

NO_TERM = Term(0)
NO_INDEX = LogIndex(0)


class EntryKind(Enum):
    # The host's own: the core never looks inside.
    DATA = 0
    # A leader's first entry: only an entry of its own term lets it commit those of earlier ones.
    NEW_TERM = 1
    # The payload is the whole new `Membership`.
    MEMBERSHIP = 2
    # The host's word on where its log starts: in order with the data, and opaque like it.
    LOG_START = 3
    # Indices whose entries compaction removed; one gap never spans two terms. Only data is
    # removed: Raft's own entries stay.
    GAP = -1


class Entry(NamedTuple):
    """A tuple, because one is made per proposal on the hot path."""

    # The last index that the entry covers.
    index: LogIndex  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    term: Term
    kind: EntryKind
    payload: object
    size_bytes: int
    # How many indices it covers, ending at `index`: more than one only for data and for gaps.
    span: int = 1

    @property
    def first_index(self) -> LogIndex:
        return LogIndex(self.index - self.span + 1)

    def cut_before(self, index: int) -> "Entry":
        """The part of the entry from `index` on.

        Data is one piece. If a replica knows the beginning of one, it knows it as a gap, which
        proves that compaction removed all of it elsewhere: the rest is a gap too.
        """
        assert self.first_index <= index <= self.index
        if index == self.first_index:
            return self
        assert self.span > 1
        return Entry(self.index, self.term, EntryKind.GAP, None, 0, self.index - index + 1)


class HardState(NamedTuple):
    """What a replica must not forget: without it, it could vote twice in a term."""

    term: Term = NO_TERM
    vote: ReplicaId | None = None


class Snapshot(NamedTuple):
    """Everything up to and including `index`; the payload is the host's and opaque here."""

    index: LogIndex  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    term: Term
    # As of `index`.
    membership: Membership
    payload: object = None
    size_bytes: int = 0
