"""Brings records to partitions: many small requests share a batch, and no retry doubles one.

Each partition has a lane. While a batch of it is on its way, what arrives waits, and then leaves in
one batch: so the broker sees few batches however many requests there are. Batches of a lane carry
this process's producer id and follow each other, one at a time, which lets the broker repeat them
when leadership moves (broker/forwarding.py). If the fate of a batch is unknown, its requests are
refused with REQUEST_TIMED_OUT and the lane goes on under a new producer id.

Records of a request that do not fit into one batch take several, and each batch has its own
outcome. When one is refused, those behind it are not tried, so that the records stay in order. Only
a batch that is refused for its own records holds up no other.

A request with an idempotency key travels alone, under a producer id and sequence that follow from
the key. So the partition itself, on whichever node, recognises the request when it is sent again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from penstock.broker.doors.calls import Identify, ProducerIdentity, Publish, TopicInfo
from penstock.frontdoor.remote.broker import Broker
from penstock.model.errors import Reason, Refused
from penstock.model.ids import COPIERS_FROM, KEYED_PRODUCERS_FROM
from penstock.model.limits import KIB, MIB
from penstock.records.batch import HEADER_SIZE, build_row_batch
from penstock.records.rows import Row


class PartOutcome(NamedTuple):
    """What became of the records of a request that share a batch."""

    records: int
    # The offset of the first, or why there is none.
    first: int | Refused


# Asked for when somebody waits: a coroutine that nobody awaits would be a bug.
Submitted: TypeAlias = Callable[[], Coroutine[Any, Any, list[PartOutcome]]]

# Larger batches save nothing.
BATCH_BYTES_TARGET: Final = 1 * MIB
# What lengths, times and numbers of a record take at most, beside its bytes.
ROW_OVERHEAD_BYTES: Final = 40
HEADER_OVERHEAD_BYTES: Final = 10
# How long the broker may look for a leader that takes a batch.
PUBLISH_S_MAX: Final = 30.0
# Of one partition that wait for their turn, and of all; beyond it requests are refused for now.
LANE_BYTES_MAX: Final = 64 * MIB
WAITING_BYTES_MAX: Final = 256 * MIB
# Lanes that have nothing to do are forgotten when there are more than this.
LANES_MAX: Final = 20_000
# How many turns of the event loop a batch waits at most while each brings more for it.
GATHER_TURNS_MAX: Final = 4
# Records without a key stay with a partition for this many bytes, so that they share batches.
STICKY_BYTES: Final = 64 * KIB
_SEQUENCES: Final = 2**31
# After these, what was sent may be in the log all the same.
UNCERTAIN: Final = frozenset({Reason.REQUEST_TIMED_OUT, Reason.UNKNOWN_SERVER_ERROR})
# What one request's records may be to blame for, so that those of others are tried without it.
_OF_RECORDS: Final = frozenset(
    {
        Reason.MESSAGE_TOO_LARGE,
        Reason.RECORD_LIST_TOO_LARGE,
        Reason.INVALID_RECORD,
        Reason.INVALID_TIMESTAMP,
        Reason.CORRUPT_MESSAGE,
    }
)
# The lane's own place in its sequence is lost; what was sent was not written.
_OF_PRODUCER: Final = frozenset(
    {Reason.OUT_OF_ORDER_SEQUENCE_NUMBER, Reason.INVALID_PRODUCER_EPOCH}
)


def row_bytes(row: Row) -> int:
    """At least as many as the record takes in a batch."""
    size = ROW_OVERHEAD_BYTES + len(row[0] or b"") + len(row[1] or b"")
    for name, value in row[2]:
        size += HEADER_OVERHEAD_BYTES + 4 * len(name) + len(value or b"")
    return size


@dataclass(slots=True, eq=False)
class _Part:
    """Records of one request that must be in one batch."""

    rows: Sequence[Row]
    size: int
    # The offset of the first, or why there is none; an exception only after a bug.
    done: "asyncio.Future[int | Refused]"
    # The part of the same request that comes before it.
    before: "_Part | None" = None


@dataclass(slots=True)
class _Lane:
    topic_id: UUID
    partition: int
    # How many bytes the records of a batch may take.
    room: int
    waiting: deque[_Part] = field(default_factory=deque)
    waiting_bytes: int = 0
    identity: ProducerIdentity | None = None
    sequence: int = 0
    worker: "asyncio.Task[None] | None" = None


class Publisher:
    """One per process; `choose` and `submit` are all that doors need."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lanes: dict[tuple[UUID, int], _Lane] = {}
        self._waiting_bytes = 0
        self._sticky: dict[UUID, tuple[int, int]] = {}

    # Choosing

    def choose(self, topic: TopicInfo, size: int) -> int:
        """A partition for records without a key, of `size` bytes together."""
        partition, left = self._sticky.get(topic.topic_id, (-1, 0))
        if left <= 0 or partition >= topic.partitions:
            partition, left = (partition + 1) % topic.partitions, STICKY_BYTES
        if len(self._sticky) > LANES_MAX:
            self._sticky.clear()
        self._sticky[topic.topic_id] = (partition, left - size)
        return partition

    # Publishing

    def submit(
        self,
        topic: TopicInfo,
        partition: int,
        rows: Sequence[Row],
        key: str | None = None,
        elsewhere: int = 0,
    ) -> Submitted:
        """What is to be called and awaited for what became of the records, in their order. Raises
        Refused if none can be tried. Records without a key have their place in the lane when this
        returns.

        `key` is an idempotency key: repeated with the same rows, it writes nothing twice, and with
        more or fewer it is refused. `elsewhere` is how many records of the request belong to other
        partitions.
        """
        chunks = _chunks(rows, _room(topic))
        if key is not None:
            total = len(rows) + elsewhere
            return partial(self._publish_keyed, topic, partition, chunks, key, total)
        return partial(self._written, self._enqueue(topic, partition, chunks))

    async def _written(self, parts: Sequence[_Part]) -> list[PartOutcome]:
        try:
            return [PartOutcome(len(part.rows), await part.done) for part in parts]
        finally:
            for part in parts:
                # If nobody waits any more, what was not sent yet need not be sent.
                part.done.cancel()

    def _enqueue(
        self, topic: TopicInfo, partition: int, chunks: Sequence[tuple[Sequence[Row], int]]
    ) -> list[_Part]:
        lane = self._lane(topic, partition)
        size = sum(each for _, each in chunks)
        is_full = lane.waiting_bytes + size > LANE_BYTES_MAX
        if lane.waiting and (is_full or self._waiting_bytes + size > WAITING_BYTES_MAX):
            detail = f"{lane.waiting_bytes:,} bytes wait for partition {partition} of {topic.name}."
            raise Refused(Reason.THROTTLED, detail)
        create = asyncio.get_running_loop().create_future
        parts: list[_Part] = []
        for rows, each in chunks:
            part = _Part(rows, each, create(), parts[-1] if parts else None)
            # The one who asked may be gone.
            part.done.add_done_callback(_look_at)
            parts.append(part)
        lane.waiting.extend(parts)
        lane.waiting_bytes += size
        self._waiting_bytes += size
        if lane.worker is None:
            lane.worker = asyncio.get_running_loop().create_task(self._work(lane))
        return parts

    def _lane(self, topic: TopicInfo, partition: int) -> _Lane:
        key = topic.topic_id, partition
        lane = self._lanes.get(key)
        if lane is None:
            if len(self._lanes) >= LANES_MAX:
                self._lanes = {key: each for key, each in self._lanes.items() if each.worker}
            lane = self._lanes[key] = _Lane(topic.topic_id, partition, _room(topic))
        lane.room = _room(topic)
        return lane

    # Lanes

    async def _work(self, lane: _Lane) -> None:
        """Sends batch after batch until nothing waits."""
        try:
            while lane.waiting:
                await _gather(lane)
                parts = self._take(lane)
                if parts:
                    await self._send(lane, parts)
        finally:
            lane.worker = None
            # There are some only after a bug, which whoever sent the batch has heard of.
            gave_up = Refused(Reason.UNKNOWN_SERVER_ERROR, "The records before these failed.")
            _settle(self._take_all(lane), gave_up)

    def _take(self, lane: _Lane) -> list[_Part]:
        """As many parts as share a batch, without those that nobody waits for and those that are
        not tried."""
        parts: list[_Part] = []
        size = 0
        while lane.waiting:
            part = lane.waiting[0]
            if parts and size + part.size > lane.room:
                break
            lane.waiting.popleft()
            lane.waiting_bytes -= part.size
            self._waiting_bytes -= part.size
            if part.done.done():
                continue
            if refused := _inherited(part):
                part.done.set_result(refused)
                continue
            parts.append(part)
            size += part.size
        return parts

    def _take_all(self, lane: _Lane) -> list[_Part]:
        parts: list[_Part] = []
        while lane.waiting:
            parts += self._take(lane)
        return parts

    async def _send(self, lane: _Lane, parts: Sequence[_Part]) -> None:
        try:
            base_offset = await self._send_as_producer(lane, parts)
        except Refused as refused:
            if refused.reason in _OF_RECORDS and len(parts) > 1:
                for part in parts:
                    await self._send(lane, [part])
                return
            _settle(parts, refused)
        except Exception as bug:
            _settle(parts, bug)
            raise
        else:
            _settle(parts, base_offset)

    async def _send_as_producer(self, lane: _Lane, parts: Sequence[_Part]) -> int:
        rows = parts[0].rows if len(parts) == 1 else [row for part in parts for row in part.rows]
        try:
            return await self._send_rows(lane, rows)
        except Refused as refused:
            if refused.reason not in _OF_PRODUCER:
                raise
            # It was idle for so long that the partition forgot it, or an operator reset the topic.
            return await self._send_rows(lane, rows)

    async def _send_rows(self, lane: _Lane, rows: Sequence[Row]) -> int:
        if lane.identity is None:
            lane.identity, lane.sequence = await self._identify(), 0
        batch = build_row_batch(
            rows,
            producer_id=lane.identity.producer_id,
            producer_epoch=lane.identity.epoch,
            base_sequence=lane.sequence,
        )
        try:
            answer = await self._ask(lane.topic_id, lane.partition, batch)
        except Refused as refused:
            if refused.reason in UNCERTAIN or refused.reason in _OF_PRODUCER:
                lane.identity = None
            raise
        except BaseException:
            lane.identity = None
            raise
        lane.sequence = (lane.sequence + len(rows)) % _SEQUENCES
        return answer

    async def _ask(self, topic_id: UUID, partition: int, batch: bytes) -> int:
        call = Publish(topic_id=topic_id, partition=partition, batch=batch, wait_s=PUBLISH_S_MAX)
        return (await self._broker.ask(call, PUBLISH_S_MAX)).base_offset

    async def _identify(self) -> ProducerIdentity:
        """Each lane has an id of its own, so that the loss of one concerns no other."""
        return await self._broker.ask(Identify())

    # Keyed

    async def _publish_keyed(
        self,
        topic: TopicInfo,
        partition: int,
        chunks: Sequence[tuple[Sequence[Row], int]],
        key: str,
        total: int,
    ) -> list[PartOutcome]:
        outcomes: list[PartOutcome] = []
        refused: Refused | None = None
        for number, (rows, _) in enumerate(chunks):
            first: int | Refused | None = refused
            if first is None:
                identity = keyed_identity(topic.topic_id, partition, number, key, total - len(rows))
                first = await self._publish_chunk(topic, partition, rows, key, identity)
            outcomes.append(PartOutcome(len(rows), first))
            refused = _refusal_behind(first)
        return outcomes

    async def _publish_chunk(
        self,
        topic: TopicInfo,
        partition: int,
        rows: Sequence[Row],
        key: str,
        identity: tuple[int, int],
    ) -> int | Refused:
        producer_id, sequence = identity
        batch = build_row_batch(
            rows, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
        )
        try:
            return await self._ask(topic.topic_id, partition, batch)
        except Refused as refused:
            if refused.reason not in _OF_PRODUCER:
                return refused
            detail = f"The idempotency key {key!r} was used for other records."
            return Refused(Reason.OUT_OF_ORDER_SEQUENCE_NUMBER, detail)


