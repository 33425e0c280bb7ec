"""A replica that has lost something: the tail of its log, or all of it when it moved away.

Part of what it acknowledged may be gone, and its vote could make a leader that lacks some of that.
So until it holds again all that its leader calls committed, and all that it may have acknowledged
to that leader, it follows and counts in no majority.
One that moved away and came back does not vote at all. One that lost the tail of its log knows
where that ended, and the core lets its vote count where all voters agree (`raft/quorum.py`).
"""

import logging

from penstock.model.ids import NO_END, UNKNOWN_END, LogEnd, LogIndex, Term, TopicPartition
from penstock.raft.messages import AppendRequest, CommitNotice, Heartbeat, Message
from penstock.raft.node import RaftNode
from penstock.raft.quorum import Stuck
from penstock.replication.keeper import LogKeeper
from penstock.storage.log import NO_DOUBT, EntriesCut, EntriesGone, Log

logger = logging.getLogger(__name__)

# How long the only voter that a log knows of waits for others that it may have forgotten.
ALONE_TICKS = 30


class Refill:
    __slots__ = (
        "_acknowledged_index",
        "_alone_ticks",
        "_committed_index",
        "_keeper",
        "_log",
        "_node",
        "_opened_in",
        "is_due",
        "stuck",
    )

    def __init__(self, log: Log, node: RaftNode, keeper: LogKeeper, *, is_returning: bool) -> None:
        self._log = log
        self._node = node
        self._keeper = keeper
        self.is_due = is_returning or log.doubt.lost != NO_END
        # Why nobody can lead, for clients and operators.
        self.stuck = ""
        # The most that a leader called committed since this process began.
        self._committed_index = 0
        # The term in which this process began: what was lost was not acknowledged in a later one.
        self._opened_in = node.term
        # What the leader may believe to lie here: it never sends what it takes for acknowledged.
        self._acknowledged_index = -1
        self._alone_ticks = 0

    def note(self, message: Message) -> None:
        if isinstance(message, (AppendRequest, CommitNotice, Heartbeat)):
            self._committed_index = max(self._committed_index, message.commit_index)
        if isinstance(message, AppendRequest):
            self._acknowledged_index = max(self._acknowledged_index, message.previous_index)

    def ends(self, applied_index: LogIndex, term: Term) -> bool:
        """Once an entry of the leader's own term is applied, so is all that was ever committed
        before it; and up to what it called committed, its own term's entries are here too.

        But the leader may yet commit more by counting what this replica acknowledged in that term
        and lost: that has to be here again as well.
        """
        try:
            applied_term = self._log.term_at(applied_index)
            if not self._holds_what_it_acknowledged(term):
                return False
        except (EntriesCut, EntriesGone):
            # A snapshot replaced the log, and is not known to be durable yet.
            return False
        return 0 < self._committed_index <= applied_index and applied_term == term

    def _holds_what_it_acknowledged(self, term: Term) -> bool:
        lost, stable_index = self._log.doubt.lost, self._node.stable_index
        if lost == NO_END:
            # It moved away: the leader began to count from nothing when it came back.
            return True
        if lost == UNKNOWN_END:
            return term > self._opened_in or 0 <= self._acknowledged_index <= stable_index
        return LogEnd(self._log.term_at(stable_index), stable_index) >= lost

    def waited_alone(self) -> bool:
        """One more tick without a leader; says whether it was long enough."""
        self._alone_ticks += 1
        return self._alone_ticks >= ALONE_TICKS

    def end(self) -> None:
        self.is_due = False
        self._node.is_whole_again()
        self._keeper.set_returned_soon()
        if self._log.doubt != NO_DOUBT:
            self._keeper.set_doubt_soon(NO_DOUBT)

    def note_stuck(self, partition: TopicPartition, stuck: Stuck | None) -> None:
        """What is missing is noted, so that an operator who gives it up sees what that is."""
        sentence = "" if stuck is None else _sentence(partition, stuck)
        if sentence == self.stuck:
            return
        self.stuck = sentence
        if stuck is not None:
            logger.error("%s", sentence)
            doubt = self._log.doubt
            if stuck.needed != doubt.needed:
                self._keeper.set_doubt_soon(doubt._replace(needed=stuck.needed))


def _sentence(partition: TopicPartition, stuck: Stuck) -> str:
    holder = stuck.holder.node
    return (
        f"{partition} has no leader: the log on node {stuck.loser.node} once ended at "
        f"{stuck.needed}, and the longest copy left, on node {holder}, ends at "
        f"{stuck.longest}, so acknowledged records may be missing. Restore a node or a disk "
        f"that has them, or give them up: stop node {holder} and run 'penstock log trust' there"
    )
