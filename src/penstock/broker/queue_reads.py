"""What queues read of the logs of their partitions: batches to deliver, times and keys to know.

Nothing here waits for a disk on the event loop: what may not be in memory, and what takes long to
decode, is for worker threads.
"""

from bisect import bisect_right
from collections.abc import Callable, Container, Sequence
from operator import itemgetter
from typing import Final, NamedTuple, TypeVar

from penstock.broker.cold_reads import ColdReads
from penstock.model.errors import Reason, Refused, StorageDamaged
from penstock.model.file_ranges import FileRange
from penstock.model.limits import MIB
from penstock.queues.commands import ShareSettings
from penstock.queues.key_order import KeyAt
from penstock.queues.looking import (
    LOOKED_INLINE_BYTES_MAX,
    Looked,
    expired_in,
    keys_within,
    look_into,
)
from penstock.queues.reading import LogBatch, Needed, scan_batches
from penstock.records.errors import CorruptBatch
from penstock.replication.replica import Replica

# Read at a time to find the keys of a queue that is opened.
_KEYS_BYTES: Final = MIB

T = TypeVar("T")


class Found(NamedTuple):
    """Whole batches that were read from the log."""

    range: FileRange
    batches: Sequence[LogBatch]
    # Where the reading began. What lies before the first batch is not in the log.
    read_from: int

    @property
    def spans(self) -> list[tuple[int, int]]:
        return spans_of(self.batches)


def spans_of(batches: Sequence[LogBatch]) -> list[tuple[int, int]]:
    return [(batch.first, batch.last) for batch in batches if batch.is_data]


class QueueReads:
    def __init__(self, cold_reads: ColdReads) -> None:
        self._cold_reads = cold_reads

    async def read(
        self,
        replica: Replica,
        offset: int,
        bytes_max: int,
        own_copiers: Container[int],
        needed: Needed | None = None,
    ) -> Found | None:
        """Batches from there on, some of them with records; None if there are none yet. Of what was
        brought back from the dead, only what these producers wrote is for this queue."""
        read_from = offset
        while True:
            if replica.needs_index(offset):
                await self.in_worker(lambda at=offset: replica.load_index(at))  # type: ignore[misc]
            found = replica.read(offset, bytes_max)
            if found is None:
                return None
            batches = await self._scan(replica, found, own_copiers, needed)
            if any(batch.is_data for batch in batches):
                return Found(found, batches, read_from)
            # Only what compaction left of other records: what is behind it counts.
            offset = batches[-1].last + 1
            found.release()

    async def _scan(
        self,
        replica: Replica,
        found: FileRange,
        own_copiers: Container[int],
        needed: Needed | None,
    ) -> list[LogBatch]:
        try:
            if not replica.is_hot(found):
                await self.in_worker(lambda: replica.warm(found))
            return scan_batches(found, own_copiers, needed)
        except (OSError, StorageDamaged, CorruptBatch) as error:
            found.release()
            raise _unreadable(replica, error) from error
        except BaseException:
            found.release()
            raise

    async def look(
        self,
        found: FileRange,
        batches: Sequence[LogBatch],
        *,
        first: int,
        now_ms: int,
        settings: ShareSettings,
    ) -> Looked:
        """Into the records from `first` on."""

        def work() -> Looked:
            return look_into(found, batches, first=first, now_ms=now_ms, settings=settings)

        is_small = sum(batch.size for batch in batches) <= LOOKED_INLINE_BYTES_MAX
        # It was warmed by now, so a little of it is there at once.
        return work() if is_small else await self.in_worker(work, pinned=found)

    async def expired(
        self,
        found: FileRange,
        batches: Sequence[LogBatch],
        *,
        now_ms: int,
        settings: ShareSettings,
    ) -> list[tuple[int, int]]:
        """First and last offsets of records whose time to live is over."""

        def work() -> list[tuple[int, int]]:
            return expired_in(found, batches, now_ms=now_ms, settings=settings)

        is_small = sum(batch.size for batch in batches) <= LOOKED_INLINE_BYTES_MAX
        return work() if is_small else await self.in_worker(work, pinned=found)

    async def keys(
        self,
        replica: Replica,
        spans: Sequence[tuple[int, int]],
        own_copiers: Container[int],
    ) -> list[KeyAt]:
        """Of the records in the spans, which are in order, as far as the log has them."""
        keys: list[KeyAt] = []
        offset = spans[0][0] if spans else None
        while offset is not None:
            found = await self.read(
                replica, max(offset, replica.log_start_offset), _KEYS_BYTES, own_copiers
            )
            if found is None:
                break
            batches, log_range = found.batches, found.range
            try:
                keys += await self.in_worker(
                    lambda r=log_range, b=batches: keys_within(r, b, spans),  # type: ignore[misc]
                    pinned=log_range,
                )
            except (OSError, CorruptBatch) as error:
                raise _unreadable(replica, error) from error
            finally:
                log_range.release()
            offset = _next_in(spans, batches[-1].last + 1)
        return keys

    async def in_worker(self, work: Callable[[], T], *, pinned: FileRange | None = None) -> T:
        """`pinned` stays open until the work is over, also if nobody waits any more."""
        results: list[T] = []
        if pinned is not None:
            pinned.file.pin()
        unpin = pinned.file.unpin if pinned is not None else _nothing
        await self._cold_reads.done(lambda: results.append(work()), unpin)
        return results[0]


def _nothing() -> None:
    pass


def _next_in(spans: Sequence[tuple[int, int]], offset: int) -> int | None:
    """The first offset from there on that lies in a span."""
    index = bisect_right(spans, offset - 1, key=itemgetter(1))
    return max(offset, spans[index][0]) if index < len(spans) else None


def _unreadable(replica: Replica, error: Exception) -> Refused:
    if isinstance(error, OSError | StorageDamaged):
        return replica.unreadable(error)
    return Refused(Reason.STORAGE_ERROR, f"{replica.partition} can't be read: {error}")
