"""Sends the dead letters of one queue to the dead-letter topic of its group.

A carrier is a task that sends one batch at a time. It stores the plan of the batch before it sends
it, and afterwards that the records are dead, together with the next sequence
(`queues/dead_letters.py`). Whatever goes wrong keeps the records dying: the carrier tries again,
later and later, and says why. A record that the topic refuses for itself is set aside, so that the
others go on.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.broker.letter_reading import OriginalRecords
from penstock.model.errors import Reason, Refused
from penstock.queues.commands import Range
from penstock.queues.dead_letters import (
    GENERATIONS_MAX,
    PLAN_BYTES_MAX,
    PLAN_LETTERS_MAX,
    copy_record,
    decide_arrived,
    decide_copied,
    decide_dropped,
    decide_no_letters,
    decide_plan,
    decide_shorter,
    decide_uncopied,
    generation_of,
    letter_record,
    letters,
)
from penstock.queues.leading import LedQueue
from penstock.queues.letters import Letter, Plan, Sender
from penstock.records.batch import build_batch
from penstock.records.record import Record

if TYPE_CHECKING:
    from penstock.broker.dead_letters import DeadLetters

logger = logging.getLogger(__name__)

# How long one attempt to send follows the leader of the dead-letter partition.
SEND_S_MAX: Final = 5.0
# Between two attempts that fail: each pause is twice as long as the one before.
RETRY_S_MIN: Final = 0.2
RETRY_S_MAX: Final = 10.0
# Records that a topic refuses for themselves, of one queue. With more, all of it waits.
ASIDE_MAX: Final = 10_000
# What a batch has around its records, and a record around its parts.
_OVERHEAD_BYTES: Final = 100
_ALL_BYTES: Final = 2**62


# Something about the records is wrong: without some of them the batch may be accepted.
_OF_RECORDS: Final = frozenset(
    {
        Reason.MESSAGE_TOO_LARGE,
        Reason.RECORD_LIST_TOO_LARGE,
        Reason.INVALID_RECORD,
        Reason.INVALID_TIMESTAMP,
        Reason.CORRUPT_MESSAGE,
    }
)
_OF_PRODUCERS: Final = frozenset(
    {Reason.OUT_OF_ORDER_SEQUENCE_NUMBER, Reason.INVALID_PRODUCER_EPOCH}
)


class Aside(NamedTuple):
    """A record that the dead-letter topic refused for itself."""

    reason: str
    pause_s: float
    retry_at: float


class Carrier:
    """Sends the dead letters of one queue."""

    def __init__(self, owner: "DeadLetters", queue: LedQueue) -> None:
        self._owner = owner
        self._queue = queue
        self.task: asyncio.Task[None] | None = None
        self.trouble = ""
        self._pause_s = RETRY_S_MIN
        self._woken = asyncio.Event()
        # How many were dying when it found nothing to do.
        self._idle_with: int | None = None
        self._aside: dict[int, Aside] = {}
        # Senders of which it is known that nothing was appended from their sequence on. What
        # another leader has sent may have been.
        self._unsent: set[Sender] = set()

    def wake(self) -> None:
        self._woken.set()

    def notice(self) -> None:
        if self._idle_with is not None and self._queue.machine.dying_count > self._idle_with:
            self.wake()

    async def run(self) -> None:
        while self._queue.is_open and self._queue.machine.has_letters:
            self._woken.clear()
            try:
                async with self._owner.sending:
                    is_idle = not await self._round()
            except Refused as refused:
                if not self._queue.is_open:
                    # It is opened again, and then carried again.
                    return
                await self._pause(refused)
                continue
            self._pause_s = RETRY_S_MIN
            if is_idle:
                await self._wait_for_more()
            elif not self._aside:
                self.trouble = ""

    async def _round(self) -> bool:
        """Brings one batch one step further; false if there is nothing to do now."""
        queue, owner = self._queue, self._owner
        # Nothing leaves before what it follows from is stored.
        await queue.stored()
        settings = owner.settings.of_queue(queue.key)
        if queue.machine.letters.copies is not None:
            await self._copy()
            return True
        if not settings.has_dead_letters:
            count = queue.machine.dying_count
            await queue.decide(lambda machine: decide_no_letters(machine, settings))
            text = "%d records of %s are dead: their group has no dead-letter topic any more"
            logger.warning(text, count, queue.key)
            return True
        state = queue.machine.letters
        if state.plan is None:
            return await self._make_plan()
        assert state.sender is not None
        await self._carry_out(state.plan, state.sender)
        return True

    # A plan

    async def _make_plan(self) -> bool:
        queue, owner = self._queue, self._owner
        opening, before = queue.opening, queue.machine.letters
        chosen = self._chosen()
        if not chosen:
            return False
        topic = await owner.target(queue.key)
        partition = queue.key.partition % topic.partitions
        size_max = owner.cluster.topic_config(topic.name).max_message_bytes
        records = await self._records(chosen, min(PLAN_BYTES_MAX, size_max))
        sender = before.sender
        if sender is None or sender[:2] != (topic.topic_id, partition):
            identity = await owner.identities.identify(None)
            sender = Sender(topic.topic_id, partition, identity.producer_id)
        batch = await self._batch(records, sender)
        if queue.opening != opening or queue.machine.letters != before:
            # What is stored may be that other records are dying, or fewer.
            return True
        if await self._end_circles(chosen, records):
            return True
        planned = chosen[: len(records)]
        await queue.decide(lambda machine: decide_plan(machine, planned, sender))
        self._unsent = {sender}
        await self._send(Plan(tuple(planned), len(planned)), sender, batch)
        return True

    async def _end_circles(self, chosen: Sequence[Letter], records: Sequence[Record]) -> bool:
        """A letter that has been through the most dead-letter topics allowed goes to no other one:
        groups that read each other's letters would pass it on endlessly. It lies in those topics,
        so nothing is lost."""
        queue, owner = self._queue, self._owner
        if not owner.is_for_letters(queue.key.topic_id):
            return False
        too_far = [
            letter.offset
            for letter, record in zip(chosen, records, strict=False)
            if generation_of(record.headers) > GENERATIONS_MAX
        ]
        if too_far:
            text = (
                "%d dead letters of %s have been in %d dead-letter topics, and stay where they are"
            )
            logger.warning(text, len(too_far), queue.key, GENERATIONS_MAX)
            settings = owner.settings.of_queue(queue.key)
            await queue.decide(lambda machine: machine.decide_buried(too_far, settings))
        return bool(too_far)

    def _chosen(self) -> list[Letter]:
        """The next to send: those that nothing is known against, or one that was refused alone."""
        now, chosen, refused = self._owner.clock.monotonic(), [], None
        for letter in _each(self._queue.machine.dying()):
            aside = self._aside.get(letter.offset)
            if aside is None:
                chosen.append(letter)
                if len(chosen) == PLAN_LETTERS_MAX:
                    break
            elif refused is None and aside.retry_at <= now:
                refused = letter
        return chosen or ([] if refused is None else [refused])

    async def _records(self, chosen: Sequence[Letter], bytes_max: int) -> list[Record]:
        """Of the first letters that fit into a batch: at least of one."""
        queue, owner = self._queue, self._owner
        topic = owner.cluster.topic_by_id(queue.key.topic_id)
        if topic is None:
            raise Refused(Reason.UNKNOWN_TOPIC_ID, "the topic of the queue is gone")
        originals = OriginalRecords(owner.replica_of(queue), owner.cold_reads)
        is_copied = owner.settings.copies_records(queue.key.group_id)
        # Of one that is not copied, the headers are looked at: those that place it in its trace,
        # and how far a letter has come.
        is_read = is_copied or owner.is_traced or owner.is_for_letters(queue.key.topic_id)
        found = await originals.read([letter.offset for letter in chosen], bytes_max, is_read)
        records: list[Record] = []
        left = bytes_max - _OVERHEAD_BYTES
        for letter, original in zip(chosen, found, strict=False):
            record = letter_record(
                letter,
                original,
                key=queue.key,
                topic=topic.name,
                now_ms=owner.clock.now_ms(),
                is_copied=is_copied,
            )
            left -= _size(record)
            if records and left < 0:
                break
            records.append(record)
        return records

    async def _batch(self, records: Sequence[Record], sender: Sender) -> bytes:
        built: list[bytes] = []

        def work() -> None:
            built.append(
                build_batch(
                    records,
                    producer_id=sender.producer_id,
                    producer_epoch=sender.epoch,
                    base_sequence=sender.sequence,
                )
            )

        await self._owner.cold_reads.done(work)
        return built[0]

    async def _carry_out(self, plan: Plan, sender: Sender) -> None:
        """Goes on with a plan that is stored, whoever made it."""
        owner, key = self._owner, self._queue.key
        planned = await owner.find(sender.topic_id)
        if planned is None:
            # One of the same name would be another topic, with other producers.
            await self._drop(keeps_sender=False)
            return
        topic = await owner.target(key)
        if (topic.topic_id, key.partition % topic.partitions) != sender[:2]:
            # Letters go elsewhere from now on.
            if not await self._has_arrived(plan, sender):
                await self._drop(keeps_sender=False)
            return
        records = await self._records(plan.in_batch, _ALL_BYTES)
        assert len(records) == plan.count, "the count decides the sequence"
        await self._send(plan, sender, await self._batch(records, sender))

    async def _send(self, plan: Plan, sender: Sender, batch: bytes) -> None:
        refused = await self._publish(sender, batch)
        if refused is None:
            self._owner.trace(self._queue.key, plan, sender, batch)
            await self._arrived(plan, sender, plan.count)
        elif not await self._has_arrived(plan, sender):
            await self._refused(plan, refused)

    async def _publish(self, sender: Sender, batch: bytes) -> Refused | None:
        """Why this attempt appended nothing; raises if nobody knows whether it did."""
        owner = self._owner
        deadline = owner.clock.monotonic() + SEND_S_MAX
        try:
            await owner.publisher.publish(sender.topic_id, sender.partition, batch, deadline)
        except Refused as refused:
            if refused.reason is Reason.REQUEST_TIMED_OUT:
                self._unsent.discard(sender)
                raise
            if refused.reason in _OF_PRODUCERS:
                self._unsent.discard(sender)
            return refused
        return None

    async def _refused(self, plan: Plan, refused: Refused) -> None:
        """Nothing of the plan is in the topic."""
        if refused.reason in _OF_PRODUCERS:
            await self._drop(keeps_sender=False)
            raise refused
        if refused.reason not in _OF_RECORDS:
            raise refused
        if plan.count > 1:
            await self._queue.decide(decide_shorter)
            return
        offset = plan.letters[0].offset
        before = self._aside.get(offset)
        if before is None and len(self._aside) >= ASIDE_MAX:
            raise refused
        pause_s = RETRY_S_MIN if before is None else min(RETRY_S_MAX, 2 * before.pause_s)
        retry_at = self._owner.clock.monotonic() + pause_s
        self._aside[offset] = Aside(refused.detail, pause_s, retry_at)
        self._say(f"offset {offset}: {refused.detail}")
        await self._drop(keeps_sender=True)

    async def _has_arrived(self, plan: Plan, sender: Sender) -> bool:
        """Whether the topic has a batch of the plan after all, sent by whichever leader; if so, it
        is noted."""
        count = await self._count_arrived(sender, len(plan.letters))
        if count:
            await self._arrived(plan, sender, count)
        return count > 0

    async def _count_arrived(self, sender: Sender, count_max: int) -> int:
        """How many records the partition has from this sequence on."""
        if sender in self._unsent:
            return 0
        epoch, last = await self._owner.last_sequence(sender)
        count = (last - sender.sequence + 1) % 2**31 if epoch == sender.epoch else 0
        return count if count <= count_max else 0

    async def _arrived(self, plan: Plan, sender: Sender, count: int) -> None:
        queue = self._queue
        state = queue.machine.letters
        if (state.plan, state.sender) != (plan, sender):
            # It was opened again meanwhile, with whatever is stored.
            return
        settings = self._owner.settings.of_queue(queue.key)
        await queue.decide(lambda machine: decide_arrived(machine, count, settings))
        self._owner.arrived(queue.key, count)
        for letter in plan.letters[:count]:
            self._aside.pop(letter.offset, None)

    async def _drop(self, *, keeps_sender: bool) -> None:
        if self._queue.machine.letters.plan is not None:
            await self._queue.decide(
                lambda machine: decide_dropped(machine, keeps_sender=keeps_sender)
            )

    # Copies of letters whose records are gone

    async def _copy(self) -> None:
        owner, queue = self._owner, self._queue
        state = queue.machine.letters
        copies, copier = state.copies, state.copier
        assert copies is not None
        assert copier is not None
        found = await owner.letters_at(copies)
        group, now_ms = queue.key.group_id, owner.clock.now_ms()
        records = [copy_record(each, group=group, now_ms=now_ms) for each in found]
        refused = await self._publish(copier, await self._batch(records, copier))
        count = len(copies.offsets)
        is_there = refused is None or await self._count_arrived(copier, count) == count
        if queue.machine.letters != state:
            return
        if is_there:
            refused = None
            await queue.decide(decide_copied)
        elif refused is not None and refused.reason in (_OF_RECORDS | _OF_PRODUCERS):
            is_passed = count == 1 and refused.reason in _OF_RECORDS
            await queue.decide(lambda machine: decide_uncopied(machine, is_passed=is_passed))
        elif refused is not None:
            raise refused
        owner.copied(queue, refused)

    # Waiting

    async def _pause(self, refused: Refused) -> None:
        self._say(refused.detail)
        await self._sleep(self._pause_s)
        self._pause_s = min(RETRY_S_MAX, 2 * self._pause_s)

    async def _wait_for_more(self) -> None:
        """Everything that is dying was refused for itself a short while ago."""
        now = self._owner.clock.monotonic()
        dying = {letter.offset for letter in _each(self._queue.machine.dying())}
        self._aside = {at: aside for at, aside in self._aside.items() if at in dying}
        next_at = min((aside.retry_at for aside in self._aside.values()), default=now)
        self._idle_with = self._queue.machine.dying_count
        try:
            await self._sleep(max(RETRY_S_MIN, next_at - now))
        finally:
            self._idle_with = None

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return

    def _say(self, trouble: str) -> None:
        """Once, however often it is tried."""
        if trouble != self.trouble:
            text = "dead letters of %s are not sent yet: %s"
            logger.warning(text, self._queue.key, trouble)
            self.trouble = trouble


def _each(dying: Iterable[Range]) -> Iterable[Letter]:
    return chain.from_iterable(map(letters, dying))


def _size(record: Record) -> int:
    """About what it takes in a batch, and no less."""
    size = _OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) * 4 + 20 + len(value or b"") for name, value in record.headers)
