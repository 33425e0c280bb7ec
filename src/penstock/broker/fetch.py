"""Reads for consumers: whole batches as file ranges, at once or when there is something to read.

A fetch that finds too little waits without a task or a thread: its reader hears from the partitions
that it wants, and a timer ends the wait. Then what may be new is read once more for the answer.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from penstock.broker.cold_reads import ColdReads
from penstock.broker.later import Later
from penstock.broker.partitions import Partitions
from penstock.broker.rack_selector import RackAwareSelector
from penstock.broker.readers import Fetched, Reader, Wanted
from penstock.model.errors import Reason, Refused, StorageDamaged
from penstock.model.file_ranges import FileRange
from penstock.model.limits import Limits
from penstock.records.errors import CorruptBatch
from penstock.records.legacy import downgrade
from penstock.replication.positions import offset_behind
from penstock.replication.replica import Replica

MAGIC_NEWEST = 2
_UNKNOWN = (Reason.UNKNOWN_TOPIC_OR_PARTITION, Reason.UNKNOWN_TOPIC_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchQuery:
    """How a consumer asks, whatever it is that it reads."""

    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    # The newest record format that the consumer reads, and whether it knows zstd.
    magic: int = MAGIC_NEWEST
    takes_zstd: bool = True
    # Where the consumer is, or ""; None for one that reads from leaders only.
    rack: str | None = None


class FetchAnswer:
    __slots__ = ("partitions",)

    def __init__(self, partitions: list[Fetched]) -> None:
        self.partitions = partitions

    def release(self) -> None:
        for fetched in self.partitions:
            fetched.release()


class Reading:
    """What one request reads, and what its consumer hears of it; a door may know better what
    its consumers have heard already."""

    __slots__ = ("is_kept", "reader")

    def __init__(self, reader: Reader, *, is_kept: bool = False) -> None:
        self.reader = reader
        # Whether the reader is used again by later requests. Then it has only what may be new.
        self.is_kept = is_kept

    def answer(self, results: list[Fetched]) -> FetchAnswer:
        return FetchAnswer(results)


class Fetch:
    """The use case behind every door's way to read records."""

    def __init__(
        self,
        *,
        partitions: Partitions,
        limits: Limits,
        executor: Executor,
        selector: RackAwareSelector | None = None,
    ) -> None:
        self._partitions = partitions
        self._limits = limits
        # Who sends consumers to followers; without it all read from leaders.
        self._selector = selector
        self.soon = partitions.soon
        self.cold_reads = ColdReads(executor)

    def reader(self, wanted: Iterable[Wanted]) -> Reader:
        return Reader(self._partitions, wanted)

    def fetch(self, reading: Reading, query: FetchQuery) -> "FetchCall":
        """The answer, at once or later."""
        call = FetchCall(self, reading, query)
        unindexed = _unindexed(reading.reader)
        if unindexed:
            self.cold_reads.run(partial(_load_indexes, unindexed), call.start_late)
        else:
            call.start()
        return call

    def wait_s(self, query: FetchQuery) -> float:
        return min(query.wait_ms_max, self._limits.fetch_wait_ms_max) / 1000

    def read(self, reader: Reader, query: FetchQuery) -> list[Fetched]:
        """One pass over what may be new, until the bytes that the answer may hold are used up."""
        room = min(query.bytes_max, self._limits.fetch_bytes_max)
        is_first = True
        results = []
        for one in reader.news:
            fetched = self.read_one(reader, one, query, room, is_first)
            size = _size(fetched)
            if size:
                room -= size
                is_first = False
            results.append(fetched)
        return results

    def read_one(
        self,
        reader: Reader,
        wanted: Wanted,
        query: FetchQuery,
        room: int | None = None,
        is_first: bool = True,
    ) -> Fetched:
        if room is None:
            room = min(query.bytes_max, self._limits.fetch_bytes_max)
        fetched = Fetched(wanted)
        try:
            self._fill(fetched, reader.find(wanted), query, room, is_first)
        except Refused as refused:
            fetched.fail(refused.reason)
        return fetched

    def _fill(
        self, fetched: Fetched, replica: Replica, query: FetchQuery, room: int, is_first: bool
    ) -> None:
        wanted = fetched.wanted
        replica.check_running()
        replica.check_epoch(wanted.term)
        if not query.takes_zstd and replica.config.compression_type == "zstd":
            raise Refused(Reason.UNSUPPORTED_COMPRESSION_TYPE)
        fetched.high_watermark = replica.high_watermark
        fetched.log_start_offset = replica.log_start_offset
        if replica.is_settled:
            if self._selector is not None and query.rack:
                fetched.preferred = self._selector.select(replica, query.rack, wanted.offset)
            if fetched.preferred is None:
                fetched.diverging = _diverging(wanted, replica)
            if fetched.is_urgent:
                return
        elif replica.is_leader:
            fetched.high_watermark = _least_high_watermark(wanted, replica)
        elif query.rack is None:
            replica.check_leader()
        else:
            replica.check_follower()
        bytes_max = min(wanted.bytes_max, room)
        if bytes_max <= 0 and not is_first:
            return
        read = replica.read if replica.is_leader else replica.read_as_follower
        found = read(wanted.offset, max(0, bytes_max))
        # The first partition with records may exceed every bound by one batch, since a consumer
        # would never get past a large batch otherwise; those after it get their turn next time.
        if found is not None and len(found) > bytes_max and not is_first:
            found.release()
            return
        fetched.records, fetched.replica = found, replica
        if found is not None and (query.magic < MAGIC_NEWEST or not replica.is_hot(found)):
            fetched.cold_on = replica

    def bytes_min(self, query: FetchQuery) -> int:
        """Never more than the answer may hold, or the wait would always last to its end."""
        return min(query.bytes_min, query.bytes_max, self._limits.fetch_bytes_max)

    def prepare(self, cold: list[Fetched], magic: int, then: Callable[[], None]) -> None:
        unreadable: list[tuple[Fetched, Replica, OSError | StorageDamaged]] = []

        def work() -> None:
            for fetched in cold:
                assert fetched.cold_on is not None
                try:
                    _prepare(fetched, fetched.cold_on, magic)
                except (OSError, StorageDamaged) as error:
                    unreadable.append((fetched, fetched.cold_on, error))

        def ended() -> None:
            for fetched, replica, error in unreadable:
                fetched.fail(replica.unreadable(error).reason)
            then()

        self.cold_reads.run(work, ended)


