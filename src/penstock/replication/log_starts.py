"""Moves of the log's start: Raft carries them, and each takes effect where it is committed."""

from penstock.model.ids import Offset


class LogStarts:
    __slots__ = ("_pending", "committed")

    def __init__(self) -> None:
        self._pending: list[tuple[int, Offset]] = []
        # Where the log is to begin by all that is committed.
        self.committed = Offset(0)

    @property
    def newest(self) -> Offset:
        """Where the log will begin if everything pending is committed."""
        return max([self.committed, *(offset for _, offset in self._pending)])

    def note(self, index: int, offset: Offset) -> None:
        self._pending.append((index, offset))

    def truncate(self, index: int) -> None:
        """Entries from `index` on are gone."""
        while self._pending and self._pending[-1][0] >= index:
            self._pending.pop()

    def apply(self, index: int) -> bool:
        """Everything up to `index` is committed; says whether the log begins later now."""
        before = self.committed
        while self._pending and self._pending[0][0] <= index:
            self.committed = max(self.committed, self._pending.pop(0)[1])
        return self.committed > before
