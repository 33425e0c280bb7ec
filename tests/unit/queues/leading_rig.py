"""A queue that is led, over a store and a log that a test holds in its hands."""

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId, TopicId
from penstock.queues.commands import AckBatch, AckType, AcquiredRange, Later, ShareSettings
from penstock.queues.decisions import Open, Write, decide_initialize, decide_open, decide_write
from penstock.queues.key_order import KeyAt
from penstock.queues.layout import QueueKey
from penstock.queues.leading import LedQueue
from penstock.queues.looking import Looked
from penstock.queues.records import QueueStored
from penstock.queues.state import QueuesState
from penstock.queues.tally import LeaseTally
from penstock.replication.alarm_clock import AlarmClock
from penstock.replication.commit import Commit
from penstock.replication.watches import Watch, Watches
from tests.unit.clocks import ManualClock

KEY = QueueKey(GroupId("workers"), TopicId(UUID(int=7)), 0)
M, N = MemberId("m"), MemberId("n")
# Batches that a poll reads.
READ_MAX = 20


class Read(NamedTuple):
    """What a poll found in the log, and in which opening of the queue."""

    first: int
    spans: Sequence[tuple[int, int]]
    opening: int


class FakeLog:
    """A data partition with one record per batch."""

    def __init__(self, end: int = 10, *, term: int = 1) -> None:
        self.term = term
        self.is_leader = self.is_settled = True
        self.high_watermark = self.log_end_offset = end
        self.log_start_offset = 0
        # Of records that have one: a key, a time at which they are due.
        self.keys: dict[int, int] = {}
        self.due: dict[int, int] = {}
        self._advances, self._leaderships = Watches(), Watches()

    def check_leader(self) -> None:
        if not self.is_leader:
            raise Refused(Reason.NOT_LEADER_OR_FOLLOWER)

    async def confirm(self) -> None:
        self.check_leader()

    def on_advance(self, callback: Callable[[], None]) -> Watch:
        return self._advances.add(callback)

    def on_leadership(self, callback: Callable[[], None]) -> Watch:
        return self._leaderships.add(callback)

    def grow(self, count: int = 1) -> None:
        self.high_watermark = self.log_end_offset = self.log_end_offset + count
        self._advances.notify()

    def lose(self) -> None:
        self.is_leader = self.is_settled = False
        self._leaderships.notify()


class FakeStore:
    """Stores like a coordinator; a test can hold its answers back, or lose them."""

    def __init__(self) -> None:
        self.state = QueuesState()
        for record in decide_initialize(self.state, {KEY: -1}):
            self.state.apply(record)
        self.writes: list[Write] = []
        self.opens: list[Open] = []
        # While clear, what is asked is not done yet.
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        # What the next calls end with, before or after they were done.
        self.refused_before: list[Refused] = []
        self.refused_after: list[Refused] = []

    async def open(self, command: Open) -> QueueStored:
        self.opens.append(command)
        await self._begin()
        records, stored = decide_open(self.state, command)
        for record in records:
            self.state.apply(record)
        return stored

    async def write(self, command: Write) -> None:
        self.writes.append(command)
        await self._begin()
        for record in decide_write(self.state, command):
            self.state.apply(record)
        self.state.validate()
        if self.refused_after:
            raise self.refused_after.pop(0)

    def write_here(self, command: Write) -> None:
        """The coordinator is on another node."""

    async def _begin(self) -> None:
        await self.goes_on.wait()
        if self.refused_before:
            raise self.refused_before.pop(0)


class Leader:
    """One who leads the queue, with its own clock and alarms."""

    def __init__(
        self,
        store: FakeStore,
        log: FakeLog | None = None,
        *,
        clock: ManualClock | None = None,
        start: int = 0,
        settings: ShareSettings | None = None,
        tally: LeaseTally | None = None,
    ) -> None:
        self.store = store
        self.log = log or FakeLog()
        self.clock = clock or ManualClock()
        self.settings = settings or ShareSettings()
        self.start = start
        self.openings = 0
        self.alarms: AlarmClock[LedQueue] = AlarmClock(self.clock, LedQueue.expire)
        self.due_alarms: AlarmClock[LedQueue] = AlarmClock(
            self.clock, LedQueue.make_due, has_grace=lambda _: False
        )
        self.closed: list[LedQueue] = []
        self.queue = LedQueue(
            key=KEY,
            log=self.log,
            store=store,
            alarms=self.alarms,
            due_alarms=self.due_alarms,
            clock=self.clock,
            random_below=lambda below: below - 1,
            tally=(tally or LeaseTally()).of_queue(KEY.group_id),
            settings_of=lambda: self.settings,
            resolve_start=self._resolve,
            read_keys=self._read_keys,
            next_opening=self._next_opening,
            on_closed=self.closed.append,
        )

    async def _resolve(self) -> int:
        return self.start

    async def _read_keys(self, spans: Sequence[tuple[int, int]], _: Container[int]) -> list[KeyAt]:
        offsets = (offset for first, last in spans for offset in range(first, last + 1))
        return [(offset, key) for offset in offsets if (key := self.log.keys.get(offset))]

    def _next_opening(self) -> int:
        self.openings += 1
        return self.openings

    async def opened(self) -> "Leader":
        await self.queue.open()
        return self

    def read(self) -> Read:
        """What a poll would look at next."""
        first = self.queue.next_offset()
        end = min(self.log.high_watermark, first + READ_MAX)
        return Read(first, [(offset, offset) for offset in range(first, end)], self.queue.opening)

    def acquire(
        self, member_id: MemberId = M, count: int = 500, read: Read | None = None
    ) -> tuple[tuple[AcquiredRange, ...], Commit]:
        """Of what was read before, or is read now."""
        first, spans, opening = read or self.read()
        if self.queue.unlooked_from() is not None:
            self.look(spans, opening)
        return self.queue.acquire(
            member_id,
            spans,
            records_max=count,
            batch_size=count,
            is_exact=True,
            read_from=first,
            opening=opening,
        )

    def look(self, spans: Sequence[tuple[int, int]], opening: int) -> None:
        now_ms = self.clock.now_ms()
        later = [
            Later(at, at, self.log.due[at]) for at, _ in spans if self.log.due.get(at, 0) > now_ms
        ]
        keys = [(at, self.log.keys[at]) for at, _ in spans if at in self.log.keys]
        self.queue.look(spans, Looked(later=later, keys=keys), opening=opening)

    async def acquired(self, member_id: MemberId = M, count: int = 500) -> list[AcquiredRange]:
        ranges, commit = self.acquire(member_id, count)
        await commit
        return list(ranges)

    def acknowledge(
        self, first: int, last: int, kind: AckType = AckType.ACCEPT, member_id: MemberId = M
    ) -> Commit:
        batch = AckBatch(first=first, last=last, types=(kind,))
        return self.queue.acknowledge(member_id, [batch])

    def pass_time(self, ms: int) -> None:
        """Time passes, and the alarm clock rings as it does in a process that runs on."""
        self.clock.ms += ms
        self.queue.expire()
        self.queue.make_due()


class Asleep:
    """A poll that waits."""

    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


async def refusal(commit: Any) -> Reason:
    try:
        await commit
    except Refused as refused:
        return refused.reason
    raise AssertionError("it was not refused")
