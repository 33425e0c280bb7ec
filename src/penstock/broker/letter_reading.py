"""Reads single records back from the log, to send them elsewhere."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from penstock.broker.cold_reads import ColdReads
from penstock.model.errors import Reason, Refused
from penstock.records.batch import HEADER_SIZE, decode_records, parse_header
from penstock.records.errors import CorruptBatch
from penstock.records.record import Record
from penstock.replication.replica import Replica

# Read at a time; one batch comes whole, however large.
READ_BYTES: Final = 1024 * 1024
# Offsets that are looked for at a time.
PRESENT_MAX: Final = 100
_ALL_BYTES: Final = 2**62


class OriginalRecords:
    def __init__(self, replica: Replica, cold_reads: ColdReads) -> None:
        self._replica = replica
        self._cold_reads = cold_reads

    async def read(
        self, offsets: Sequence[int], bytes_max: int, is_wanted: bool = True
    ) -> list[Record | None]:
        """Of these offsets in order, until there are more bytes than that. None for records that
        are gone from the log, or that can't be decoded. Raises Refused if this node does not lead
        the partition."""
        if not is_wanted:
            return [None] * len(offsets)
        found: list[Record | None] = []
        size = 0
        while len(found) < len(offsets) and size < bytes_max:
            for record in await self._some(offsets[len(found) :]):
                found.append(record)
                size += 0 if record is None else len(record.key or b"") + len(record.value or b"")
        return found

    async def present(self, offsets: Sequence[int]) -> set[int]:
        """Those at which the log still has a record."""
        end = self._replica.high_watermark
        ordered = sorted({offset for offset in offsets if offset < end})
        found: set[int] = set()
        for start in range(0, len(ordered), PRESENT_MAX):
            some = ordered[start : start + PRESENT_MAX]
            records = await self.read(some, _ALL_BYTES)
            found.update(at for at, record in zip(some, records, strict=True) if record is not None)
        return found

    async def _some(self, offsets: Sequence[int]) -> list[Record | None]:
        """Of the first of these offsets, as many as one read covers."""
        replica, first = self._replica, offsets[0]
        start = replica.log_start_offset
        if first < start:
            return [None] * sum(offset < start for offset in offsets)
        if replica.needs_index(first):
            await self._cold_reads.done(lambda: replica.load_index(first))
        try:
            found = replica.read(first, READ_BYTES)
        except Refused as refused:
            if refused.reason is Reason.OFFSET_OUT_OF_RANGE and first < replica.log_start_offset:
                return [None]
            raise
        if found is None:
            raise Refused(Reason.OFFSET_NOT_AVAILABLE, f"offset {first} is not committed yet")
        answer: list[Record | None] = []
        try:
            await self._cold_reads.done(
                lambda: answer.extend(decoded(found.read(), offsets)), found.release
            )
        except (OSError, CorruptBatch) as error:
            raise Refused(Reason.STORAGE_ERROR, f"offset {first} can't be read: {error}") from error
        return answer


def decoded(batches: bytes, offsets: Sequence[int]) -> list[Record | None]:
    """The records at the first of these offsets, which are in order, up to the end of the batches.
    For worker threads."""
    data = memoryview(batches)
    wanted = frozenset(offsets)
    records: dict[int, Record] = {}
    end, position = offsets[0] + 1, 0
    while position + HEADER_SIZE <= len(data):
        header = parse_header(data, position)
        batch = data[position : position + header.size]
        next_wanted = bisect_left(offsets, header.base_offset)
        is_inside = next_wanted < len(offsets) and offsets[next_wanted] < header.next_offset
        if is_inside and not header.is_control and header.record_count:
            records.update(_records_of(batch, wanted))
        end = max(end, header.next_offset)
        position += header.size
    return [records.get(offset) for offset in offsets if offset < end]


def _records_of(batch: memoryview, wanted: frozenset[int]) -> dict[int, Record]:
    try:
        return {each.offset: each for each in decode_records(batch) if each.offset in wanted}
    except CorruptBatch:
        # A producer may send anything as records; nobody could have read these.
        return {}
