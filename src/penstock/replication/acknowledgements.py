"""Who waits for which index: the appends of one turn of the loop share what they wait for."""

from collections import deque

from penstock.model.errors import Refused
from penstock.observe.instruments import Histogram, Traffic
from penstock.replication.commit import Commit


class Pending:
    """The appends of one turn: settled together, when the last of them is."""

    __slots__ = ("done", "end_offset", "index", "size", "start_offset", "stored", "stored_at")

    def __init__(self, start_offset: int) -> None:
        self.index = 0
        self.start_offset = start_offset
        self.end_offset = start_offset
        # Bytes that were accepted with it.
        self.size = 0
        # Committed, and held by as many members as the topic asks for.
        self.done = Commit()
        # Safe on this replica alone.
        self.stored = Commit()
        # By the monotonic clock, where that is measured.
        self.stored_at = 0.0


class Acknowledgements:
    __slots__ = ("_open", "_pending", "_storing")

    def __init__(self) -> None:
        self._open: Pending | None = None
        self._pending: deque[Pending] = deque()
        self._storing: deque[Pending] = deque()

    def __bool__(self) -> bool:
        return bool(self._pending)

    @property
    def last(self) -> Pending | None:
        return self._pending[-1] if self._pending else None

    def join(self, index: int, start_offset: int, end_offset: int, size: int) -> Pending:
        """Waits for `index`, with all who join before `close`; their offsets follow each other."""
        pending = self._open
        if pending is None:
            pending = self._open = Pending(start_offset)
            self._pending.append(pending)
            self._storing.append(pending)
        assert not pending.done.is_settled, "nobody may wait for what is over"
        pending.index = index
        pending.end_offset = end_offset
        pending.size += size
        return pending

    def join_end(self, index: int, end_offset: int) -> Pending:
        """Waits for `index` without an append of its own."""
        return self.join(index, end_offset, end_offset, 0)

    def close(self) -> None:
        """The turn is over: who joins from now on waits for something later."""
        self._open = None

    def find(self, offset: int) -> Pending | None:
        """What the append that holds `offset` waits for."""
        for pending in self._pending:
            if offset < pending.end_offset:
                return pending
        return None

    def is_due(self, stored_index: int, committed_index: int) -> bool:
        """Whether anybody may have waited for no more than this."""
        storing, pending = self._storing, self._pending
        return bool(
            (storing and storing[0].index <= stored_index)
            or (pending and pending[0].index <= committed_index)
        )

    def stored(self, index: int, now: float = 0.0) -> None:
        storing = self._storing
        while storing and storing[0].index <= index:
            first = storing.popleft()
            first.stored_at = now
            if not first.stored.is_settled:
                first.stored.settle(None)

    def committed(
        self,
        index: int,
        now: float = 0.0,
        waits: Histogram | None = None,
        traffic: Traffic | None = None,
    ) -> int:
        """Settles all up to `index`; gives how many bytes that were. `waits` hears how long each
        waited for others: not at all, if they had it before this replica. `traffic` counts what
        was written: here, once for all appends of a turn, and not at each."""
        pending = self._pending
        settled: list[Pending] = []
        size = 0
        while pending and pending[0].index <= index:
            first = pending.popleft()
            size += first.size
            settled.append(first)
        if self._open in settled:
            self._open = None
        if traffic is not None:
            _count(settled, traffic)
        for one in settled:
            if waits is not None:
                waits.observe(now - one.stored_at if one.stored_at else 0.0)
            one.done.settle(None)
        return size

    def refuse(
        self, refused: Refused, index: int | None = None, traffic: Traffic | None = None
    ) -> int:
        """Refuses all, or those up to `index`, which are written all the same; gives how many
        bytes that were."""
        refusing: list[Pending] = []
        while self._pending and (index is None or self._pending[0].index <= index):
            refusing.append(self._pending.popleft())
        if index is None or self._open in refusing:
            self._open = None
        if index is None:
            self._storing.clear()
        if traffic is not None:
            _count(refusing, traffic)
        for one in refusing:
            one.done.settle(refused)
            if index is None and not one.stored.is_settled:
                one.stored.settle(refused)
        return sum(one.size for one in refusing)


def _count(written: list[Pending], traffic: Traffic) -> None:
    for one in written:
        if one.size:
            traffic.bytes_in += one.size
            traffic.records_in += one.end_offset - one.start_offset
