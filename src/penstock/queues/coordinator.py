"""Runs the queues of one partition of __share_group_state while this node leads it.

The leaders of data partitions decide about their queues and bring their changes here; the host
makes them durable. An answer that says something is stored leaves only after it is, and one that
says something is not there leaves only after a majority confirmed that this node still leads.

The log holds changes, so it grows. Once it has grown enough, queues that were not stored as a whole
for long are stored so again, and the log is cut before the oldest of those records.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, Offset, TopicId
from penstock.model.limits import MIB
from penstock.queues.commands import Change
from penstock.queues.decisions import (
    Open,
    QueueSummary,
    Write,
    decide_alter,
    decide_initialize,
    decide_open,
    decide_removal,
    decide_write,
    summarize,
)
from penstock.queues.layout import QueueKey
from penstock.queues.records import QueueChanged, QueueRecord, QueueRemoved, QueueStored
from penstock.queues.state import Queue, QueuesState
from penstock.replication.commit import Commit
from penstock.replication.hosting import Host
from penstock.replication.replica import Replica

logger = logging.getLogger(__name__)

# The log is shortened when it holds so many records, or more if there are more queues than that:
# then every queue is stored as a whole once while so many others are written.
LOG_RECORDS_MAX = 20_000
LOG_RECORDS_PER_QUEUE_MAX = 4
# Or when it has grown by so many bytes, or by a multiple of what all queues take.
LOG_BYTES_MAX = 64 * MIB
LOG_BYTES_PER_STORED_BYTE_MAX = 4
# Queues that are stored as a whole at a time, and about how many bytes until the last of them, so
# that a change beside them never waits long. One with a million ranges has to fit too.
STORED_AT_A_TIME_MAX = 100
STORED_BYTES_AT_A_TIME_MAX = 2 * MIB
# When the log could not be shortened, that is tried again after so long.
TRIM_PAUSE_S = 10.0
# A call that comes while the state is loaded waits this long at most.
LOADING_WAIT_S = 1.0
# A coordinator whose partition's other replicas don't confirm for so long that it leads is about to
# step down.
CONFIRM_S_MAX = 5.0
# About what a range and the head of a record take.
_RANGE_BYTES = 40
_RECORD_BYTES = 128

T = TypeVar("T")


class ShareCoordinator:
    def __init__(
        self, *, host: Host[QueuesState, QueueRecord], log_records_max: int = LOG_RECORDS_MAX
    ) -> None:
        self._host = host
        self._log_records_max = log_records_max
        # Where each queue was last stored as a whole, the oldest first.
        self._whole_at: dict[QueueKey, int] = {}
        # What was written since the log was last shortened, and how much may be.
        self._grown_bytes = 0
        self._grown_bytes_max = LOG_BYTES_MAX
        self._trimming: asyncio.Task[None] | None = None
        self._on_active: Callable[[ShareCoordinator], None] | None = None
        self._is_closed = False

    @property
    def replica(self) -> Replica:
        return self._host.replica

    @property
    def is_active(self) -> bool:
        """Whether this node leads the partition and knows its queues."""
        return self._host.is_ready and not self._is_closed

    def start(self, on_active: "Callable[[ShareCoordinator], None] | None" = None) -> None:
        """Follows the leadership of its partition from now on; calls back when active."""
        self._on_active = on_active
        self._host.on_ready(self._become_active)
        self._host.on_lost(self._step_back)
        self._host.start()

    async def close(self) -> None:
        self._is_closed = True
        trimming = self._trimming
        self._step_back()
        if trimming is not None:
            await asyncio.gather(trimming, return_exceptions=True)
        await self._host.close()

    def _become_active(self) -> None:
        if self._is_closed:
            return
        # Where they were stored is not known here: somewhere in the log.
        start = self.replica.log_start_offset
        self._whole_at = dict.fromkeys(self._host.state, start)
        self._grown_bytes = self.replica.size_bytes
        if self._on_active is not None:
            self._on_active(self)

    def _step_back(self) -> None:
        self._whole_at = {}
        if self._trimming is not None:
            self._trimming.cancel()
            self._trimming = None

    # Leaders of data partitions

    async def open(self, command: Open) -> QueueStored:
        """The queue as it is stored. From now on nobody changes it but the one who asked."""
        return await self._decide(lambda state: decide_open(state, command))

    async def write(self, command: Write) -> None:
        """Stored when it returns. After REQUEST_TIMED_OUT nobody knows whether it will be; every
        other refusal means that it changed nothing and never will."""
        await self._decide(lambda state: (decide_write(state, command), None))

    def begin_write(self, command: Write) -> Commit:
        """The same without a task: settled once it is stored, or when nobody knows whether it ever
        will be. Raises Refused if it did nothing. The coordinator must be active."""
        records = decide_write(self._host.state, command)
        offset = self.replica.log_end_offset
        commit = self._host.put(records)
        self._note(records, offset)
        return commit

    # Groups and operators

    async def initialize(self, starts: Mapping[QueueKey, int]) -> None:
        await self._decide(lambda state: (decide_initialize(state, starts), None))

    async def alter(self, starts: Mapping[QueueKey, int]) -> dict[QueueKey, Refused | None]:
        return await self._decide(lambda state: decide_alter(state, starts))

    async def remove(self, keys: Collection[QueueKey]) -> dict[QueueKey, Refused | None]:
        return await self._decide(lambda state: decide_removal(state, keys))

    async def read(
        self, group_id: GroupId, keys: Sequence[QueueKey] | None = None
    ) -> list[QueueSummary]:
        """Those of the queues that are there, or all of the group's."""
        await self._until_ready()

        def look(state: QueuesState) -> list[QueueSummary]:
            return summarize(state, state.of_group(group_id) if keys is None else keys)

        return await self._confirmed(self._host.read(look))

    def stored(self) -> Iterator[Queue]:
        """All queues; the leadership may end between two."""
        state = self._host.state
        for key in list(state) if self.is_active else ():
            queue = state.get(key)
            if queue is not None:
                yield queue

    def with_letters(self) -> Iterator[QueueKey]:
        """Queues of which dead letters are on their way, whether or not they are led now. Callers
        may wait between two."""
        state = self._host.state
        for key in state.with_letters() if self.is_active else ():
            queue = state.get(key)
            if self.is_active and queue is not None and queue.has_letters:
                yield key

    async def remove_topics(self, is_gone: Callable[[TopicId], bool]) -> None:
        """Forgets the queues of topics that are gone, leases or not."""
        if not self.is_active:
            return
        keys = self._host.state.of_topics(is_gone)
        try:
            for start in range(0, len(keys), STORED_AT_A_TIME_MAX):
                some = keys[start : start + STORED_AT_A_TIME_MAX]
                await asyncio.shield(self._submit([QueueRemoved(key=key) for key in some]))
        except Refused as refused:
            # Tried again when this or another node becomes active.
            logger.warning("queues of deleted topics are still stored: %s", refused.detail)

    # Inside

    async def _decide(
        self, decision: Callable[[QueuesState], tuple[Sequence[QueueRecord], T]]
    ) -> T:
        await self._until_ready()
        records, answer = decision(self._host.state)
        stored = self._submit(records)
        if stored.done() and (refused := stored.exception()) is not None:
            assert isinstance(refused, Refused), refused
            raise _as_coordinator(refused)
        try:
            # Shielded: a caller that goes away must not cancel a write that others wait for too.
            await asyncio.shield(stored)
        except Refused as refused:
            # It was appended, so another leader may still commit it.
            raise Refused(Reason.REQUEST_TIMED_OUT, refused.detail) from refused
        if not records:
            await self._confirmed(self.replica.confirm())
        return answer

    async def _until_ready(self) -> None:
        """Waits a little for a state that is being loaded."""
        if self._is_closed:
            raise Refused(Reason.NOT_COORDINATOR, "the coordinator is closed")
        if self._host.is_ready:
            return
        try:
            async with asyncio.timeout(LOADING_WAIT_S):
                await self._host.load()
        except TimeoutError:
            detail = f"{self.replica.partition} is loading"
            raise Refused(Reason.COORDINATOR_LOAD_IN_PROGRESS, detail) from None
        except Refused as refused:
            raise _as_coordinator(refused) from refused

    async def _confirmed(self, reading: Awaitable[T]) -> T:
        """What a majority has to confirm, which may never answer."""
        try:
            async with asyncio.timeout(CONFIRM_S_MAX):
                return await reading
        except TimeoutError:
            detail = f"no majority confirms that this broker leads {self.replica.partition}"
            raise Refused(Reason.COORDINATOR_NOT_AVAILABLE, detail) from None
        except Refused as refused:
            raise _as_coordinator(refused) from refused

    # The log

    def _submit(self, records: Sequence[QueueRecord]) -> asyncio.Future[None]:
        offset = self.replica.log_end_offset
        done = self._host.submit(records)
        # The one who asked may be gone by then.
        done.add_done_callback(_heard)
        if not done.done() or done.exception() is None:
            self._note(records, offset)
        return done

    def _note(self, records: Sequence[QueueRecord], offset: int) -> None:
        for position, record in enumerate(records, start=offset):
            if isinstance(record, QueueStored | QueueRemoved):
                # Back in at the end: so the oldest stays first.
                self._whole_at.pop(record.key, None)
            if isinstance(record, QueueStored):
                self._whole_at[record.key] = position
            self._grown_bytes += _size(record)
        if records and self._trimming is None and self._is_trim_due():
            self._trimming = asyncio.get_running_loop().create_task(self._trim())
            self._trimming.add_done_callback(self._trimmed)

    def _is_trim_due(self) -> bool:
        count = self.replica.log_end_offset - self.replica.log_start_offset
        count_max = max(self._log_records_max, LOG_RECORDS_PER_QUEUE_MAX * len(self._whole_at))
        return count > count_max or self._grown_bytes > self._grown_bytes_max

    async def _trim(self) -> None:
        try:
            await self._shorten()
        except Refused as refused:
            logger.warning("%s could not be shortened: %s", self.replica.partition, refused)
            await asyncio.sleep(TRIM_PAUSE_S)

    async def _shorten(self) -> None:
        """Stores queues as a whole that were not for long, and cuts the log before the oldest."""
        grown_before = self._grown_bytes
        middle = (self.replica.log_start_offset + self.replica.log_end_offset) // 2
        await self._store_wholes([key for key, at in self._whole_at.items() if at < middle])
        first = next(iter(self._whole_at.values()), int(self.replica.log_end_offset))
        # Everything that was written by now, since the last word on a queue must be safe before
        # those before it go.
        await self.replica.committed()
        await self.replica.delete_records(Offset(first))
        stored = self._grown_bytes - grown_before
        self._grown_bytes_max = max(LOG_BYTES_MAX, LOG_BYTES_PER_STORED_BYTE_MAX * stored)
        self._grown_bytes = 0

    async def _store_wholes(self, keys: Iterable[QueueKey]) -> None:
        left = deque(keys)
        while left:
            await self._submit(self._next_wholes(left))

    def _next_wholes(self, left: deque[QueueKey]) -> list[QueueStored]:
        """Takes the queues from the list that are stored together."""
        wholes: list[QueueStored] = []
        size = 0
        while left and len(wholes) < STORED_AT_A_TIME_MAX and size < STORED_BYTES_AT_A_TIME_MAX:
            queue = self._host.state.get(left.popleft())
            if queue is not None:
                wholes.append(queue.stored())
                size += _size(wholes[-1])
        return wholes

    def _trimmed(self, task: asyncio.Task[None]) -> None:
        if self._trimming is task:
            self._trimming = None
        if task.cancelled():
            return
        if (bug := task.exception()) is not None:
            logger.error("shortening %s failed", self.replica.partition, exc_info=bug)


