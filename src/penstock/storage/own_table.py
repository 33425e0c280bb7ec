"""Raft's own entries of one log, and what they tell: the index and the term of everything in it.

An entry's index is its offset, plus the number of own entries before it, plus what is before the
log. So nothing is kept per batch, and an index is for life: compaction and deletion change neither
offsets nor own entries.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, overload

from penstock.records.batch import BatchHeader
from penstock.records.own_entries import OwnKind, build_own, parse_own

# Beyond every offset.
NO_OFFSET = 2**63
# Much faster than a call of the class, and a checkpoint goes through all entries.
_KINDS = {int(kind): kind for kind in OwnKind}


class EntriesGone(LookupError):
    """The index is before the log: retention was faster than the reader."""


class EntriesCut(LookupError):
    """The log does not hold this, or not as whole entries: it was cut since the caller looked."""


class LogBase(NamedTuple):
    """What is before a log's first entry."""

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
        """The entry as it is in the segment."""
        return build_own(
            self.kind, index=self.index, term=self.term, offset=self.offset, payload=self.payload
        )


def read_own(batch: bytes | bytearray | memoryview, header: BatchHeader) -> OwnEntry:
    """The own entry in this batch; raises CorruptBatch if it is none."""
    content = parse_own(batch, header)
    return OwnEntry(
        content.index, header.leader_epoch, header.base_offset, content.kind, content.payload
    )


class _Columns:
    """Own entries as flat columns: a log that is never deleted collects them for life.

    They only grow. A table that was given the first of them may read those at any time.
    """

    __slots__ = ("indices", "kinds", "offsets", "payload_ends", "payloads", "terms")

    def __init__(self) -> None:
        self.indices = array("q")
        self.offsets = array("q")
        self.terms = array("q")
        self.kinds = bytearray()
        # All payloads one behind the other, and where each ends.
        self.payloads = bytearray()
        self.payload_ends = array("q")

    def append(self, entry: OwnEntry) -> None:
        self.indices.append(entry.index)
        self.offsets.append(entry.offset)
        self.terms.append(entry.term)
        self.kinds.append(entry.kind)
        self.payloads += entry.payload
        self.payload_ends.append(len(self.payloads))

    def entries(self, start: int, stop: int) -> Iterator[OwnEntry]:
        begin = self.payload_ends[start - 1] if start else 0
        for number in range(start, stop):
            end = self.payload_ends[number]
            yield OwnEntry(
                self.indices[number],
                self.terms[number],
                self.offsets[number],
                _KINDS[self.kinds[number]],
                bytes(self.payloads[begin:end]),
            )
            begin = end

    def entry(self, number: int) -> OwnEntry:
        return next(self.entries(number, number + 1))

    def part(self, start: int, stop: int) -> "_Columns":
        """Columns of their own with the entries from `start` to before `stop`."""
        found = _Columns()
        first = self.payload_ends[start - 1] if start else 0
        end = self.payload_ends[stop - 1] if stop else 0
        found.indices = self.indices[start:stop]
        found.offsets = self.offsets[start:stop]
        found.terms = self.terms[start:stop]
        found.kinds = self.kinds[start:stop]
        found.payloads = self.payloads[first:end]
        found.payload_ends = array("q", [each - first for each in self.payload_ends[start:stop]])
        return found


class OwnEntries(Sequence[OwnEntry]):
    """The first `length` entries of columns, which may grow behind them; never changed itself."""

    __slots__ = ("columns", "length")

    def __init__(self, columns: _Columns, length: int) -> None:
        self.columns = columns
        self.length = length

    @classmethod
    def of(cls, entries: Iterable[OwnEntry]) -> "OwnEntries":
        if isinstance(entries, OwnEntries):
            return entries
        columns = _Columns()
        for entry in entries:
            columns.append(entry)
        return cls(columns, len(columns.indices))

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[OwnEntry]:
        return self.columns.entries(0, self.length)

    @overload
    def __getitem__(self, number: int) -> OwnEntry: ...

    @overload
    def __getitem__(self, number: slice) -> tuple[OwnEntry, ...]: ...

    def __getitem__(self, number: int | slice) -> OwnEntry | tuple[OwnEntry, ...]:
        found = range(self.length)[number]
        if isinstance(found, int):
            return self.columns.entry(found)
        return tuple(self.columns.entry(each) for each in found)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or self.length != len(other):
            return False
        is_same = isinstance(other, OwnEntries) and self.columns is other.columns
        return is_same or all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # nobody needs one

    def __repr__(self) -> str:
        return repr(tuple(self))

    def plus(self, entry: OwnEntry) -> "OwnEntries":
        """In place if these are all that the columns hold; else there is another future already."""
        columns, length = self.columns, self.length
        if len(columns.indices) > length:
            # A write that failed is tried again with the same entries.
            if columns.entry(length) == entry:
                return OwnEntries(columns, length + 1)
            columns = columns.part(0, length)
        columns.append(entry)
        return OwnEntries(columns, length + 1)


