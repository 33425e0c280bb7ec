"""Which voters have all that their leader has, or had it a moment ago, as the leader sees it.

Time is counted in samples that the leader takes at even distances. A voter that is heard from and
holds what the log ended with at the sample before was caught up at that sample.
"""

from collections.abc import Iterable, Sequence

from penstock.model.ids import BrokerId, LogIndex, ReplicaId
from penstock.observe.node_counters import NodeCounters
from penstock.raft.node import RaftNode, ReplicaStatus
from penstock.raft.quorum import majority

TICKS_PER_SAMPLE = 10
TICK_MS = 100
# A voter that was not caught up for this long is no longer in sync.
REPLICA_LAG_MS = 10_000
LAG_SAMPLES = REPLICA_LAG_MS // (TICK_MS * TICKS_PER_SAMPLE)
# A new leader gives every voter this many samples to show that it is there.
GRACE_SAMPLES = 2
NEVER = -(2**31)
# Beyond every index.
NO_BOUND = 2**63


class InSync:
    __slots__ = (
        "_caught_up_at",
        "_counters",
        "_mark",
        "_own",
        "_sample",
        "_steady_since",
        "members",
    )

    def __init__(self, own: ReplicaId, counters: NodeCounters | None = None) -> None:
        self._own = own
        self._counters = counters
        self._sample = 0
        # The end of the log at the last sample.
        self._mark = 0
        self._caught_up_at: dict[ReplicaId, int] = {}
        # Since which sample a voter was caught up at every one.
        self._steady_since: dict[ReplicaId, int] = {}
        self.members: tuple[ReplicaId, ...] = ()

    def begin(self, voters: Iterable[ReplicaId], last_index: LogIndex) -> None:
        """A new leader knows nothing yet: every voter counts until it had time to show itself."""
        self._sample, self._mark = 0, last_index
        self._caught_up_at = dict.fromkeys(voters, GRACE_SAMPLES - LAG_SAMPLES)
        self._steady_since = {}
        self.members = tuple(sorted(self._caught_up_at))

    def drop(self, node: BrokerId) -> bool:
        """That node's process is gone: it counts again once a sample found it caught up. Says
        whether the set changed."""
        for replica in self._caught_up_at:
            if replica.node == node and replica != self._own:
                self._caught_up_at[replica] = NEVER
                self._steady_since.pop(replica, None)
        return self._become(
            tuple(
                replica for replica in self.members if replica.node != node or replica == self._own
            )
        )

    def end(self) -> None:
        self._caught_up_at, self._steady_since, self.members = {}, {}, ()

    @property
    def nodes(self) -> list[BrokerId]:
        return [replica.node for replica in self.members]

    def sample(
        self,
        voters: frozenset[ReplicaId],
        statuses: Sequence[ReplicaStatus],
        last_index: LogIndex,
    ) -> bool:
        """Says whether the set changed."""
        before = self._sample
        self._sample += 1
        known = self._caught_up_at
        caught_up = {
            replica: known.get(replica, before) for replica in voters if replica != self._own
        }
        for status in statuses:
            replica = status.replica
            if status.recently_active and status.match_index >= self._mark:
                if replica in caught_up:
                    caught_up[replica] = before
                self._steady_since.setdefault(replica, before)
            else:
                self._steady_since.pop(replica, None)
        self._caught_up_at, self._mark = caught_up, last_index
        return self._note(voters)

    def _note(self, voters: frozenset[ReplicaId]) -> bool:
        members = [
            replica
            for replica, sample in self._caught_up_at.items()
            if self._sample - sample <= LAG_SAMPLES
        ]
        if self._own in voters:
            members.append(self._own)
        return self._become(tuple(sorted(members)))

    def _become(self, found: tuple[ReplicaId, ...]) -> bool:
        before = self.members
        if found == before:
            return False
        self.members = found
        if self._counters is not None:
            self._counters.in_sync_shrinks += len(set(before) - set(found))
            self._counters.in_sync_growths += len(set(found) - set(before))
        return True

    def steady_samples(self, replica: ReplicaId) -> int:
        """At how many samples in a row it was caught up."""
        since = self._steady_since.get(replica)
        return 0 if since is None else self._sample - since


def index_held_by(wanted: int, node: RaftNode) -> int:
    """The highest index that `wanted` voters, or all there are, hold durably; no bound if that is
    no more than the majority which holds what is committed. Fewer than that hold it right after
    the group has grown: it was committed by a majority of those who were there before."""
    voters = len(node.membership.voters)
    if wanted <= majority(voters) and node.is_membership_committed:
        return NO_BOUND
    return held_by(min(wanted, voters), node.stable_index, node.replicas())


def held_by(count: int, own_index: int, statuses: Sequence[ReplicaStatus]) -> int:
    """The highest index that `count` voters hold durably, of which this replica is one."""
    held = [status.match_index for status in statuses if status.is_voter]
    held.append(LogIndex(own_index))
    held.sort(reverse=True)
    return held[count - 1] if count <= len(held) else 0
