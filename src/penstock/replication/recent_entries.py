"""The newest entries that leaders of this node proposed, for followers that are a little behind.

An entry leaves the core's memory as soon as it is safe here, which is often before every follower
was sent it. Reading it back from the file at once would cost more than all else that is done for
it. One bound holds for all groups of a node: the oldest entry goes first, whosever it is.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from operator import attrgetter

from penstock.model.limits import MIB
from penstock.raft.entries import Entry

RECENT_BYTES_MAX = 32 * MIB
# One group that keeps more than this looks more often for what it may let go of.
LARGE_BYTES_MIN = 2 * MIB
# What a small entry takes beside its bytes.
_ENTRY_BYTES = 400
_FORGOTTEN_MAX = 1_000

_last_index = attrgetter("index")


class RecentEntries:
    """Everything that is kept, in the order in which it came, by a number that counts up."""

    __slots__ = ("_bytes", "_bytes_max", "_number", "_order")

    def __init__(self, bytes_max: int = RECENT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._number = 0
        self._order: OrderedDict[int, tuple[GroupEntries, int]] = OrderedDict()

    @property
    def bytes_kept(self) -> int:
        return self._bytes

    def group(self) -> "GroupEntries":
        return GroupEntries(self)

    def keep(self, group: "GroupEntries", entry: Entry) -> int:
        """Gives the entry's number."""
        self._number += 1
        size = entry.size_bytes + _ENTRY_BYTES
        self._order[self._number] = (group, size)
        self._bytes += size
        return self._number

    def release(self, number: int) -> int:
        """Gives the size of what goes."""
        _, size = self._order.pop(number)
        self._bytes -= size
        return size

    def shrink(self) -> None:
        while self._bytes > self._bytes_max:
            _, (group, size) = self._order.popitem(last=False)
            self._bytes -= size
            group.forget_oldest(size)


class GroupEntries:
    """One group's part: a stretch of its log without holes, the newest entry last."""

    __slots__ = ("_bytes", "_entries", "_first", "_numbers", "_recent")

    def __init__(self, recent: RecentEntries) -> None:
        self._recent = recent
        self._entries: list[Entry] = []
        self._numbers: list[int] = []
        # How many at the head of both lists are forgotten already.
        self._first = 0
        self._bytes = 0

    @property
    def is_large(self) -> bool:
        """Whether it is worth the while to find out what nobody needs any more."""
        return self._bytes > LARGE_BYTES_MIN

    def add(self, entries: Sequence[Entry]) -> None:
        if self._entries and self._entries[-1].index + 1 != entries[0].first_index:
            self.clear()
        recent = self._recent
        self._entries += entries
        self._numbers += [recent.keep(self, entry) for entry in entries]
        self._bytes += sum([entry.size_bytes + _ENTRY_BYTES for entry in entries])
        recent.shrink()

    def forget_oldest(self, size: int) -> None:
        self._bytes -= size
        self._first += 1
        if self._first > _FORGOTTEN_MAX or self._first == len(self._entries):
            self._drop_forgotten()

    def truncate(self, index: int) -> None:
        """Entries from `index` on are gone."""
        position = self._position(index)
        self._release(position, len(self._entries))
        del self._entries[position:], self._numbers[position:]

    def settle(self, index: int) -> None:
        """Nobody needs what is up to `index` any more."""
        position = self._position(index + 1)
        self._release(self._first, position)
        self._first = position
        self._drop_forgotten()

    def clear(self) -> None:
        self._release(self._first, len(self._entries))
        self._first = len(self._entries)
        self._drop_forgotten()

    def has(self, low: int) -> bool:
        """Whether an entry that begins at `low` is kept."""
        position = self._position(low)
        return position < len(self._entries) and self._entries[position].first_index == low

    def read(self, low: int, high: int, bytes_max: int) -> list[Entry]:
        """From `low` on, before `high`: at least one, then as many as fit; none if it is not
        kept."""
        entries = self._entries
        position = self._position(low)
        if position >= len(entries) or entries[position].first_index != low:
            return []
        found: list[Entry] = []
        while position < len(entries):
            entry = entries[position]
            bytes_max -= entry.size_bytes
            if entry.index >= high or (found and bytes_max < 0):
                break
            found.append(entry)
            position += 1
        return found

    def _position(self, index: int) -> int:
        return bisect_left(self._entries, index, self._first, key=_last_index)

    def _release(self, start: int, end: int) -> None:
        for number in self._numbers[start:end]:
            self._bytes -= self._recent.release(number)

    def _drop_forgotten(self) -> None:
        del self._entries[: self._first], self._numbers[: self._first]
        self._first = 0
