"""One simulated replica: the real core on a simulated disk, and the host between the two."""

from random import Random

from penstock.model.ids import NO_END, LogEnd, LogIndex, ReplicaId
from penstock.raft.entries import EntryKind, Snapshot
from penstock.raft.log_view import membership_steps
from penstock.raft.membership import Membership, MembershipStep
from penstock.raft.node import RaftNode
from penstock.raft.ready import Role
from penstock.raft.settings import RaftSettings
from tests.sim.core.disk import SimulatedDisk
from tests.unit.raft.memory_log import MemoryLog


class SimulatedReplica:
    def __init__(
        self, replica: ReplicaId, first: Membership, settings: RaftSettings, random: Random
    ) -> None:
        self.id = replica
        self._first = first
        self._settings = settings
        self._random = random
        self.disk = SimulatedDisk(MemoryLog())
        self.incarnation = 0
        # Clocks do not run at the same speed.
        self.tick_period = random.choice((8, 10, 10, 13))
        self.paused_until = 0
        self.node: RaftNode | None = None
        self.applied_index = 0
        self.applied_membership = first
        self.commit_checked = 0
        # Proposals that wait for their commit: index to (term, operation).
        self.waiting: dict[int, tuple[int, object]] = {}
        # Where the log ended before its tail rotted, and that log.
        self.lost_end = NO_END
        self.lost_log: MemoryLog | None = None
        # The most that a leader called committed since the start.
        self.heard_committed = 0

    def start(self) -> RaftNode:
        durable = self.disk.durable
        base = MembershipStep(LogIndex(0), self._first)
        if durable.snapshot is not None:
            base = MembershipStep(durable.snapshot.index, durable.snapshot.membership)
        self.applied_index, self.applied_membership = base.index, base.membership
        self.commit_checked = base.index
        self.incarnation += 1
        self.paused_until = 0
        # What is not at hand nobody reads here: that a follower answers must be enough.
        durable.is_warm = lambda _: self._random.random() < 0.8
        self.node = RaftNode(
            replica=self.id,
            settings=self._settings,
            log=durable,
            hard_state=durable.hard_state,
            memberships=membership_steps(durable, base),
            random_below=self._random.randrange,
            commit_index=base.index,
            lost_end=self.lost_end,
        )
        self.heard_committed = 0
        return self.node

    def crash(self) -> None:
        self.disk.crash(self._random)
        self.node = None
        self.waiting.clear()

    def lose_tail(self) -> bool:
        """Rot takes the last entries; where the log ended is noted before it is cut. Says whether
        there was anything to take."""
        assert self.node is None
        durable = self.disk.durable
        first = durable.last_index - self._random.randint(0, 6)
        if first <= durable.base_index:
            return False
        position = durable.items[first - durable.base_index - 1].first_index
        # What a snapshot covers lies before the flush mark.
        if position <= max(durable.base_index, durable.snapshot.index if durable.snapshot else 0):
            return False
        self.lost_log = durable.copy()
        end = LogEnd(durable.term_at(durable.last_index), durable.last_index)
        self.lost_end = max(self.lost_end, end)
        del durable.items[position - durable.base_index - 1 :]
        return True

    def end_doubt(self) -> None:
        """As `Refill` of the replication does it."""
        node = self.node
        if node is None or self.lost_end == NO_END:
            return
        durable, applied = self.disk.durable, LogIndex(self.applied_index)
        leads = node.role is Role.LEADER and node.has_committed_in_term
        end = LogEnd(durable.term_at(durable.last_index), durable.last_index)
        if leads or (
            0 < self.heard_committed <= applied
            and durable.base_index <= applied <= durable.last_index
            and durable.term_at(applied) == node.term
            and end >= self.lost_end
        ):
            self.lost_end = NO_END
            node.is_whole_again()

    def apply_up_to(self, index: int) -> None:
        """The state machine: membership as of the applied index."""
        durable = self.disk.durable
        if self.applied_index < durable.base_index:
            assert durable.snapshot is not None
            self.applied_index = durable.snapshot.index
            self.applied_membership = durable.snapshot.membership
        for position in range(self.applied_index - durable.base_index, index - durable.base_index):
            item = durable.items[position]
            if item.kind is EntryKind.MEMBERSHIP:
                assert isinstance(item.payload, Membership)
                self.applied_membership = item.payload
        self.applied_index = max(self.applied_index, index)

    def make_snapshot(self) -> Snapshot:
        index = LogIndex(self.applied_index)
        return Snapshot(index, self.disk.durable.term_at(index), self.applied_membership)

    def compact(self) -> None:
        """Retention of a random beginning, or a gap somewhere in what a snapshot covers."""
        durable = self.disk.durable
        if self.applied_index <= durable.base_index:
            return
        durable.snapshot = self.make_snapshot()
        if self._random.random() < 0.6:
            durable.drop_before(self._random.randint(durable.first_index, self.applied_index + 1))
            return
        for item in durable.items[: self.applied_index - durable.base_index - 1]:
            is_data = item.kind is EntryKind.DATA and item.index < self.applied_index
            if is_data and self._random.random() < 0.7**item.span:
                durable.make_gap(item.first_index, item.index)