async def _gather(lane: _Lane) -> None:
    """Lets requests in that are being read just now: a turn of the loop is cheaper for them than
    one more batch is for the broker and its disk."""
    for _ in range(GATHER_TURNS_MAX):
        waiting = len(lane.waiting)
        await asyncio.sleep(0)
        if len(lane.waiting) == waiting:
            return


def keyed_identity(
    topic_id: UUID, partition: int, chunk: int, key: str, others: int
) -> tuple[int, int]:
    """A producer id and a sequence of 92 bits together, so that two keys do not meet.

    `others` is how many records of the request are in other batches. They are part of the sequence
    alone: a repeated request that has more or fewer meets its producer out of order."""
    text = f"{topic_id}/{partition}/{chunk}/{key}"
    number = _mixed(text) % (COPIERS_FROM - KEYED_PRODUCERS_FROM)
    sequence = (_mixed(f"{text}/{others}" if others else text) >> 64) % _SEQUENCES
    return KEYED_PRODUCERS_FROM + number, sequence


def _mixed(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=16).digest())


def _inherited(part: _Part) -> Refused | None:
    """Why a part is not tried."""
    before = part.before.done if part.before else None
    if before is None or not before.done() or before.cancelled() or before.exception():
        return None
    return _refusal_behind(before.result())


