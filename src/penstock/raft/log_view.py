"""The log as the core sees it: what the host holds durably, and on top what is not durable yet."""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import Protocol

from penstock.model.ids import LogIndex, ReplicaId, Term
from penstock.raft.entries import NO_INDEX, Entry, EntryKind, Snapshot
from penstock.raft.membership import Membership, MembershipStep

_last_index_of = attrgetter("index")
# A name of its own, because looking it up in the class costs time for every entry.
DATA = EntryKind.DATA


class LogView(Protocol):
    """The host's log. It shows at least every write that was reported as persisted.

    Retention and compaction may take entries that are committed and applied, except that
    compaction keeps Raft's own entries: a replica that is filled from here has the memberships
    from nowhere else.
    """

    @property
    def first_index(self) -> LogIndex:
        """Of the oldest entry kept; one more than `last_index` when the log is empty."""
        ...

    @property
    def last_index(self) -> LogIndex: ...

    def term_at(self, index: LogIndex) -> Term | None:
        """For every index from `first_index - 1`, whose term outlives its entry, to the last; None
        if the log's begin has moved past it meanwhile."""
        ...

    def is_at_hand(self, low: LogIndex, follower: ReplicaId) -> bool:
        """Whether `entries` from `low` on can be had without waiting for a disk. Where they can't,
        the host reads them for this follower and says so (`RaftNode.entries_arrived`), or leaves
        it: the follower's next answer is reason to ask again."""
        ...

    def entries(self, low: LogIndex, high: LogIndex, bytes_max: int) -> Sequence[Entry]:
        """The entries from `low` up to but not including `high`, in order and without holes:
        what compaction removed comes as gaps, and one that `low` falls into is cut. No data is
        cut: `low` is never inside it. At least one, then as many as fit into `bytes_max`; none only
        if the log's begin has moved past `low` meanwhile."""
        ...

    def entry_start(self, index: LogIndex) -> LogIndex:
        """The first index of the entry, or gap, that covers `index`."""
        ...


def membership_steps(log: LogView, base: MembershipStep) -> list[MembershipStep]:
    """`base` and every membership in the log after it: what a restarted host hands the core."""
    steps = [base]
    index = LogIndex(max(base.index + 1, log.first_index))
    while index <= log.last_index:
        entries = log.entries(index, LogIndex(log.last_index + 1), 1 << 20)
        for entry in entries:
            if entry.kind is EntryKind.MEMBERSHIP:
                assert isinstance(entry.payload, Membership)
                steps.append(MembershipStep(entry.index, entry.payload))
        index = LogIndex(entries[-1].index + 1)
    return steps


