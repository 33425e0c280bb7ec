"""Which offset follows an index: index = offset + own entries before it + 1.

Only the part of the log that can still be truncated, or is not applied yet, is looked at here; so
the own entries of that part, which are few or none, and the number of those before it are enough.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from penstock.model.ids import Offset


class IndexOffsets:
    __slots__ = ("_own", "_own_before")

    def __init__(self, index: int, offset: int, own: Iterable[int] = ()) -> None:
        """`offset` follows `index`; `own` are the indices of own entries after it."""
        # How many own entries there are before those listed, since the beginning of the log.
        self._own_before = index - offset
        self._own = list(own)

    def after(self, index: int) -> Offset:
        """The next offset after everything up to and including `index`."""
        own = self._own
        if not own:
            return Offset(index - self._own_before)
        return Offset(index - self._own_before - bisect_right(own, index))

    def note_own(self, index: int) -> None:
        assert not self._own or self._own[-1] < index
        self._own.append(index)

    def truncate(self, index: int) -> None:
        """Entries from `index` on are gone."""
        del self._own[bisect_left(self._own, index) :]

    def settle(self, index: int) -> None:
        """Nothing up to `index` will be asked for again."""
        if self._own and self._own[0] <= index:
            settled = bisect_right(self._own, index)
            del self._own[:settled]
            self._own_before += settled

    def reset(self, index: int, offset: int) -> None:
        self._own_before = index - offset
        self._own.clear()
