"""Brings dead letters back to their queues.

Somebody reads the dead-letter topic and asks the leaders of the queues, who decide. A record that
is still in the log is reopened for the group. One that is gone is appended to its topic again, and
other share groups skip it. Each queue stores up to where the letters of a dead-letter partition
were brought back, in the same change as what became of them. So it does not matter who asks, how
often, and where it was interrupted.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from struct import Struct
from typing import Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from penstock.broker.dead_letters import DeadLetters
from penstock.broker.leaderships import Leaderships
from penstock.broker.letter_reading import READ_BYTES, OriginalRecords
from penstock.broker.share_coordinators import Peers, ShareCoordinators
from penstock.broker.topics import Topic
from penstock.cluster.coordinator import Cluster
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.ids import COPIERS_FROM, BrokerId, GroupId, TopicId
from penstock.queues import calls
from penstock.queues.commands import Change
from penstock.queues.dead_letters import (
    PLAN_LETTERS_MAX,
    REDRIVES_MAX,
    decide_redriven,
    origin_of,
)
from penstock.queues.layout import INT32, INT64, QueueKey, Reader, pack_key, pack_list
from penstock.queues.leading import LedQueue
from penstock.queues.letters import Copies, Redriven, Sender
from penstock.queues.machine import ShareMachine
from penstock.records.batch import decode_records, parse_header
from penstock.records.errors import CorruptBatch
from penstock.records.record import Record
from penstock.replication.positions import Position

logger = logging.getLogger(__name__)

REDRIVE: Final = "letters.redrive"
# One call to a leader, which may wait for copies.
CALL_S_MAX: Final = 30.0
# How long a leader that changes, or letters that are just on their way, are waited for.
RETRIED_S_MAX: Final = 20.0
RETRY_PAUSE_S: Final = 0.1
_PASSING: Final = frozenset(
    {
        Reason.NOT_LEADER_OR_FOLLOWER,
        Reason.LEADER_NOT_AVAILABLE,
        Reason.COORDINATOR_NOT_AVAILABLE,
        Reason.COORDINATOR_LOAD_IN_PROGRESS,
        Reason.NOT_COORDINATOR,
        Reason.REQUEST_TIMED_OUT,
        Reason.THROTTLED,
    }
)
Place: TypeAlias = tuple[TopicId, int]
# Offset of the letter, offset of its record, how often it was brought back.
_ITEM: Final = Struct(">qqi")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveResult:
    # In the log still, and delivered again.
    reopened: int = 0
    # Gone from the log, and appended to it again.
    copied: int = 0
    # Brought back too often before, alive anyway, or without anything to bring back.
    skipped: int = 0
    # Whether all letters that there were when it began were looked at.
    is_finished: bool = True

    @property
    def count(self) -> int:
        return self.reopened + self.copied

    def __add__(self, other: "RedriveResult") -> "RedriveResult":
        return RedriveResult(
            reopened=self.reopened + other.reopened,
            copied=self.copied + other.copied,
            skipped=self.skipped + other.skipped,
            is_finished=self.is_finished and other.is_finished,
        )


class LetterItem(NamedTuple):
    """A letter, as the leader of its queue hears of it."""

    letter_offset: int
    offset: int
    redrives: int


class Redrive(NamedTuple):
    """What a leader is asked to bring back: all letters of its queue in a part of a partition."""

    key: QueueKey
    topic_id: TopicId
    partition: int
    # Behind the last letter.
    next_offset: int
    items: tuple[LetterItem, ...]


class Redriving:
    def __init__(
        self,
        *,
        cluster: Cluster,
        leaderships: Leaderships,
        coordinators: ShareCoordinators,
        letters: DeadLetters,
        peers: Peers,
        clock: Clock,
        lead: Callable[[GroupId, TopicId, int], LedQueue],
    ) -> None:
        self._cluster = cluster
        self._leaderships = leaderships
        self._coordinators = coordinators
        self._letters = letters
        self._peers = peers
        self._clock = clock
        self._lead = lead
        # One call about a queue at a time.
        self._locks: WeakKeyDictionary[LedQueue, asyncio.Lock] = WeakKeyDictionary()
        peers.serve(REDRIVE, self._answer_redrive)

    # Asking

    async def redrive(self, group_id: GroupId, topic: str, limit: int) -> RedriveResult:
        """Brings back at most `limit` records, the oldest letters of each partition first."""
        source = self._cluster.topic(topic)
        if source is None:
            raise Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{topic}'.")
        name = self._letters.settings.letters_topic_of(group_id)
        if not name:
            detail = f"Group {group_id} has no dead-letter topic."
            raise Refused(Reason.INVALID_REQUEST, detail)
        letters = self._cluster.topic(name)
        if letters is None:
            # Nothing was ever sent to it.
            return RedriveResult()
        total = RedriveResult()
        for partition in range(letters.partitions):
            left = limit - total.count
            if left <= 0:
                return total + RedriveResult(is_finished=False)
            place = (letters.topic_id, partition)
            total += await self._redrive_partition(group_id, source, place, left)
        return total

    async def _redrive_partition(
        self, group_id: GroupId, source: Topic, place: Place, limit: int
    ) -> RedriveResult:
        starts = await self._starts(group_id, source, place)
        reader, deadline = self._letters.publisher, self._clock.monotonic() + RETRIED_S_MAX
        begin = (await reader.find(*place, Position.EARLIEST, deadline)).offset
        # What is given up again meanwhile is for the next time.
        end = (await reader.find(*place, Position.LATEST, deadline)).offset
        offset = max(begin, min(starts.values(), default=end))
        total = RedriveResult()
        while offset < end and total.count < limit:
            records, next_offset = await self._read(place, offset, end)
            left = limit - total.count
            asked, offset = _by_queue(records, group_id, source, left, next_offset)
            for key, items in asked.items():
                if key in starts:
                    total += await self._ask(Redrive(key, *place, offset, tuple(items)))
                    starts[key] = max(offset, starts[key])
        if offset < end:
            return total + RedriveResult(is_finished=False)
        for key in [key for key, start in starts.items() if start < end]:
            await self._ask(Redrive(key, *place, end, ()))
        return total

    async def _starts(self, group_id: GroupId, source: Topic, place: Place) -> dict[QueueKey, int]:
        """Up to where letters of the group's queues on the topic were brought back, of those that
        have sent some."""
        keys = [QueueKey(group_id, source.topic_id, index) for index in range(source.partitions)]
        found = await self._coordinators.read(group_id, keys)
        return {
            key: summary.letters.returned_up_to(*place)
            for key, summary in found.items()
            if summary.letters.sent_count
        }

    async def _read(self, place: Place, offset: int, end: int) -> tuple[list[Record], int]:
        """Some records from there on, and where to read next."""
        deadline = self._clock.monotonic() + RETRIED_S_MAX
        answer = await self._letters.publisher.read(
            *place, offset, bytes_max=READ_BYTES, wait_s=0.0, deadline=deadline
        )
        found: list[Record] = []
        ends: list[int] = [end]

        def work() -> None:
            records, next_offset = _decoded(answer.batches)
            found.extend(each for each in records if offset <= each.offset < end)
            ends.append(next_offset)

        if answer.batches:
            await self._letters.cold_reads.done(work)
        return found, min(ends)

    async def _ask(self, asked: Redrive) -> RedriveResult:
        """The leader of the queue, here or elsewhere, until it has done it."""
        until = self._clock.monotonic() + RETRIED_S_MAX
        while True:
            try:
                return await self._ask_once(asked)
            except Refused as refused:
                if refused.reason not in _PASSING or self._clock.monotonic() >= until:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _ask_once(self, asked: Redrive) -> RedriveResult:
        leader = self._leaderships.reachable_leader(asked.key.topic_id, asked.key.partition)
        if leader is None:
            raise Refused(Reason.LEADER_NOT_AVAILABLE, f"{asked.key} has no leader now")
        if leader.id == self._cluster.broker_id:
            return await self._bring_back(asked)
        answer = await self._peers.call(leader.id, REDRIVE, _encode(asked), CALL_S_MAX)
        return calls.decoded(answer, _read_result)

    # Answering

    async def _answer_redrive(self, _: BrokerId, payload: bytes) -> bytes:
        result = await self._bring_back(calls.decoded(payload, _read_redrive))
        return b"".join(map(INT64.pack, (result.reopened, result.copied, result.skipped)))

    async def _bring_back(self, asked: Redrive) -> RedriveResult:
        queue = self._lead(*asked.key)
        await queue.open()
        async with self._locks.setdefault(queue, asyncio.Lock()):
            return await self._bring_back_alone(queue, asked)

    async def _bring_back_alone(self, queue: LedQueue, asked: Redrive) -> RedriveResult:
        if queue.machine.letters.copies is not None:
            detail = f"copies for {queue.key} are on their way"
            raise Refused(Reason.COORDINATOR_NOT_AVAILABLE, detail)
        done = queue.machine.letters.redriven_up_to(asked.topic_id, asked.partition)
        items = [item for item in asked.items if item.letter_offset >= done]
        total = RedriveResult()
        wanted = [item for item in items if item.redrives < REDRIVES_MAX]
        total += RedriveResult(skipped=len(items) - len(wanted))
        originals = OriginalRecords(self._letters.replica_of(queue), self._letters.cold_reads)
        there = await originals.present([item.offset for item in wanted])
        for is_there, run in groupby(wanted, key=lambda item: item.offset in there):
            some = list(run)
            _check_dead(queue, some)
            total += await (self._reopen if is_there else self._copy)(queue, asked, some)
        place = Redriven(asked.topic_id, asked.partition, asked.next_offset)
        if queue.machine.letters.redriven_up_to(*place[:2]) < asked.next_offset:
            await queue.decide(lambda machine: decide_redriven(machine, place))
        return total

    async def _reopen(
        self, queue: LedQueue, asked: Redrive, items: Sequence[LetterItem]
    ) -> RedriveResult:
        settings = self._letters.settings.of_queue(queue.key)
        # More than one letter of a record: the last one counts.
        redrives = {item.offset: item.redrives for item in items}
        place = Redriven(asked.topic_id, asked.partition, items[-1].letter_offset + 1)
        count = 0

        def decide(machine: ShareMachine) -> Change:
            nonlocal count
            state = machine.letters
            _, count = machine.decide_reopened(redrives, settings, state)
            change, _ = machine.decide_reopened(redrives, settings, state.redriven_to(place, count))
            return change

        await queue.decide(decide)
        return RedriveResult(reopened=count, skipped=len(items) - count)

    async def _copy(
        self, queue: LedQueue, asked: Redrive, items: Sequence[LetterItem]
    ) -> RedriveResult:
        """The records are gone from the log. One that the topic refuses is passed over."""
        total, left = RedriveResult(), list(items)
        size = PLAN_LETTERS_MAX
        while left:
            some = left[:size]
            copies = Copies(
                asked.topic_id, asked.partition, tuple(item.letter_offset for item in some)
            )
            copier = queue.machine.letters.copier or await self._new_copier(queue)
            next_offset = some[-1].letter_offset + 1
            refused = await self._letters.copy(queue, copies, copier, next_offset)
            if refused is None:
                total += RedriveResult(copied=len(some))
            elif len(some) > 1:
                size = len(some) // 2
                continue
            else:
                text = "the dead letter at offset %d of %s can't be copied back: %s"
                logger.warning(text, some[0].letter_offset, queue.key, refused.detail)
                total += RedriveResult(skipped=1)
            left = left[len(some) :]
        return total

    async def _new_copier(self, queue: LedQueue) -> Sender:
        identity = await self._letters.identities.identify(None)
        producer_id = COPIERS_FROM + identity.producer_id
        return Sender(queue.key.topic_id, queue.key.partition, producer_id)


def _check_dead(queue: LedQueue, items: Iterable[LetterItem]) -> None:
    """Just before something is decided: a queue that is opened again may know less than before."""
    if any(queue.machine.is_dying(item.offset) for item in items):
        # The topic has the letter, and that is about to be noted.
        detail = f"letters of {queue.key} are just on their way"
        raise Refused(Reason.COORDINATOR_NOT_AVAILABLE, detail)


def _by_queue(
    records: Iterable[Record], group_id: GroupId, source: Topic, limit: int, next_offset: int
) -> tuple[dict[QueueKey, list[LetterItem]], int]:
    """The letters of the group on the topic, at most `limit`, and up to where these are all."""
    found: dict[QueueKey, list[LetterItem]] = {}
    count = 0
    for record in records:
        origin = origin_of(record.headers)
        if origin is None or (origin.group, origin.topic) != (group_id, source.name):
            continue
        # A topic of the same name, from before this one, had other records at its offsets.
        if origin.topic_id not in ("", str(source.topic_id)):
            continue
        if count == limit:
            return found, record.offset
        key = QueueKey(group_id, source.topic_id, origin.partition)
        item = LetterItem(record.offset, origin.offset, origin.redrives)
        found.setdefault(key, []).append(item)
        count += 1
    return found, next_offset


def _decoded(batches: bytes) -> tuple[list[Record], int]:
    """In a worker thread."""
    data, next_offset = memoryview(batches), 0
    records: list[Record] = []
    while data:
        header = parse_header(data)
        if not header.is_control and header.record_count:
            with suppress(CorruptBatch):
                records += decode_records(data[: header.size])
        next_offset, data = header.next_offset, data[header.size :]
    return records, next_offset


def _encode(asked: Redrive) -> bytes:
    head = pack_key(asked.key) + asked.topic_id.bytes + INT32.pack(asked.partition)
    return (
        head + INT64.pack(asked.next_offset) + pack_list(_ITEM.pack(*each) for each in asked.items)
    )


def _read_redrive(reader: Reader) -> Redrive:
    key, topic_id = reader.key(), TopicId(reader.uuid())
    partition, next_offset = reader.int32(), reader.int64()
    items = (LetterItem(*reader.fields(_ITEM)) for _ in range(reader.count()))
    return Redrive(key, topic_id, partition, next_offset, tuple(items))


def _read_result(reader: Reader) -> RedriveResult:
    return RedriveResult(reopened=reader.int64(), copied=reader.int64(), skipped=reader.int64())
