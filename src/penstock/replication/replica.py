"""One partition's copy on this node, as clients see it: they append to it and read from it.

A leader gives out offsets at `append`, in memory, and proposes the batch to the group; the high
watermark follows when the batch is committed and safe here, and only what is below it is ever
shown to a reader.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

from penstock.model.errors import Reason, Refused, StorageDamaged
from penstock.model.file_ranges import FileRange
from penstock.model.ids import LogIndex, Offset, ReplicaId, TopicId, TopicPartition
from penstock.model.topic_config import FlushPolicy, TopicConfig
from penstock.raft.entries import EntryKind
from penstock.raft.ready import Refusal
from penstock.records.batch import (
    LENGTH_OFFSET_OVERHEAD,
    BatchHeader,
    CorruptBatch,
    check_batch,
    parse_header,
    stamp,
)
from penstock.replication.acknowledgements import Pending
from penstock.replication.admission import Admission, refused_bytes
from penstock.replication.batch_buffers import Batch
from penstock.replication.commit import Commit
from penstock.replication.entry_codec import encode_log_start
from penstock.replication.group_member import GroupMember
from penstock.replication.opening import OpenedLog
from penstock.replication.positions import NOT_FOUND, FoundOffset, Position, end_of_term, term_at
from penstock.replication.producer_states import Producer, ProducerBatch
from penstock.replication.replica_parts import ReplicaParts
from penstock.replication.watches import Watch
from penstock.storage.log import LogRange, Scrubbed

logger = logging.getLogger(__name__)

PRODUCER_EXPIRY_MS = 24 * 3600 * 1000
# How long somebody who asks a new leader for its end waits for it to know.
SETTLING_S = 0.5


class Appended(NamedTuple):
    """Where a batch went."""

    base_offset: int
    append_time_ms: int
    log_start_offset: int
    # Committed, and held by as many members as the topic asks for; None when that is so already.
    done: Commit | None
    # Safe on this node, whatever becomes of it elsewhere; None when that is so already.
    stored: Commit | None


class Replica(GroupMember):
    """One partition's copy; stopped for good when its log can't be trusted."""

    __slots__ = ("_admission", "_is_closed", "_states", "before_compaction", "stopped_because")

    def __init__(
        self,
        *,
        partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        opened: OpenedLog | StorageDamaged | OSError,
        parts: ReplicaParts,
    ) -> None:
        super().__init__(partition=partition, topic_id=topic_id, config=config, parts=parts)
        self.stopped_because: Exception | None = None
        # Asked before each compaction by anyone who rebuilds a state from this log.
        self.before_compaction: Callable[[], Awaitable[bool]] | None = None
        self._admission = Admission(config)
        self._is_closed = False
        self._states = self._ledger.states
        if isinstance(opened, OpenedLog):
            self._attach(opened)
            self._states = self._ledger.states
        else:
            self.stop(opened)

    # What it holds

    @property
    def log_start_offset(self) -> Offset:
        return self._log.start_offset if self._has_log else Offset(0)

    @property
    def last_stable_offset(self) -> Offset:
        """There are no transactions yet, so nothing below the high watermark is undecided."""
        return self.high_watermark

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes if self._has_log else 0

    @property
    def unflushed_bytes(self) -> int:
        return self._backlog.size

    def progress(self) -> dict[ReplicaId, Offset]:
        """As a leader knows it: how far each member's log reaches, its own included."""
        if not self.is_leader:
            return {}
        found = {self.id: self.log_end_offset}
        for status in self._node.replicas():
            found[status.replica] = self._end_at(status.match_index)
        return found

    def _end_at(self, index: LogIndex) -> Offset:
        index = min(index, self._log.last_index)
        return self._log.offset_after(index) if index >= self._log.first_index - 1 else Offset(0)

    def producers(self) -> Iterator[tuple[int, Producer]]:
        self.check_running()
        return self._states.active()

    def set_config(self, config: TopicConfig) -> None:
        self.config = config
        self._admission = Admission(config)
        if self._has_log:
            self._log.config = config
            self._writer.syncs_before_ack = config.flush_policy is FlushPolicy.BEFORE_ACK
            self._consensus.throttle_by(self._parts.throttle, config, self._in_sync)
            # Fewer copies may be enough now for those who wait.
            self._consensus.touch()
            self._watches.notify()

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuses a client whose metadata is older or newer than this leadership (KIP-320)."""
        if current_leader_epoch in (-1, self.term):
            return
        is_old = current_leader_epoch < self.term
        reason = Reason.FENCED_LEADER_EPOCH if is_old else Reason.UNKNOWN_LEADER_EPOCH
        detail = f"{self.partition} is in term {self.term}, not {current_leader_epoch}"
        raise Refused(reason, detail)

    async def settled(self, timeout_s: float) -> None:
        """Waits until this replica leads and knows all that was committed; raises TimeoutError."""
        changed = asyncio.Event()
        watch = self.on_leadership(changed.set)
        try:
            async with asyncio.timeout(timeout_s):
                while not self.is_settled and self._refusal is None:
                    changed.clear()
                    await changed.wait()
        finally:
            watch.cancel()
        self.check_running()

    def validate(self) -> None:
        """Asserts what every step leaves true; for tests, which call it often."""
        self._node.validate()
        self._states.validate()
        assert self._applied_index <= self._node.commit_index
        assert self.high_watermark <= self.log_end_offset
        assert self.is_leader or not self.is_settled
        assert self.is_leader or not self._in_sync.members

    # Appending

    def append(
        self, batches: Batch, *, many: bool = False, acks_all: bool = True, expected: int = -1
    ) -> Appended:
        """Takes one batch of a producer, or several where an old client's messages became such;
        one that expects an offset only if it gets that one, so that nobody was faster."""
        try:
            self._check_appendable(acks_all)
        except Refused as refused:
            raise self.refuse_for_now(refused, batches) from None
        try:
            header = check_batch(batches)
        except CorruptBatch as bad:
            raise refused_bytes(batches, bad) from None
        if header.batch_length + LENGTH_OFFSET_OVERHEAD != len(batches):
            return self._append_many(batches, many)
        now_ms = self._parts.clock.now_ms()
        batch = self._admit(batches, header, now_ms)
        if header.producer_id >= 0:
            duplicate = self._states.check(header, self._parts.clock)
            if duplicate is not None:
                return self._answer_duplicate(duplicate)
        base_offset = self.log_end_offset
        if expected not in (-1, base_offset):
            raise Refused(Reason.OFFSET_NOT_EXPECTED, f"the next offset is {base_offset}")
        append_time_ms = now_ms if self._admission.stamps_append_time else -1
        pending = self._put(batch, header, now_ms)
        found = base_offset, append_time_ms, self._log.start_offset, pending.done, pending.stored
        return tuple.__new__(Appended, found)  # without a call of Python per batch

    def append_own(self, batch: bytes) -> Appended:
        """Takes a batch that the broker built itself, which no topic setting restricts."""
        self._check_appendable(acks_all=False)
        base_offset = self.log_end_offset
        pending = self._put(batch, parse_header(batch), self._parts.clock.now_ms())
        return Appended(base_offset, -1, self._log.start_offset, pending.done, pending.stored)

    def committed(self) -> Commit:
        """Settles once everything appended so far is safe, or is known not to be."""
        pending = self._acks.last
        if pending is None and self.is_leader and self._applied_index < self._node.last_index:
            pending = self._acks.join_end(self._node.last_index, self.log_end_offset)
        if pending is not None:
            return pending.done
        commit = Commit()
        commit.settle(None)
        return commit

    def _check_appendable(self, acks_all: bool) -> None:
        if self._refusal is not None:
            raise Refused(*self._refusal)
        if self._consensus.is_stale:
            self._consensus.drain()
        if not self.is_leader or self._writer.failure is not None:
            raise self._not_leader()
        if acks_all and self._has_too_few_in_sync():
            detail = f"{self.partition} has {len(self._in_sync.members)} replicas in sync"
            raise Refused(Reason.NOT_ENOUGH_REPLICAS, detail)

    def _admit(self, batch: Batch, header: BatchHeader, now_ms: int) -> Batch:
        admission = self._admission
        admission.check(header, now_ms)
        if admission.looks_inside:
            batch = admission.look_inside(batch, header, now_ms)
        if not self._backlog.has_room(len(batch)):
            raise self._throttled(header)
        return batch

    def _throttled(self, header: BatchHeader) -> Refused:
        detail = f"{self._parts.pressure.total} bytes are not on disk yet"
        return self._for_now(Refused(Reason.THROTTLED, detail), header)

    def _for_now(self, refused: Refused, header: BatchHeader) -> Refused:
        """Nothing is wrong with the batch, so it will come again, and before those behind it."""
        if header.producer_id >= 0:
            self._states.await_again(header, refused.reason, self._parts.clock)
        return refused

    def refuse_for_now(self, refused: Refused, batch: Batch) -> Refused:
        """The refusal of a batch that will come again, noted for those behind it (decision 28)."""
        with contextlib.suppress(CorruptBatch):
            self._for_now(refused, parse_header(batch))
        return refused

    def _append_many(self, batches: Batch, is_allowed: bool) -> Appended:
        """All are judged before the first is taken, so that a produce is taken whole or not."""
        if not is_allowed:
            raise Refused(Reason.INVALID_RECORD, "a produce holds exactly one batch per partition")
        now_ms = self._parts.clock.now_ms()
        admitted = []
        view = memoryview(batches)
        while len(view):
            try:
                header = check_batch(view)
            except CorruptBatch as bad:
                raise refused_bytes(view, bad) from None
            if header.producer_id >= 0:
                raise Refused(Reason.INVALID_RECORD, "only one idempotent batch may come at a time")
            admitted.append((self._admit(view[: header.size], header, now_ms), header))
            view = view[header.size :]
        base_offset = self.log_end_offset
        pending = [self._put(batch, header, now_ms) for batch, header in admitted][-1]
        append_time_ms = now_ms if self._admission.stamps_append_time else -1
        start = self._log.start_offset
        return Appended(base_offset, append_time_ms, start, pending.done, pending.stored)

    def _answer_duplicate(self, first: ProducerBatch) -> Appended:
        """The first answer was lost; the second one waits for the same as the first did."""
        done = stored = None
        is_stored = first.last_offset < self.high_watermark
        if not (is_stored and self._is_acknowledged(first.last_offset)):
            # Nobody waits for it here if another leader took it, or if it was refused after its
            # append: then this answer waits for all that is here now.
            pending = self._acks.find(first.last_offset) or self._acks.join_end(
                self._node.last_index, self.log_end_offset
            )
            done, stored = pending.done, None if is_stored else pending.stored
        append_time_ms = first.timestamp_ms if self._admission.stamps_append_time else -1
        return Appended(first.base_offset, append_time_ms, self._log.start_offset, done, stored)

    def _is_acknowledged(self, offset: int) -> bool:
        """Whether a committed record is held by as many voters as the topic asks for now."""
        return self._log.index_before(Offset(offset + 1)) <= self._acknowledged_index()

    def _put(self, batch: Batch, header: BatchHeader, now_ms: int) -> Pending:
        base_offset = self.log_end_offset
        # The one copy on the way: the connection's buffer is reused before the disk is done.
        copy = self._parts.buffers.copy(batch)
        if self._admission.stamps_append_time:
            stamp(copy, 0, base_offset=base_offset, term=self.term, append_time_ms=now_ms)
            header = header._replace(max_timestamp=now_ms)
        else:
            stamp(copy, 0, base_offset=base_offset, term=self.term)
        size = len(copy)
        span = header.last_offset_delta + 1
        index = self._node.propose(copy, size, span)
        if isinstance(index, Refusal):
            if index is Refusal.OVERLOADED:
                raise self._throttled(header)
            raise self._for_now(self._not_leader(), header)
        if not self._consensus.has_proposals:
            self._consensus.proposed()
        if header.producer_id >= 0:
            self._ledger.record(header, base_offset, now_ms)
        end: Offset = base_offset + span  # type: ignore[assignment]  # no call per batch
        self.log_end_offset = end
        self._backlog.add(size)
        return self._acks.join(index, base_offset, end, size)

    # Reading

    def read(self, offset: int, bytes_max: int, *, epoch: int = -1) -> FileRange | None:
        """For consumers of a leader: whole batches from `offset` up to the high watermark; None
        when there is nothing new. An offset above it that the log knows may be committed already,
        but a new leader does not know it yet: that is nothing new, never an error."""
        if self._refusal is not None:
            raise Refused(*self._refusal)
        if epoch != -1:
            self.check_epoch(epoch)
        if not self.is_leader:
            raise self._not_leader()
        if self.high_watermark <= offset <= self.log_end_offset:
            return None
        return self._read(offset, bytes_max)

    def read_as_follower(self, offset: int, bytes_max: int) -> FileRange | None:
        """As `read`, once `check_follower` was content. A follower may lag, so it does not judge
        an offset that it does not have: some clients would jump to another one. They ask the
        leader then, which knows (decision 34)."""
        if self.high_watermark <= offset <= self.log_end_offset:
            return None
        if not self._log.start_offset <= offset < self.high_watermark:
            detail = f"this copy of {self.partition} does not have {offset}"
            raise Refused(Reason.OFFSET_NOT_AVAILABLE, detail)
        return self._read(offset, bytes_max)

    def check_follower(self) -> None:
        """Refuses readers of a copy that may have lost something, or that does not grow: one that
        knows no leader, has no vote, is being filled again, or can't write."""
        self.check_running()
        if (
            self.is_leader
            or self._node.leader is None
            or self.id not in self._node.membership.voters
            or self._refill.is_due
            or self._installed_offset > self.high_watermark
            or self.failing_because is not None
        ):
            raise self._not_leader()

    def followers_with(self, offset: int) -> dict[ReplicaId, Offset]:
        """As a leader knows it: where the logs end of followers that are in sync and hold all
        before `offset`."""
        if not self.is_settled or offset < self._log.start_offset:
            return {}
        ends = {
            status.replica: self._end_at(status.match_index)
            for status in self._node.replicas()
            if status.match_index > 0 and status.replica in self._in_sync.members
        }
        return {replica: end for replica, end in ends.items() if end >= offset}

    def read_committed(self, offset: int, bytes_max: int) -> FileRange | None:
        """As `read`, on every replica: for states that are built from the log."""
        self.check_running()
        return None if offset == self.high_watermark else self._read(offset, bytes_max)

    def _read(self, offset: int, bytes_max: int) -> FileRange | None:
        end = self.high_watermark
        if offset > end or offset < self._log.start_offset:
            detail = f"{self.partition} holds {self._log.start_offset} to {end}, not {offset}"
            raise Refused(Reason.OFFSET_OUT_OF_RANGE, detail)
        try:
            return self._log.read(Offset(offset), bytes_max, end)
        except (OSError, StorageDamaged) as error:
            raise self._keeper.unreadable(error) from error

    def needs_index(self, offset: int) -> bool:
        """Whether a read from here should wait for `load_index` in a worker thread."""
        if self._refusal is not None or not self._log.start_offset <= offset < self.high_watermark:
            return False
        return not self._log.is_indexed(Offset(offset))

    def load_index(self, offset: int) -> None:
        """Blocks, so for worker threads only; whatever goes wrong, `read` will meet and tell."""
        with contextlib.suppress(OSError, StorageDamaged):
            self._log.load_index(Offset(offset))

    def is_hot(self, found: FileRange) -> bool:
        """Whether it may be sent as it is: it neither waits for the disk nor can it have rotted."""
        assert isinstance(found, LogRange)
        return self._log.is_hot(found)

    def warm(self, found: FileRange) -> None:
        """Makes it fit to be sent; for worker threads. What it raises is for `unreadable`."""
        assert isinstance(found, LogRange)
        self._log.warm(found)

    def content(self, found: FileRange) -> bytes:
        """The bytes of the range, checked as by `warm` if need be."""
        if not self.is_hot(found):
            self.warm(found)
        return found.read()

    def unreadable(self, error: OSError | StorageDamaged) -> Refused:
        """What to answer where a range could not be read; damage stops the replica."""
        return self._keeper.unreadable(error)

    def on_advance(self, callback: Callable[[], None]) -> Watch:
        """Calls back whenever the high watermark moved, leadership or members changed, or the
        replica can't serve readers any more."""
        return self._watches.add(callback)

    async def list_offset(self, timestamp: int) -> FoundOffset:
        """The first record at or after a time, or one of the special positions."""
        self.check_leader()
        log, end = self._log, self.high_watermark
        if timestamp in (Position.EARLIEST, Position.EARLIEST_LOCAL):
            start = log.start_offset
            return FoundOffset(start, -1, term_at(log, start, self.term))
        if not self.is_settled:
            await self._know_end()
            end = self.high_watermark
        match timestamp:
            case Position.LATEST:
                return FoundOffset(end, -1, self.term)
            case Position.LATEST_TIERED | Position.EARLIEST_PENDING_UPLOAD:
                return NOT_FOUND
            case Position.MAX_TIMESTAMP:
                found = await self._keeper.look_up(lambda: log.offset_of_max_timestamp(end))
            case _ if timestamp >= 0:
                found = await self._keeper.look_up(lambda: log.offset_for_timestamp(timestamp, end))
            case _:
                raise Refused(Reason.INVALID_REQUEST, f"no offset has the name {timestamp}")
        return NOT_FOUND if found is None else FoundOffset(*found)

    async def _know_end(self) -> None:
        """A new leader knows its end within moments; a client that is refused waits far longer."""
        try:
            await self.settled(SETTLING_S)
        except TimeoutError:
            detail = f"the leader of {self.partition} is new and does not know its end yet"
            raise Refused(Reason.OFFSET_NOT_AVAILABLE, detail) from None
        self.check_leader()

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The newest term not after `epoch`, and the offset at which it ended for readers.

        A leader that is not settled may know of too little that is committed: cut there, it would
        tell a consumer of a truncation that never was.
        """
        self.check_leader()
        end = self.high_watermark if self.is_settled else self.log_end_offset
        return end_of_term(self._log, epoch, self.term, end)

    # Upkeep

    async def delete_records(self, before: int) -> Offset:
        """Moves the log's start; -1 stands for the high watermark. Durable when it returns."""
        if not self._may_shorten_alone:
            self.check_leader()
        end = self.high_watermark
        if before == -1:
            before = end
        if not 0 <= before <= end:
            detail = f"{self.partition} ends at {end}, before {before}"
            raise Refused(Reason.OFFSET_OUT_OF_RANGE, detail)
        if self._may_shorten_alone:
            await self._keeper.delete_before(Offset(before))
            return self.log_start_offset
        if before > self._starts.newest and before > self.log_start_offset:
            self._propose_start(Offset(before))
        await self.committed()
        await self._keeper.delete_before(Offset(min(before, self._starts.committed)))
        return self.log_start_offset

    @property
    def _may_shorten_alone(self) -> bool:
        """Whether nobody else need agree, and on a full disk nobody could: the agreement itself
        would have to be written first."""
        return self._refusal is None and self._writer.failure is not None and self.is_alone

    def _propose_start(self, offset: Offset) -> None:
        """Every replica's log begins there once the group agreed on it."""
        index = self._node.propose_own(EntryKind.LOG_START, encode_log_start(offset))
        if isinstance(index, Refusal):
            raise self._not_leader()
        self._acks.join_end(index, self.log_end_offset)
        self._consensus.touch()

    async def maintain(
        self, now_ms: int, *, producer_expiry_ms: int = PRODUCER_EXPIRY_MS, compacts: bool = True
    ) -> None:
        """Retention, rolling and compaction as they fall due; raises nothing, but may stop."""
        if self._refusal is not None:
            return
        self._states.expire(now_ms, producer_expiry_ms, self._parts.clock)
        try:
            if self._may_shorten_alone:
                start = self._log.retention_offset(now_ms, self.high_watermark)
                await self._keeper.delete_before(start)
            elif self.is_settled:
                await self._retain(now_ms)
            await self._keeper.tidy(now_ms, self._starts.committed)
            if compacts and self.config.cleanup_compact:
                await self._compact(now_ms, producer_expiry_ms)
        except Refused as refused:
            logger.warning("upkeep of %s: %s", self.partition, refused)

    def is_cleaning_due(self, now_ms: int) -> bool:
        """Whether `clean` would do something; asked again and again of every replica."""
        if self._refusal is not None or not self.config.cleanup_compact:
            return False
        keeper = self._keeper
        return keeper.is_roll_due(now_ms) or keeper.is_compaction_due(now_ms, self.high_watermark)

    async def clean(self, now_ms: int, *, producer_expiry_ms: int = PRODUCER_EXPIRY_MS) -> bool:
        """Compaction alone, of a segment too that has to be closed for it; whether it was done."""
        try:
            await self._keeper.tidy(now_ms, self._starts.committed)
            return await self._compact(now_ms, producer_expiry_ms)
        except Refused as refused:
            logger.warning("compaction of %s: %s", self.partition, refused)
            return False

    async def _retain(self, now_ms: int) -> None:
        """Only the leader decides what is too old or too much; the others follow."""
        start = self._log.retention_offset(now_ms, self.high_watermark)
        if start > self._starts.newest and start > self.log_start_offset:
            self._propose_start(start)
            await self.committed()

    async def _compact(self, now_ms: int, producer_expiry_ms: int) -> bool:
        end = self.high_watermark
        if not self._keeper.is_compaction_due(now_ms, end):
            return True
        if self.before_compaction is not None and not await self.before_compaction():
            return False
        return await self._keeper.compact(now_ms, end, producer_expiry_ms)

    async def scrub(
        self, should_stop: Callable[[], bool], start: Offset, bytes_max: int
    ) -> Scrubbed:
        """Reads a slice of the log back, from `start`; damage stops the replica and raises Refused.

        One that is stopped or has no log is at its end.
        """
        if self._refusal is not None or not self._has_log:
            return Scrubbed(start, start, 0)
        return await self._keeper.scrub(should_stop, start, bytes_max)

    # The end

    def stop(self, error: Exception) -> None:
        """Takes the replica out of service until an operator has repaired its log."""
        if self.stopped_because is not None:
            return
        # What is not the fault of the disk is a bug of ours: where it came from must be in the log.
        bug = None if isinstance(error, (OSError, StorageDamaged)) else error
        logger.error("%s is stopped: %s", self.partition, error, exc_info=bug)
        self.stopped_because = error
        self._end(Reason.STORAGE_ERROR, f"{self.partition} is stopped: {error}")

    async def retire(self, refused: Refused) -> None:
        """Out of service for good, because the topic goes; the files are the caller's to remove."""
        self._end(refused.reason, refused.detail)
        await self._close_log(with_checkpoint=False)

    async def close(self) -> None:
        """Hands over what it leads, flushes and checkpoints: the next start recovers nothing."""
        # While a snapshot is being installed, state and log do not belong together.
        is_sound = self._refusal is None and self._installed_offset <= self.high_watermark
        if is_sound and self.is_leader:
            self._node.resign()
            self._consensus.drain()
        self._end(Reason.NOT_LEADER_OR_FOLLOWER, "the broker is shutting down")
        await self._close_log(with_checkpoint=is_sound)

    def _end(self, reason: Reason, detail: str) -> None:
        if self._refusal is None:
            self._refusal = (reason, detail)
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if self._has_log:
            self._writer.is_patient = True
            self._consensus.end()
            self._keeper.end()
            self._leave(Refused(*self._refusal))
        self._notify_leadership()

    async def _close_log(self, *, with_checkpoint: bool) -> None:
        if self._has_log and not self._is_closed:
            self._is_closed = True
            await self._keeper.close(with_checkpoint=with_checkpoint)
