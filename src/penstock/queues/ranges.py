"""A sorted map from offsets to what is known of them, in ranges without holes.

What a change costs follows from how many ranges it touches, and from the logarithm of how many
there are: a consumer that acks every second record of a long backlog leaves a range per record.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TypeAlias

from sortedcontainers import SortedDict, SortedList, SortedSet

from penstock.model.ids import MemberId
from penstock.queues.commands import Range, RecordState

_AVAILABLE = RecordState.AVAILABLE
_LEASED = RecordState.LEASED
_DELAYED = RecordState.DELAYED
_DYING = RecordState.DYING
_BLOCKED = RecordState.BLOCKED
DONE = frozenset((RecordState.ACKED, RecordState.DEAD))
# What the start moves on behind: nobody gets a dying record any more.
PASSED = DONE | {_DYING}

# Hears how many more records a member has, or fewer.
Tally: TypeAlias = Callable[[MemberId, int], None]
# A time and an offset as one number, which takes a third of the memory of a pair.
_OFFSET_BITS = 64
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1

# What a map keeps of its ranges, and `validate` counts again.
_KEPT = (
    "_available",
    "_by_member",
    "_dying",
    "available_count",
    "leased_count",
    "delayed_count",
    "blocked_count",
    "dying_count",
    "done_count",
    "waiting_count",
)


class RangeMap:
    """Every offset from `start` up to `end` is in one range. Equal neighbours are one range. Below
    the start, only dying records are known."""

    def __init__(
        self, start: int, ranges: Iterable[Range] = (), *, tally: Tally | None = None
    ) -> None:
        """From `start` on, `ranges` follow one another, and no two neighbours are equal."""
        self.start = start
        self._tally = tally
        self._by_first: SortedDict[int, Range] = SortedDict()
        # Dying records below the start.
        self._left: SortedDict[int, Range] = SortedDict()
        # The first offsets of ranges by what is asked for: the next to deliver, a member's, those
        # on their way to the dead-letter topic, and those that are due next, with their times.
        # Who only stores a queue never asks for the last: they are found when somebody does.
        self._available: SortedSet[int] = SortedSet()
        self._dying: SortedSet[int] = SortedSet()
        self._delayed: SortedList[int] | None = None
        self._by_member: defaultdict[MemberId, set[int]] = defaultdict(set)
        self.available_count = 0
        self.leased_count = 0
        self.delayed_count = 0
        self.blocked_count = 0
        self.dying_count = 0
        # Offsets that nobody gets any more, and those of them that are done and had a record.
        self.done_count = 0
        self.waiting_count = 0
        known = list(ranges)
        # The first offset that nothing is known of.
        self.end = max(start, known[-1].last + 1) if known else start
        self._by_first.update((each.first, each) for each in known if each.first >= start)
        for each in known:
            if each.first >= start:
                self._index(each)
            else:
                self._add_left(each)

    def __len__(self) -> int:
        return len(self._by_first)

    def __iter__(self) -> Iterator[Range]:
        return chain(self._left.values(), self._by_first.values())

    def put(self, new: Range) -> None:
        """Says what is known of these offsets from now on."""
        if new.first < self.start:
            self._put_left(cut(new, new.first, self.start - 1))
            if new.last < self.start:
                return
            new = cut(new, self.start, new.last)
        if new.first > self.end:
            raise AssertionError(f"{new} leaves a hole behind {self.end - 1}")
        same = self._by_first.get(new.first)
        if same is not None and same.last == new.last and self._stands_alone(new):
            # Most often a range changes as a whole, and then the order of all others stays.
            self._forget(same)
            self._by_first[new.first] = new
            self._index(new)
            return
        first, last = new.first, new.last
        for old in self._touching(first, last):
            is_apart = old.last < new.first or old.first > new.last
            if is_apart and not _is_alike(old, new):
                continue
            self._remove(old)
            if old.first < new.first:
                first = self._keep(old._replace(last=new.first - 1), new, first)
            if old.last > new.last:
                last = self._keep(old._replace(first=new.last + 1), new, last)
        is_wider = first != new.first or last != new.last
        # The range itself, if it can be: who stores the queue on the same node has it too.
        self._add(new._replace(first=first, last=last) if is_wider else new)
        self.end = max(self.end, last + 1)

    def _stands_alone(self, new: Range) -> bool:
        """Whether no neighbour is equal."""
        behind = self._by_first.get(new.last + 1)
        if behind is not None and _is_alike(behind, new):
            return False
        before = self.at(new.first - 1)
        return before is None or not _is_alike(before, new)

    def _keep(self, rest: Range, new: Range, edge: int) -> int:
        """Keeps what `new` leaves of a range, or joins it to `new`, whose edge it then moves."""
        if not _is_alike(rest, new):
            self._add(rest)
            return edge
        return rest.first if rest.first < new.first else rest.last

    def move_start(self, start: int) -> None:
        """Forgets what lies below `start`, but for dying records. A start that is lower than before
        opens a hole, which the caller fills."""
        if start < self.start:
            self._put_left(Range(start, self.start - 1, RecordState.DEAD, 0))
        self.start = start
        while self._by_first:
            lowest = self._by_first.peekitem(0)[1]
            if lowest.first >= start:
                return
            self._remove(lowest)
            if lowest.state is _DYING:
                self._put_left(cut(lowest, lowest.first, start - 1))
            if lowest.last >= start:
                self._add(lowest._replace(first=start))
        self.end = start

    def _put_left(self, new: Range) -> None:
        """What is known of offsets below the start: that they are dying, or nothing."""
        for old in list(self.left_between(new.first - 1, new.last + 1)):
            whole = self._left.pop(self._left_floor(old.first))
            self.dying_count -= whole.last - whole.first + 1
            if _is_alike(whole, new):
                new = new._replace(
                    first=min(new.first, whole.first), last=max(new.last, whole.last)
                )
                continue
            before, behind = whole._replace(last=new.first - 1), whole._replace(first=new.last + 1)
            self._add_left(cut(before, whole.first, whole.last))
            self._add_left(cut(behind, whole.first, whole.last))
        if new.state is _DYING:
            self._add_left(new)

    def _add_left(self, new: Range) -> None:
        if new.first <= new.last:
            self._left[new.first] = new
            self.dying_count += new.last - new.first + 1

    def _left_floor(self, offset: int) -> int:
        found = next(self._left.irange(maximum=offset, reverse=True), None)
        return offset if found is None or self._left[found].last < offset else found

    def left_between(self, first: int, last: int) -> Iterator[Range]:
        """The dying records below the start among these offsets."""
        for key in self._left.irange(self._left_floor(first), last):
            yield cut(self._left[key], first, last)

    def at(self, offset: int) -> Range | None:
        beginning: Range | None = self._by_first.get(offset)
        if beginning is not None:
            return beginning
        # Not by position: the first to ask for one after a change pays for an index of all.
        first = next(self._by_first.irange(maximum=offset, reverse=True), None)
        if first is None:
            return None
        found: Range = self._by_first[first]
        return found if found.last >= offset else None

    def between(self, first: int, last: int) -> Iterator[Range]:
        """The ranges that have offsets from `first` to `last`, cut to those."""
        for key in self._by_first.irange(self._floor(first, last), last):
            yield cut(self._by_first[key], first, last)

    def available_between(self, first: int, last: int) -> Iterator[Range]:
        """Those that can be delivered, without a look at the others."""
        for key in self._available.irange(self._floor(first, last), last):
            yield cut(self._by_first[key], first, last)

    def _floor(self, first: int, last: int) -> int:
        """Where the range begins that `first` lies in, if there is anything to look for."""
        floor = self.at(first) if first <= last else None
        return first if floor is None else floor.first

    def first_available(self, since: int = 0) -> int | None:
        """The first offset of a range that can be delivered, if one begins there or behind it."""
        if not since:
            return self._available[0] if self._available else None
        return next(self._available.irange(since), None)

    def next_due_ms(self) -> int | None:
        if not self.delayed_count:
            return None
        return int(self._by_due()[0]) >> _OFFSET_BITS

    def due(self, now_ms: int) -> Iterator[Range]:
        """What was delayed until now, the longest due first."""
        if not self.delayed_count:
            return
        for number in self._by_due():
            if number >> _OFFSET_BITS > now_ms:
                return
            yield self._by_first[number & _OFFSET_MASK]

    def _by_due(self) -> "SortedList[int]":
        if self._delayed is None:
            self._delayed = SortedList(_due_key(each) for each in self if each.state is _DELAYED)
        return self._delayed

    def dying(self) -> Iterator[Range]:
        return chain(self._left.values(), (self._by_first[first] for first in self._dying))

    def leases_of(self, member_id: MemberId) -> list[Range]:
        return [self._by_first[first] for first in sorted(self._by_member.get(member_id, ()))]

    def members(self) -> list[MemberId]:
        return list(self._by_member)

    def _touching(self, first: int, last: int) -> list[Range]:
        """The ranges that overlap these offsets or lie right beside them."""
        low = self._floor(first - 1, last)
        return [self._by_first[key] for key in self._by_first.irange(low, last + 1)]

    def _add(self, new: Range) -> None:
        self._by_first[new.first] = new
        self._index(new)

    def _index(self, new: Range) -> None:
        if new.state is _AVAILABLE:
            self._available.add(new.first)
        elif new.state is _LEASED:
            assert new.member_id is not None
            self._by_member[new.member_id].add(new.first)
        elif new.state is _DELAYED:
            if self._delayed is not None:
                self._delayed.add(_due_key(new))
        elif new.state is _DYING:
            self._dying.add(new.first)
        self._count(new, 1)

    def _remove(self, old: Range) -> None:
        del self._by_first[old.first]
        self._forget(old)

    def _forget(self, old: Range) -> None:
        if old.state is _AVAILABLE:
            self._available.discard(old.first)
        elif old.state is _LEASED:
            assert old.member_id is not None
            mine = self._by_member[old.member_id]
            mine.discard(old.first)
            if not mine:
                del self._by_member[old.member_id]
        elif old.state is _DELAYED:
            if self._delayed is not None:
                self._delayed.remove(_due_key(old))
        elif old.state is _DYING:
            self._dying.discard(old.first)
        self._count(old, -1)

    def _count(self, each: Range, sign: int) -> None:
        count = sign * (each.last - each.first + 1)
        if each.state is _AVAILABLE:
            self.available_count += count
        elif each.state is _LEASED:
            self.leased_count += count
            if self._tally is not None:
                assert each.member_id is not None
                self._tally(each.member_id, count)
        elif each.state is _DELAYED:
            self.delayed_count += count
        elif each.state is _BLOCKED:
            self.blocked_count += count
        elif each.state in PASSED:
            self.dying_count += count if each.state is _DYING else 0
            self.done_count += count
            self.waiting_count += count if each.attempts and each.state is not _DYING else 0

    def validate(self) -> None:
        """Raises AssertionError if ranges leave holes, are split for nothing, or are miscounted."""
        copy = RangeMap(self.start)
        end = 0
        for each in self._left.values():
            assert end <= each.first <= each.last < self.start, f"{each} is not below the start"
            assert each.state is _DYING, f"{each} is done with"
            copy._add_left(each)
            end = each.last + 1
        before: Range | None = None
        for each in self._by_first.values():
            assert each.first <= each.last, f"{each} has no offset"
            expected = self.start if before is None else before.last + 1
            assert each.first == expected, f"{each} should begin at {expected}"
            assert before is None or not _is_alike(before, each), f"{before} and {each} are alike"
            assert (each.member_id is not None) == (each.state is _LEASED), f"{each}: whose?"
            assert (each.due_ms != 0) == (each.state is _DELAYED), f"{each}: when?"
            assert (each.death != 0) == (each.state is _DYING), f"{each}: why?"
            copy._add(each)
            before = each
        assert self.end == (self.start if before is None else before.last + 1), "it ends elsewhere"
        for name in _KEPT:
            mine, right = getattr(self, name), getattr(copy, name)
            assert mine == right, f"{name} is {mine}, not {right}"
        if self._delayed is not None:
            assert self._delayed == copy._by_due(), "what is due is not known"


def cut(each: Range, first: int, last: int) -> Range:
    if first <= each.first and each.last <= last:
        return each
    return each._replace(first=max(first, each.first), last=min(last, each.last))


def _due_key(each: Range) -> int:
    return each.due_ms << _OFFSET_BITS | each.first


def joined(ranges: list[Range]) -> tuple[Range, ...]:
    """The same ranges, in the order of their offsets, with equal neighbours as one."""
    result: list[Range] = []
    for each in ranges:
        if result and result[-1].last + 1 == each.first and _is_alike(result[-1], each):
            result[-1] = result[-1]._replace(last=each.last)
        else:
            result.append(each)
    return tuple(result)


def _is_alike(one: Range, other: Range) -> bool:
    # Most neighbours differ in their state.
    return one[2] is other[2] and one[2:] == other[2:]
