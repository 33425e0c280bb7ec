"""Simulated clients: they ask anyone who says that it leads, wait, give up, and ask again."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.model.errors import Reason, Refused
from penstock.records.batch import (
    BatchHeader,
    CorruptBatch,
    build_batch,
    crc_matches,
    decode_records,
    parse_header,
)
from penstock.records.record import Record
from penstock.replication.replica import Appended, Replica
from tests.sim.machine.clock import EPOCH_MS
from tests.sim.machine.world import World
from tests.sim.replicas.history import History, require
from tests.sim.replicas.node import SimulatedNode

ANSWER_S_MIN, ANSWER_S_MAX = 0.2, 1.5
RETRY_S = 0.05
THINKS_S_MAX = 0.08
READ_BYTES_MAX = 4096
# How many batches are on their way at a time, and the pauses between them.
IN_FLIGHT = (1, 1, 3)
BETWEEN_BATCHES_S = (0.0, 0.002, 0.3)


class Partition(Protocol):
    """Where clients turn to, and who hears what they were promised."""

    @property
    def world(self) -> World: ...

    @property
    def partition(self) -> int: ...

    @property
    def history(self) -> History: ...

    @property
    def producers(self) -> "Sequence[Producer]": ...

    def some_leader(self) -> SimulatedNode | None: ...

    def require_copies(self, replica: Replica, offset: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    batch: bytes
    values: list[bytes]


class Producer:
    """An idempotent producer: few batches at a time, in order, sent again until acknowledged."""

    def __init__(
        self,
        partition: Partition,
        producer_id: int,
        batches: int,
        *,
        repeats_keys: bool,
        padding: int,
        dress: Callable[[Record], Record] = lambda record: record,
    ) -> None:
        self._partition = partition
        self._world = partition.world
        self.id = producer_id
        self._repeats_keys = repeats_keys
        # How much longer than necessary values may be.
        self._padding = padding
        # What else belongs to a record.
        self._dress = dress
        self._batches_left = batches
        self._sequence = 0
        self._window: list[Sending] = []
        self._attempt = 0
        # By value: the offset that was acknowledged.
        self.acknowledged: dict[bytes, int] = {}
        self.refusals = 0
        self._next()

    @property
    def is_done(self) -> bool:
        return not self._window

    def key_of(self, value: bytes) -> bytes:
        if not self._repeats_keys:
            return value
        # All producers use the same ones: what one wrote last may be gone although it is the last.
        return b"%d" % (int(value.split(b":")[1]) % 3)

    def offsets_by_key(self) -> list[tuple[int, bytes]]:
        """Of all that was acknowledged, in the order of the log."""
        return sorted((offset, self.key_of(value)) for value, offset in self.acknowledged.items())

    def _next(self) -> None:
        """Goes on with more batches, if there are any left."""
        # A compacted log may keep no more than the last batch of each producer, as Kafka's does: of
        # one before that, which is sent again, nobody knows any more that it was taken.
        in_flight = 1 if self._repeats_keys else self._world.random.choice(IN_FLIGHT)
        count = min(in_flight, self._batches_left)
        self._batches_left -= count
        self._window = [self._build() for _ in range(count)]
        if self._window:
            self._world.after(self._world.random.uniform(0.0, THINKS_S_MAX), self._ask)

    def _build(self) -> Sending:
        count = self._world.random.choice((1, 1, 2, 5))
        numbers = range(self._sequence, self._sequence + count)
        values = [b"%d:%d:%s" % (self.id, number, self._pad()) for number in numbers]
        records = [
            self._dress(Record(key=self.key_of(value), value=value, timestamp_ms=EPOCH_MS + number))
            for value, number in zip(values, numbers, strict=True)
        ]
        batch = build_batch(
            records, producer_id=self.id, producer_epoch=0, base_sequence=self._sequence
        )
        self._sequence += count
        return Sending(batch=batch, values=values)

    def _pad(self) -> bytes:
        return b"." * self._world.random.randint(0, self._padding) if self._padding else b""

    def _ask(self) -> None:
        if self.is_done:
            return
        self._attempt += 1
        attempt = self._attempt
        node = self._partition.some_leader()
        if node is None:
            self._ask_later()
            return
        process = node.machine.process
        assert process is not None
        process.spawn(self._append(node, attempt))
        patience = self._world.random.uniform(ANSWER_S_MIN, ANSWER_S_MAX)
        self._world.after(patience, self._answered, attempt, [])

    async def _append(self, node: SimulatedNode, attempt: int) -> None:
        """Runs on the node; the answers travel back together."""
        taken: list[Appended] = []
        refused: Refused | None = None
        for sending in list(self._window):
            if taken or refused is not None:
                await asyncio.sleep(self._world.random.choice(BETWEEN_BATCHES_S))
            replica = node.replica(self._partition.partition)
            if attempt != self._attempt or replica is None:
                # The client has ended the connection, or the partition has moved away.
                return
            try:
                appended = replica.append(sending.batch)
            except Refused as again:
                require_no_gap(refused, again)
                refused = refused or again
            else:
                self._check_copies(replica, appended, len(sending.values))
                taken += [appended] if refused is None else []
        offsets: list[int] = []
        with contextlib.suppress(Refused):
            for appended in taken:
                if appended.done is not None:
                    await appended.done
                offsets.append(appended.base_offset)
        delay = self._world.random.uniform(0.0001, 0.005)
        self._world.after(delay, lambda: self._answered(attempt, offsets))

    def _check_copies(self, replica: Replica, appended: Appended, count: int) -> None:
        """At the very moment of the acknowledgement: members may change right after it."""
        last = appended.base_offset + count - 1

        def settled(error: Refused | None) -> None:
            if error is None:
                self._partition.require_copies(replica, last)

        if appended.done is None:
            settled(None)
        else:
            appended.done.then(settled)

    def _answered(self, attempt: int, offsets: list[int]) -> None:
        """Of the first batches on their way, as many as there are offsets are acknowledged."""
        if attempt != self._attempt or self.is_done:
            return
        self._attempt += 1
        for sending, base_offset in zip(self._window, offsets, strict=False):
            for number, value in enumerate(sending.values):
                self.acknowledged[value] = base_offset + number
        del self._window[: len(offsets)]
        if self._window:
            self.refusals += 1
            self._ask_later()
        else:
            self._next()

    def _ask_later(self) -> None:
        self._world.after(RETRY_S * self._world.random.uniform(0.5, 2), self._ask)


def require_no_gap(earlier: Refused | None, refused: Refused) -> None:
    """A client that hears of a gap takes what was refused before it for lost."""
    if earlier is not None and earlier.reason is not Reason.OUT_OF_ORDER_SEQUENCE_NUMBER:
        require(
            refused.reason is not Reason.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"behind a batch that was refused ({earlier}) the next one was: {refused}",
        )


def whole_batch(content: bytes) -> BatchHeader | None:
    """None if a bit of it was flipped."""
    try:
        header = parse_header(content)
    except CorruptBatch:
        return None
    return header if crc_matches(content, 0, header) else None


class Consumer:
    """Reads from the beginning, from any leader; what it saw once must stay true."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._history = partition.history
        self.position = 0
        # The highest term of a leader that it heard of, as a client knows it from the metadata.
        self._epoch = 0
        self.records = 0

    def look(self) -> None:
        node = self._partition.some_leader()
        if node is not None and node.machine.process is not None:
            node.machine.process.spawn(self._read(node))

    async def _read(self, node: SimulatedNode) -> None:
        replica = node.replicas[self._partition.partition]
        if replica.is_leader:
            self._epoch = max(self._epoch, replica.term)
        position = self.position
        try:
            found = replica.read(position, READ_BYTES_MAX, epoch=self._epoch)
        except Refused as refused:
            if refused.reason is Reason.OFFSET_OUT_OF_RANGE:
                node.look_everywhere()
                self._require_deleted(replica, position)
            return
        if found is None:
            return
        try:
            content, end = found.read(), replica.high_watermark
        except OSError:
            # The disk can't be read for a while.
            return
        finally:
            found.release()
        await asyncio.sleep(0)
        self._take(content, end)

    def _require_deleted(self, replica: Replica, position: int) -> None:
        """Only what is gone is out of range; begins again where the log begins."""
        require(
            position < self._history.log_start or bool(self._history.unread),
            f"{replica.id} of term {replica.term} does not have offset {position}, which was read "
            f"in term {self._epoch} or before: {replica.log_start_offset} to "
            f"{replica.high_watermark}",
        )
        self.position = max(self.position, replica.log_start_offset)

    def _take(self, content: bytes, end: int) -> None:
        while content:
            header = whole_batch(content)
            if header is None or header.next_offset > end:
                # A client asks again then, and somebody else. No checksum covers the offset.
                return
            require(not header.is_own, "a consumer was given one of Raft's own entries")
            for record in decode_records(content) if header.record_count else ():
                require(record.value is not None, "a record lost its value")
                assert record.value is not None
                self._history.on_read(record.offset, record.value)
                self.records += 1
            self.position = max(self.position, header.next_offset)
            content = content[header.size :]


class Reader:
    """Asks any leader to make sure of it; after that it must know all that was acknowledged."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.confirmed = 0

    def look(self) -> None:
        node = self._partition.some_leader()
        if node is not None and node.machine.process is not None:
            node.machine.process.spawn(self._ask(node.replicas[self._partition.partition]))

    async def _ask(self, replica: Replica) -> None:
        last = max(
            (max(producer.acknowledged.values(), default=-1))
            for producer in self._partition.producers
        )
        try:
            await replica.confirm()
        except Refused:
            return
        self.confirmed += 1
        require(
            replica.high_watermark > last,
            f"{replica.id} is sure to lead in term {replica.term}, and does not know of offset "
            f"{last}, which was acknowledged before",
        )
