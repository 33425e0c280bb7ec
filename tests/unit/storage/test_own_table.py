"""The table of Raft's own entries: cheap to extend, small, and never changed for its readers."""

import time
import tracemalloc
from itertools import count, islice

from hypothesis import given
from hypothesis import strategies as st

from penstock.records.own_entries import OwnKind
from penstock.storage.own_table import LogBase, OwnEntry, OwnTable

BASE = LogBase(offset=10, index=15, term=3, membership=b"founders", membership_index=2)
MANY = 100_000
# A copy of this many entries takes a thousand times as long as an append; noise does not.
SLOWER_MAX = 10
# 33 of the columns, 8 of every second payload, and what arrays keep for growing.
ENTRY_BYTES_MAX = 48


def entries(*, first: int = 0) -> "islice[OwnEntry]":
    """A term, then a new begin of the log, and so on, with three records behind each."""
    made = (
        OwnEntry(
            BASE.index + 4 * number + 1,
            BASE.term + number // 2 + 1,
            BASE.offset + 3 * number,
            OwnKind.LOG_START if number % 2 else OwnKind.NEW_TERM,
            (3 * number).to_bytes(8, "big") if number % 2 else b"",
        )
        for number in count(first)
    )
    return islice(made, MANY)


def seconds_to_add(table: OwnTable, new: list[OwnEntry]) -> float:
    """The best of several: the tables before stay as they are, so each begins with the same."""
    best = 10.0**6
    for _ in range(5):
        # The columns of a table that was extended before are another's: this one has its own.
        grown = OwnTable(table.base, list(table.entries))
        begin = time.perf_counter()
        for entry in new:
            grown = grown.plus(entry)
        best = min(best, time.perf_counter() - begin)
    return best


def test_an_entry_costs_the_same_however_many_there_are() -> None:
    few, many = OwnTable(BASE), OwnTable(BASE, list(entries()))
    fast = seconds_to_add(few, list(islice(entries(), 100)))
    slow = seconds_to_add(many, list(islice(entries(first=MANY), 100)))
    assert slow < SLOWER_MAX * fast


def test_an_entry_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        table = OwnTable(BASE)
        for entry in entries():
            table = table.plus(entry)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < ENTRY_BYTES_MAX * len(table.entries)


class Pair:
    """A table and the entries that it should hold."""

    def __init__(self, table: OwnTable, entries: list[OwnEntry]) -> None:
        self.table = table
        self.entries = entries

    @property
    def end_offset(self) -> int:
        return (self.entries[-1].offset if self.entries else self.table.base.offset) + 4

    def check(self) -> None:
        table, base = self.table, self.table.base
        assert table.entries == self.entries
        assert self.entries == list(table.entries)
        last = table.last_index(self.end_offset)
        own = {entry.index: entry for entry in self.entries}
        term, offset = base.term, base.offset
        for index in range(base.index, last + 1):
            entry = own.get(index)
            if entry is not None:
                term = entry.term
            elif index > base.index:
                offset += 1
                assert table.index_of(offset - 1) == index
                assert table.term_of(offset - 1) == term
            assert table.at(index) == entry
            assert table.term_at(index) == term
            assert table.offset_after(index) == offset
        assert table.last_term == (self.entries[-1].term if self.entries else base.term)
        assert [index for index, _ in table.memberships()][1:] == [
            entry.index for entry in self.entries if entry.kind is OwnKind.MEMBERSHIP
        ]

    def plus(self, kind: OwnKind, records: int) -> "Pair":
        offset = self.end_offset - 4 + records
        entry = OwnEntry(
            self.table.last_index(offset) + 1,
            self.table.last_term + (kind is OwnKind.NEW_TERM),
            offset,
            kind,
            b"" if kind is OwnKind.NEW_TERM else b"%d" % offset,
        )
        return Pair(self.table.plus(entry), [*self.entries, entry])

    def before(self, index: int) -> "Pair":
        kept = [entry for entry in self.entries if entry.index < index]
        return Pair(self.table.before(index), kept)

    def moved_to(self, offset: int) -> "Pair":
        if offset <= self.table.base.offset:
            return Pair(self.table.moved_to(offset), self.entries)
        kept = [entry for entry in self.entries if entry.offset >= offset]
        return Pair(self.table.moved_to(offset), kept)


STEPS = st.lists(
    st.tuples(st.sampled_from(["plus", "plus", "plus", "before", "moved_to"]), st.integers(0, 40)),
    max_size=25,
)


@given(STEPS, st.integers(0, 10**6))
def test_every_table_stays_as_it_was_whatever_grows_out_of_it(
    steps: list[tuple[str, int]], chance: int
) -> None:
    pairs = [Pair(OwnTable(BASE), [])]
    for number, (step, amount) in enumerate(steps):
        # Mostly from the newest table, as a log does, and at times from an older one.
        pair = pairs[-1] if (chance >> number) % 4 else pairs[chance % len(pairs)]
        if step == "plus":
            kind = OwnKind(1 + amount % 3)
            pairs.append(pair.plus(kind, amount % 5))
        elif step == "before":
            pairs.append(pair.before(pair.table.base.index + 1 + amount))
        else:
            end = pair.end_offset - 4
            pairs.append(pair.moved_to(min(end, pair.table.base.offset + amount)))
    for pair in pairs:
        pair.check()
