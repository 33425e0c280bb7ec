"""Writes the compacted copy of some segments beside them."""

import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass

from penstock.records.batch import TIMESTAMP_MAX, BatchHeader, parse_header
from penstock.records.own_entries import build_gaps
from penstock.records.raw_records import RawRecord
from penstock.storage.batch_filter import filter_batch
from penstock.storage.compaction_swap import CLEANED_SEGMENT
from penstock.storage.file_system import Bytes, File
from penstock.storage.key_map import KeyMap
from penstock.storage.layout import segment_path
from penstock.storage.log_state import LogState
from penstock.storage.own_table import OwnTable
from penstock.storage.segment import Segment, SegmentFacts, Tail

_WRITE_BYTES = 1024 * 1024


class Abandoned(Exception):
    """The compaction was asked to stop before it was done."""


@dataclass(slots=True)
class Group:
    """Segments that become one, or none if nothing of them stays."""

    old: list[Segment]
    new: Segment | None = None
    records_dropped: int = 0
    is_changed: bool = False

    @property
    def bytes_after(self) -> int:
        if not self.is_changed:
            return sum(segment.size for segment in self.old)
        return self.new.size if self.new is not None else 0


class SegmentCleaner:
    def __init__(
        self,
        state: LogState,
        keys: KeyMap,
        *,
        now_ms: int,
        log_end: int,
        committed_end: int,
        producer_expiry_ms: int,
        should_stop: Callable[[], bool],
    ) -> None:
        self._state = state
        self._keys = keys
        self._now_ms = now_ms
        # Anyone who keeps tombstones forever sets the longest time that there is.
        self._horizon_ms = min(now_ms + state.config.delete_retention_ms, TIMESTAMP_MAX)
        # The batch that ends here stays, so that the end can be told from the files alone.
        self._log_end = log_end
        self._committed_end = committed_end
        self._producer_expiry_ms = producer_expiry_ms
        self._should_stop = should_stop
        self._last_by_producer: dict[int, int] | None = None
        self._written: list[Segment] = []

    def clean(self, old: list[Segment]) -> Group:
        group = Group(old, is_changed=len(old) > 1)
        new = self._new_segment(old)
        output = _Output(new, self._state.file_system.create(new.file.path), self._state.own)
        try:
            for segment in old:
                for _, header, batch in segment.batches():
                    self._clean_batch(group, output, header, batch)
            output.end_at(old[-1].next_offset)
            output.file.sync()
        finally:
            output.file.close()
        new.tail = Tail(old[-1].next_offset, new.size)
        if new.size > 0:
            group.new = new
        return group

    def discard(self, kept: Collection[Segment] = ()) -> None:
        """Removes what was written, except for what became part of the log."""
        for segment in self._written:
            if segment not in kept:
                segment.retire()
                with contextlib.suppress(FileNotFoundError):
                    self._state.file_system.remove(segment.file.path)

    def _new_segment(self, old: list[Segment]) -> Segment:
        base = old[0].base_offset
        facts = SegmentFacts(base, base, created_ms=old[-1].created_ms)
        path = segment_path(self._state.directory, base, CLEANED_SEGMENT)
        segment = self._state.known_segment(facts, path)
        segment.is_on_disk = True
        self._written.append(segment)
        return segment

    def _clean_batch(
        self, group: Group, output: "_Output", header: BatchHeader, batch: memoryview
    ) -> None:
        if self._should_stop():
            raise Abandoned
        if header.is_gap and header.next_offset != self._log_end:
            # It comes back as one with what is removed around it.
            group.is_changed = group.is_changed or output.next_offset < header.base_offset
            return
        is_mapped = header.next_offset <= self._keys.end_offset
        filtered = filter_batch(
            batch,
            header,
            retain=lambda offset, raw: self._retain(header, offset, raw),
            keep_empty=self._keep_empty,
            horizon_ms=self._horizon_ms if is_mapped else None,
        )
        group.records_dropped += filtered.dropped
        group.is_changed = group.is_changed or filtered.batch is not batch
        if filtered.batch is not None:
            output.add(filtered.batch)

    def _retain(self, header: BatchHeader, offset: int, raw: RawRecord) -> bool:
        if offset >= self._keys.end_offset:
            return True
        # A record without a key has no place in a compacted topic (it may stem from before).
        if raw.key is None or not self._keys.is_latest(raw.key, offset):
            return False
        horizon_ms = header.delete_horizon_ms
        return not (raw.is_tombstone and horizon_ms is not None and self._now_ms >= horizon_ms)

    def _keep_empty(self, header: BatchHeader) -> bool:
        if header.next_offset == self._log_end:
            return True
        if header.producer_id < 0 or header.is_control:
            return False
        if header.max_timestamp < self._now_ms - self._producer_expiry_ms:
            return False
        return self._last_batches().get(header.producer_id) == header.base_offset

    def _last_batches(self) -> dict[int, int]:
        """The last batch of each producer: its sequence must be found by readers of the log.

        Of those that are committed: a later one may still be taken back.
        """
        if self._last_by_producer is None:
            self._last_by_producer = {}
            for segment in self._state.segments:
                for _, header in segment.headers():
                    if header.producer_id >= 0 and header.base_offset < self._committed_end:
                        self._last_by_producer[header.producer_id] = header.base_offset
        return self._last_by_producer


class _Output:
    """Collects batches and writes them in large pieces.

    What was removed before a batch becomes a gap. So each batch begins where the one before it
    ends, and an offset that rots is found here as anywhere else.
    """

    def __init__(self, segment: Segment, file: File, own: OwnTable) -> None:
        self.file = file
        self._segment = segment
        self._own = own
        self._parts: list[Bytes] = []
        self._parts_bytes = 0
        self._position = 0

    @property
    def next_offset(self) -> int:
        """Where the batches end that were added."""
        return self._segment.next_offset

    def add(self, batch: Bytes) -> None:
        header = parse_header(batch)
        self._fill_to(header.base_offset)
        self._put(header, batch)

    def end_at(self, offset: int) -> None:
        """What is left of segments that end at this offset is written; nothing if nothing is."""
        if self._segment.size > 0:
            self._fill_to(offset)
        self._flush()

    def _fill_to(self, offset: int) -> None:
        begin = self.next_offset
        # Own entries of Raft stay, so no gap goes over the begin of a term.
        for gap in build_gaps(offset=begin, span=offset - begin, term=self._own.term_of(begin)):
            self._put(parse_header(gap), gap)

    def _put(self, header: BatchHeader, batch: Bytes) -> None:
        self._segment.add(header)
        self._parts.append(batch)
        self._parts_bytes += len(batch)
        if self._parts_bytes >= _WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._parts:
            self.file.pwritev(self._parts, self._position)
            self._position += self._parts_bytes
            self._parts, self._parts_bytes = [], 0
