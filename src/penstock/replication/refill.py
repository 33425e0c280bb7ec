"""A replica that has lost something: its log was repaired, or it moved away and came back.

Part of what it acknowledged may be gone, and its vote could make a leader that lacks some of that.
So until it holds again all that its leader calls committed, it neither votes nor stands for
election; it only follows.
"""

from penstock.model.ids import LogIndex, Term
from penstock.raft.messages import AppendRequest, Message, TimeoutNow, VoteRequest

# How long the only voter that a log knows of waits for others that it may have forgotten.
ALONE_TICKS = 30


class Refill:
    __slots__ = ("_alone_ticks", "_committed_index", "is_due")

    def __init__(self) -> None:
        self.is_due = False
        # The most that a leader called committed since this process began.
        self._committed_index = 0
        self._alone_ticks = 0

    def ignores(self, message: Message) -> bool:
        if isinstance(message, AppendRequest):
            self._committed_index = max(self._committed_index, message.commit_index)
        return isinstance(message, (VoteRequest, TimeoutNow))

    def ends(self, applied_index: LogIndex, applied_term: Term, term: Term) -> bool:
        """Once an entry of the leader's own term is applied, so is all that was ever committed
        before it; and up to what it called committed, its own term's entries are here too."""
        return 0 < self._committed_index <= applied_index and applied_term == term

    def waited_alone(self) -> bool:
        """One more tick without a leader; says whether it was long enough."""
        self._alone_ticks += 1
        return self._alone_ticks >= ALONE_TICKS