class RaftLog:
    """The host's log up to `_tail_first - 1`, then the tail: all that is not durable here yet.

    The tail hides whatever the host's log still holds at its indices, so a truncation is true
    for the core at once and on disk when its write is done. A snapshot being installed hides
    the host's log altogether.
    """

    __slots__ = (
        "_flights",
        "_handed_index",
        "_snapshot",
        "_snapshot_handed",
        "_tail",
        "_tail_first",
        "_view",
        "has_unwritten",
        "last_index",
        "last_term",
        "stable_index",
    )

    def __init__(self, view: LogView) -> None:
        self._view = view
        self._tail: list[Entry] = []
        self.last_index = view.last_index
        last_term = view.term_at(view.last_index)
        assert last_term is not None
        self.last_term = last_term
        # Everything up to here is durable on this replica.
        self.stable_index = view.last_index
        self._tail_first = view.last_index + 1
        # Everything up to here was handed to the host to be written.
        self._handed_index: int = view.last_index
        # Whether there is something that was not handed to the host yet.
        self.has_unwritten = False
        # Per write under way: its number and the last index that it makes durable.
        self._flights: deque[tuple[int, int]] = deque()
        self._snapshot: Snapshot | None = None
        self._snapshot_handed = False

    @property
    def first_index(self) -> int:
        return self._snapshot.index + 1 if self._snapshot else self._view.first_index

    def term_at(self, index: int) -> Term | None:
        """The term at `index`, or None where it is not known: compacted, or past the end."""
        if index == self.last_index:
            return self.last_term
        if index >= self._tail_first:
            return self._tail[self._position(index)].term if index < self.last_index else None
        if self._snapshot is not None:
            return self._snapshot.term if index == self._snapshot.index else None
        if index < self._view.first_index - 1:
            return None
        return self._view.term_at(LogIndex(index))

    def last_index_with_term_at_most(self, high: int, term: int) -> int:
        """The last index up to `high` whose term is not above `term`; `first_index - 1` if none.

        Terms never fall along a log, so halving finds it without walking through the file.
        """
        low = self.first_index - 1
        high = min(high, self.last_index)
        while low < high:
            middle = (low + high + 1) // 2
            found = self.term_at(middle)
            # What is gone meanwhile is committed, so it is nothing that could disagree.
            if found is None or found <= term:
                low = middle
            else:
                high = middle - 1
        return low

    def entry_start(self, index: int) -> int:
        """Where the entry that covers `index` begins; `index` itself where there is none."""
        if index > self.last_index or index < self.first_index:
            return index
        if index >= self._tail_first:
            return self._tail[self._position(index)].first_index
        return self._view.entry_start(LogIndex(index))

    def is_at_hand(self, low: int, follower: ReplicaId) -> bool:
        return low >= self._tail_first or self._view.is_at_hand(LogIndex(low), follower)

    def entries(self, low: int, bytes_max: int) -> tuple[Entry, ...]:
        """From `low` on, which is not inside of data; at least one, then as many as fit; the part
        that is in one place. None if they are gone meanwhile."""
        if low < self._tail_first:
            high = LogIndex(self._tail_first)
            return tuple(self._view.entries(LogIndex(low), high, bytes_max))
        found = self._tail[self._position(low) :]
        if found[0].first_index != low:
            assert found[0].kind is EntryKind.GAP, "data is sent whole"
            found[0] = found[0].cut_before(low)
        total = 0
        for position, entry in enumerate(found):
            total += entry.size_bytes
            if total > bytes_max and position:
                return tuple(found[:position])
        return tuple(found)

    def append_data(self, term: Term, payload: object, size_bytes: int, span: int) -> LogIndex:
        """A proposal at the end; gives its last index. Apart from `append` because it is the one
        thing that is done for every batch: the checks of a tuple's constructor count here."""
        index: LogIndex = self.last_index + span  # type: ignore[assignment]  # no call per batch
        self._tail.append(tuple.__new__(Entry, (index, term, DATA, payload, size_bytes, span)))
        self.has_unwritten = True
        self.last_index, self.last_term = index, term
        return index

    def append(self, entries: Sequence[Entry]) -> None:
        """At the end; the caller has already cut off what does not fit."""
        assert entries[0].first_index == self.last_index + 1
        self._tail.extend(entries)
        self.has_unwritten = True
        last = entries[-1]
        self.last_index, self.last_term = last.index, last.term

    def truncate(self, index: int) -> None:
        """Everything from `index` on is gone; new entries follow in the same step."""
        if index < self._tail_first:
            self._tail.clear()
            self._tail_first = index
        else:
            position = self._position(index)
            cut = self._tail[position]
            del self._tail[position:]
            if cut.first_index < index:
                assert cut.kind is EntryKind.GAP, "data is truncated whole"
                kept = cut._replace(index=LogIndex(index - 1), span=index - cut.first_index)
                self._tail.append(kept)
        self.last_index = LogIndex(index - 1)
        self.stable_index = LogIndex(min(self.stable_index, index - 1))
        self._handed_index = min(self._handed_index, index - 1)
        self._flights = deque((number, min(last, index - 1)) for number, last in self._flights)

    def restore(self, snapshot: Snapshot) -> None:
        """The snapshot is the whole log now; nothing below it can be read any more."""
        self._snapshot, self._snapshot_handed = snapshot, False
        self.has_unwritten = True
        self._tail.clear()
        self._tail_first = snapshot.index + 1
        self.last_index, self.last_term = snapshot.index, snapshot.term
        self._handed_index = snapshot.index
        self.stable_index = NO_INDEX
        self._flights = deque((number, 0) for number, _ in self._flights)

    def take_unwritten(self, number: int) -> tuple[Snapshot | None, tuple[Entry, ...]]:
        """What write `number` carries; from now on it is under way."""
        snapshot = None if self._snapshot_handed else self._snapshot
        self._snapshot_handed = True
        self.has_unwritten = False
        entries: tuple[Entry, ...] = ()
        if self._handed_index < self.last_index:
            entries = tuple(self._tail[self._position(self._handed_index + 1) :])
            self._handed_index = self.last_index
        self._flights.append((number, self.last_index))
        return snapshot, entries

    def persisted(self, number: int) -> None:
        """Writes up to `number` are durable and visible in the host's log."""
        flights = self._flights
        stable = self.stable_index
        while flights and flights[0][0] <= number:
            stable = LogIndex(max(stable, flights.popleft()[1]))
        if stable <= self.stable_index:
            return
        if self._snapshot is not None:
            if stable < self._snapshot.index:
                return
            self._snapshot = None
        self.stable_index = stable
        if stable >= self.last_index:
            self._tail.clear()
        else:
            del self._tail[: self._position(stable + 1)]
        self._tail_first = stable + 1

    def _position(self, index: int) -> int:
        """Of the entry in the tail that covers `index`."""
        if index == self._tail_first:
            return 0
        return bisect_left(self._tail, index, key=_last_index_of)