class FetchCall(Later[FetchAnswer]):
    """One fetch: it reads, waits for more until its time is up, and reads once more."""

    __slots__ = (
        "_fetch",
        "_has_enough",
        "_query",
        "_reader",
        "_reading",
        "_size",
        "_sizes",
        "_timer",
    )

    def __init__(self, fetch: Fetch, reading: Reading, query: FetchQuery) -> None:
        super().__init__()
        self._fetch = fetch
        self._reading = reading
        self._reader = reading.reader
        self._query = query
        # What each partition had to read when it was last looked at.
        self._sizes: dict[Wanted, int] = {}
        self._size = 0
        # Its answer is about to leave.
        self._has_enough = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        query, reader = self._query, self._reader
        if reader.waiting is not None:
            reader.waiting.end_waiting()
        if self._reading.is_kept:
            reader.listen()
        results = self._fetch.read(reader, query)
        if query.wait_ms_max <= 0 or _is_enough(results, len(reader), self._fetch.bytes_min(query)):
            self._finish(results)
            return
        self._sizes = {fetched.wanted: _size(fetched) for fetched in results if fetched.records}
        self._size = sum(self._sizes.values())
        for fetched in results:
            fetched.release()
        self._wait()

    def start_late(self) -> None:
        """Behind a read from the disk; nobody else hears of a bug then."""
        if self.is_settled:
            return
        try:
            self.start()
        except Exception as bug:
            self.fail(bug)

    def _wait(self) -> None:
        self._reader.listen()
        self._reader.waiting = self
        wait_s = self._fetch.wait_s(self._query)
        self._timer = asyncio.get_running_loop().call_later(wait_s, self.end_waiting)

    def cancel(self) -> None:
        super().cancel()
        self._stop_waiting()

    def drop(self, answer: FetchAnswer) -> None:
        answer.release()

    def end_waiting(self) -> None:
        """There is enough to read, or the time is up, or a later request has the reader now."""
        self._stop_waiting()
        try:
            self._finish(self._fetch.read(self._reader, self._query))
        except Exception as error:
            self.fail(error)

    def _stop_waiting(self) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        self._reader.waiting = None
        if not self._reading.is_kept:
            self._reader.close()

    def look(self, wanted: Wanted) -> None:
        """One partition moved: only that one is looked at again. The answer waits for what else the
        disk has reported, since it is often done with several partitions at once."""
        if self._has_enough:
            return
        fetched = self._fetch.read_one(self._reader, wanted, self._query)
        size = _size(fetched)
        others = self._size - self._sizes.get(wanted, 0)
        self._size = others + size
        self._sizes[wanted] = size
        is_enough = _is_enough([fetched], 1, self._fetch.bytes_min(self._query) - others)
        fetched.release()
        if is_enough:
            self._has_enough = True
            self._fetch.soon(self._answer_now)

    def _answer_now(self) -> None:
        if self._timer is not None:
            self.end_waiting()

    def _finish(self, results: list[Fetched]) -> None:
        try:
            answer = self._reading.answer(results)
        except Exception:
            for fetched in results:
                fetched.release()
            raise
        if self._reading.is_kept:
            self._reader.listen()
            for fetched in results:
                self._reader.looked(fetched)
        for fetched in answer.partitions:
            if fetched.records is not None:
                _count(fetched)
        cold = [fetched for fetched in answer.partitions if fetched.cold_on is not None]
        if cold:
            # These must pass through a worker thread before they can be sent.
            self._fetch.prepare(cold, self._query.magic, partial(self.settle, answer))
        else:
            self.settle(answer)


