"""One poll of queues: it leases records, or waits until there are some, and answers when the leases
are stored.

A poll that waits is woken by its queues, the one that waits longest first. What it leaves is for
the next one, so that a thousand waiting consumers cost no more than one.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.broker.later import Task
from penstock.broker.partitions import Partitions
from penstock.broker.queue_reads import Found, QueueReads, spans_of
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.file_ranges import FileRange
from penstock.model.ids import GroupId, MemberId, PartitionId, PartitionIndex, TopicId
from penstock.observe.node_counters import NodeCounters
from penstock.queues.commands import AcquiredRange, ShareSettings
from penstock.queues.leading import LedQueue
from penstock.queues.looking import LOOKED_RECORDS_MAX, looked_at_a_time
from penstock.queues.reading import build, plan
from penstock.records.errors import CorruptBatch
from penstock.replication.commit import Commit
from penstock.replication.replica import Replica

# What is over in a moment. Consumers would not know what to do with such an error of a partition:
# as on Kafka, there is just nothing for them now.
_NOT_NOW = frozenset({Reason.COORDINATOR_NOT_AVAILABLE, Reason.THROTTLED})
# How often a poll reads on in one partition, past records that it can't have now, before it lets
# others go first.
STEPS_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedShare:
    """A partition that a consumer wants records of."""

    topic_id: TopicId
    partition: int
    bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireQuery:
    group_id: GroupId
    member_id: MemberId
    # In the order in which they are to be served.
    wanted: Sequence[WantedShare]
    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    records_max: int
    batch_size: int
    # Whether there may never be more than `records_max`; otherwise batches go out whole (KIP-1206).
    is_exact: bool = False
    # How long records are leased; None for what the group's settings say.
    lease_ms: int | None = None
    # Whether this poll alone acts under the member id: one that is cut off has delivered nothing.
    is_only_poll: bool = False


@dataclass(slots=True, kw_only=True)
class AcquiredPartition:
    """What one partition answers: records and which of them are leased, or why there are none."""

    wanted: WantedShare
    reason: Reason | None = None
    detail: str = ""
    records: bytes | FileRange | None = None
    ranges: Sequence[AcquiredRange] = ()

    def release(self) -> None:
        """Lets go of the file; anyone who drops an answer unsent must call this."""
        if isinstance(self.records, FileRange):
            self.records.release()
        self.records = None


def count_deliveries(
    counters: NodeCounters,
    partitions: Partitions,
    group_id: GroupId,
    answers: Iterable[AcquiredPartition],
) -> None:
    """What a poll handed out."""
    for answer in answers:
        place = PartitionId(answer.wanted.topic_id, PartitionIndex(answer.wanted.partition))
        replica = partitions.find(place) if answer.ranges else None
        if replica is None:
            continue
        deliveries = counters.queues.of((group_id, replica.partition.topic))
        for each in answer.ranges:
            count = each.last - each.first + 1
            deliveries.records += count
            if each.attempt > 1:
                deliveries.repeated += count
            if replica.traffic is not None:
                replica.traffic.records_out += count
        if replica.traffic is not None and answer.records is not None:
            replica.traffic.bytes_out += len(answer.records)


class QueueFinder(Protocol):
    """Which queues this node leads."""

    def lead(self, group_id: GroupId, topic_id: TopicId, partition: int, /) -> LedQueue:
        """Raises Refused if this node does not lead it."""
        ...

    def replica_of(self, queue: LedQueue, /) -> Replica: ...
    def settings_of(self, queue: LedQueue, /) -> ShareSettings: ...


class _Part:
    """One partition of a poll."""

    __slots__ = ("answer", "building", "commit", "looked", "opening", "queue", "replica")

    def __init__(self, wanted: WantedShare) -> None:
        self.answer = AcquiredPartition(wanted=wanted)
        self.queue: LedQueue | None = None
        self.replica: Replica | None = None
        # What it waits for: until the queue is open, until its leases are stored, until the
        # records are there.
        self.opening: Commit | None = None
        self.commit: Commit | None = None
        self.building: asyncio.Future[None] | None = None
        # What it found out about records that it did not lease.
        self.looked: Commit | None = None

    def refuse(self, refused: Refused) -> None:
        self.answer.release()
        self.answer.ranges = ()
        self.answer.detail = refused.detail
        self.opening = self.commit = self.building = self.looked = None
        if refused.reason not in _NOT_NOW:
            self.answer.reason = refused.reason


class Poll:
    def __init__(
        self,
        query: AcquireQuery,
        *,
        finder: QueueFinder,
        reads: QueueReads,
        clock: Clock,
        wait_s: float,
        bytes_max: int,
    ) -> None:
        self._query = query
        self._finder = finder
        self._reads = reads
        self._clock = clock
        self._wait_s = wait_s
        self._bytes_left = min(query.bytes_max, bytes_max)
        self._bytes_min = min(query.bytes_min, self._bytes_left)
        self._records_left = query.records_max
        self._parts = [_Part(wanted) for wanted in query.wanted]
        # Whether its queues know of it.
        self._is_waiting = False
        self._woken: asyncio.Future[None] | None = None
        # Whether news came while it was looking.
        self._has_news = False
        self._is_over = False

    @property
    def group_id(self) -> GroupId:
        return self._query.group_id

    async def run(self) -> list[AcquiredPartition]:
        try:
            await self._acquire()
        except BaseException:
            self.abandon()
            raise
        finally:
            self._leave()
        return [part.answer for part in self._parts]

    def abandon(self) -> None:
        """The consumer is gone: it gives back what it has just been given, and all it had."""
        query = self._query
        for part in self._parts:
            part.answer.release()
            if part.queue is None or not part.answer.ranges or not part.queue.is_open:
                continue
            if query.is_only_poll:
                part.queue.undo(query.member_id)
            else:
                part.queue.release(query.member_id)

    # Leasing

    async def _acquire(self) -> None:
        until = self._clock.monotonic() + self._wait_s
        self._find()
        while not self._is_over:
            is_last = self._clock.monotonic() >= until
            self._has_news = False
            if self._is_waiting:
                # First, so that nothing is missed that comes while it looks.
                self._wait()
            await self._look(is_last)
            await self._stored()
            if is_last or self._has_something():
                return
            if self._is_waiting:
                await self._sleep(until)
            # Most polls find something at once, and need not be known to their queues.
            self._is_waiting = True

    def _find(self) -> None:
        for part in self._parts:
            wanted = part.answer.wanted
            try:
                part.queue = self._finder.lead(
                    self._query.group_id, wanted.topic_id, wanted.partition
                )
                part.replica = self._finder.replica_of(part.queue)
            except Refused as refused:
                part.refuse(refused)

    def _has_something(self) -> bool:
        return any(part.answer.ranges or part.answer.reason is not None for part in self._parts)

    async def _look(self, is_last: bool) -> None:
        """Once over all partitions that may have something, until there is no more room."""
        ready = [part for part in self._parts if self._is_ready(part)]
        if self._bytes_min > 1 and not is_last and not self._is_enough(ready):
            return
        for index, part in enumerate(ready):
            if self._records_left <= 0 or self._bytes_left <= 0:
                return
            # Each gets its share of the bytes, so that the first does not take all of them.
            share = self._bytes_left // (len(ready) - index)
            try:
                await self._take(part, share)
            except Refused as refused:
                part.refuse(refused)

    def _is_ready(self, part: _Part) -> bool:
        queue = part.queue
        if queue is None or part.answer.reason is not None:
            return False
        queue.follow_settings()
        if queue.is_open:
            return queue.has_news and queue.room_of(self._query.member_id) > 0
        opening = part.opening
        if opening is not None and opening.error is not None:
            # It was tried for long enough: the next poll tries again.
            part.refuse(opening.error)
            part.queue = None
            queue.leave(self)
        elif opening is None or opening.is_settled:
            part.opening = queue.open()
            part.opening.then(lambda _: self.wake())
        return False

    def _is_enough(self, ready: Sequence[_Part]) -> bool:
        size = 0
        for part in ready:
            assert part.queue is not None
            assert part.replica is not None
            offset = part.queue.next_offset()
            if part.replica.needs_index(offset):
                # To be loaded by a worker, when it is read for the answer.
                return True
            try:
                found = part.replica.read(offset, part.answer.wanted.bytes_max)
            except Refused:
                # Told when it is read for the answer.
                return True
            if found is not None:
                size += len(found)
                found.release()
        return size >= self._bytes_min

    async def _take(self, part: _Part, share: int) -> None:
        queue = part.queue
        assert queue is not None
        for _ in range(STEPS_MAX):
            opening = queue.opening
            found = await self._read(part, min(share, part.answer.wanted.bytes_max))
            if found is None:
                return
            try:
                found = await self._look_into(part, queue, found, opening)
                if queue.settings.has_expiry:
                    found = await self._drop_expired(part, queue, found, opening)
            except BaseException:
                found.range.release()
                raise
            if self._lease(part, queue, found, opening):
                return
            if part.looked is not None:
                # So that what is to be stored does not pile up.
                await part.looked
                part.looked = None
            if queue.next_offset() == found.read_from:
                return
            # What it looked at is gone from the log, or for later, or waits for an earlier record:
            # there may be something behind it.
        queue.tell_news()

    def _lease(self, part: _Part, queue: LedQueue, found: Found, opening: int) -> bool:
        query = self._query
        try:
            acquired, commit = queue.acquire(
                query.member_id,
                found.spans,
                records_max=self._records_left,
                batch_size=query.batch_size,
                is_exact=query.is_exact,
                read_from=found.read_from,
                opening=opening,
                lease_ms=query.lease_ms,
            )
        except BaseException:
            found.range.release()
            raise
        if not acquired:
            found.range.release()
            return False
        part.commit, part.answer.ranges = commit, acquired
        self._records_left -= sum(each.last - each.first + 1 for each in acquired)
        self._bytes_left -= self._cut(part, found)
        return True

    # Reading

    async def _read(self, part: _Part, bytes_max: int) -> Found | None:
        """What the queue should look at next."""
        queue, replica = part.queue, part.replica
        assert queue is not None
        assert replica is not None
        offset = queue.next_offset()
        count = self._records_left
        if queue.unlooked_from() is not None:
            count = max(count, LOOKED_RECORDS_MAX)
        needed = queue.machine.needed(offset, count, self._query.batch_size)
        return await self._reads.read(
            replica, offset, bytes_max, queue.machine.letters.copiers, needed
        )

    async def _look_into(self, part: _Part, queue: LedQueue, found: Found, opening: int) -> Found:
        """If the queue has to know more of records before it delivers them: that, of the next
        ones. What is new and was not looked into is left out."""
        first = queue.unlooked_from()
        if first is None:
            return found
        known = [batch for batch in found.batches if batch.last < first]
        new = found.batches[len(known) :]
        has_data = any(batch.is_data for batch in new)
        if not has_data or not queue.may_look(self._records_left):
            return found._replace(batches=known)
        new = looked_at_a_time(new)
        with queue.looking():
            looked = await self._reads.look(
                found.range,
                new,
                first=first,
                now_ms=self._clock.now_ms(),
                settings=self._finder.settings_of(queue),
            )
            part.looked = queue.look(spans_of(new), looked, opening=opening)
        return found._replace(batches=[*known, *new])

    async def _drop_expired(
        self, part: _Part, queue: LedQueue, found: Found, opening: int
    ) -> Found:
        """What is too old is given up before it is delivered. Only what was looked at goes on."""
        batches = looked_at_a_time(found.batches)
        expired = await self._reads.expired(
            found.range, batches, now_ms=self._clock.now_ms(), settings=queue.settings
        )
        if expired:
            part.looked = queue.drop_expired(expired, opening=opening)
        return found._replace(batches=batches)

    def _cut(self, part: _Part, found: Found) -> int:
        """Leaves the part with the bytes of its records, at once or once they are built."""
        acquired, whole = part.answer.ranges, found.range
        cutting = plan(found.batches, acquired)
        assert cutting is not None, "what was acquired was read"
        if cutting.built is None:
            position = whole.position + cutting.position
            part.answer.records = FileRange(whole.file, position, cutting.length)
            whole.release()
            return cutting.length

        def work() -> None:
            part.answer.records = build(whole, cutting, acquired)

        part.building = asyncio.ensure_future(self._reads.in_worker(work, pinned=whole))
        whole.release()
        return sum(batch.size for batch in cutting.built)

    async def _stored(self) -> None:
        """Until the leases are stored and the records are there, or are known not to be."""
        for part in self._parts:
            try:
                if part.commit is not None:
                    await part.commit
                if part.building is not None:
                    await part.building
            except Refused as refused:
                part.refuse(refused)
            except (OSError, CorruptBatch) as error:
                if part.queue is not None and part.queue.is_open:
                    # The consumer may have others of the same queue.
                    part.queue.undo(self._query.member_id, part.answer.ranges)
                part.refuse(Refused(Reason.STORAGE_ERROR, str(error)))

    # Waiting

    def wake(self) -> None:
        self._has_news = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def end(self) -> None:
        """It waits no longer, and leases nothing more."""
        self._is_over = True
        self.wake()

    def _wait(self) -> None:
        for part in self._parts:
            if part.queue is not None:
                part.queue.wait(self)

    async def _sleep(self, until: float) -> None:
        if self._has_news:
            return
        loop = asyncio.get_running_loop()
        self._woken = loop.create_future()
        timer = loop.call_later(max(0.0, until - self._clock.monotonic()), self.wake)
        try:
            await self._woken
        finally:
            timer.cancel()
            self._woken = None

    def _leave(self) -> None:
        for part in self._parts if self._is_waiting else ():
            if part.queue is not None:
                part.queue.leave(self)


class AcquireCall(Task[list[AcquiredPartition]]):
    """A poll as a door sees it."""

    __slots__ = ("_poll",)

    def __init__(self, poll: Poll, work: Coroutine[Any, Any, list[AcquiredPartition]]) -> None:
        self._poll = poll
        super().__init__(work)

    def drop(self, answer: list[AcquiredPartition]) -> None:
        self._poll.abandon()
