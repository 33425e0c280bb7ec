"""Bounds the traffic of replicas that catch up, so that moving them does not starve clients.

All of it is bounded where it is sent from: what this node's leaders send, and what each other node
receives of it. A bucket is filled with every tick. One replica after the other has its turn when
there is room again: the next is woken when one has sent, or with the next tick.

Only learners are held back, and voters that are out of sync while enough others hold what is
committed. So no commit ever waits for a throttle, however low its rate is.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from penstock.model.ids import BrokerId, ReplicaId
from penstock.model.limits import MIB
from penstock.model.topic_config import TopicConfig
from penstock.raft.node import RaftNode
from penstock.raft.quorum import majority
from penstock.replication.in_sync import TICK_MS, InSync

TICKS_PER_S: Final = 1000 // TICK_MS
# What is sent at a time: a part of a second's worth, since each piece is read from the disk on its
# own, and not more than an append holds.
PIECES_PER_S: Final = 4
PIECE_BYTES_MAX: Final = MIB
# In bytes per second. A rate of nothing would never let a replica catch up.
RATE_MIN: Final = 1.0


class Bucket:
    """Holds at most what may pass in one second, and owes at most as much: something passes once
    a second or so even where a single entry is longer than the rate."""

    __slots__ = ("_level", "_rate")

    def __init__(self, rate: float) -> None:
        self._rate = max(rate, RATE_MIN)
        self._level = 0.0

    def set_rate(self, rate: float) -> None:
        """Acts at once: what is owed at the old rate does not count any more."""
        rate = max(rate, RATE_MIN)
        if rate != self._rate:
            self._rate = rate
            self._level = min(max(self._level, 0.0), rate)

    def tick(self) -> None:
        self._level = min(self._level + self._rate / TICKS_PER_S, self._rate)

    @property
    def is_open(self) -> bool:
        return self._level >= min(self._rate / PIECES_PER_S, PIECE_BYTES_MAX)

    @property
    def allowance(self) -> int:
        return max(int(self._level), 1) if self.is_open else 0

    def take(self, size_bytes: int) -> None:
        self._level = max(self._level - size_bytes, -self._rate)


class NodeThrottle:
    """The buckets of a node, and who waits for them. Rates that are missing are without bound."""

    def __init__(self) -> None:
        self._sending: Bucket | None = None
        self._receiving: dict[BrokerId, Bucket] = {}
        # In the order in which they were held back.
        self._waiting: dict[tuple[GroupThrottle, ReplicaId], None] = {}

    def set_rates(self, sending: float | None, receiving: Mapping[BrokerId, float]) -> None:
        """What this node may send in a second, and what others may receive of it."""
        if sending is None:
            self._sending = None
        elif self._sending is None:
            self._sending = Bucket(sending)
        else:
            self._sending.set_rate(sending)
        for node in self._receiving.keys() - receiving.keys():
            del self._receiving[node]
        for node, rate in receiving.items():
            self._receiving.setdefault(node, Bucket(rate)).set_rate(rate)
        waiting, self._waiting = self._waiting, {}
        for group, _ in waiting:
            group.wake()

    def tick(self) -> None:
        if self._sending is not None:
            self._sending.tick()
        for bucket in self._receiving.values():
            bucket.tick()
        if self._waiting:
            self.wake_next()

    def buckets(
        self, to: BrokerId, *, bounds_sending: bool, bounds_receiving: bool
    ) -> list[Bucket]:
        found = [self._sending if bounds_sending else None]
        found.append(self._receiving.get(to) if bounds_receiving else None)
        return [bucket for bucket in found if bucket is not None]

    def wait(self, group: "GroupThrottle", replica: ReplicaId) -> None:
        self._waiting[group, replica] = None

    def wake_next(self) -> None:
        for group, replica in self._waiting:
            if all(bucket.is_open for bucket in group.buckets(replica)):
                del self._waiting[group, replica]
                group.wake()
                return


class GroupThrottle:
    """What the throttles of its node mean for one group; a `Throttle` of its core."""

    def __init__(
        self,
        throttle: NodeThrottle,
        partition: int,
        config: TopicConfig,
        node: RaftNode,
        in_sync: InSync,
        wake: Callable[[], None],
    ) -> None:
        self._throttle = throttle
        self._partition = partition
        self._config = config
        self._node = node
        self._in_sync = in_sync
        self.wake = wake

    def buckets(self, replica: ReplicaId) -> Sequence[Bucket]:
        config, partition = self._config, self._partition
        return self._throttle.buckets(
            replica.node,
            bounds_sending=config.throttled_leaders.has(partition, self._node.id.node),
            bounds_receiving=config.throttled_followers.has(partition, replica.node),
        )

    def allowance(self, replica: ReplicaId) -> int | None:
        buckets = self.buckets(replica)
        if not buckets or not self._may_hold_back(replica):
            return None
        allowance = min(bucket.allowance for bucket in buckets)
        if allowance == 0:
            self._throttle.wait(self, replica)
        return allowance

    def sent(self, replica: ReplicaId, size_bytes: int) -> None:
        for bucket in self.buckets(replica):
            bucket.take(size_bytes)
        self._throttle.wake_next()

    def _may_hold_back(self, replica: ReplicaId) -> bool:
        """A learner, or a voter that neither a commit nor a producer may wait for."""
        voters = self._node.membership.voters
        if replica not in voters:
            return True
        if replica in self._in_sync.members:
            return False
        wanted = min(self._config.min_insync_replicas, len(voters))
        return self._others_in_step(replica) >= max(majority(len(voters)), wanted)

    def _others_in_step(self, replica: ReplicaId) -> int:
        """Voters that answer and hold what is committed, without that one."""
        node = self._node
        return sum(
            status.is_voter
            and status.replica != replica
            and status.recently_active
            and status.match_index >= node.commit_index
            for status in node.replicas()
        ) + (node.id in node.membership.voters)


def group_throttle(
    throttle: NodeThrottle,
    partition: int,
    config: TopicConfig,
    node: RaftNode,
    in_sync: InSync,
    wake: Callable[[], None],
) -> GroupThrottle | None:
    """None if the topic's settings list nobody that this replica could hold back as a leader."""
    leaders, followers = config.throttled_leaders, config.throttled_followers
    if leaders.has(partition, node.id.node) or followers.has_any(partition):
        return GroupThrottle(throttle, partition, config, node, in_sync, wake)
    return None
