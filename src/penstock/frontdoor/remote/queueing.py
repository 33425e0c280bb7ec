"""Queues as users of doors see them: messages with lease tokens.

Records are decoded, and tokens made and read, in this process and not by the broker. A poll whose
caller goes away is called off; what it leased meanwhile is given back as if it had never been.

    queueing = Queueing(broker)
    polled = await queueing.poll("jobs", "workers", records_max=10, lease_ms=30_000, wait_s=20.0)
    outcomes = await queueing.ack("jobs", "workers", [each.token for each in polled.messages])
"""

import asyncio
import logging
import secrets
from bisect import bisect_right
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from penstock.broker.doors.queue_calls import (
    CLAIMS_PER_CALL_MAX,
    CallOffPoll,
    Claim,
    LeasedPart,
    PauseQueue,
    PeekQueue,
    Polled,
    PollQueue,
    PurgeQueue,
    QueueState,
    QueueStats,
    Redriven,
    RedriveQueue,
    ResumeQueue,
    SettleLeases,
)
from penstock.frontdoor.remote.broker import Broker
from penstock.frontdoor.remote.reading import EXPANSION_MAX, bytes_of, split
from penstock.model.errors import Refused
from penstock.model.ids import MemberId, TopicId
from penstock.model.lease_tokens import LeaseToken, read_token, token_maker
from penstock.records.errors import CorruptBatch
from penstock.records.record import Record

logger = logging.getLogger(__name__)

OK: Final = "ok"
# A text that is not a token at all.
MALFORMED: Final = "malformed"
# Nobody has a lease by the token any more.
_ENDS: Final = frozenset({OK, "expired", "done"})
# What each outcome of a token means, in a sentence.
OUTCOMES: Final = {
    OK: "It is done.",
    "expired": "The lease is over: it ran out, or the record was given back or delivered again.",
    "done": "Nobody gets the record any more: it was acked, given up or purged.",
    "unknown": "This queue knows of no lease with this token.",
    "forbidden": "Leases of this group can't be extended.",
    "unavailable": "The partition's leader did not answer in time: try again.",
    MALFORMED: "This is not a lease token.",
}
# A purge or a redrive may take longer than other calls.
LONG_S_MAX: Final = 120.0


class Message(NamedTuple):
    """A record of a queue that somebody has, or could have."""

    partition: int
    record: Record
    # How often it was delivered, with this time; of a peek, without.
    attempt: int
    # Empty for a peek.
    token: str


class Messages(NamedTuple):
    messages: list[Message]
    # How long they are leased.
    lease_ms: int


class TokenOutcome(NamedTuple):
    token: str
    # A key of OUTCOMES.
    outcome: str
    # How long the lease lasts that has begun again; 0 if none has.
    lease_ms: int = 0

    @property
    def is_ok(self) -> bool:
        return self.outcome == OK

    @property
    def ends_lease(self) -> bool:
        return self.outcome in _ENDS and not self.lease_ms

    @property
    def detail(self) -> str:
        return OUTCOMES.get(self.outcome, self.outcome)


