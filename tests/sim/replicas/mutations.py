"""Bugs to inject between the consensus core and the disk and the wire: what runs must notice.

The docstring of each says which rule it breaks.
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from penstock.model.clock import Clock
from penstock.model.errors import Reason
from penstock.model.ids import DirectoryId, LogIndex, Offset, ReplicaId, Term
from penstock.records.batch import BatchHeader
from penstock.replication import opening, store
from penstock.replication.cold_entries import ColdEntries
from penstock.replication.consensus import Consensus
from penstock.replication.exchange import Exchange
from penstock.replication.group_member import GroupMember
from penstock.replication.hard_state_writer import HardStateWriter
from penstock.replication.index_offsets import IndexOffsets
from penstock.replication.log_starts import LogStarts
from penstock.replication.producer_ledger import ProducerLedger
from penstock.replication.producer_states import ProducerStates
from penstock.replication.refill import Refill
from penstock.replication.replica import Replica
from penstock.replication.throttle import GroupThrottle
from penstock.replication.writer import Writer
from penstock.storage import file_system, hard_states, recovery
from penstock.storage.appender import Appender
from penstock.storage.checkpointer import Checkpointer
from penstock.storage.file_system import Bytes, Content, FileSystem, WholeDisk
from penstock.storage.hard_states import HardStates
from penstock.storage.log import NO_DOUBT, Doubt, Log
from penstock.storage.log_state import LogState
from penstock.storage.recovery import _Recovery
from penstock.storage.segment import Segment
from penstock.storage.segment_cleaner import SegmentCleaner
from tests.sim.mutation import Mutations
from tests.sim.replicas.node import SimulatedNode
from tests.unit.storage import fault_file_system

ALL = Mutations()
mutation = ALL.add

_put = HardStateWriter.put
_check_tail = _Recovery._check_tail
_save = Checkpointer.save
_write = Appender._write
_write_all = Consensus._write
_delete_before = Log.delete_before


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
    """Anyone who can't write leaves leading to those who can."""


@mutation("a replica whose disk hangs stands for election", (GroupMember, "failing_because"))
@property  # type: ignore[misc]
def stands_without_a_disk(self: GroupMember) -> OSError | None:
    """Anyone who can't write would be elected for nothing."""
    return None


_check_deadline = Writer.check_deadline


@mutation("a write that hangs is taken back and tried again", (Writer, "check_deadline"))
def takes_back_late_writes(self: Writer) -> None:
    """A disk that does not answer may have done what it was asked for."""
    _check_deadline(self)
    job = self._running
    if job is not None and job.is_late:
        job.writes, self._queue = [], [*job.writes, *self._queue]


# What a crash leaves


@mutation(
    "a file is replaced without a sync of its directory",
    (file_system, "write_atomically"),
    (fault_file_system, "write_atomically"),
)
def name_not_synced(disk: FileSystem, path: Path, data: Bytes) -> None:
    """What was replaced is on disk when the call returns."""
    temporary = path.with_name(path.name + file_system.TEMPORARY_SUFFIX)
    file_system._write_new(disk, temporary, data)
    disk.rename(temporary, path)


@mutation("a file is replaced before its content is on disk", (file_system, "_write_new"))
def content_not_synced(disk: FileSystem, path: Path, data: Bytes) -> None:
    """A name never points to half of a file."""
    file = disk.create(path)
    file.pwrite(data, 0)
    file.close()


@mutation("a recovered tail is not synced", (recovery, "write_again"))
def tail_not_synced(_file: Content, _start: int, _end: int) -> None:
    """What is served from now on must not be lost by the next crash."""


@mutation("a recovered tail is synced, not written again", (recovery, "write_again"))
def tail_not_written_again(file: Content, _start: int, _end: int) -> None:
    """A sync that failed has lost what readers still see, and the next one does not write it."""
    file.sync()


@mutation("tails that are synced together are not written again", (recovery, "rewrite"))
def tails_not_rewritten(_file: Content, _start: int, _end: int) -> None:
    """As for one tail alone."""


@mutation("tails count as synced although the disk refused", (recovery, "_sync_at_once"))
def refused_sync_counts(states: Sequence[LogState], disk: WholeDisk) -> None:
    """Each log is synced by itself then, or stays out."""
    with contextlib.suppress(OSError):
        disk.sync()
    for state in states:
        state.unsynced_tail.clear()


@mutation(
    "a replica is whole again before it holds what it acknowledged",
    (Refill, "_holds_what_it_acknowledged"),
)
def whole_too_early(_self: Refill, _term: Term) -> bool:
    """Its leader may still count that, and commit it, when its own disk has it."""
    return True


@mutation("votes that a start found are not synced", (hard_states, "write_again"))
def found_votes_not_synced(_file: Content, _start: int, _end: int) -> None:
    """What others rely on must not go with the power."""


@mutation("votes that a start found are synced, not written again", (hard_states, "write_again"))
def found_votes_not_written_again(file: Content, _start: int, _end: int) -> None:
    """As for the tail of a log."""
    file.sync()


