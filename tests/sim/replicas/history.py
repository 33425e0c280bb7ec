"""What must hold at every moment of a run, seen from outside: terms, commits and what was read."""

from bisect import bisect_left
from typing import NamedTuple
from zlib import crc32

from penstock.model.ids import ReplicaId
from penstock.raft.node import RaftNode
from penstock.records.batch import BatchHeader, parse_header
from penstock.records.own_entries import OwnKind, parse_own
from penstock.replication.entry_codec import decode_log_start
from penstock.replication.replica import Replica
from penstock.storage.log import Log, LogEntry

DATA = 0
GAP = -1
READ_BYTES_MAX = 1 << 20


class Violation(AssertionError):
    """A promise that a run broke."""


def require(condition: bool, sentence: str) -> None:
    """For what is checked now and then: where it happens all the time, the sentence takes long."""
    if not condition:
        raise Violation(sentence)


class Committed(NamedTuple):
    first_index: int
    last_index: int
    term: int
    kind: int
    checksum: int


class History:
    """Everything that was ever committed, by index, and who led in which term."""

    def __init__(self, *, compacts: bool) -> None:
        # Compaction takes records out of batches, so their bytes need not stay the same.
        self._compacts = compacts
        # None where an entry was gone before anybody looked.
        self._entries: list[Committed | None] = []
        self._leaders: dict[int, ReplicaId] = {}
        # Per producer: the last offset and sequence number of each batch that was committed.
        self._batches: dict[int, list[tuple[int, int]]] = {}
        # Set when the group is gone for good, as a deleted topic's is: who replays the past may
        # make it again for a moment, and nothing that happens in it then counts.
        self.is_over = False
        # Where the log may begin at most, by all that was committed.
        self.log_start = 0
        # Replicas whose disks can't be read, and what they applied last, which nobody knows.
        self.unread: dict[ReplicaId, int] = {}
        # What consumers were given, by offset.
        self._read: dict[int, bytes] = {}

    @property
    def terms(self) -> int:
        return len(self._leaders)

    @property
    def committed_index(self) -> int:
        return len(self._entries)

    def on_leader(self, node: RaftNode) -> None:
        """One leader per term, and it holds all that was committed in the terms before."""
        known = self._leaders.get(node.term)
        if known is not None:
            if known != node.id:
                raise Violation(f"term {node.term} has the leaders {known} and {node.id}")
            return
        self._leaders[node.term] = node.id
        log = node._core.log
        for index in range(max(log.first_index, 1), len(self._entries) + 1):
            entry = self._entries[index - 1]
            if entry is None:
                continue
            if entry.term < node.term and log.term_at(index) != entry.term:
                raise Violation(
                    f"leader {node.id} of term {node.term} lacks committed index {index}"
                )

    def on_applied(self, replica: ReplicaId, log: Log, before: int, index: int) -> None:
        """What is committed is the same everywhere, forever."""
        low = max(before + 1, log.first_index)
        if low == log.first_index <= index:
            self._pass_over(low - 1)
        while low <= index:
            found = log.entries(low, index + 1, READ_BYTES_MAX)  # type: ignore[arg-type]
            for entry in found:
                if entry.first_index != low:
                    raise Violation(f"{replica} has a hole before {entry.first_index}")
                if entry.kind == GAP:
                    self._pass_over(entry.index)
                else:
                    self._check(replica, entry)
                low = entry.index + 1

    def _pass_over(self, index: int) -> None:
        """Nobody looked at what was there before it was deleted or compacted."""
        self._entries.extend([None] * (index - len(self._entries)))

    def _check(self, replica: ReplicaId, entry: LogEntry) -> None:
        first, last = entry.first_index, entry.index
        checksum = 0 if self._compacts else crc32(entry.batch)
        committed = Committed(first, last, entry.term, entry.kind, checksum)
        if first == len(self._entries) + 1:
            self._entries.extend([committed] * (last - first + 1))
            if entry.kind == DATA:
                self._note_producer(parse_header(entry.batch))
            elif entry.kind == OwnKind.LOG_START:
                start = decode_log_start(parse_own(entry.batch).payload)
                self.log_start = max(self.log_start, start)
            return
        if last > len(self._entries):
            raise Violation(f"{replica} applied index {last} before those below")
        for known in self._entries[first - 1 : last]:
            if known is not None and known != committed:
                raise Violation(f"{replica} has {committed} where {known} was committed")

    def _note_producer(self, header: BatchHeader) -> None:
        if header.producer_id < 0:
            # Of somebody without a memory, such as a coordinator.
            return
        batch = (header.last_offset, header.base_sequence + header.record_count - 1)
        self._batches.setdefault(header.producer_id, []).append(batch)

    def on_producers(self, replica: Replica) -> None:
        """Each replica knows the last batch of every producer: else a retry is taken twice, or a
        producer that did nothing wrong can't go on. And it knows of none that is not there."""
        if replica._log.end_offset < replica._installed_offset:
            # A snapshot is being written: the states are its own already, the log is not.
            return
        known = {}
        for producer_id, producer in replica._states.active():
            last = producer.batches[-1]
            known[producer_id] = last.last_sequence
            if last.last_offset >= replica.log_end_offset:
                raise Violation(
                    f"{replica.id} knows {last} of producer {producer_id}, and its log ends before"
                )
        for producer_id, batches in self._batches.items():
            self._check_producer(replica, batches, producer_id, known.get(producer_id, -1))

    def _check_producer(
        self, replica: Replica, batches: list[tuple[int, int]], producer_id: int, known: int
    ) -> None:
        place = bisect_left(batches, (replica.high_watermark, -1))
        if place == 0:
            return
        offset, sequence = batches[place - 1]
        # One that is being filled may learn of it from the data that is still to come.
        is_there = not self._compacts and offset >= replica._log.base.offset
        # Where nobody could look at all that is committed, a later batch of it may be unknown here.
        is_last = place == len(batches) and not self.unread
        if (is_there or is_last) and known < sequence:
            raise Violation(
                f"{replica.id} knows producer {producer_id} up to {known}, not {sequence}"
            )

    def on_read(self, offset: int, value: bytes) -> None:
        known = self._read.setdefault(offset, value)
        if known != value:
            raise Violation(f"offset {offset} was read as {known!r} and as {value!r}")
