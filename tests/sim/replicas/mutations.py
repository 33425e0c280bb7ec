"""Bugs to inject between the consensus core and the disk and the wire: what runs must notice.

The docstring of each says which rule it breaks.
"""

from collections.abc import Callable
from typing import Any

from penstock.model.clock import Clock
from penstock.model.errors import Reason
from penstock.model.ids import DirectoryId, LogIndex, Offset, ReplicaId, Term
from penstock.records.batch import BatchHeader
from penstock.replication import opening, store
from penstock.replication.cold_entries import ColdEntries
from penstock.replication.exchange import Exchange
from penstock.replication.group_member import GroupMember
from penstock.replication.hard_state_writer import HardStateWriter
from penstock.replication.index_offsets import IndexOffsets
from penstock.replication.producer_ledger import ProducerLedger
from penstock.replication.producer_states import ProducerStates
from penstock.storage.appender import Appender
from penstock.storage.hard_states import HardStates
from penstock.storage.log import Log
from tests.sim.mutation import Mutations
from tests.sim.replicas.node import SimulatedNode

ALL = Mutations()
mutation = ALL.add

_put = HardStateWriter.put


# Terms and votes


@mutation("a vote leaves before it is on disk", (HardStateWriter, "put"))
def vote_before_disk(self: HardStateWriter, key: Any, state: Any, done: Any = None) -> None:
    """What is promised survives a crash."""
    _put(self, key, state)
    if done is not None:
        self._loop.call_soon(done, None)


@mutation("votes are forgotten at a start", (store, "_hard_state"))
def votes_forgotten(known: Any) -> Any:
    """One vote per term, also across a start."""
    return store.HardState() if known is None else store.HardState(Term(known.term), None)


@mutation("terms and votes are never written", (HardStates, "flush"))
def hard_states_not_written(self: HardStates) -> None:
    """What is kept in memory is lost with the process."""
    self._pending = {}


# Acknowledgements


@mutation("an append is acknowledged once the own disk has it", (GroupMember, "_settle_acks"))
def acknowledged_when_stored(self: GroupMember) -> None:
    """Only what a majority holds is safe."""
    index = self._node.stable_index
    self._acks.stored(index)
    self._backlog.remove(self._acks.committed(index))


@mutation("writes are acknowledged before the sync", (Appender, "sync"))
def not_synced(self: Appender) -> None:
    """What is acknowledged to a leader is on disk."""


# A disk that hangs


@mutation("a leader whose disk hangs keeps its leadership", (GroupMember, "_make_room"))
def stays_without_a_disk(self: GroupMember) -> None:
    """Whoever can't write leaves leading to those who can."""


@mutation("a replica whose disk hangs stands for election", (GroupMember, "failing_because"))
@property  # type: ignore[misc]
def stands_without_a_disk(self: GroupMember) -> OSError | None:
    """Whoever can't write would be elected for nothing."""
    return None


# What consumers see


@mutation("consumers read what is not committed", (GroupMember, "log_ends_at"))
def reads_uncommitted(self: GroupMember, offset: Offset) -> None:
    """Nothing is shown that may still be taken back."""
    self.log_end_offset = offset
    self.high_watermark = Offset(max(self.high_watermark, offset))


# Producers


@mutation("producers' states are not rolled back with the log", (ProducerLedger, "roll_back"))
def states_not_rolled_back(self: ProducerLedger, offset: int, clock: Clock) -> None:
    """What was truncated was never there."""


@mutation("followers keep no producers' states", (GroupMember, "received"))
def followers_without_states(self: GroupMember, batch: Any, offset: Offset) -> None:
    """A retry reaches the next leader."""


@mutation("a snapshot carries no producers", (ProducerStates, "snapshot_before"))
def snapshot_without_producers(self: ProducerStates, offset: int) -> bytes:
    """Producers whose batches are gone are known by the snapshot alone."""
    return ProducerStates().snapshot()


@mutation("a batch that was refused for now is not awaited", (ProducerStates, "await_again"))
def refused_not_awaited(
    self: ProducerStates, header: BatchHeader, reason: Reason, clock: Clock
) -> None:
    """What was sent behind it is no gap."""


@mutation(
    "a checkpoint holds states of what is not committed", (ProducerLedger, "settled_snapshot")
)
def checkpoint_too_new(self: ProducerLedger) -> Callable[[], bytes]:
    """A checkpoint is never rolled back."""
    return self.states.snapshot


# Reading for followers


@mutation("what was read of a log that was cut meanwhile is sent", (ColdEntries, "wants"))
def void_reads_count(self: ColdEntries, asked: Any) -> bool:
    """A follower gets what the log holds, not what it held."""
    return True


# Starting


@mutation("a replica that starts takes its whole log for committed", (opening, "committed_index"))
def all_committed(log: Log) -> LogIndex:
    """The end of a log may still be replaced."""
    return log.last_index


@mutation("a node that comes back with an empty disk keeps its identity", (SimulatedNode, "id"))
@property  # type: ignore[misc]
def empty_disk_keeps_identity(self: SimulatedNode) -> ReplicaId:
    """Nothing that a lost disk promised may be counted."""
    return ReplicaId(self.node, DirectoryId(f"d{self.node}"))


# Truncation and indices


@mutation("own entries are not counted for offsets", (IndexOffsets, "note_own"))
def own_not_counted(self: IndexOffsets, index: int) -> None:
    """An own entry takes an index and no offset."""


@mutation("a truncation leaves the offsets as they were", (IndexOffsets, "truncate"))
def offsets_not_truncated(self: IndexOffsets, index: int) -> None:
    """Own entries that are gone take no index."""


@mutation("a truncation is not carried out on disk", (Log, "truncate_to_index"))
def not_truncated(self: Log, index: LogIndex) -> None:
    """The disk follows the core."""


# Heartbeats


@mutation("a refused heartbeat is not followed up", (GroupMember, "heartbeat_refused"))
def refusal_ignored(self: GroupMember, sender: ReplicaId, term: Term) -> None:
    """A follower that does not know its leader is introduced to it."""


@mutation("a group accepts whoever beats", (GroupMember, "heartbeat_received"))
def accepts_whoever_beats(self: GroupMember, sender: ReplicaId, term: Term) -> bool:
    """A heartbeat counts for a group only while its sender leads it in the follower's term."""
    return True


@mutation("broken connections are not told to the groups", (Exchange, "_tell_replicas"))
def lost_nodes_not_told(self: Exchange, tell: Any) -> None:
    """What was sent over a broken connection is sent again without waiting for a time-out."""
