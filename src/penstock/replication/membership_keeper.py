"""Brings a leader's group to the members that are wanted, and leadership to the preferred one."""

from collections.abc import Sequence

from penstock.model.ids import ReplicaId
from penstock.raft.node import RaftNode
from penstock.raft.ready import Refusal, Role
from penstock.replication.in_sync import TICK_MS, TICKS_PER_SAMPLE, InSync
from penstock.replication.reconcile import Wanted, is_reconciled, next_change, successors

# The preferred leader takes over once it has been in sync this long, and an attempt that led to
# nothing is repeated no sooner.
PREFERRED_AFTER_S = 5
PREFERRED_SAMPLES = PREFERRED_AFTER_S * 1000 // (TICK_MS * TICKS_PER_SAMPLE)
TRANSFER_PAUSE_TICKS = PREFERRED_AFTER_S * 1000 // TICK_MS


class MembershipKeeper:
    __slots__ = ("_in_sync", "_node", "_pause_ticks", "_wanted", "is_due")

    def __init__(self, node: RaftNode, in_sync: InSync) -> None:
        self._node = node
        self._in_sync = in_sync
        self._wanted: Wanted | None = None
        self._pause_ticks = 0
        # Whether `act` may find something to do.
        self.is_due = False

    def set_wanted(self, voters: Sequence[ReplicaId], learners: Sequence[ReplicaId]) -> None:
        self._wanted = Wanted(tuple(voters), tuple(learners))
        self.refresh()

    def wants_others(self) -> bool:
        """Whether it is known that the group should have other members than this replica."""
        return self._wanted is not None and self._wanted.members != (self._node.id,)

    @property
    def is_reconciled(self) -> bool:
        """Whether the group is the one that is wanted; that may not be committed yet."""
        return self._wanted is not None and is_reconciled(self._node.membership, self._wanted)

    def refresh(self) -> None:
        """Leadership, membership or the wish changed."""
        wanted, node = self._wanted, self._node
        self.is_due = (
            wanted is not None
            and bool(wanted.voters)
            and node.role is Role.LEADER
            and (
                not is_reconciled(node.membership, wanted)
                or bool(successors(node.membership, wanted, node.id))
            )
        )

    def act(self) -> bool:
        """Once per tick of a leader; says whether the core has something new."""
        wanted, node = self._wanted, self._node
        assert wanted is not None
        if self._pause_ticks > 0:
            self._pause_ticks -= 1
        change = next_change(node.membership, wanted, node.id, node.is_caught_up)
        if change is not None:
            return not isinstance(node.change_membership(change), Refusal)
        return self._pause_ticks == 0 and self._hand_over(wanted)

    def _hand_over(self, wanted: Wanted) -> bool:
        node = self._node
        # A leader that is to go does not wait as long as one that is only not preferred.
        is_leaving = node.id not in wanted.voters
        samples = 1 if is_leaving else PREFERRED_SAMPLES
        for replica in successors(node.membership, wanted, node.id):
            if self._in_sync.steady_samples(replica) >= samples:
                self._pause_ticks = TRANSFER_PAUSE_TICKS
                return node.transfer(replica) is None
        return False
