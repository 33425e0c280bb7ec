"""Reads one partition from an offset to another, a few answers ahead of their reader."""

import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

from penstock.client.errors import ClientError
from penstock.client.wire.batch_scan import scan
from penstock.client.wire.cluster_map import ClusterMap
from penstock.client.wire.errors import Malformed, OffsetOutOfRange, place
from penstock.client.wire.fetch_call import FetchCall, Outcome
from penstock.client.wire.handover import Handover
from penstock.client.wire.link import ANSWER_BYTES_MAX
from penstock.client.wire.links import Links
from penstock.client.wire.offsets import EARLIEST, LATEST, OffsetLookup
from penstock.client.wire.patience import Patience, Stopped
from penstock.client.wire.settings import WireSettings
from penstock.model.ids import TopicPartition
from penstock.protocol.kafka.messages.fetch import PartitionData
from penstock.records.errors import CorruptBatch

# Room in an answer for what is not records.
ANSWER_OVERHEAD_BYTES = 64 << 10
# A leader that has just begun learns how far its log is committed; one that has answered for so
# long has no more, and what is wanted is lost.
SHORT_LOG_S_MAX = 120.0


class Fetched(NamedTuple):
    """Whole record batches, one behind the other; the first may begin before what was asked for.

    `aborted` are transactions that were given up, as (producer id, first offset); only of readers
    that want committed records alone.
    """

    data: memoryview
    aborted: tuple[tuple[int, int], ...]


class PartitionFetcher:
    """Raw batches of one partition from `start` up to `stop` (exclusive), in order.

    A thread of its own asks for them, so that the next answer travels while the last one is used.
    Control batches, gaps that compaction left, and offsets that were never taken end the range
    like records do: it is over when the log has nothing more before `stop`. If the log ends before
    `stop`, the fetcher waits for it to grow, but not longer than SHORT_LOG_S_MAX at a time.
    """

    def __init__(
        self,
        settings: WireSettings,
        links: Links,
        cluster_map: ClusterMap,
        partition: TopicPartition,
        start: int,
        stop: int,
    ) -> None:
        self.partition = partition
        self.start = start
        self.stop = stop
        # As of the last answer.
        self.log_start = -1
        self.high_watermark = -1
        self._settings = settings
        self._map = cluster_map
        self._lookup = OffsetLookup(settings, links, cluster_map)
        self._is_stopped = threading.Event()
        self._call = FetchCall(settings, links, cluster_map, partition, self._is_stopped)
        self._ready: Handover[Fetched] = Handover(settings.fetches_ahead_max)
        self._thread: threading.Thread | None = None
        self._bytes_max = settings.fetch_bytes_max

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Fetched]:
        """Once: the range is read from its start to its end."""
        if self._thread is not None:
            raise ClientError(f"The range of {place(self.partition)} is already being read.")
        self._thread = threading.Thread(
            target=self._run, name=f"fetch {self.partition}", daemon=True
        )
        self._thread.start()
        return self._ready.take_all()

    def close(self) -> None:
        """Ends the thread, whatever it waits for."""
        self._ready.abandon()
        thread = self._thread
        if thread is None:
            return
        if thread.is_alive():
            self._is_stopped.set()
            self._call.abort()
        thread.join()

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            self._read()
        except Stopped:
            pass
        except BaseException as error:
            # It is raised where the data would have been taken.
            failure = error
            self._is_stopped.set()
        finally:
            self._call.close()
            self._ready.finish(failure)

    def _read(self) -> None:
        patience = self._map.patience(f"reading {place(self.partition)}", self._is_stopped)
        position = self.start
        is_empty_seen = False
        while position < self.stop:
            asked_at = time.monotonic()
            answer = self._call.ask(
                patience, position, self._bytes_max, self._settings.fetch_wait_ms
            )
            if answer.outcome is Outcome.OUT_OF_RANGE:
                self._check_range(position, patience)
                continue
            self._note(answer.data)
            next_position = self._take(answer.data, position)
            if next_position > position:
                position = next_position
                is_empty_seen = False
                patience.progress()
            elif self._readable_end(answer.data) < self.stop:
                is_empty_seen = False
                self._wait_for_more(position, asked_at, patience)
            elif answer.data.records or not is_empty_seen:
                # Nothing is left before the end of the range; one more look makes sure of it.
                is_empty_seen = not answer.data.records
                patience.pause(f"offset {position} does not arrive", refused_s_max=SHORT_LOG_S_MAX)
            else:
                return

    def _note(self, data: PartitionData) -> None:
        self.high_watermark = data.high_watermark
        self.log_start = data.log_start_offset

    def _readable_end(self, data: PartitionData) -> int:
        if self._settings.isolation_read_committed and data.last_stable_offset >= 0:
            return data.last_stable_offset
        return data.high_watermark

    def _take(self, data: PartitionData, position: int) -> int:
        """Hands on what came; returns the offset that comes next."""
        records = data.records
        if not records:
            return position
        assert isinstance(records, memoryview)
        try:
            found = scan(records, position, self.stop)
        except CorruptBatch as error:
            raise Malformed(
                f"What the broker sent of {place(self.partition)} from offset {position} on makes"
                f" no sense: {error}."
            ) from None
        if found.end > found.begin:
            aborted = tuple(
                (one.producer_id, one.first_offset) for one in data.aborted_transactions or ()
            )
            if not self._ready.give(Fetched(records[found.begin : found.end], aborted)):
                raise Stopped
        elif found.bytes_needed:
            self._ask_for_more(found.bytes_needed, position)
        return found.next_offset

    def _ask_for_more(self, bytes_needed: int, position: int) -> None:
        """An old broker cuts off a batch that is larger than what was asked for."""
        if bytes_needed > ANSWER_BYTES_MAX - ANSWER_OVERHEAD_BYTES:
            raise Malformed(
                f"The batch at offset {position} of {place(self.partition)} claims"
                f" {bytes_needed} bytes, which is too much."
            )
        self._bytes_max = max(self._bytes_max, bytes_needed)

    def _wait_for_more(self, position: int, asked_at: float, patience: Patience) -> None:
        reason = f"offsets up to {self.stop} are wanted, but the log ends at {self.high_watermark}"
        # The broker has waited already, unless it has no mind to.
        if time.monotonic() - asked_at < self._settings.fetch_wait_ms / 2000:
            patience.pause(reason, refused_s_max=SHORT_LOG_S_MAX)
        else:
            patience.check(reason, refused_s_max=SHORT_LOG_S_MAX)

    def _check_range(self, position: int, patience: Patience) -> None:
        """Asks where the log begins and ends; a leader that has just begun may have been wrong."""
        log_start = self._lookup.find({self.partition: EARLIEST})[self.partition]
        log_end = self._lookup.find({self.partition: LATEST})[self.partition]
        if not log_start <= position <= log_end:
            raise OffsetOutOfRange(self.partition, position, log_start, log_end)
        patience.pause(
            f"the broker says that offset {position} is out of range", refused_s_max=SHORT_LOG_S_MAX
        )
