"""Raft's own entries of one log, and what they tell: the index and the term of everything in it.

An entry's index is its offset, plus the number of own entries before it, plus what lies before the
log. So nothing is kept per batch, and an index is for life: compaction and deletion change neither
offsets nor own entries.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from penstock.records.batch import BatchHeader
from penstock.records.own_entries import OwnKind, build_own, parse_own

# Beyond every offset.
NO_OFFSET = 2**63


class EntriesGone(LookupError):
    """The index lies before the log: retention was faster than whoever asks for it."""


class EntriesCut(LookupError):
    """The log does not hold this, or not as whole entries: it was cut since the caller looked."""


class LogBase(NamedTuple):
    """What lies before a log's first entry."""

    # The first offset of the log.
    offset: int = 0
    # The last index before the log, and its term.
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    term: int = 0
    # The membership as of `index`, encoded, and the index of its entry.
    membership: bytes = b""
    membership_index: int = 0


class OwnEntry(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    term: int
    # Of the next client's record.
    offset: int
    kind: OwnKind
    payload: bytes = b""

    def batch(self) -> bytes:
        """The entry as it lies in the segment."""
        return build_own(
            self.kind, index=self.index, term=self.term, offset=self.offset, payload=self.payload
        )


def read_own(batch: bytes | bytearray | memoryview, header: BatchHeader) -> OwnEntry:
    """The own entry in this batch; raises CorruptBatch if it is none."""
    content = parse_own(batch)
    return OwnEntry(
        content.index, header.leader_epoch, header.base_offset, content.kind, content.payload
    )


class OwnTable:
    """Never changed, only replaced, so that any thread may read it."""

    __slots__ = ("_indices", "_offsets", "base", "entries", "last_term")

    def __init__(self, base: LogBase, entries: Sequence[OwnEntry] = ()) -> None:
        self.base = base
        self.entries = tuple(entries)
        self.last_term = entries[-1].term if entries else base.term
        self._indices = [entry.index for entry in self.entries]
        self._offsets = [entry.offset for entry in self.entries]

    # Indices, offsets and terms

    def check_kept(self, index: int) -> None:
        if index <= self.base.index:
            first = self.base.index + 1
            raise EntriesGone(f"index {index} lies before the log, which begins at {first}")

    def term_at(self, index: int) -> int:
        """From the last index before the log on; the caller knows where the log ends."""
        self.check_kept(index + 1)
        number = bisect_right(self._indices, index)
        return self.entries[number - 1].term if number else self.base.term

    def offset_after(self, index: int) -> int:
        """The offset of the next client's record after everything up to and with `index`."""
        self.check_kept(index + 1)
        number = bisect_right(self._indices, index)
        before = self.entries[number - 1] if number else self.base
        return before.offset + index - before.index

    def index_of(self, offset: int) -> int:
        """The index of the client's record at `offset`."""
        number = bisect_right(self._offsets, offset)
        before = self.entries[number - 1] if number else self.base
        return before.index + offset - before.offset + 1

    def term_of(self, offset: int) -> int:
        """The term of the client's record at `offset`."""
        number = bisect_right(self._offsets, offset)
        return self.entries[number - 1].term if number else self.base.term

    def index_before(self, offset: int) -> int:
        """The smallest index after which `offset` is the next."""
        return self.index_of(offset - 1) if offset > self.base.offset else self.base.index

    def last_index(self, end_offset: int) -> int:
        """The last index of a log that ends at `end_offset` and holds all these entries."""
        last = self.entries[-1] if self.entries else self.base
        return last.index + end_offset - last.offset

    # The own entries

    def at(self, index: int) -> OwnEntry | None:
        number = bisect_left(self._indices, index)
        is_there = number < len(self._indices) and self._indices[number] == index
        return self.entries[number] if is_there else None

    def next_index(self, index: int) -> int:
        """The index of the first own entry from `index` on; beyond all if there is none."""
        number = bisect_left(self._indices, index)
        return self._indices[number] if number < len(self._indices) else NO_OFFSET

    def next_offset(self, offset: int) -> int:
        """The offset of the first own entry that lies behind a record at `offset`."""
        number = bisect_right(self._offsets, offset)
        return self._offsets[number] if number < len(self._offsets) else NO_OFFSET

    def memberships(self) -> list[tuple[int, bytes]]:
        """That before the log, then all in it, each with its index."""
        inside = ((entry.index, entry.payload) for entry in self._of_kind(OwnKind.MEMBERSHIP))
        return [(self.base.membership_index, self.base.membership), *inside]

    def epochs(self, start_offset: int) -> list[tuple[int, int]]:
        """Terms in order, each with the first offset that it could write to.

        Those that ended before `start_offset` are left out, and the one it lies in begins there.
        """
        found = [(self.base.term, self.base.offset)] if self.base.term > 0 else []
        found += [(entry.term, entry.offset) for entry in self._of_kind(OwnKind.NEW_TERM)]
        gone = [term for term, offset in found if offset <= start_offset]
        return [(term, start_offset) for term in gone[-1:]] + found[len(gone) :]

    def _of_kind(self, kind: OwnKind) -> list[OwnEntry]:
        return [entry for entry in self.entries if entry.kind is kind]

    # Other tables

    def misfit(self, entry: OwnEntry) -> str:
        """Why `entry` can't be the next own entry; empty if it can."""
        expected = self.last_index(entry.offset) + 1
        if entry.index != expected:
            return f"Raft's own entry has index {entry.index} instead of {expected}"
        is_new_term = entry.kind is OwnKind.NEW_TERM
        if entry.term <= self.last_term if is_new_term else entry.term != self.last_term:
            return f"Raft's own entry is from term {entry.term}, the log is in {self.last_term}"
        return ""

    def plus(self, entry: OwnEntry) -> "OwnTable":
        return OwnTable(self.base, (*self.entries, entry))

    def before(self, index: int) -> "OwnTable":
        """Without the entries from `index` on."""
        return OwnTable(self.base, self.entries[: bisect_left(self._indices, index)])

    def moved_to(self, offset: int) -> "OwnTable":
        """For a log that begins at `offset`; own entries that lie there stay.

        They may be uncommitted, while all records before an offset that a log may begin at are
        committed.
        """
        if offset <= self.base.offset:
            return self
        index = self.index_before(offset)
        membership_index, membership = [step for step in self.memberships() if step[0] <= index][-1]
        base = LogBase(offset, index, self.term_at(index), membership, membership_index)
        return OwnTable(base, self.entries[bisect_left(self._offsets, offset) :])
