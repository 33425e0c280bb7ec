"""Spans for the delivery attempts of queues, and for their dead letters.

A record whose producer traces it has the header `traceparent`. Each attempt to deliver it becomes a
span of that trace, from the lease to what ended it. The headers of records are not looked at on the
way to a consumer, so this is done beside it: the event loop notes what happened, and one thread
reads the records and makes the spans. If the thread falls behind, what happens meanwhile is not
traced, and counted.

A node traces only if it is set to. Then its queues are `TracedQueue`s. Otherwise nothing here runs.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, NamedTuple

from penstock.model.errors import Refused, StorageDamaged
from penstock.model.file_ranges import FileRange
from penstock.model.ids import MemberId
from penstock.model.limits import KIB, MIB
from penstock.model.trace_context import TraceContext, context_of
from penstock.observe.tracing import SYSTEM, PastSpan, SpanCounts, SpanKind
from penstock.queues.commands import AckBatch, AckType, AcquiredRange
from penstock.queues.layout import QueueKey
from penstock.queues.leading import LedQueue
from penstock.queues.letters import Death, Plan
from penstock.queues.transitions import EVENTS, Event
from penstock.records.batch import HEADER_SIZE, decode_records, parse_header
from penstock.records.errors import CorruptBatch
from penstock.records.traced import traced_in
from penstock.replication.commit import Commit
from penstock.replication.replica import Replica

logger = logging.getLogger(__name__)

# What happened and was not looked at yet.
NOTES_MAX: Final = 1_000
# Attempts that are followed at a time, over all queues.
OPEN_MAX: Final = 50_000
# Read of the log for what one poll leased. What lies behind it is not traced.
READ_BYTES: Final = MIB
CHUNK_BYTES: Final = 64 * KIB
_ANY_ATTEMPT: Final = 2**31

# What ended an attempt, and whether that is a failure. What is not here ends none.
_OUTCOMES: Final[dict[Event, tuple[str, str]]] = {
    Event.ACCEPT: ("ack", ""),
    Event.RELEASE: ("nack", "the consumer gave it back"),
    Event.REJECT: ("reject", "the consumer says that nobody can process it"),
    Event.EXPIRE: ("expire", "the lease ran out"),
    Event.CLOSE: ("session end", "the consumer left, or its connection was lost"),
    Event.UNDO: ("undo", "it never reached the consumer"),
}
_MOVED: Final = ("leader change", "another leader, or a later opening of the queue, goes on")
_DEATHS: Final = {
    Death.REJECTED: "rejected by a consumer",
    Death.TRIED_TOO_OFTEN: "tried too often",
    Death.EXPIRED: "its time to live is over",
}


class _Open(NamedTuple):
    """An attempt that has not ended."""

    parent: TraceContext
    attempt: int
    began_ns: int


class AttemptTraces:
    def __init__(
        self,
        add: Callable[[PastSpan], None],
        counts: SpanCounts,
        *,
        executor: Executor,
        now_ns: Callable[[], int],
    ) -> None:
        """The executor has one thread."""
        self._add = add
        self._counts = counts
        self._executor = executor
        self._now_ns = now_ns
        self._notes: deque[Callable[[], None]] = deque()
        self._is_at_work = False
        # For the thread alone.
        self._open: dict[QueueKey, dict[int, _Open]] = {}
        self._open_count = 0

    # On the event loop

    def leased(
        self, key: QueueKey, topic: str, acquired: Sequence[AcquiredRange], found: FileRange
    ) -> None:
        """`found` has the records; it is released here."""
        is_noted = self._note(partial(self._begin, key, topic, acquired, found, self._now_ns()))
        if not is_noted:
            found.release()

    def ended(
        self, key: QueueKey, topic: str, event: Event, attempts: Iterable[AcquiredRange]
    ) -> None:
        if event in _OUTCOMES:
            outcome = _OUTCOMES[event]
            self._note(partial(self._end, key, topic, list(attempts), outcome, self._now_ns()))

    def closed(self, key: QueueKey, topic: str) -> None:
        self._note(partial(self._close, key, topic, self._now_ns()))

    def buried(
        self, key: QueueKey, topic: str, letters_topic: str, plan: Plan, batch: bytes
    ) -> None:
        """The dead-letter topic has this batch."""
        self._note(partial(self._bury, key, topic, letters_topic, plan, batch, self._now_ns()))

    def _note(self, work: Callable[[], None]) -> bool:
        if len(self._notes) >= NOTES_MAX:
            self._counts.unwatched += 1
            return False
        self._notes.append(work)
        if not self._is_at_work:
            self._is_at_work = True
            self._executor.submit(self._work)
        return True

    # In the thread

    def _work(self) -> None:
        while self._notes:
            work = self._notes.popleft()
            try:
                work()
            except Exception:
                logger.exception("a delivery attempt could not be traced")
        self._is_at_work = False
        if self._notes:
            # Noted a moment ago, by somebody who saw this at work. One thread runs them in turn,
            # so it does no harm if the loop starts it too.
            self._is_at_work = True
            self._executor.submit(self._work)

    def _begin(
        self,
        key: QueueKey,
        topic: str,
        acquired: Sequence[AcquiredRange],
        found: FileRange,
        now_ns: int,
    ) -> None:
        last = acquired[-1].last
        try:
            traced = [each for data in _batches(found, last) for each in traced_in(data, last)]
        except (OSError, StorageDamaged, CorruptBatch):
            self._counts.untracked += 1
            return
        finally:
            found.release()
        if not traced:
            return
        attempts = {
            offset: each.attempt for each in acquired for offset in range(each.first, each.last + 1)
        }
        of_queue = self._open.setdefault(key, {})
        for offset, parent in traced:
            if offset not in attempts:
                continue
            if self._open_count >= OPEN_MAX and offset not in of_queue:
                self._counts.untracked += 1
                continue
            self._open_count += offset not in of_queue
            of_queue[offset] = _Open(parent, attempts[offset], now_ns)
        if not of_queue:
            del self._open[key]

    def _end(
        self,
        key: QueueKey,
        topic: str,
        ended: Sequence[AcquiredRange],
        outcome: tuple[str, str],
        now_ns: int,
    ) -> None:
        of_queue = self._open.get(key)
        if of_queue is None:
            return
        for first, last, attempt in ended:
            is_long = last - first >= len(of_queue)
            for offset in list(of_queue) if is_long else range(first, last + 1):
                found = of_queue.get(offset)
                if found is not None and first <= offset <= last and found.attempt <= attempt:
                    del of_queue[offset]
                    self._open_count -= 1
                    self._add(_delivery(key, topic, offset, found, outcome, now_ns))
        if not of_queue:
            del self._open[key]

    def _close(self, key: QueueKey, topic: str, now_ns: int) -> None:
        of_queue = self._open.pop(key, {})
        self._open_count -= len(of_queue)
        for offset, found in of_queue.items():
            self._add(_delivery(key, topic, offset, found, _MOVED, now_ns))

    def _bury(
        self,
        key: QueueKey,
        topic: str,
        letters_topic: str,
        plan: Plan,
        batch: bytes,
        now_ns: int,
    ) -> None:
        for letter, record in zip(plan.in_batch, decode_records(batch), strict=False):
            parent = context_of(record.headers)
            if parent is None or not parent.is_sampled:
                continue
            attributes: dict[str, str | int] = {
                **_place(key, topic, letter.offset),
                "messaging.operation.name": "dead-letter",
                "penstock.attempt": letter.attempts,
                "penstock.dead_letter.topic": letters_topic,
            }
            self._add(
                PastSpan(
                    name=f"dead-letter {topic}",
                    kind=SpanKind.PRODUCER,
                    parent=parent,
                    began_ns=now_ns,
                    ended_ns=self._now_ns(),
                    attributes=attributes,
                    fault=_DEATHS.get(letter.death, "given up"),
                )
            )


def _batches(found: FileRange, last: int) -> Iterator[bytes]:
    """Whole batches, some at a time, up to that which holds the offset."""
    at, wanted = 0, CHUNK_BYTES
    while at < len(found):
        data = found.file.pread(min(wanted, len(found) - at), found.position + at)
        end, wanted = 0, CHUNK_BYTES
        while end + HEADER_SIZE <= len(data):
            header = parse_header(data, end)
            if header.base_offset > last:
                yield data[:end]
                return
            if end + header.size > len(data):
                # It may be larger than what is read at a time.
                wanted = max(wanted, header.size)
                break
            end += header.size
        if end:
            yield data[:end]
            at += end
        elif at + len(data) == len(found) or len(data) < HEADER_SIZE:
            # Cut off.
            return


def _delivery(
    key: QueueKey, topic: str, offset: int, found: _Open, outcome: tuple[str, str], now_ns: int
) -> PastSpan:
    name, fault = outcome
    attributes: dict[str, str | int] = {
        **_place(key, topic, offset),
        "messaging.operation.name": "deliver",
        "penstock.attempt": found.attempt,
        "penstock.outcome": name,
    }
    return PastSpan(
        name=f"deliver {topic}",
        kind=SpanKind.INTERNAL,
        parent=found.parent,
        began_ns=found.began_ns,
        ended_ns=now_ns,
        attributes=attributes,
        fault=fault,
    )


def _place(key: QueueKey, topic: str, offset: int) -> dict[str, str | int]:
    """Without the member: the id of a poll through a door is a secret (`lease_tokens.py`)."""
    return {
        "messaging.system": SYSTEM,
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(key.partition),
        "messaging.consumer.group.name": key.group_id,
        "messaging.kafka.offset": offset,
    }


class TracedQueue(LedQueue):
    """A queue whose attempts are followed."""

    is_traced = True

    def __init__(self, *, traces: AttemptTraces, log: Replica, **parts: Any) -> None:
        super().__init__(log=log, **parts)
        self._traces = traces
        self._replica = log
        self._topic = str(log.partition.topic)

    def acquire(
        self, member_id: MemberId, spans: Sequence[tuple[int, int]], **wanted: Any
    ) -> tuple[tuple[AcquiredRange, ...], Commit]:
        acquired, commit = super().acquire(member_id, spans, **wanted)
        if acquired:
            try:
                # Not from the disk: the index was just used, and the bytes are for the thread.
                found = self._replica.read(acquired[0].first, READ_BYTES)
            except Refused:
                found = None
            if found is not None:
                commit.then(partial(self._stored_lease, acquired, found))
        return acquired, commit

    def _stored_lease(
        self, acquired: Sequence[AcquiredRange], found: FileRange, refused: Refused | None
    ) -> None:
        """What was stored is noted in the order in which it was decided."""
        if refused is None:
            self._traces.leased(self.key, self._topic, acquired, found)
        else:
            found.release()

    def acknowledge(self, member_id: MemberId, batches: Sequence[AckBatch]) -> Commit:
        commit = super().acknowledge(member_id, batches)
        by_event: dict[Event, list[AcquiredRange]] = {}
        for batch in batches:
            for first, last, event in _events(batch):
                of_event = by_event.setdefault(event, [])
                of_event.append(AcquiredRange(first, last, _ANY_ATTEMPT))
        for event, attempts in by_event.items():
            self.note(event, attempts, commit)
        return commit

    def release(self, member_id: MemberId) -> Commit:
        leases = self._leases_of(member_id)
        commit = super().release(member_id)
        self.note(Event.CLOSE, leases, commit)
        return commit

    def undo(self, member_id: MemberId, acquired: Sequence[AcquiredRange] | None = None) -> None:
        leases = self._leases_of(member_id) if acquired is None else acquired
        super().undo(member_id, acquired)
        self.note(Event.UNDO, leases, self.stored())

    def _leases_of(self, member_id: MemberId) -> list[AcquiredRange]:
        return [
            AcquiredRange(each.first, each.last, each.attempts)
            for each in self.machine.leases()
            if each.member_id == member_id
        ]

    def note(self, event: Event, attempts: Iterable[AcquiredRange], commit: Commit) -> None:
        ended = list(attempts)

        def stored(refused: Refused | None) -> None:
            if refused is None and ended:
                self._traces.ended(self.key, self._topic, event, ended)

        commit.then(stored)

    def _void(self, refused: Refused, level: int = logging.INFO) -> None:
        super()._void(refused, level)
        self._traces.closed(self.key, self._topic)


def _events(batch: AckBatch) -> Iterable[tuple[int, int, Event]]:
    if len(batch.types) == 1:
        yield batch.first, batch.last, EVENTS[AckType(batch.types[0])]
        return
    for offset, kind in enumerate(batch.types, batch.first):
        yield offset, offset, EVENTS[AckType(kind)]
