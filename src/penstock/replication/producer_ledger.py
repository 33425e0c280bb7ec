"""Producer states that can go back: each batch that may still be truncated leaves a note of what
was known before it, on leaders and followers alike.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from penstock.model.clock import Clock
from penstock.records.batch import BatchHeader
from penstock.replication.producer_states import Producer, ProducerStates, encode_producers


class ProducerLedger:
    __slots__ = ("_undo", "states")

    def __init__(self) -> None:
        self.states = ProducerStates()
        # Per batch, oldest first: its base offset, its producer, what was known of it before.
        self._undo: deque[tuple[int, int, Producer | None]] = deque()

    def record(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        before = self.states.record(header, base_offset, now_ms)
        self._undo.append((base_offset, header.producer_id, before))

    def settle(self, offset: int) -> None:
        """Nothing before `offset` will be taken back."""
        undo = self._undo
        while undo and undo[0][0] < offset:
            undo.popleft()

    def roll_back(self, offset: int, clock: Clock) -> None:
        """The batches from `offset` on are gone."""
        undo = self._undo
        while undo and undo[-1][0] >= offset:
            _, producer_id, before = undo.pop()
            self.states.take_back(producer_id, before, clock)

    def settled_snapshot(self) -> Callable[[], bytes]:
        """The states as of the offset that was last settled; any thread may make bytes of them."""
        settled: dict[int, Producer | None] = {}
        for _, producer_id, before in self._undo:
            settled.setdefault(producer_id, before)
        return partial(encode_producers, self.states.copy(settled))

    def restore(self, data: bytes) -> None:
        """A snapshot replaces everything; what it holds is settled."""
        self._undo.clear()
        self.states.restore(data)