def _heard(stored: asyncio.Future[None]) -> None:
    if not stored.cancelled():
        stored.exception()


def _size(record: QueueRecord) -> int:
    """About what it takes in the log."""
    changes: Sequence[Change] = ()
    if isinstance(record, QueueStored):
        changes = (record.whole,)
    elif isinstance(record, QueueChanged):
        changes = record.changes
    return _RECORD_BYTES + _RANGE_BYTES * sum(map(_range_count, changes))


def _range_count(change: Change) -> int:
    """A letter takes less than a range."""
    plan = None if change.letters is None else change.letters.plan
    return len(change.ranges) + (0 if plan is None else len(plan.letters))


def _as_coordinator(refused: Refused) -> Refused:
    """What is wrong with the state's partition must not look like a fault of the data's."""
    passing = (Reason.COORDINATOR_LOAD_IN_PROGRESS, Reason.FENCED_STATE_EPOCH)
    if refused.reason in (*passing, Reason.FENCED_LEADER_EPOCH, Reason.COORDINATOR_NOT_AVAILABLE):
        return refused
    if refused.reason is Reason.MESSAGE_TOO_LARGE:
        # Another coordinator could not store it either.
        return Refused(Reason.UNKNOWN_SERVER_ERROR, refused.detail)
    return Refused(Reason.NOT_COORDINATOR, refused.detail)
