"""A replica's time active: it exists from winning an election until resigning."""

from collections import deque
from collections.abc import Hashable

from penstock.model.ids import LogIndex, ReplicaId
from penstock.raft.core import Core
from penstock.raft.entries import Entry, EntryKind
from penstock.raft.membership import Change, ChangeKind, changed
from penstock.raft.messages import (
    AppendRejection,
    AppendResponse,
    HeartbeatResponse,
    TimeoutNow,
)
from penstock.raft.progress import Progress, ProgressState
from penstock.raft.reads import PendingReads
from penstock.raft.ready import Refusal
from penstock.raft.replication import Replication


class Leader:
    __slots__ = (
        "_commit_mark",
        "_committed_bytes",
        "_core",
        "_elapsed",
        "_flushed",
        "_flushed_bytes",
        "_heartbeat_elapsed",
        "_proposed_bytes",
        "_transfer_elapsed",
        "reads",
        "replication",
        "term_first_index",
        "transferee",
    )

    def __init__(self, core: Core) -> None:
        self._core = core
        self._elapsed = 0
        # The commit index as it was at most one election time-out ago. At first all that is here:
        # it is committed together with the first entry of the own term.
        self._commit_mark = core.log.last_index
        self._heartbeat_elapsed = 0
        self.transferee: ReplicaId | None = None
        self._transfer_elapsed = 0
        # Bytes of data, counted since the leadership began: proposed, and known to be committed.
        self._proposed_bytes = 0
        self._committed_bytes = 0
        # What was proposed by the time of each flush that is not committed: last index and bytes.
        self._flushed: deque[tuple[int, int]] = deque()
        self._flushed_bytes = 0
        self.reads = PendingReads()
        self.replication = Replication(core)
        # Entries from here on are of the leader's own term.
        self.term_first_index = self._append(EntryKind.NEW_TERM, None)

    # Requests of the host

    def propose(self, payload: object, size_bytes: int, span: int) -> LogIndex | Refusal:
        if self.transferee is not None:
            return Refusal.TRANSFERRING
        core = self._core
        waiting = self._proposed_bytes - self._committed_bytes
        # A proposal larger than the limit gets through when nothing else is under way.
        if waiting and waiting + size_bytes > core.settings.uncommitted_bytes_max:
            return Refusal.OVERLOADED
        self._proposed_bytes += size_bytes
        return core.log.append_data(core.hard_state.term, payload, size_bytes, span)

    def propose_own(self, kind: EntryKind, payload: object) -> LogIndex | Refusal:
        if self.transferee is not None:
            return Refusal.TRANSFERRING
        return self._append(kind, payload)

    def change_membership(self, change: Change) -> LogIndex | Refusal:
        core = self._core
        if self.transferee is not None:
            return Refusal.TRANSFERRING
        if not self.may_change_membership():
            return Refusal.CHANGE_TOO_EARLY
        membership = changed(core.memberships.current, change)
        if membership is None:
            return Refusal.INVALID_CHANGE
        if change.kind is ChangeKind.PROMOTE and not self.is_caught_up(change.replica):
            return Refusal.LEARNER_BEHIND
        # The host need not tick a leader that is alone: the mark may be old, and who joins has
        # to come as far as the others are now.
        self._note_commit_mark()
        index = self._append(EntryKind.MEMBERSHIP, membership)
        self.replication.follow_membership()
        self._advance_commit()
        return index

    def may_change_membership(self) -> bool:
        return self.has_committed_in_term() and self.last_change_is_committed()

    def has_committed_in_term(self) -> bool:
        return self._core.commit_index >= self.term_first_index

    def last_change_is_committed(self) -> bool:
        return self._core.memberships.current_index <= self._core.commit_index

    def is_caught_up(self, replica: ReplicaId) -> bool:
        """Whether it has what was committed an election time-out ago: close enough that counting
        its vote will not hold up commits, however many entries that is."""
        progress = self.replication.progress.get(replica)
        return (
            progress is not None
            and progress.state is ProgressState.REPLICATE
            and progress.is_active
            and progress.match_index >= self._commit_mark
        )

    def read(self, context: Hashable) -> Refusal | None:
        if len(self.reads) >= self._core.settings.reads_waiting_max:
            return Refusal.OVERLOADED
        if self.has_committed_in_term():
            self.reads.add(context, self._core.commit_index)
        else:
            self.reads.hold(context)
        return None

    def transfer(self, target: ReplicaId) -> Refusal | None:
        if target not in self._core.memberships.current.voters or target == self._core.id:
            return Refusal.NOT_A_VOTER
        if self.transferee is not None:
            return None if self.transferee == target else Refusal.TRANSFERRING
        self.transferee = target
        self._transfer_elapsed = 0
        self._hand_over_if_caught_up(self.replication.progress[target])
        return None

    # Answers of followers, and of the own disk

    def on_append_response(self, message: AppendResponse) -> None:
        progress = self.replication.acknowledged(message)
        if progress is None:
            return
        if progress.match_index > self._core.commit_index:
            self._advance_commit()
        if progress.replica == self.transferee:
            self._hand_over_if_caught_up(progress)

    def on_append_rejection(self, message: AppendRejection) -> None:
        self.replication.rejected(message)

    def on_heartbeat_response(self, message: HeartbeatResponse) -> None:
        progress = self.replication.progress.get(message.sender)
        if progress is None:
            return
        self.replication.heard_from(progress)
        if message.commit_index > progress.commit_known:
            progress.commit_known = message.commit_index
        if message.read_round > progress.read_round:
            progress.read_round = message.read_round
            self._confirm_reads()

    def on_host_heartbeat_acknowledged(self, replica: ReplicaId) -> bool:
        """Says whether there is something to send now."""
        progress = self.replication.progress.get(replica)
        if progress is None:
            return False
        is_behind = self.replication.heard_from(progress)
        return self.replication.repair_commit(progress) or is_behind

    def on_persisted(self) -> None:
        """What the own disk holds counts as one acknowledgement, and only now."""
        own = self.replication.own
        own.match_index = self._core.log.stable_index
        if own.match_index > self._core.commit_index:
            self._advance_commit()

    # Time

    def tick(self) -> bool:
        """Says whether it still leads: without a quorum that answers, the leader steps down."""
        settings = self._core.settings
        self._heartbeat_elapsed += 1
        if self._heartbeat_elapsed >= settings.heartbeat_ticks:
            self._heartbeat_elapsed = 0
            self._beat()
        if self.transferee is not None:
            self._transfer_elapsed += 1
            if self._transfer_elapsed >= settings.election_ticks:
                self.transferee = None
        self._elapsed += 1
        if self._elapsed < settings.election_ticks:
            return True
        self._elapsed = 0
        self._note_commit_mark()
        self.replication.count_snapshot_rounds()
        return self.replication.take_quorum_activity()

    def _note_commit_mark(self) -> None:
        self._commit_mark = max(self._commit_mark, self._core.commit_index)

    def has_work_after_tick(self) -> bool:
        """With heartbeats left to the host, most ticks leave nothing to do."""
        return (
            not self._core.settings.heartbeats_by_host
            or self.reads.awaits_answers
            or self._elapsed == 0
        )

    def _beat(self) -> None:
        if not self._core.settings.heartbeats_by_host or self.reads.awaits_answers:
            for progress in self.replication.peers:
                self.replication.send_heartbeat(progress, self.reads.round_sent)

    # Effects

    def flush(self) -> None:
        if self._proposed_bytes > self._flushed_bytes:
            self._flushed_bytes = self._proposed_bytes
            self._flushed.append((self._core.log.last_index, self._proposed_bytes))
        if self.replication.peers:
            self.replication.flush()
        if self.reads.round > self.reads.round_sent:
            self._send_read_round()

    def _send_read_round(self) -> None:
        self.reads.round_sent = self.reads.round
        self.replication.own.read_round = self.reads.round
        for progress in self.replication.peers:
            self.replication.send_heartbeat(progress, self.reads.round)
        self._confirm_reads()

    def must_retire(self) -> bool:
        """A leader that removed itself stays until that is committed, and no longer."""
        return not self.replication.own_is_voter and self.last_change_is_committed()

    def name_successor(self) -> None:
        """The voter that is furthest ahead campaigns at once, so that nobody waits for a timer."""
        voters = self._core.memberships.current.voters
        candidates = [peer for peer in self.replication.peers if peer.replica in voters]
        if candidates:
            best = max(candidates, key=lambda peer: (peer.is_active, peer.match_index))
            self._core.outbox.send(TimeoutNow(self._core.id, best.replica, self._core.term))

    def _append(self, kind: EntryKind, payload: object) -> LogIndex:
        core = self._core
        index = LogIndex(core.log.last_index + 1)
        core.append((Entry(index, core.hard_state.term, kind, payload, 0),))
        return index

    def _advance_commit(self) -> None:
        index = self.committable_index()
        if index > self._core.commit_index:
            self._core.commit_to(LogIndex(index))
            self._note_committed_bytes()
            self.reads.start_early(self._core.commit_index)

    def committable_index(self) -> int:
        """Only entries of the own term are committed by counting; earlier ones ride along.

        A quorum that holds an old entry proves nothing: a candidate without it can still win
        with a later term (the Raft paper, figure 8).

        Nor is anything committed that the own disk does not hold, though others may: followers
        serve readers, and a reader that comes from them must not be ahead of the leader.
        """
        replication = self.replication
        index = min(replication.quorum_match_index(), replication.own.match_index)
        return index if index >= self.term_first_index else 0

    def _note_committed_bytes(self) -> None:
        flushed, commit_index = self._flushed, self._core.commit_index
        while flushed and flushed[0][0] <= commit_index:
            self._committed_bytes = flushed.popleft()[1]

    def _confirm_reads(self) -> None:
        if self.reads.awaits_answers:
            self._core.reads += self.reads.confirm(self.replication.quorum_read_round())
            self._core.has_news = True

    def _hand_over_if_caught_up(self, progress: Progress) -> None:
        """A successor that lacks entries would lose its election, or make everyone wait."""
        if progress.match_index == self._core.log.last_index:
            self._core.outbox.send(TimeoutNow(self._core.id, progress.replica, self._core.term))