class Queueing:
    """One per process. All methods raise Refused."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: set[asyncio.Task[None]] = set()

    # Polling

    async def poll(
        self,
        topic: str,
        group: str,
        *,
        records_max: int,
        lease_ms: int = 0,
        wait_s: float = 0.0,
        bytes_max: int = 4 * 1024 * 1024,
    ) -> Messages:
        """Leases messages, and waits for the first up to `wait_s`. `lease_ms` is from 1 s to 12 h;
        0 stands for the group's setting. What decompresses to far more than `bytes_max` is given
        back, and comes with the next poll. Cancelled, it leaves nothing leased."""
        call = PollQueue(
            topic=topic,
            group=group,
            records_max=records_max,
            lease_ms=lease_ms,
            wait_s=wait_s,
            bytes_max=bytes_max,
            poll_id=secrets.token_hex(8),
        )
        asking = asyncio.get_running_loop().create_task(self._broker.ask(call, wait_s))
        try:
            polled = await asyncio.shield(asking)
        except asyncio.CancelledError:
            self._spawn(self._call_off(call, asking))
            raise
        leased = _leased(polled, bytes_max)
        if leased.gaps or leased.damaged or leased.unread:
            self._spawn(self._settle_others(topic, group, leased))
        return Messages(leased.messages, polled.lease_ms)

    async def _settle_others(self, topic: str, group: str, leased: "_Leased") -> None:
        """If it fails, they are delivered again, and this is done then."""
        with suppress(Refused):
            if leased.gaps:
                await self.ack(topic, group, leased.gaps)
            if leased.damaged:
                text = "%d records of %s can't be decoded, and are rejected for group %s"
                logger.error(text, len(leased.damaged), topic, group)
                await self.reject(topic, group, leased.damaged)
            if leased.unread:
                await self.undo(topic, group, leased.unread)

    async def _call_off(self, call: PollQueue, asking: "asyncio.Task[Polled]") -> None:
        with suppress(Refused):
            await self._broker.ask(CallOffPoll(poll_id=call.poll_id))
            leased = _leased(await asking, call.bytes_max)
            tokens = [message.token for message in leased.messages]
            others = leased.gaps + leased.damaged + leased.unread
            await self.undo(call.topic, call.group, tokens + others)

    # Tokens

    async def ack(self, topic: str, group: str, tokens: Sequence[str]) -> list[TokenOutcome]:
        """The messages are done with."""
        return await self._settle("ack", topic, group, tokens)

    async def nack(
        self, topic: str, group: str, tokens: Sequence[str], delay_ms: int | None = None
    ) -> list[TokenOutcome]:
        """Gives messages back, to be tried again after `delay_ms`; None follows the group's backoff
        setting, 0 means at once."""
        return await self._settle("nack", topic, group, tokens, delay_ms=delay_ms)

    async def extend(
        self, topic: str, group: str, tokens: Sequence[str], lease_ms: int = 0
    ) -> list[TokenOutcome]:
        """The leases begin again now, and last so long; 0 stands for the group's setting."""
        return await self._settle("extend", topic, group, tokens, lease_ms=lease_ms)

    async def reject(self, topic: str, group: str, tokens: Sequence[str]) -> list[TokenOutcome]:
        """Nobody can process the messages: they are dead letters, if the group has a topic for
        them."""
        return await self._settle("reject", topic, group, tokens)

    async def undo(self, topic: str, group: str, tokens: Sequence[str]) -> list[TokenOutcome]:
        """The messages never reached the one who polled: the attempt does not count."""
        return await self._settle("undo", topic, group, tokens)

    def give_back(
        self,
        topic: str,
        group: str,
        *,
        delivered: Sequence[str] = (),
        undelivered: Sequence[str] = (),
    ) -> None:
        """Nobody waits for it: the one who had the messages, or should have got them, is gone. If
        it can't be done, their leases run out."""
        if delivered or undelivered:
            self._spawn(self._give_back(topic, group, delivered, undelivered))

    async def _give_back(
        self, topic: str, group: str, delivered: Sequence[str], undelivered: Sequence[str]
    ) -> None:
        with suppress(Refused):
            if undelivered:
                await self.undo(topic, group, undelivered)
            if delivered:
                await self.nack(topic, group, delivered, delay_ms=0)

    async def _settle(
        self,
        verb: str,
        topic: str,
        group: str,
        texts: Sequence[str],
        *,
        lease_ms: int = 0,
        delay_ms: int | None = None,
    ) -> list[TokenOutcome]:
        """Tokens of another topic are for no lease of this one, which its broker finds out."""
        tokens = [read_token(text) for text in texts]
        by_topic: dict[UUID, list[int]] = {}
        for index, token in enumerate(tokens):
            if token is not None:
                by_topic.setdefault(token.topic_id, []).append(index)
        outcomes = [TokenOutcome(text, MALFORMED) for text in texts]
        for topic_id, indexes in by_topic.items():
            for begin in range(0, len(indexes), CLAIMS_PER_CALL_MAX):
                some = indexes[begin : begin + CLAIMS_PER_CALL_MAX]
                call = SettleLeases(
                    topic=topic,
                    group=group,
                    verb=verb,
                    claims=[_claim(token) for index in some if (token := tokens[index])],
                    lease_ms=lease_ms,
                    delay_ms=delay_ms,
                    topic_id=topic_id,
                )
                found = await self._broker.ask(call)
                for index, outcome in zip(some, found.outcomes, strict=True):
                    is_extended = verb == "extend" and outcome == OK
                    lease_ms = found.lease_ms if is_extended else 0
                    outcomes[index] = TokenOutcome(texts[index], outcome, lease_ms)
        return outcomes

    # Looking

    async def peek(
        self, topic: str, group: str, *, records_max: int, bytes_max: int = 1024 * 1024
    ) -> list[Message]:
        """What would be delivered next, without leasing it; `attempt` says how often each was
        delivered so far. Refused with GROUP_ID_NOT_FOUND while nobody has polled the queue."""
        call = PeekQueue(topic=topic, group=group, records_max=records_max, bytes_max=bytes_max)
        messages: list[Message] = []
        room = _Room(EXPANSION_MAX * bytes_max)
        for part in (await self._broker.ask(call)).parts:
            found = _of_ranges(part.batches, part.ranges, room)
            messages += (
                Message(part.partition, record, attempt, "") for record, attempt in found.records
            )
        return messages[:records_max]

    async def stats(self, topic: str, group: str) -> QueueState:
        """Refused with GROUP_ID_NOT_FOUND while nobody has polled the queue."""
        return await self._broker.ask(QueueStats(topic=topic, group=group))

    # Operating

    async def purge(self, topic: str, group: str, partitions: list[int] | None = None) -> int:
        """How many messages are not delivered any more; what is leased stays with who has it."""
        call = PurgeQueue(topic=topic, group=group, partitions=partitions)
        return (await self._broker.ask(call, LONG_S_MAX)).count

    async def redrive(self, topic: str, group: str, limit: int) -> Redriven:
        """Brings dead letters back, at most `limit`; again, if it is not finished."""
        call = RedriveQueue(topic=topic, group=group, limit=limit)
        return await self._broker.ask(call, LONG_S_MAX)

    async def pause(self, topic: str, group: str) -> None:
        """Polls find nothing until it is resumed, wherever they come from."""
        await self._broker.ask(PauseQueue(topic=topic, group=group))

    async def resume(self, topic: str, group: str) -> None:
        await self._broker.ask(ResumeQueue(topic=topic, group=group))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _claim(token: LeaseToken) -> Claim:
    return Claim(
        partition=token.partition, offset=token.offset, attempt=token.attempt, proof=token.proof
    )


