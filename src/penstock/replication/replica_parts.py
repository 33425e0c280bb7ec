"""What all replicas of a node share."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from penstock.model.clock import Clock
from penstock.model.ids import ReplicaId
from penstock.observe.node_counters import NodeCounters
from penstock.raft.settings import RaftSettings
from penstock.replication.batch_buffers import BatchBuffers
from penstock.replication.cold_entries import FollowerReads
from penstock.replication.hard_state_writer import HardStateWriter
from penstock.replication.outbound import Outbound
from penstock.replication.pressure import Pressure
from penstock.replication.recent_entries import RecentEntries
from penstock.replication.throttle import NodeThrottle
from penstock.replication.write_side import WriteSide
from penstock.storage.file_system import FileSystem


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaParts:
    own: ReplicaId
    # Who this replica was before its node's terms and votes were lost.
    former: frozenset[ReplicaId]
    clock: Clock
    executor: Executor
    background: Executor
    write_side: WriteSide
    file_system: FileSystem
    pressure: Pressure
    buffers: BatchBuffers
    recent: RecentEntries
    follower_reads: FollowerReads
    throttle: NodeThrottle
    unflushed_bytes_max: int
    outbound: Outbound
    hard_states: HardStateWriter
    random_below: Callable[[int], int]
    raft_settings: RaftSettings
    # None counts nothing.
    counters: NodeCounters | None = None
