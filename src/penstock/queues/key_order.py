"""Which records of a queue are the first of their key that are not done with: only those are
delivered.

Kept by the leader, in memory: the keys are in the log, and who leads next reads them again. A key
is known by a hash, so that its length does not matter: two keys of one hash wait for one another.
A record that is given up frees its key before the dead-letter topic has it. One that an operator
brings back has no place in the order: later ones have passed it.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from penstock.queues.commands import Change, Range, RecordState, ShareSettings
from penstock.queues.machine import ShareMachine

# An offset, and the hash of the key of its record.
KeyAt: TypeAlias = tuple[int, int]

# What does not hold up later records of its key.
FREEING = frozenset((RecordState.ACKED, RecordState.DYING, RecordState.DEAD))


def has_place(each: Range) -> bool:
    """Whether records in this state wait for one another."""
    return each.state not in FREEING and not each.redrives


def waiting_places(whole: Change) -> list[tuple[int, int]]:
    """Where records of a queue may wait for one another."""
    return [(each.first, each.last) for each in whole.ranges if has_place(each)]


class KeyOrder:
    def __init__(self, start: int) -> None:
        # Nothing is known of records below it.
        self._start = start
        # Of records that are not done with: their keys, and per key their offsets in order. The
        # second begins with the first that is not done with. Most keys have just that one.
        self._key_at: dict[int, int] = {}
        self._lines: dict[int, int | deque[int]] = {}

    def __len__(self) -> int:
        """How many records have a place in the order."""
        return len(self._key_at)

    def add(self, keys: Iterable[KeyAt]) -> None:
        """Records in the order of their offsets, all behind those that were added before."""
        key_at, lines = self._key_at, self._lines
        for offset, key in keys:
            key_at[offset] = key
            line = lines.get(key)
            if line is None:
                lines[key] = offset
            elif isinstance(line, int):
                lines[key] = deque((line, offset))
            else:
                line.append(offset)

    def follow(self, change: Change, machine: ShareMachine, settings: ShareSettings) -> Change:
        """What the machine, which has just applied a change, has to apply because of the order."""
        freed = self._end(self._below(change.start))
        for each in change.ranges:
            if each.state in FREEING:
                # A redrive says of everything between its records that it is done with.
                freed |= self._end(self._between(max(each.first, self._start), each.last))
        # Before it is asked who has to wait: an ack may end one record and give back the next.
        heads = [head for key in freed if (head := self._next(key)) is not None]
        back = (each for each in change.ranges if each.state is RecordState.AVAILABLE)
        blocked = [run for each in back for run in self._blocked(each)]
        return machine.decide_order(blocked, heads, settings)

    def _below(self, start: int) -> Iterable[int]:
        """The records that the queue has left behind. Of some of them no change says so."""
        before, self._start = self._start, max(start, self._start)
        return self._between(before, start - 1)

    def _between(self, first: int, last: int) -> Iterable[int]:
        """A gap of the log may be far longer than all that is known."""
        if last - first < len(self._key_at):
            return range(first, last + 1)
        return [offset for offset in self._key_at if first <= offset <= last]

    def _end(self, offsets: Iterable[int]) -> set[int]:
        """Forgets records; says for which keys others waited."""
        key_at, lines = self._key_at, self._lines
        freed: set[int] = set()
        for offset in offsets:
            key = key_at.pop(offset, None)
            if key is None:
                continue
            if isinstance(lines[key], int):
                del lines[key]
            else:
                freed.add(key)
        return freed

    def _next(self, key: int) -> int | None:
        """The first record of a key that is not done with, after others are forgotten."""
        line = self._lines[key]
        assert not isinstance(line, int)
        while line and line[0] not in self._key_at:
            line.popleft()
        if not line:
            del self._lines[key]
            return None
        if len(line) == 1:
            self._lines[key] = line[0]
        return line[0]

    def _blocked(self, each: Range) -> Iterator[tuple[int, int]]:
        """Runs of records that are not the first of their key."""
        key_at, lines = self._key_at, self._lines
        run: int | None = None
        for offset in range(each.first, each.last + 1):
            key = key_at.get(offset)
            line = offset if key is None else lines[key]
            is_first = offset == (line if isinstance(line, int) else line[0])
            if is_first and run is not None:
                yield run, offset - 1
                run = None
            elif not is_first and run is None:
                run = offset
        if run is not None:
            yield run, each.last