class _Leased(NamedTuple):
    """What a poll got, with the tokens of what nobody is given: offsets without a record, records
    that can't be decoded, and records for which there was no room."""

    messages: list[Message]
    gaps: list[str]
    damaged: list[str]
    unread: list[str]


@dataclass(slots=True)
class _Room:
    """How many bytes of records there may be, decompressed; the last one may go beyond it."""

    left: int


def _leased(polled: Polled, bytes_max: int) -> _Leased:
    leased = _Leased([], [], [], [])
    room = _Room(EXPANSION_MAX * bytes_max)
    for part in polled.parts:
        _add_part(leased, TopicId(polled.topic_id), part, room)
    return leased


def _add_part(leased: _Leased, topic_id: TopicId, part: LeasedPart, room: _Room) -> None:
    token = token_maker(topic_id, part.partition, MemberId(part.member_id))
    found = _of_ranges(part.batches, part.ranges, room)
    leased.messages.extend(
        Message(part.partition, record, attempt, token(record.offset, attempt))
        for record, attempt in found.records
    )
    if len(found.records) == sum(last - first + 1 for first, last, _ in part.ranges):
        return
    there = {record.offset for record, _ in found.records}
    for first, last, attempt in part.ranges:
        for offset in range(first, last + 1):
            if offset in there:
                continue
            tokens = leased.gaps
            if found.unread_from is not None and offset >= found.unread_from:
                tokens = leased.unread
            elif any(low <= offset <= high for low, high in found.damaged):
                tokens = leased.damaged
            tokens.append(token(offset, attempt))


class _Found(NamedTuple):
    # Each with its number of attempts.
    records: list[tuple[Record, int]]
    # First and last offsets of batches that can't be decoded.
    damaged: list[tuple[int, int]]
    # Where the room ended, if it did.
    unread_from: int | None


def _of_ranges(batches: bytes, ranges: Sequence[tuple[int, int, int]], room: _Room) -> _Found:
    """The records that lie in the ranges, which are in order."""
    firsts = [first for first, _, _ in ranges]
    records: list[tuple[Record, int]] = []
    damaged: list[tuple[int, int]] = []
    for header, of_batch in split(batches):
        count = len(records)
        try:
            for record in of_batch:
                index = bisect_right(firsts, record.offset) - 1
                if index < 0 or record.offset > ranges[index][1]:
                    continue
                if room.left <= 0:
                    return _Found(records, damaged, record.offset)
                records.append((record, ranges[index][2]))
                room.left -= bytes_of(record)
        except CorruptBatch:
            del records[count:]
            damaged.append((header.base_offset, header.last_offset))
    return _Found(records, damaged, None)
