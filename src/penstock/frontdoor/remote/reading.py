"""Brings records back from partitions, as a user sees them.

Many readers of a topic wait at its end for the same records. Reads of the same place share one
question to the broker and one decoding, so a thousand idle readers cost as much as one.
"""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from penstock.broker.doors.calls import Batches, FindOffset, Read, TopicInfo
from penstock.frontdoor.remote.broker import Broker
from penstock.model.errors import Reason, Refused
from penstock.model.limits import MIB
from penstock.records.batch import BatchHeader, CorruptBatch, decode_records, parse_header
from penstock.records.record import Record

# Of one answer; a batch that is larger comes whole.
READ_BYTES_MAX = 4 * MIB
# Batches may decompress to a thousand times their bytes. An answer ends behind the record with
# which it reaches this many times the bytes that were asked for.
EXPANSION_MAX = 4
# What a header takes in memory beside its name and value.
HEADER_BYTES = 100
LATEST = -1
EARLIEST = -2


class Chunk(NamedTuple):
    """Some records of a partition, in order, and where to go on."""

    records: list[Record]
    next_offset: int
    log_start_offset: int
    high_watermark: int


class Place(NamedTuple):
    topic_id: UUID
    partition: int
    offset: int
    bytes_max: int
    records_max: int
    wait_s: float


class Reader:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._reading: dict[Place, asyncio.Task[Chunk]] = {}
        self._interested: dict[Place, int] = {}

    async def read(
        self,
        topic: TopicInfo,
        partition: int,
        offset: int,
        *,
        records_max: int,
        bytes_max: int = READ_BYTES_MAX,
        wait_s: float = 0.0,
    ) -> Chunk:
        """Records from `offset` on; waits for the first up to `wait_s`. Raises Refused."""
        place = Place(topic.topic_id, partition, offset, bytes_max, records_max, wait_s)
        reading = self._reading.get(place)
        if reading is None:
            reading = asyncio.get_running_loop().create_task(self._read(place))
            self._reading[place] = reading
            reading.add_done_callback(lambda _: self._reading.pop(place, None))
        self._interested[place] = self._interested.get(place, 0) + 1
        try:
            return await asyncio.shield(reading)
        finally:
            self._lose_interest(place, reading)

    def _lose_interest(self, place: Place, reading: "asyncio.Task[Chunk]") -> None:
        """The last one who goes away takes the question back."""
        self._interested[place] -= 1
        if not self._interested[place]:
            del self._interested[place]
            if not reading.done():
                self._reading.pop(place, None)
                reading.cancel()

    async def _read(self, place: Place) -> Chunk:
        call = Read(
            topic_id=place.topic_id,
            partition=place.partition,
            offset=place.offset,
            bytes_max=place.bytes_max,
            wait_s=place.wait_s,
        )
        found = await self._broker.ask(call, place.wait_s)
        records, next_offset = _decode(found.batches, place)
        return Chunk(records, next_offset, found.log_start_offset, found.high_watermark)

    async def batches(
        self, topic: TopicInfo, partition: int, offset: int, bytes_max: int
    ) -> Batches:
        """Whole batches as the log has them; the first may begin before `offset`."""
        call = Read(
            topic_id=topic.topic_id, partition=partition, offset=offset, bytes_max=bytes_max
        )
        return await self._broker.ask(call)

    async def find(self, topic: TopicInfo, partition: int, timestamp_ms: int) -> int:
        """The offset of the first record at or after a time, or `EARLIEST` or `LATEST`; the end of
        the partition if there is none. Raises Refused."""
        call = FindOffset(topic_id=topic.topic_id, partition=partition, timestamp_ms=timestamp_ms)
        found = (await self._broker.ask(call)).offset
        if found < 0 and timestamp_ms not in (LATEST, EARLIEST):
            return await self.find(topic, partition, LATEST)
        return found


def _decode(batches: bytes, place: Place) -> tuple[list[Record], int]:
    """The records from the offset on, and the offset behind the last one that was looked at."""
    records: list[Record] = []
    next_offset = place.offset
    left = place.records_max
    bytes_left = EXPANSION_MAX * place.bytes_max
    try:
        for header, of_batch in split(batches):
            for record in of_batch:
                if record.offset < place.offset:
                    continue
                if not left or bytes_left <= 0:
                    return records, next_offset
                records.append(record)
                left -= 1
                bytes_left -= bytes_of(record)
                next_offset = record.offset + 1
            # Compaction may have removed the last ones, or all.
            next_offset = max(next_offset, header.next_offset)
    except CorruptBatch as bad:
        if records:
            # What is before it can be read; the next question comes to it.
            return records, next_offset
        detail = f"The records from offset {next_offset} on can't be decoded: {bad}."
        raise Refused(Reason.CORRUPT_MESSAGE, detail) from bad
    return records, next_offset


def bytes_of(record: Record) -> int:
    """What a record takes, decompressed."""
    size = len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += HEADER_BYTES + len(name) + len(value or b"")
    return size


def split(batches: bytes) -> Iterator[tuple[BatchHeader, Iterator[Record]]]:
    """Each whole batch, with the records of users in it. These are decoded when they are asked for,
    which raises CorruptBatch if they can't be."""
    for header, batch in _split(batches):
        is_of_users = header.record_count and not header.is_control
        yield header, decode_records(batch) if is_of_users else iter(())


def end_of(batches: bytes) -> int:
    """The offset behind the last of these, which must be whole; 0 if there are none."""
    end = 0
    for header, _ in _split(batches):
        end = header.next_offset
    return end


def _split(batches: bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Each whole batch."""
    view = memoryview(batches)
    while len(view):
        header = parse_header(view)
        if header.size > len(view):
            return
        yield header, view[: header.size]
        view = view[header.size :]