@mutation("a checkpoint is written before the data that it names", (Checkpointer, "save"))
def checkpoint_before_data(self: Checkpointer) -> None:
    """What a checkpoint names lies on disk for good."""
    with patch.object(Appender, "sync", lambda _: None):
        _save(self)
    self._appender.sync()


@mutation("a closed segment is not synced", (Appender, "_write"))
def closed_not_synced(self: Appender, write: Any) -> None:
    """A later segment proves that the earlier ones are whole."""
    with patch.object(Appender, "sync", lambda _: None):
        _write(self, write)


@mutation("indexes stay when their segment is cut", (Appender, "_remove_indexes"))
def stale_indexes(self: Appender, segment: Segment) -> None:
    """An index says where batches lie, not where others lay."""


@mutation("a write that failed is not cut back", (Appender, "cut_back"))
def not_cut_back(self: Appender) -> None:
    """A failed write leaves the log as it was."""
    self._uncut = []


@mutation("a snapshot is acknowledged before it is on disk", (Consensus, "_write"))
def snapshot_before_disk(self: Consensus, write: Any, is_own: bool) -> None:
    """What a follower acknowledges, it has."""
    _write_all(self, write, is_own)
    if write.snapshot is not None:
        self._writes_pending.pop()
        self._loop.call_soon(self._report)


# Where the log begins


@mutation("a log start that was truncated takes effect", (LogStarts, "truncate"))
def truncated_start(self: LogStarts, index: int) -> None:
    """What was truncated was never there."""


@mutation("a log start takes effect before it is committed", (GroupMember, "log_start_noted"))
def early_start(self: GroupMember, index: int, offset: Offset) -> None:
    """Nothing is deleted that the group has not agreed to delete."""
    self._starts.note(index, offset)
    self._keeper.delete_soon(offset)


@mutation("more is deleted than the log start says", (Log, "delete_before"))
def deletes_more(self: Log, offset: Offset) -> None:
    """What was not deleted stays."""
    _delete_before(self, Offset(min(offset + 1, self.end_offset)))


# Who may lead


@mutation("a leader asks nobody whether it still leads", (GroupMember, "confirm"))
async def confirms_alone(self: GroupMember) -> None:
    """Only a majority knows that there is no other leader."""
    self.check_leader()


@mutation("a replica that lost its tail votes as if it had it", (Log, "doubt"))
@property  # type: ignore[misc]
def votes_in_doubt(self: Log) -> Doubt:
    """Its vote could make a leader that lacks what it acknowledged."""
    return NO_DOUBT


@mutation("every bad end of a log is taken for torn", (recovery, "is_torn"))
def rot_is_torn(place: Any, offset: int) -> bool:
    """What was acknowledged may have rotted."""
    return True


@mutation("a log is cut without a note of where it ended", (_Recovery, "_doubt"))
def end_not_noted(self: _Recovery, offset: int, places: Any, *, starts_bad: bool) -> None:
    """Anyone who forgot something must know that it did."""


@mutation("a retry is acknowledged once it is committed", (Replica, "_is_acknowledged"))
def retry_not_counted(self: Replica, offset: int) -> bool:
    """A topic may ask for more copies than a majority."""
    return True


@mutation("a replica that lost its tail counts again at once", (Refill, "ends"))
def refilled_at_once(self: Refill, applied_index: LogIndex, term: Term) -> bool:
    """It counts again when it has everything again."""
    return True


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
    """What was sent behind it is not a gap."""


@mutation(
    "a checkpoint holds states of what is not committed", (ProducerLedger, "settled_snapshot")
)
def checkpoint_too_new(self: ProducerLedger) -> Callable[[], bytes]:
    """A checkpoint is never rolled back."""
    return self.states.snapshot


@mutation("compaction drops the last batch of a producer", (SegmentCleaner, "_keep_empty"))
def last_batch_dropped(self: SegmentCleaner, header: BatchHeader) -> bool:
    """Its sequence must be found by readers of the log."""
    return header.next_offset == self._log_end


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


# Throttles


@mutation("a throttle holds back a voter that is in sync", (GroupThrottle, "_may_hold_back"))
def holds_back_everybody(self: GroupThrottle, replica: ReplicaId) -> bool:
    """No commit waits for a throttle."""
    return True


# Heartbeats


@mutation("a refused heartbeat is not followed up", (GroupMember, "heartbeat_refused"))
def refusal_ignored(self: GroupMember, sender: ReplicaId, term: Term) -> None:
    """A follower that does not know its leader is introduced to it."""


@mutation("a group accepts any sender of beats", (GroupMember, "heartbeat_received"))
def accepts_whoever_beats(self: GroupMember, sender: ReplicaId, term: Term) -> bool:
    """A heartbeat counts for a group only while its sender leads it in the follower's term."""
    return True


@mutation("broken connections are not told to the groups", (Exchange, "_tell_replicas"))
def lost_nodes_not_told(self: Exchange, tell: Any) -> None:
    """What was sent over a broken connection is sent again without waiting for a time-out."""
