"""What one replica of a group knows in every role: term, vote, log, membership, commit index."""

from collections.abc import Callable, Hashable
from typing import Protocol

from penstock.model.ids import NO_END, LogEnd, LogIndex, ReplicaId, Term
from penstock.raft.entries import Entry, EntryKind, HardState, Snapshot
from penstock.raft.log_view import RaftLog
from penstock.raft.membership import Membership, MembershipHistory, MembershipStep
from penstock.raft.messages import Message
from penstock.raft.outbox import Outbox
from penstock.raft.quorum import Stuck
from penstock.raft.ready import ReadState
from penstock.raft.settings import RaftSettings

# Gives a whole number from 0 up to but not including its argument.
RandomBelow = Callable[[int], int]
# Whether what is sent to a replica now would leave soon.
HasRoom = Callable[[ReplicaId], bool]


class Throttle(Protocol):
    """Bounds what followers that catch up are sent."""

    def allowance(self, replica: ReplicaId) -> int | None:
        """How many bytes of entries it may be sent now, where one entry may be longer than that;
        None if it is not to be held back."""
        ...

    def sent(self, replica: ReplicaId, size_bytes: int) -> None:
        """This many were sent to a replica that has an allowance."""
        ...


# A name of its own, because looking it up in the class costs time for every entry.
MEMBERSHIP = EntryKind.MEMBERSHIP


class Core:
    __slots__ = (
        "accepted_end",
        "commit_index",
        "hard_state",
        "has_news",
        "has_room",
        "id",
        "leader",
        "log",
        "lost_end",
        "memberships",
        "outbox",
        "random_below",
        "reads",
        "reads_refused",
        "settings",
        "stuck",
        "throttle",
    )

    def __init__(
        self,
        *,
        replica: ReplicaId,
        settings: RaftSettings,
        log: RaftLog,
        hard_state: HardState,
        memberships: MembershipHistory,
        commit_index: LogIndex,
        random_below: RandomBelow,
        has_room: HasRoom,
        lost_end: LogEnd = NO_END,
        accepted_end: LogEnd = NO_END,
    ) -> None:
        self.id = replica
        self.settings = settings
        self.log = log
        self.outbox = Outbox(hard_state)
        # An entry can be durable before the term it was written in is. Anyone who voted in that
        # term has it in the hard state, so there was no vote.
        if log.last_term > hard_state.term:
            hard_state = HardState(log.last_term, None)
        self.hard_state = hard_state
        self.memberships = memberships
        self.commit_index = commit_index
        memberships.commit(commit_index)
        self.leader: ReplicaId | None = None
        # Where the log ended before it lost its tail, until it has everything again; and what an
        # operator gave up of that.
        self.lost_end = lost_end
        self.accepted_end = accepted_end
        # Why nobody can lead, as the last round of voting showed.
        self.stuck: Stuck | None = None
        self.random_below = random_below
        self.has_room = has_room
        # None for most groups: their leader sends as fast as followers take it.
        self.throttle: Throttle | None = None
        # Whether role, leader, term or membership changed, or reads were settled, since the last
        # Ready: rare, so that one look saves five.
        self.has_news = True
        self.reads: list[ReadState] = []
        self.reads_refused: list[Hashable] = []

    @property
    def term(self) -> Term:
        return self.hard_state.term

    @property
    def log_end(self) -> LogEnd:
        return LogEnd(self.log.last_term, self.log.last_index)

    @property
    def is_in_doubt(self) -> bool:
        return self.lost_end != NO_END

    def covers(self, end: LogEnd, accepted_end: LogEnd) -> bool:
        """Whether a log that ends there holds all that this replica ever acknowledged, but for
        what an operator gave up."""
        return end >= self.log_end and max(end, accepted_end) >= self.lost_end

    def take_reads(self) -> list[ReadState]:
        taken, self.reads = self.reads, []
        return taken

    def take_reads_refused(self) -> list[Hashable]:
        taken, self.reads_refused = self.reads_refused, []
        return taken

    def promise_term(self, message: Message) -> None:
        """Sends a message that holds only if term and vote survive a crash."""
        self.outbox.send_when_term_is_durable(message, self.hard_state)

    def promise_entries(self, message: Message, index: int) -> None:
        """Sends a message that holds only if the log up to `index` survives a crash."""
        log = self.log
        if index <= log.stable_index:
            self.promise_term(message)
        else:
            self.outbox.send_when_entries_are_durable(message, self.hard_state, log.has_unwritten)

    def commit_to(self, index: LogIndex) -> bool:
        if index <= self.commit_index:
            return False
        assert index <= self.log.last_index, "committed an entry that is not here"
        self.commit_index = index
        self.memberships.commit(index)
        return True

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Adds entries at the log's end; a membership among them holds from now on."""
        for entry in entries:
            if entry.kind is MEMBERSHIP:
                assert isinstance(entry.payload, Membership)
                self.memberships.append(MembershipStep(entry.index, entry.payload))
                self.has_news = True
        self.log.append(entries)

    def restore(self, snapshot: Snapshot) -> None:
        self.log.restore(snapshot)
        self.memberships.replace(MembershipStep(snapshot.index, snapshot.membership))
        self.has_news = True
        self.commit_to(snapshot.index)

    def truncate(self, index: int) -> None:
        assert index > self.commit_index, "a committed entry can't be truncated"
        self.log.truncate(index)
        if self.memberships.truncate(index):
            self.has_news = True

    def validate(self) -> None:
        """Asserts what every step leaves true; for tests, which call it often."""
        log, memberships = self.log, self.memberships
        assert log.first_index - 1 <= self.commit_index <= log.last_index
        assert log.stable_index <= log.last_index
        assert log.last_term <= self.term
        assert memberships.current_index <= log.last_index
        assert not memberships.current.voters & memberships.current.learners
