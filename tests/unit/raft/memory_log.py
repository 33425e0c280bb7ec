"""A log in memory: what a host's disk holds, for tests that own the disk themselves."""

from collections.abc import Callable, Iterable, Sequence

from penstock.model.ids import LogIndex, ReplicaId, Term
from penstock.raft.entries import NO_INDEX, NO_TERM, Entry, EntryKind, HardState, Snapshot
from penstock.raft.ready import Write


class MemoryLog:
    """Implements LogView; `carry_out` is the disk."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.base_index: int = NO_INDEX
        self.base_term: int = NO_TERM
        self.snapshot: Snapshot | None = None
        self.hard_state = HardState()
        # One item per index: data that covers several is there as often; an index inside a gap
        # holds a gap of its own.
        self.items: list[Entry] = []
        # Whether nobody has to wait for the disk.
        self.is_warm: Callable[[ReplicaId], bool] = lambda _: True
        self.store(entries)

    @property
    def first_index(self) -> LogIndex:
        return LogIndex(self.base_index + 1)

    @property
    def last_index(self) -> LogIndex:
        return LogIndex(self.base_index + len(self.items))

    def term_at(self, index: LogIndex) -> Term:
        if index == self.base_index:
            return Term(self.base_term)
        assert self.base_index < index <= self.last_index
        return self.items[index - self.base_index - 1].term

    def is_at_hand(self, low: LogIndex, follower: ReplicaId) -> bool:
        assert self.first_index <= low <= self.last_index
        return self.is_warm(follower)

    def entries(self, low: LogIndex, high: LogIndex, bytes_max: int) -> Sequence[Entry]:
        assert self.first_index <= low < high <= self.last_index + 1
        found: list[Entry] = []
        total = 0
        index: int = low
        while index < high:
            item = self.items[index - self.base_index - 1]
            assert index == item.first_index <= item.index < high, "data is read whole"
            total += item.size_bytes
            if found and total > bytes_max:
                break
            is_gap = item.kind is EntryKind.GAP
            if found and is_gap and (found[-1].kind, found[-1].term) == (item.kind, item.term):
                found[-1] = item._replace(span=found[-1].span + 1)
            else:
                found.append(item)
            index = item.index + 1
        return found

    def entry_start(self, index: LogIndex) -> LogIndex:
        item = self.items[index - self.base_index - 1]
        first: int = item.first_index
        while item.kind is EntryKind.GAP and first > self.first_index:
            before = self.items[first - self.base_index - 2]
            if (before.kind, before.term) != (item.kind, item.term):
                break
            first -= 1
        return LogIndex(first)

    def store(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            del self.items[entry.first_index - self.base_index - 1 :]
            assert entry.first_index == self.last_index + 1
            assert not self.items or self.items[-1].index == self.last_index, "data was cut"
            if entry.kind is EntryKind.GAP:
                first = entry.first_index
                for index in range(first, entry.index + 1):
                    self.items.append(entry._replace(index=LogIndex(index), span=1))
            else:
                self.items += [entry] * entry.span

    def carry_out(self, write: Write) -> None:
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        if write.snapshot is not None:
            self.install(write.snapshot)
        self.store(write.entries)

    def install(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.base_index, self.base_term = snapshot.index, snapshot.term
        self.items.clear()

    def drop_before(self, index: int) -> None:
        """Retention: entries below `index` are gone, the term just before stays known. An entry
        that covers `index` stays whole."""
        count = index - self.first_index
        if count > 0 and index <= self.last_index:
            count = self.items[count].first_index - self.first_index
        if count > 0:
            self.base_term = self.items[count - 1].term
            self.base_index += count
            del self.items[:count]

    def make_gap(self, first: int, last: int) -> None:
        """Compaction: these entries are gone, their terms stay known."""
        for index in range(first, last + 1):
            position = index - self.base_index - 1
            old = self.items[position]
            assert first <= old.first_index <= old.index <= last, "data is removed whole"
            self.items[position] = Entry(LogIndex(index), old.term, EntryKind.GAP, None, 0)

    def copy(self) -> "MemoryLog":
        twin = MemoryLog()
        twin.base_index, twin.base_term = self.base_index, self.base_term
        twin.snapshot, twin.hard_state = self.snapshot, self.hard_state
        twin.items = list(self.items)
        return twin