class OwnTable:
    """Never changed, only replaced, so that any thread may read it."""

    __slots__ = (
        "_count",
        "_indices",
        "_kinds",
        "_last_distance",
        "_offsets",
        "_terms",
        "base",
        "entries",
        "last_term",
    )

    def __init__(self, base: LogBase, entries: Iterable[OwnEntry] = ()) -> None:
        self.base = base
        self.entries = OwnEntries.of(entries)
        columns = self.entries.columns
        self._count = self.entries.length
        self._indices = columns.indices
        self._offsets = columns.offsets
        self._terms = columns.terms
        self._kinds = columns.kinds
        # Every append asks for these.
        self.last_term = self._terms[self._count - 1] if self._count else base.term
        self._last_distance = self._distance(self._count)

    # Indices, offsets and terms

    def check_kept(self, index: int) -> None:
        if index <= self.base.index:
            first = self.base.index + 1
            raise EntriesGone(f"index {index} is before the log, which starts at {first}")

    def term_at(self, index: int) -> int:
        """From the last index before the log on; the caller knows where the log ends."""
        self.check_kept(index + 1)
        number = bisect_right(self._indices, index, 0, self._count)
        return self._terms[number - 1] if number else self.base.term

    def offset_after(self, index: int) -> int:
        """The offset of the next client's record after everything up to and with `index`."""
        self.check_kept(index + 1)
        return index - self._distance(bisect_right(self._indices, index, 0, self._count))

    def index_of(self, offset: int) -> int:
        """The index of the client's record at `offset`."""
        number = bisect_right(self._offsets, offset, 0, self._count)
        return offset + self._distance(number) + 1

    def _distance(self, number: int) -> int:
        """From offsets to indices, behind the first `number` own entries."""
        if number == 0:
            return self.base.index - self.base.offset
        return self._indices[number - 1] - self._offsets[number - 1]

    def term_of(self, offset: int) -> int:
        """The term of the client's record at `offset`."""
        number = bisect_right(self._offsets, offset, 0, self._count)
        return self._terms[number - 1] if number else self.base.term

    def index_before(self, offset: int) -> int:
        """The smallest index after which `offset` is the next."""
        return self.index_of(offset - 1) if offset > self.base.offset else self.base.index

    def last_index(self, end_offset: int) -> int:
        """The last index of a log that ends at `end_offset` and holds all these entries."""
        return end_offset + self._last_distance

    # The own entries

    def at(self, index: int) -> OwnEntry | None:
        number = bisect_left(self._indices, index, 0, self._count)
        is_there = number < self._count and self._indices[number] == index
        return self.entries[number] if is_there else None

    def next_index(self, index: int) -> int:
        """The index of the first own entry from `index` on; beyond all if there is none."""
        number = bisect_left(self._indices, index, 0, self._count)
        return self._indices[number] if number < self._count else NO_OFFSET

    def next_offset(self, offset: int) -> int:
        """The offset of the first own entry that is behind a record at `offset`."""
        number = bisect_right(self._offsets, offset, 0, self._count)
        return self._offsets[number] if number < self._count else NO_OFFSET

    def memberships(self) -> list[tuple[int, bytes]]:
        """That before the log, then all in it, each with its index."""
        inside = (self.entries[number] for number in self._of_kind(OwnKind.MEMBERSHIP))
        return [
            (self.base.membership_index, self.base.membership),
            *((entry.index, entry.payload) for entry in inside),
        ]

    def epochs(self, start_offset: int) -> list[tuple[int, int]]:
        """Terms in order, each with the first offset that it could write to.

        Those that ended before `start_offset` are left out, and the one it is in begins there.
        """
        found = [(self.base.term, self.base.offset)] if self.base.term > 0 else []
        found += [
            (self._terms[number], self._offsets[number])
            for number in self._of_kind(OwnKind.NEW_TERM)
        ]
        gone = [term for term, offset in found if offset <= start_offset]
        return [(term, start_offset) for term in gone[-1:]] + found[len(gone) :]

    def _of_kind(self, wanted: OwnKind) -> list[int]:
        kinds = self._kinds[: self._count]
        return [number for number, kind in enumerate(kinds) if kind == wanted]

    # Other tables

    def misfit(self, entry: OwnEntry) -> str:
        """Why `entry` can't be the next own entry; empty if it can."""
        expected = self.last_index(entry.offset) + 1
        if entry.index != expected:
            return f"Raft's own entry has index {entry.index} instead of {expected}"
        is_new_term = entry.kind is OwnKind.NEW_TERM
        if entry.term <= self.last_term if is_new_term else entry.term != self.last_term:
            return f"Raft's own entry is from term {entry.term}, but the log is in {self.last_term}"
        return ""

    def plus(self, entry: OwnEntry) -> "OwnTable":
        """At a cost that does not grow with the table."""
        return OwnTable(self.base, self.entries.plus(entry))

    def before(self, index: int) -> "OwnTable":
        """Without the entries from `index` on."""
        count = bisect_left(self._indices, index, 0, self._count)
        return OwnTable(self.base, OwnEntries(self.entries.columns, count))

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
        start = bisect_left(self._offsets, offset, 0, self._count)
        columns = self.entries.columns.part(start, self._count)
        return OwnTable(base, OwnEntries(columns, self._count - start))
