"""What must hold after every step of a run, checked where something changed."""

from typing import NamedTuple

from penstock.model.ids import ReplicaId
from penstock.raft.entries import Entry, EntryKind
from penstock.raft.membership import Membership
from penstock.raft.messages import AppendResponse, Message, VoteRequest, VoteResponse
from penstock.raft.node import RaftNode
from penstock.raft.ready import ReadState, Role, Write
from tests.unit.raft.memory_log import MemoryLog

Logs = dict[ReplicaId, MemoryLog]


class Violation(AssertionError):
    """A promise of Raft that a run broke."""


class Committed(NamedTuple):
    term: int
    kind: EntryKind
    payload: object
    # Where the entry ends that covers this index.
    last_index: int
    # The term in which it was first seen to be committed.
    commit_term: int


def require(condition: bool, sentence: str) -> None:
    """For what is checked now and then: where it happens all the time, the sentence takes long."""
    if not condition:
        raise Violation(sentence)


class Invariants:
    def __init__(self) -> None:
        # By index, from 1.
        self.committed: list[Committed] = []
        self._leaders: dict[int, ReplicaId] = {}
        self._votes: dict[tuple[ReplicaId, int], ReplicaId] = {}
        self._entries: dict[tuple[int, int], tuple[object, int, int]] = {}

    def on_leader(self, node: RaftNode) -> None:
        """One leader per term, and it holds all that was committed in earlier terms."""
        if node.role is not Role.LEADER:
            return
        known = self._leaders.get(node.term)
        if known is None:
            self._leaders[node.term] = node.id
            self._check_completeness(node)
        elif known != node.id:
            raise Violation(f"term {node.term} has leaders {known} and {node.id}")

    def _check_completeness(self, node: RaftNode) -> None:
        log = node._core.log
        for index in range(max(log.first_index - 1, 1), len(self.committed) + 1):
            entry = self.committed[index - 1]
            if entry.commit_term < node.term and log.term_at(index) != entry.term:
                raise Violation(
                    f"leader {node.id} of term {node.term} lacks committed index {index}"
                )

    def on_write(self, node: RaftNode, write: Write) -> None:
        """An index and a term name one entry with one history in all logs (log matching)."""
        if not write.entries:
            return
        log = node._core.log
        previous_term = log.term_at(write.entries[0].first_index - 1) or 0
        for entry in write.entries:
            if entry.kind is not EntryKind.GAP:
                self._check_entry(entry, previous_term)
                if entry.kind is EntryKind.MEMBERSHIP and node.role is Role.LEADER:
                    self._check_membership(node, entry)
            previous_term = entry.term

    def _check_entry(self, entry: Entry, previous_term: int) -> None:
        key, value = (entry.index, entry.term), (entry.payload, previous_term, entry.span)
        known = self._entries.setdefault(key, value)
        if known != value:
            raise Violation(f"index {entry.index} of term {entry.term} differs: log matching")

    def _check_membership(self, node: RaftNode, entry: Entry) -> None:
        """At most one voter differs from the membership before, which is committed, and so is an
        entry of the leader's own term."""
        assert isinstance(entry.payload, Membership)
        require(
            any(known.term == entry.term for known in reversed(self.committed)),
            f"membership {entry.index} was changed before a commit in term {entry.term}",
        )
        steps = [step for step in node._core.memberships._steps if step.index < entry.index]
        if steps:
            before = steps[-1]
            require(
                len(before.membership.voters ^ entry.payload.voters) <= 1,
                f"more than one voter changed at index {entry.index}",
            )
            require(
                before.index <= len(self.committed),
                f"membership {entry.index} follows the uncommitted one at {before.index}",
            )

    def on_progress(self, node: RaftNode, commit_index_before: int) -> None:
        """A replica's commit index never goes back while it runs."""
        if not commit_index_before <= node.commit_index <= node.last_index:
            raise Violation(
                f"{node.id} went back from {commit_index_before} to {node.commit_index}"
            )

    def on_commit(self, node: RaftNode, from_index: int, logs: Logs, rotten: Logs) -> None:
        """What is committed never changes, and is durable on a majority when it first is."""
        log = node._core.log
        index = max(from_index + 1, log.first_index)
        while index <= node.commit_index:
            for entry in log.entries(index, 1 << 20):
                if entry.index > node.commit_index:
                    break
                self._check_committed(node, entry, logs, rotten)
            index = entry.index + 1

    def _check_committed(self, node: RaftNode, entry: Entry, logs: Logs, rotten: Logs) -> None:
        for index in range(entry.first_index, entry.index + 1):
            if index > len(self.committed):
                require(index == len(self.committed) + 1, f"index {index} committed before others")
                require(entry.kind is not EntryKind.GAP, "a gap was committed")
                committed = Committed(entry.term, entry.kind, entry.payload, entry.index, node.term)
                self.committed.append(committed)
                self._check_durable(node, index, entry.term, logs, rotten)
            known = self.committed[index - 1]
            if known.term != entry.term:
                raise Violation(f"committed index {index} changed its term")
            if entry.kind is EntryKind.GAP:
                continue
            if known.last_index != entry.index or known.payload != entry.payload:
                raise Violation(f"committed index {index} changed")

    def _check_durable(
        self, node: RaftNode, index: int, term: int, logs: Logs, rotten: Logs
    ) -> None:
        voters = node.membership.voters
        holders = sum(
            1
            for voter in voters
            if _holds(logs.get(voter), index, term) or _holds(rotten.get(voter), index, term)
        )
        require(
            holders >= len(voters) // 2 + 1,
            f"index {index} committed by {node.id} but durable on {holders} of {len(voters)}",
        )

    def on_message(self, message: Message, durable: MemoryLog) -> None:
        """What a message promises is durable where it comes from when it leaves."""
        if isinstance(message, VoteResponse) and message.granted and not message.pre:
            self._check_vote(message, durable)
        elif isinstance(message, VoteRequest) and not message.pre:
            require(
                durable.hard_state.term >= message.term,
                f"{message.sender} campaigns in term {message.term} before its sync",
            )
        elif isinstance(message, AppendResponse) and not (
            durable.last_index >= message.match_index or durable.hard_state.term > message.term
        ):
            raise Violation(
                f"{message.sender} acknowledged index {message.match_index} before its sync"
            )

    def _check_vote(self, message: VoteResponse, durable: MemoryLog) -> None:
        known = self._votes.setdefault((message.sender, message.term), message.to)
        require(known == message.to, f"{message.sender} voted twice in term {message.term}")
        stored = durable.hard_state
        require(
            stored.term > message.term or stored == (message.term, message.to),
            f"{message.sender} promised a vote in term {message.term} before its sync",
        )

    def on_read(self, read: ReadState, committed_before: int) -> None:
        require(
            read.index >= committed_before,
            f"a read at {read.index} misses index {committed_before}, acknowledged before it",
        )


def _holds(log: MemoryLog | None, index: int, term: int) -> bool:
    if log is None:
        return False
    if index <= log.base_index:
        return True
    return index <= log.last_index and log.items[index - log.base_index - 1].term == term
