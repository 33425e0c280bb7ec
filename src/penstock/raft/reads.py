"""Linearizable reads: each waits until a quorum confirms that its leader still leads.

A read is given the commit index of the moment it arrives, and a round. A heartbeat that carries
the round and is answered by a quorum proves that no later leader had committed anything by then
(dissertation, section 6.4). One round serves every read that arrived before it was sent.
"""

from collections import deque
from collections.abc import Hashable

from penstock.model.ids import LogIndex
from penstock.raft.ready import ReadState


class PendingReads:
    __slots__ = ("_early", "_waiting", "round", "round_sent")

    def __init__(self) -> None:
        # Arrived before the leader knew its own commit index: it must commit in its term first.
        self._early: list[Hashable] = []
        self._waiting: deque[tuple[int, ReadState]] = deque()
        self.round = 0
        self.round_sent = 0

    def __len__(self) -> int:
        return len(self._early) + len(self._waiting)

    def hold(self, context: Hashable) -> None:
        self._early.append(context)

    def add(self, context: Hashable, index: LogIndex) -> None:
        """The read needs a round that is sent from now on; one already sent is too old."""
        if self.round == self.round_sent:
            self.round += 1
        self._waiting.append((self.round, ReadState(context, index)))

    def start_early(self, index: LogIndex) -> None:
        if self._early:
            early, self._early = self._early, []
            for context in early:
                self.add(context, index)

    @property
    def awaits_answers(self) -> bool:
        return bool(self._waiting)

    def confirm(self, read_round: int) -> list[ReadState]:
        confirmed = []
        while self._waiting and self._waiting[0][0] <= read_round:
            confirmed.append(self._waiting.popleft()[1])
        return confirmed

    def drain(self) -> list[Hashable]:
        """Every read that is not confirmed; leadership is lost."""
        return [read.context for _, read in self._waiting] + self._early
