"""One partition's copy on this node: offsets, high watermark, producers, reads and waiters.

Today it leads a group of one; a quorum will stand behind the same face. The event loop owns
everything here. Offsets are given out at `append`, in memory; the high watermark follows when the
writer's job is done, and only what lies below it is ever shown to a reader.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple

from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused, StorageDamaged
from penstock.model.file_ranges import FileRange
from penstock.model.ids import Offset, Term, TopicId, TopicPartition
from penstock.model.topic_config import FlushPolicy, TopicConfig
from penstock.records.batch import (
    LENGTH_OFFSET_OVERHEAD,
    BatchHeader,
    CorruptBatch,
    check_batch,
    parse_header,
    stamp,
)
from penstock.replication.admission import Admission, Batch, refused_bytes
from penstock.replication.backlog import Backlog
from penstock.replication.batch_buffers import BatchBuffers
from penstock.replication.commit import Commit
from penstock.replication.keeper import LogKeeper
from penstock.replication.positions import NOT_FOUND, FoundOffset, Position, end_of_term, term_at
from penstock.replication.pressure import Pressure
from penstock.replication.producer_states import Producer, ProducerBatch, ProducerStates
from penstock.replication.watches import Watch, Watches
from penstock.replication.writer import Writer
from penstock.storage.log import Log

logger = logging.getLogger(__name__)

PRODUCER_EXPIRY_MS = 24 * 3600 * 1000


class Appended(NamedTuple):
    """Where a batch went; `done` is None when it is safe already."""

    base_offset: int
    append_time_ms: int
    log_start_offset: int
    done: Commit | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaParts:
    """What all replicas of a node share."""

    clock: Clock
    executor: Executor
    background: Executor
    pressure: Pressure
    buffers: BatchBuffers
    unflushed_bytes_max: int


class Replica:
    """One partition's copy; stopped for good when its log can't be trusted."""

    __slots__ = (
        "_admission",
        "_backlog",
        "_flush_timer",
        "_has_log",
        "_is_closed",
        "_keeper",
        "_log",
        "_loop",
        "_parts",
        "_refusal",
        "_states",
        "_undo",
        "_watches",
        "_writer",
        "before_compaction",
        "config",
        "high_watermark",
        "log_end_offset",
        "partition",
        "stopped_because",
        "term",
        "topic_id",
    )

    # A replica whose log could not be opened has none of these.
    _log: Log
    _writer: Writer
    _keeper: LogKeeper

    def __init__(
        self,
        *,
        partition: TopicPartition,
        topic_id: TopicId,
        term: Term,
        config: TopicConfig,
        opened: tuple[Log, ProducerStates] | StorageDamaged | OSError,
        parts: ReplicaParts,
    ) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.term = term
        self.config = config
        self.stopped_because: Exception | None = None
        # Asked before each compaction by whoever rebuilds a state from this log.
        self.before_compaction: Callable[[], Awaitable[bool]] | None = None
        self._admission = Admission(config)
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._watches = Watches()
        self._refusal: tuple[Reason, str] | None = None
        self._backlog = Backlog(parts.pressure, parts.unflushed_bytes_max)
        self._flush_timer: asyncio.TimerHandle | None = None
        # What to take back, newest last, should the write of these base offsets fail.
        self._undo: deque[tuple[int, int, Producer | None]] = deque()
        self._states = ProducerStates()
        self.high_watermark = self.log_end_offset = Offset(0)
        self._has_log = isinstance(opened, tuple)
        self._is_closed = False
        if isinstance(opened, tuple):
            self._attach(*opened)
        else:
            self.stop(opened)

    def _attach(self, log: Log, states: ProducerStates) -> None:
        self._log = log
        self._states = states
        self.high_watermark = self.log_end_offset = log.end_offset
        self._writer = Writer(
            log,
            self,
            loop=self._loop,
            executor=self._parts.executor,
            buffers=self._parts.buffers,
            syncs_before_ack=self.config.flush_policy is FlushPolicy.BEFORE_ACK,
        )
        self._keeper = LogKeeper(
            log,
            self._writer,
            executor=self._parts.executor,
            background=self._parts.background,
            on_damage=self.stop,
        )

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

    def producers(self) -> Iterator[tuple[int, Producer]]:
        self.check_running()
        return self._states.active()

    def set_config(self, config: TopicConfig) -> None:
        self.config = config
        self._admission = Admission(config)
        if self._has_log:
            self._log.config = config
            self._writer.syncs_before_ack = config.flush_policy is FlushPolicy.BEFORE_ACK

    def check_running(self) -> None:
        if self._refusal is not None:
            raise Refused(*self._refusal)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuses a client whose metadata is older or newer than this leadership (KIP-320)."""
        if current_leader_epoch in (-1, self.term):
            return
        is_old = current_leader_epoch < self.term
        reason = Reason.FENCED_LEADER_EPOCH if is_old else Reason.UNKNOWN_LEADER_EPOCH
        detail = f"{self.partition} is in term {self.term}, not {current_leader_epoch}"
        raise Refused(reason, detail)

    # Appending

    def append(self, batches: Batch, *, many: bool = False) -> Appended:
        """Takes one batch of a producer, or several where an old client's messages became such."""
        if self._refusal is not None:
            raise Refused(*self._refusal)
        try:
            header = check_batch(batches)
        except CorruptBatch as bad:
            raise refused_bytes(batches, bad) from None
        if header.batch_length + LENGTH_OFFSET_OVERHEAD != len(batches):
            return self._append_many(batches, many)
        now_ms = self._parts.clock.now_ms()
        batch = self._admit(batches, header, now_ms)
        if header.producer_id >= 0:
            duplicate = self._states.check(header)
            if duplicate is not None:
                return self._answer_duplicate(duplicate)
        base_offset = self.log_end_offset
        append_time_ms = now_ms if self._admission.stamps_append_time else -1
        commit = self._put(batch, header, now_ms)
        return Appended(base_offset, append_time_ms, self._log.start_offset, commit)

    def append_own(self, batch: bytes) -> Appended:
        """Takes a batch that the broker built itself, which no topic setting restricts."""
        self.check_running()
        base_offset = self.log_end_offset
        commit = self._put(batch, parse_header(batch), self._parts.clock.now_ms())
        return Appended(base_offset, -1, self._log.start_offset, commit)

    def committed(self) -> Commit:
        """Settles once everything appended so far is safe, or is known not to be."""
        commit = self._writer.last_commit if self._has_log else None
        if commit is None:
            commit = Commit()
            commit.settle(None)
        return commit

    def _admit(self, batch: Batch, header: BatchHeader, now_ms: int) -> Batch:
        admission = self._admission
        admission.check(header, now_ms)
        if admission.looks_inside:
            batch = admission.look_inside(batch, header, now_ms)
        if not self._backlog.has_room(len(batch)):
            if header.producer_id >= 0:
                self._states.await_again(header, now_ms)
            detail = f"{self._parts.pressure.total} bytes wait for the disk already"
            raise Refused(Reason.THROTTLED, detail)
        return batch

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
        commits = [self._put(batch, header, now_ms) for batch, header in admitted]
        append_time_ms = now_ms if self._admission.stamps_append_time else -1
        return Appended(base_offset, append_time_ms, self._log.start_offset, commits[-1])

    def _answer_duplicate(self, first: ProducerBatch) -> Appended:
        """The first answer was lost; the second one waits for the same write as the first did."""
        done = None
        if first.last_offset >= self.high_watermark:
            done = self._writer.commit_of(first.last_offset)
        append_time_ms = first.timestamp_ms if self._admission.stamps_append_time else -1
        return Appended(first.base_offset, append_time_ms, self._log.start_offset, done)

    def _put(self, batch: Batch, header: BatchHeader, now_ms: int) -> Commit:
        base_offset = self.log_end_offset
        # The one copy on the way: the connection's buffer is reused before the disk is done.
        copy = self._parts.buffers.copy(batch)
        if self._admission.stamps_append_time:
            stamp(copy, 0, base_offset=base_offset, term=self.term, append_time_ms=now_ms)
            header = header._replace(max_timestamp=now_ms)
        else:
            stamp(copy, 0, base_offset=base_offset, term=self.term)
        if header.producer_id >= 0:
            before = self._states.record(header, base_offset, now_ms)
            self._undo.append((base_offset, header.producer_id, before))
        end = Offset(base_offset + header.last_offset_delta + 1)
        self.log_end_offset = end
        self._backlog.add(len(copy))
        return self._writer.put(copy, end)

    # What the writer tells

    def producers_snapshot(self) -> bytes:
        return self._states.snapshot()

    def written(self, end: Offset, size: int) -> None:
        self.high_watermark = end
        undo = self._undo
        while undo and undo[0][0] < end:
            undo.popleft()
        self._backlog.remove(size)
        if self._flush_timer is None and self.config.flush_policy is FlushPolicy.INTERVAL_UNSAFE:
            self._flush_timer = self._loop.call_later(self.config.flush_ms / 1000, self._flush)
        self._watches.notify()

    def write_failed(self, error: OSError) -> Refused:
        logger.error("%s can't be written: %s", self.partition, error)
        self._roll_back()
        return Refused(Reason.STORAGE_ERROR, f"{self.partition} can't be written: {error}")

    def log_broken(self, error: Exception) -> Refused:
        self.stop(error)
        self._roll_back()
        assert self._refusal is not None
        return Refused(*self._refusal)

    def _roll_back(self) -> None:
        """Back to what is written: the offsets and sequences after it are given out again."""
        self.log_end_offset = self.high_watermark
        while self._undo:
            _, producer_id, before = self._undo.pop()
            self._states.take_back(producer_id, before)
        self._backlog.remove(self._backlog.size)

    def _flush(self) -> None:
        self._flush_timer = None
        if self._refusal is None:
            self._writer.sync_soon()

    # Reading

    def read(self, offset: int, bytes_max: int, *, epoch: int = -1) -> FileRange | None:
        """Whole batches from `offset` up to the high watermark; None when there is nothing new."""
        if self._refusal is not None:
            raise Refused(*self._refusal)
        if epoch != -1:
            self.check_epoch(epoch)
        end = self.high_watermark
        if offset == end:
            return None
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
        """Whether sending the range will hardly wait for the disk."""
        return self._log.is_hot(found)

    def warm(self, found: FileRange) -> None:
        """Brings the range into memory; blocks, so for worker threads only."""
        self._log.warm(found)

    def on_advance(self, callback: Callable[[], None]) -> Watch:
        """Calls back whenever the high watermark moved, or once when the replica stopped."""
        return self._watches.add(callback)

    async def list_offset(self, timestamp: int) -> FoundOffset:
        """The first record at or after a time, or one of the special positions."""
        self.check_running()
        log, end = self._log, self.high_watermark
        match timestamp:
            case Position.LATEST:
                return FoundOffset(end, -1, self.term)
            case Position.EARLIEST | Position.EARLIEST_LOCAL:
                start = log.start_offset
                return FoundOffset(start, -1, term_at(log, start, self.term))
            case Position.LATEST_TIERED:
                return NOT_FOUND
            case Position.MAX_TIMESTAMP:
                found = await self._keeper.look_up(lambda: log.offset_of_max_timestamp(end))
            case _ if timestamp >= 0:
                found = await self._keeper.look_up(lambda: log.offset_for_timestamp(timestamp, end))
            case _:
                raise Refused(Reason.INVALID_REQUEST, f"no offset is called {timestamp}")
        return NOT_FOUND if found is None else FoundOffset(*found)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The newest term not after `epoch`, and the offset at which it ended for readers."""
        self.check_running()
        return end_of_term(self._log, epoch, self.term, self.high_watermark)

    # Upkeep

    async def delete_records(self, before: int) -> Offset:
        """Moves the log's start; -1 stands for the high watermark. Durable when it returns."""
        self.check_running()
        end = self.high_watermark
        if before == -1:
            before = end
        if not 0 <= before <= end:
            detail = f"{self.partition} ends at {end}, before {before}"
            raise Refused(Reason.OFFSET_OUT_OF_RANGE, detail)
        await self._keeper.delete_before(Offset(before))
        return self.log_start_offset

    async def maintain(
        self, now_ms: int, *, producer_expiry_ms: int = PRODUCER_EXPIRY_MS, compacts: bool = True
    ) -> None:
        """Retention, rolling and compaction as they fall due; raises nothing, but may stop."""
        if self._refusal is not None:
            return
        self._states.expire(now_ms, producer_expiry_ms)
        try:
            await self._keeper.tidy(now_ms, self.high_watermark)
            if compacts and self.config.cleanup_compact:
                await self._compact(now_ms, producer_expiry_ms)
        except Refused as refused:
            logger.warning("upkeep of %s: %s", self.partition, refused)

    async def _compact(self, now_ms: int, producer_expiry_ms: int) -> None:
        end = self.high_watermark
        if not self._keeper.is_compaction_due(now_ms, end):
            return
        if self.before_compaction is None or await self.before_compaction():
            await self._keeper.compact(now_ms, end, producer_expiry_ms)

    async def scrub(self, should_stop: Callable[[], bool]) -> None:
        """Reads back what must be whole; damage stops the replica and raises Refused."""
        if self._refusal is None:
            await self._keeper.scrub(should_stop)

    # The end

    def stop(self, error: Exception) -> None:
        """Takes the replica out of service until an operator has repaired its log."""
        if self.stopped_because is not None:
            return
        logger.error("%s is stopped: %s", self.partition, error)
        self.stopped_because = error
        self._end(Reason.STORAGE_ERROR, f"{self.partition} is stopped: {error}")

    async def retire(self, refused: Refused) -> None:
        """Out of service for good, because the topic goes; the files are the caller's to remove."""
        self._end(refused.reason, refused.detail)
        await self._close_log(with_checkpoint=False)

    async def close(self) -> None:
        """Flushes and checkpoints, so that the next start has nothing to recover."""
        is_sound = self._refusal is None
        self._end(Reason.NOT_LEADER_OR_FOLLOWER, "the broker is shutting down")
        await self._close_log(with_checkpoint=is_sound)

    def _end(self, reason: Reason, detail: str) -> None:
        if self._refusal is None:
            self._refusal = (reason, detail)
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if self._has_log:
            self._keeper.end()
        self._watches.notify()

    async def _close_log(self, *, with_checkpoint: bool) -> None:
        if self._has_log and not self._is_closed:
            self._is_closed = True
            await self._keeper.close(with_checkpoint=with_checkpoint)
