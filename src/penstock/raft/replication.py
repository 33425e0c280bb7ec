"""A leader's view of its followers: sends them the log and learns how far they are."""

from penstock.model.ids import BrokerId, LogIndex, ReplicaId, Term
from penstock.raft.core import Core
from penstock.raft.entries import Entry, Snapshot
from penstock.raft.messages import (
    AppendRejection,
    AppendRequest,
    AppendResponse,
    CommitNotice,
    Heartbeat,
    InstallSnapshot,
    PeerFault,
)
from penstock.raft.progress import Progress, ProgressState
from penstock.raft.quorum import majority, quorum_index

PROBE = ProgressState.PROBE


class Replication:
    """Appends are sent when the host asks for what to do, not when they are proposed: whatever
    was proposed or acknowledged in between travels in one message per follower."""

    __slots__ = ("_core", "_voters", "own", "own_is_voter", "peers", "progress", "snapshots_wanted")

    def __init__(self, core: Core) -> None:
        self._core = core
        self.progress: dict[ReplicaId, Progress] = {}
        self.peers: list[Progress] = []
        self.own = Progress(core.id, 0)
        self.own.match_index = core.log.stable_index
        self._voters: list[Progress] = []
        self.snapshots_wanted: list[ReplicaId] = []
        self.own_is_voter = True
        self.follow_membership()
        for progress in self.peers:
            progress.recently_active = False

    def follow_membership(self) -> None:
        """Tracks exactly the members; a new one is counted as active until it had its chance."""
        membership = self._core.memberships.current
        for replica in self.progress.keys() - membership.members:
            del self.progress[replica]
        for replica in sorted(membership.members - self.progress.keys()):
            if replica != self._core.id:
                progress = Progress(replica, self._core.log.last_index + 1)
                progress.recently_active = True
                self.progress[replica] = progress
        self.peers = list(self.progress.values())
        self._voters = [peer for peer in self.peers if peer.replica in membership.voters]
        self.own_is_voter = self._core.id in membership.voters
        if self.own_is_voter:
            self._voters.append(self.own)

    def quorum_match_index(self) -> int:
        """The highest index that is durable on a majority of the voters."""
        voters = self._voters
        if len(voters) == 1:
            return voters[0].match_index
        return quorum_index([voter.match_index for voter in voters])

    def quorum_read_round(self) -> int:
        return quorum_index([voter.read_round for voter in self._voters])

    def take_quorum_activity(self) -> bool:
        """Whether a majority was heard from since the last time; starts to count again."""
        self.own.recently_active = True
        active = sum(voter.recently_active for voter in self._voters)
        for progress in self.peers:
            progress.was_active, progress.recently_active = progress.recently_active, False
        return active >= majority(len(self._voters))

    def flush(self) -> None:
        """Sends every follower what it lacks and may be sent."""
        core = self._core
        last_index, commit_index = core.log.last_index, core.commit_index
        settings = core.settings
        for progress in self.peers:
            # A probe goes out even when there is nothing to send: it finds out where they agree.
            is_due = progress.next_index <= last_index or progress.state is PROBE
            if is_due and progress.may_send(settings) and core.has_room(progress.replica):
                self._send_appends(progress)
            # What is on its way will be answered, and by then there may be more to tell, or an
            # append that tells it; the last answer leaves nothing on the way.
            if progress.commit_sent < commit_index and not progress.appends_in_flight:
                self._send_commit(progress)

    def _send_appends(self, progress: Progress) -> None:
        log, settings, throttle = self._core.log, self._core.settings, self._core.throttle
        if progress.state is PROBE:
            # What the follower hinted at, or has, may lie inside an entry of this log; data is
            # sent whole. While replicating, one append begins where the one before ended.
            progress.next_index = log.entry_start(progress.next_index)
        while True:
            next_index = progress.next_index
            is_behind = next_index <= log.last_index
            bytes_max, allowance = settings.append_bytes_max, None
            if throttle is not None and is_behind:
                allowance = throttle.allowance(progress.replica)
                bytes_max = bytes_max if allowance is None else min(bytes_max, allowance)
            if bytes_max == 0:
                return
            previous_term = log.term_at(next_index - 1)
            if previous_term is None:
                self._want_snapshot(progress)
                return
            if is_behind and not log.is_at_hand(next_index, progress.replica):
                return
            entries = log.entries(next_index, bytes_max) if is_behind else ()
            if is_behind and not entries:
                self._want_snapshot(progress)
                return
            last_index = self._send_append(progress, previous_term, entries)
            size_bytes = sum([entry.size_bytes for entry in entries])
            progress.sent(last_index, size_bytes)
            if throttle is not None and allowance is not None:
                throttle.sent(progress.replica, size_bytes)
            if last_index == log.last_index or not progress.may_send(settings):
                return

    def _send_append(
        self, progress: Progress, previous_term: Term, entries: tuple[Entry, ...]
    ) -> LogIndex:
        """Gives the last index that the follower will have once the append has arrived."""
        core = self._core
        previous_index = LogIndex(progress.next_index - 1)
        last_index = entries[-1].index if entries else previous_index
        core.outbox.send(
            AppendRequest(
                core.id,
                progress.replica,
                core.hard_state.term,
                previous_index,
                previous_term,
                entries,
                core.commit_index,
            )
        )
        commit = core.commit_index if core.commit_index < last_index else last_index
        if commit > progress.commit_sent:
            progress.commit_sent = commit
        return last_index

    def _commit_for(self, progress: Progress) -> LogIndex:
        """Never beyond what the follower is known to hold: elsewhere its log may differ."""
        return LogIndex(min(self._core.commit_index, progress.match_index))

    def _send_commit(self, progress: Progress) -> None:
        core = self._core
        commit_index = self._commit_for(progress)
        if commit_index > progress.commit_sent:
            progress.commit_sent = commit_index
            core.outbox.send(CommitNotice(core.id, progress.replica, core.term, commit_index))

    def send_heartbeat(self, progress: Progress, read_round: int) -> None:
        core = self._core
        commit_index = self._commit_for(progress)
        core.outbox.send(Heartbeat(core.id, progress.replica, core.term, commit_index, read_round))

    def acknowledged(self, message: AppendResponse) -> Progress | None:
        """Gives the follower's progress if its acknowledgement says something new."""
        progress = self.progress.get(message.sender)
        if progress is None:
            return None
        if message.match_index > self._core.log.last_index:
            raise PeerFault(f"{message.sender} acknowledged entries that do not exist")
        if message.commit_index > progress.commit_known:
            progress.commit_known = message.commit_index
        is_news = progress.acknowledge(message.match_index)
        if progress.state is ProgressState.PROBE:
            if progress.match_index == message.match_index:
                progress.replicate()
        elif progress.state is ProgressState.SNAPSHOT and self._is_readable_for(progress):
            progress.probe()
        return progress if is_news else None

    def _is_readable_for(self, progress: Progress) -> bool:
        return self._core.log.term_at(progress.match_index) is not None

    def rejected(self, message: AppendRejection) -> None:
        progress = self.progress.get(message.sender)
        if progress is not None:
            agreed_index = self._core.log.last_index_with_term_at_most(
                message.hint_index, message.hint_term
            )
            progress.reject(message.previous_index, agreed_index)

    def heard_from(self, progress: Progress) -> bool:
        """A heartbeat was answered: the follower is there, so whatever is unanswered was lost.

        Says whether there is something to send."""
        progress.recently_active = True
        progress.probe_sent = False
        if progress.state is not ProgressState.REPLICATE:
            return True
        is_stuck = progress.appends_in_flight > 0 and not progress.moved
        progress.moved = False
        if is_stuck:
            self._nudge(progress)
        # When there was something to send, there may have been no room for it.
        return is_stuck or progress.next_index <= self._core.log.last_index

    def _nudge(self, progress: Progress) -> None:
        """Its answer says where the follower is, or that something on the way there was lost."""
        previous_term = self._core.log.term_at(progress.next_index - 1)
        if previous_term is None:
            # The log moved past the window meanwhile; starting over leads to a snapshot.
            progress.probe()
        else:
            self._send_append(progress, previous_term, ())

    def repair_commit(self, progress: Progress) -> bool:
        """Tells the commit index again where a notice may have been lost."""
        is_missing = progress.commit_known < self._commit_for(progress)
        if is_missing:
            self.send_heartbeat(progress, 0)
        return is_missing

    def unreachable(self, replica: ReplicaId) -> None:
        """What was sent may be lost, so the window starts again from what is known to be there."""
        progress = self.progress.get(replica)
        if progress is not None and progress.state is ProgressState.REPLICATE:
            progress.probe()

    def process_lost(self, node: BrokerId) -> None:
        """That it was heard from a moment ago says nothing any more."""
        for progress in self.peers:
            if progress.replica.node == node:
                progress.recently_active = progress.was_active = False

    def _want_snapshot(self, progress: Progress) -> None:
        """Only for a follower that is alive: a snapshot is too dear to be made for nobody."""
        if progress.recently_active:
            progress.await_snapshot()
            self.snapshots_wanted.append(progress.replica)
        else:
            progress.probe_sent = True
            self.send_heartbeat(progress, 0)

    def take_snapshots_wanted(self) -> list[ReplicaId]:
        taken, self.snapshots_wanted = self.snapshots_wanted, []
        return taken

    def send_snapshot(self, replica: ReplicaId, snapshot: Snapshot) -> None:
        core = self._core
        assert snapshot.index <= core.commit_index
        progress = self.progress.get(replica)
        if progress is not None and progress.state is ProgressState.SNAPSHOT:
            progress.snapshot_rounds = 0
            core.outbox.send(InstallSnapshot(core.id, replica, core.term, snapshot))
            if core.throttle is not None and core.throttle.allowance(replica) is not None:
                core.throttle.sent(replica, snapshot.size_bytes)

    def snapshot_failed(self, replica: ReplicaId) -> None:
        progress = self.progress.get(replica)
        if progress is not None and progress.state is ProgressState.SNAPSHOT:
            progress.probe()

    def count_snapshot_rounds(self) -> None:
        """A snapshot, or its acknowledgement, can get lost: after a while it is offered again."""
        for progress in self.peers:
            if progress.state is ProgressState.SNAPSHOT:
                progress.snapshot_rounds += 1
                if progress.snapshot_rounds > self._core.settings.snapshot_wait_rounds_max:
                    progress.probe()