def _unindexed(reader: Reader) -> list[tuple[Replica, int]]:
    """Partitions whose index is to be read, or built, before they can be."""
    found = []
    for wanted in reader.news:
        try:
            replica = reader.find(wanted)
        except Refused:
            continue
        if replica.needs_index(wanted.offset):
            found.append((replica, wanted.offset))
    return found


def _load_indexes(unindexed: list[tuple[Replica, int]]) -> None:
    for replica, offset in unindexed:
        replica.load_index(offset)


def _size(fetched: Fetched) -> int:
    return len(fetched.records) if fetched.records is not None else 0


def _count(fetched: Fetched) -> None:
    """What a consumer gets counts as the topic's traffic."""
    replica, found = fetched.replica, fetched.records
    traffic = None if replica is None else replica.traffic
    if traffic is not None and isinstance(found, FileRange):
        traffic.bytes_out += found.length
        behind = offset_behind(found, fetched.high_watermark)
        traffic.records_out += max(1, behind - fetched.wanted.offset)


def _is_enough(results: list[Fetched], of: int, bytes_min: int) -> bool:
    """Whether these results, of as many partitions as the reader has, are worth an answer."""
    size = unknown = 0
    for fetched in results:
        if fetched.reason in _UNKNOWN:
            unknown += 1
            continue
        if fetched.is_urgent:
            return True
        if fetched.cold_on is not None:
            # The end of an old segment: more is in the next one, however little this is.
            return True
        if isinstance(fetched.records, FileRange) and fetched.records.is_cut:
            # It ends at Raft's own entry, and more is behind that.
            return True
        size += _size(fetched)
    return unknown == of or size >= bytes_min


def _diverging(wanted: Wanted, replica: Replica) -> tuple[int, int] | None:
    """Where the consumer's last term ended, if it read past that (KIP-595)."""
    if wanted.last_fetched_term < 0:
        return None
    term, end = replica.end_offset_for_epoch(wanted.last_fetched_term)
    if term < 0:
        raise Refused(Reason.OFFSET_OUT_OF_RANGE, f"term {wanted.last_fetched_term} is unknown")
    if term < wanted.last_fetched_term or end < wanted.offset:
        return term, end
    return None


def _least_high_watermark(wanted: Wanted, replica: Replica) -> int:
    """What a leader can tell before it knows how far the one before it had come: what a consumer
    has read was below the high watermark, which must not seem to go back (KIP-207)."""
    return max(replica.high_watermark, min(wanted.offset, replica.log_end_offset))


def _prepare(fetched: Fetched, replica: Replica, magic: int) -> None:
    """In a worker thread: reads what is cold, and turns it into what an old consumer reads."""
    found = fetched.records
    assert isinstance(found, FileRange)
    if magic == MAGIC_NEWEST:
        replica.warm(found)
        return
    try:
        converted = downgrade(replica.content(found), magic)
        found.release()
        fetched.records = converted
    except CorruptBatch:
        fetched.fail(Reason.CORRUPT_MESSAGE)
