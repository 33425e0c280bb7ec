"""Runs the Raft core of one replica: gives it events, carries out what it asks for.

Whatever happened in one turn of the loop is drained once, at its end: one write to the log's queue,
one hand-over of messages, one step of the commit index. The disk and the peers answer later, and
the core hears of it in the order in which it asked.

A write holds either what this replica proposed or what a leader sent, never both: the one was
looked at when it was appended, the other is looked at here.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from penstock.model.ids import LogIndex, Offset, PartitionId, ReplicaId, Term
from penstock.model.topic_config import TopicConfig
from penstock.raft.entries import Entry, EntryKind, Snapshot
from penstock.raft.messages import Message
from penstock.raft.node import RaftNode, ReplicaStatus
from penstock.raft.ready import Leadership, Ready, Write
from penstock.replication.batch_buffers import Batch
from penstock.replication.entry_codec import (
    DecodeError,
    SnapshotContent,
    batches_of,
    decode_log_start,
    decode_snapshot,
    encode_membership,
)
from penstock.replication.hard_state_writer import HardStateWriter, stored
from penstock.replication.in_sync import InSync
from penstock.replication.index_offsets import IndexOffsets
from penstock.replication.outbound import Outbound
from penstock.replication.raft_log import StoredLog
from penstock.replication.throttle import NodeThrottle, group_throttle
from penstock.replication.writer import LogWrite, Writer
from penstock.storage.log import LogBase

DATA = EntryKind.DATA
_NOTHING: tuple[Batch, ...] = ()


class ConsensusOwner(Protocol):
    """What consensus means for the replica; all of it on the loop, in the order of the log."""

    # Whether there are, or were, other members.
    has_peers: bool
    # Whether it moved away, came back, and does not have everything again yet.
    is_returning: bool

    def truncated(self, index: int, offset: Offset) -> None:
        """Everything from `index`, which is at `offset`, is gone."""
        ...

    def installed(self, content: SnapshotContent) -> None:
        """A leader's snapshot replaces everything."""
        ...

    def received(self, batch: Batch, offset: Offset) -> None:
        """A leader's data is at `offset`."""
        ...

    def log_start_noted(self, index: int, offset: Offset) -> None: ...

    def log_ends_at(self, offset: Offset) -> None: ...

    def applied(self, index: LogIndex, offset: Offset) -> None:
        """Everything up to `index`, and so before `offset`, is committed and safe here."""
        ...

    def news(self, leadership: Leadership | None) -> None:
        """Leadership or membership changed."""
        ...

    def turn_ends(self) -> None:
        """All that was appended so far is on its way; what comes now is of a later turn."""
        ...

    def drained(self) -> None: ...

    def reads_settled(self, ready: Ready) -> None: ...

    def snapshots_wanted(self, replicas: Sequence[ReplicaId]) -> None: ...

    def failed(self, error: Exception) -> None:
        """The replica can't go on."""
        ...