def _refusal_behind(outcome: int | Refused) -> Refused | None:
    """Why the next batch of a request is not tried after one with this outcome."""
    if not isinstance(outcome, Refused) or outcome.reason in _OF_RECORDS:
        return None
    if outcome.reason not in UNCERTAIN:
        return outcome
    detail = "Not tried, because it is not known whether the records before were written."
    return Refused(Reason.LEADER_NOT_AVAILABLE, detail)


def _look_at(done: "asyncio.Future[int | Refused]") -> None:
    if not done.cancelled():
        done.exception()


def _room(topic: TopicInfo) -> int:
    return min(BATCH_BYTES_TARGET, topic.message_bytes_max) - HEADER_SIZE


def _chunks(rows: Sequence[Row], room: int) -> list[tuple[Sequence[Row], int]]:
    """The rows in pieces that fit into a batch each; one that is too large is alone in its."""
    sizes = list(map(row_bytes, rows))
    total = sum(sizes)
    if total <= room:
        return [(rows, total)]
    chunks: list[tuple[Sequence[Row], int]] = []
    start, size = 0, 0
    for index, each in enumerate(sizes):
        if index > start and size + each > room:
            chunks.append((rows[start:index], size))
            start, size = index, 0
        size += each
    return [*chunks, (rows[start:], size)]


def _settle(parts: Sequence[_Part], outcome: int | Exception) -> None:
    for part in parts:
        if part.done.done():
            pass
        elif isinstance(outcome, Exception) and not isinstance(outcome, Refused):
            part.done.set_exception(outcome)
        else:
            part.done.set_result(outcome)
        if isinstance(outcome, int):
            outcome += len(part.rows)