class Consensus:
    __slots__ = (
        "_applied_index",
        "_handed_index",
        "_hard_states",
        "_hards_pending",
        "_is_ended",
        "_is_scheduled",
        "_issued",
        "_key",
        "_loop",
        "_outbound",
        "_owner",
        "_persisted",
        "_stored",
        "_writer",
        "_writes_pending",
        "has_proposals",
        "is_stale",
        "membership_index",
        "node",
        "offsets",
    )

    def __init__(
        self,
        node: RaftNode,
        owner: ConsensusOwner,
        *,
        key: PartitionId,
        offsets: IndexOffsets,
        stored: StoredLog,
        writer: Writer,
        hard_states: HardStateWriter,
        outbound: Outbound,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.node = node
        self.offsets = offsets
        # Whether messages were taken whose effects nobody has seen yet: to be drained before
        # anything is appended.
        self.is_stale = False
        self._owner = owner
        self._key = key
        self._stored = stored
        stored.cold.on_arrival = self.send_again
        stored.cold.on_failure = owner.failed
        self._writer = writer
        self._hard_states = hard_states
        self._outbound = outbound
        self._loop = loop
        self._is_scheduled = False
        # Whether the owner proposed something that nobody has seen yet.
        self.has_proposals = False
        self._is_ended = False
        # The last index that the owner was told of.
        self._applied_index = -1
        # Where the present membership is in the log, or was before a truncation.
        self.membership_index = 0
        # The last index that was handed to the writer.
        self._handed_index: int = node.last_index
        # Numbers of writes: the newest, those that wait for the one file and for the other, and
        # the newest of which the core knows that it is durable.
        self._issued = 0
        self._hards_pending: deque[int] = deque()
        self._writes_pending: deque[int] = deque()
        self._persisted = 0

    # Events

    def proposed(self) -> None:
        """The owner gave the core a proposal of its own."""
        self.has_proposals = True
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._drain_scheduled)

    def step(self, message: Message) -> None:
        if self._is_ended:
            return
        if self.has_proposals:
            self.drain()
        self.node.step(message)
        self.touch()

    def touch(self) -> None:
        """Something happened in the core; its effects follow with the end of the turn."""
        self.is_stale = True
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._drain_scheduled)

    def ticked(self) -> None:
        """As `touch`, but now, unless a turn is under way that will see to it anyway."""
        if not self._is_scheduled and self.node.has_work:
            self.drain()

    def send_again(self) -> None:
        """What the core found not at hand for a follower was read, or a throttle lets it pass."""
        if not self._is_ended:
            self.node.entries_arrived()
            self.touch()

    def throttle_by(self, throttle: NodeThrottle, config: TopicConfig, in_sync: InSync) -> None:
        """What followers are sent is bounded as the topic's settings say."""
        found = group_throttle(
            throttle, self._key.partition, config, self.node, in_sync, self.send_again
        )
        self.node.throttle_by(found)

    def written(self, number: int) -> None:
        pending = self._writes_pending
        while pending and pending[0] <= number:
            pending.popleft()
        self._report()

    def _hard_state_written(self, number: int, error: Exception | None) -> None:
        if error is not None:
            self._owner.failed(error)
            return
        pending = self._hards_pending
        while pending and pending[0] <= number:
            pending.popleft()
        self._report()

    @property
    def keeps_much(self) -> bool:
        """Whether a lot of memory is kept for followers, so that `let_go` is due."""
        return self._stored.recent.is_large

    def let_go(self, statuses: Sequence[ReplicaStatus]) -> None:
        """Frees what every follower that is there holds already."""
        there = [status.match_index for status in statuses if status.recently_active]
        self._stored.recent.settle(min(there, default=self.node.last_index))

    def end(self) -> None:
        """Nothing is heard or said any more."""
        self._is_ended = True
        self._stored.clear()

    # Effects

    def _drain_scheduled(self) -> None:
        self._is_scheduled = False
        self.drain()

    def drain(self) -> None:
        if self._is_ended:
            return
        is_own, self.has_proposals = self.has_proposals, False
        self.is_stale = False
        try:
            self._owner.turn_ends()
            ready = self.node.ready()
            if ready is not None:
                self._carry_out(ready, is_own)
            self._owner.drained()
        except Exception as bug:
            # Half of it may be done: nothing that this replica says can be trusted any more.
            self._owner.failed(bug)

    def _carry_out(self, ready: Ready, is_own: bool) -> None:
        if ready.write is not None:
            self._write(ready.write, is_own)
        if ready.messages:
            self._outbound.send(self._key, ready.messages)
        applied_index = ready.apply_index
        if applied_index != self._applied_index:
            self._applied_index = applied_index
            self._owner.applied(applied_index, self.offsets.after(applied_index))
            self.offsets.settle(applied_index)
        if ready.leadership is not None or ready.membership is not None:
            self._owner.news(ready.leadership)
        if ready.reads or ready.reads_refused:
            self._owner.reads_settled(ready)
        if ready.snapshots_wanted:
            self._owner.snapshots_wanted(ready.snapshots_wanted)

    def _write(self, write: Write, is_own: bool) -> None:
        number = self._issued = write.number
        if write.hard_state is not None:
            self._hards_pending.append(number)
            done = partial(self._hard_state_written, number)
            state = stored(write.hard_state, is_gone=self._owner.is_returning)
            self._hard_states.put(self._key, state, done)
        if write.entries or write.snapshot is not None:
            self._writes_pending.append(number)
            self._writer.put(self._log_write(write, is_own))

    def _report(self) -> None:
        """What is durable without a hole, in the order of the writes."""
        done = self._issued
        if self._hards_pending:
            done = self._hards_pending[0] - 1
        if self._writes_pending and self._writes_pending[0] <= done:
            done = self._writes_pending[0] - 1
        if done > self._persisted and not self._is_ended:
            self._persisted = done
            self.node.persisted(done)
            self.drain()

    # Writes

    def _log_write(self, write: Write, is_own: bool) -> LogWrite:
        reset = None if write.snapshot is None else self._install(write.snapshot)
        entries = write.entries
        if not entries:
            return LogWrite(write.number, reset, None, _NOTHING, True)
        cut_index = None
        first_index = entries[0].first_index
        if first_index <= self._handed_index:
            cut_index = first_index
            self._truncate(first_index)
        self._handed_index = entries[-1].index
        if is_own:
            batches, has_own = self._take_own(entries)
        else:
            batches, has_own = self._take_received(entries)
        self._owner.log_ends_at(self.offsets.after(self._handed_index))
        return tuple.__new__(LogWrite, (write.number, reset, cut_index, batches, has_own))

    def _take_own(self, entries: Sequence[Entry]) -> tuple[list[Batch], bool]:
        if self._owner.has_peers:
            self._stored.recent.add(entries)
        # Ours, so what data holds is known to be a batch.
        batches: list[Batch] = [entry.payload for entry in entries if entry.kind is DATA]  # type: ignore[misc]
        if len(batches) == len(entries):
            return batches, False
        batches, has_own = [], False
        for entry in entries:
            if entry.kind is DATA:
                batches.append(entry.payload)  # type: ignore[arg-type]
            else:
                has_own = True
                batches += self._take_entry(entry, self.offsets.after(entry.index - 1))
        return batches, has_own

    def _take_received(self, entries: Sequence[Entry]) -> tuple[list[Batch], bool]:
        batches: list[Batch] = []
        has_own = False
        for entry in entries:
            offset = self.offsets.after(entry.first_index - 1)
            if entry.kind is DATA:
                batch = entry.payload
                assert isinstance(batch, (bytes, bytearray, memoryview))
                self._owner.received(batch, offset)
                batches.append(batch)
            else:
                has_own = has_own or entry.kind is not EntryKind.GAP
                batches += self._take_entry(entry, offset)
        return batches, has_own

    def _take_entry(self, entry: Entry, offset: Offset) -> list[Batch]:
        batches = list(batches_of(entry, offset))
        if entry.kind is not EntryKind.GAP:
            self.offsets.note_own(entry.index)
        if entry.kind is EntryKind.MEMBERSHIP:
            self.membership_index = entry.index
        elif entry.kind is EntryKind.LOG_START:
            assert isinstance(entry.payload, (bytes, bytearray, memoryview))
            self._owner.log_start_noted(entry.index, decode_log_start(entry.payload))
        return batches

    def _truncate(self, index: int) -> None:
        self.offsets.truncate(index)
        self._stored.truncate(index)
        self.membership_index = min(self.membership_index, index - 1)
        self._owner.truncated(index, self.offsets.after(index - 1))

    def _install(self, snapshot: Snapshot) -> tuple[LogBase, bytes]:
        assert isinstance(snapshot.payload, (bytes, bytearray, memoryview))
        content = decode_snapshot(snapshot.payload)
        if content.offset > snapshot.index:
            raise DecodeError(f"a snapshot at index {snapshot.index} of offset {content.offset}")
        self.offsets.reset(snapshot.index, content.offset)
        self._stored.clear()
        self._handed_index = snapshot.index
        self._owner.installed(content)
        base = LogBase(
            offset=content.offset,
            index=snapshot.index,
            term=Term(snapshot.term),
            membership=encode_membership(snapshot.membership),
            membership_index=snapshot.index,
        )
        return base, content.producers
