"""Compaction: of each key only the last record stays, and of a deleted key at last nothing.

It reads closed segments below the high watermark, writes new ones beside them, and swaps. Offsets
never change. Appends and reads go on meanwhile; only the swap itself holds the log's lock.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile

from penstock.model.errors import StorageDamaged
from penstock.storage.appender import Appender
from penstock.storage.batch_filter import decode_raw
from penstock.storage.compaction_swap import Swap, apply_swap, commit_swap
from penstock.storage.file_system import SyncFailed
from penstock.storage.key_map import KEYS_MAX, KeyMap
from penstock.storage.log_state import LogState
from penstock.storage.offset_index import RELATIVE_OFFSET_MAX
from penstock.storage.open_files import FileGone
from penstock.storage.segment import Segment
from penstock.storage.segment_cleaner import Abandoned, Group, SegmentCleaner

NEVER_TOO_EARLY_MS = -(2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """What one pass did; `is_done` is False when more waits than one pass takes."""

    bytes_before: int = 0
    bytes_after: int = 0
    records_dropped: int = 0
    cleaned_offset: int = 0
    is_done: bool = True


class Compactor:
    def __init__(
        self,
        state: LogState,
        appender: Appender,
        *,
        should_stop: Callable[[], bool],
        producer_expiry_ms: int,
        keys_max: int = KEYS_MAX,
    ) -> None:
        self._state = state
        self._appender = appender
        self._should_stop = should_stop
        self._producer_expiry_ms = producer_expiry_ms
        self._keys_max = keys_max
        self._cuts = state.cuts

    def due_at(self, end: int) -> int | None:
        """The time from which on a pass is worth it, if the log stays as it is; None if never.

        Time makes more segments old enough, of which the later ones are dirty, and it makes those
        that are dirty older: what is worth it once is worth it from then on.
        """
        config, cleaned = self._state.config, self._state.cleaned_offset
        old_enough_ms = first_dirty_ms = NEVER_TOO_EARLY_MS
        total = dirty = 0
        times: list[int] = []
        for segment in takewhile(lambda each: each.next_offset <= end, self._state.segments.closed):
            if config.min_compaction_lag_ms > 0:
                lag_ms = config.min_compaction_lag_ms
                old_enough_ms = max(old_enough_ms, segment.max_timestamp + lag_ms)
            total += segment.size
            if segment.next_offset <= cleaned:
                continue
            if not dirty:
                first_dirty_ms = segment.first_timestamp
            dirty += segment.size
            if dirty / max(1, total) >= config.min_cleanable_dirty_ratio:
                times.append(old_enough_ms)
            elif first_dirty_ms >= 0:
                too_old_ms = first_dirty_ms + config.max_compaction_lag_ms + 1
                times.append(max(old_enough_ms, too_old_ms))
        return min(times, default=None)

    def run(self, now_ms: int, end: int) -> CompactionReport:
        """One pass; raises StorageDamaged if a batch that it reads is bad."""
        candidates, dirty = self._plan(now_ms, end)
        if not dirty:
            return CompactionReport(cleaned_offset=self._state.cleaned_offset)
        try:
            return self._pass(candidates, dirty, now_ms, end)
        except (FileGone, Abandoned):
            # Retention was faster, or the node stops: nothing has changed, a later pass will do.
            return CompactionReport(cleaned_offset=self._state.cleaned_offset, is_done=False)
        except StorageDamaged:
            if not self._state.was_cut_since(self._cuts):
                raise
            # Own entries at the end of a closed segment were cut off while it was read.
            return CompactionReport(cleaned_offset=self._state.cleaned_offset, is_done=False)

    def _pass(
        self, candidates: list[Segment], dirty: list[Segment], now_ms: int, end: int
    ) -> CompactionReport:
        keys = self._map_keys(dirty)
        old = [segment for segment in candidates if segment.base_offset < keys.end_offset]
        cleaner = SegmentCleaner(
            self._state,
            keys,
            now_ms=now_ms,
            log_end=candidates[-1].next_offset,
            committed_end=end,
            producer_expiry_ms=self._producer_expiry_ms,
            should_stop=self._should_stop,
        )
        try:
            groups = [cleaner.clean(group) for group in self._group(old)]
            new = self._swap([group for group in groups if group.is_changed], keys.end_offset)
        except SyncFailed:
            # The swap may be decided, and a start that finishes it needs the new files.
            raise
        except BaseException:
            cleaner.discard(kept=self._state.segments.all)
            raise
        cleaner.discard(kept=new)
        return CompactionReport(
            bytes_before=sum(segment.size for segment in old),
            bytes_after=sum(group.bytes_after for group in groups),
            records_dropped=sum(group.records_dropped for group in groups),
            cleaned_offset=keys.end_offset,
            is_done=keys.end_offset >= dirty[-1].next_offset,
        )

    def _plan(self, now_ms: int, end: int) -> tuple[list[Segment], list[Segment]]:
        """The segments that may be compacted, and those that never were, if they are enough."""
        if not self._state.config.cleanup_compact:
            return [], []
        candidates = self._candidates(now_ms, end)
        cleaned = self._state.cleaned_offset
        dirty = [segment for segment in candidates if segment.next_offset > cleaned]
        return candidates, dirty if self._is_worth_it(candidates, dirty, now_ms) else []

    def _candidates(self, now_ms: int, end: int) -> list[Segment]:
        """Closed segments from the first on, as long as all their records may be compacted."""
        lag_ms = self._state.config.min_compaction_lag_ms

        def may_go(segment: Segment) -> bool:
            is_old = lag_ms <= 0 or segment.max_timestamp <= now_ms - lag_ms
            return segment.next_offset <= end and is_old

        return list(takewhile(may_go, self._state.segments.closed))

    def _is_worth_it(self, candidates: list[Segment], dirty: list[Segment], now_ms: int) -> bool:
        if not dirty:
            return False
        config = self._state.config
        first = dirty[0].first_timestamp
        if first >= 0 and now_ms - first > config.max_compaction_lag_ms:
            return True
        total = sum(segment.size for segment in candidates)
        share = sum(segment.size for segment in dirty) / max(1, total)
        return share >= config.min_cleanable_dirty_ratio

    def _map_keys(self, dirty: list[Segment]) -> KeyMap:
        """The last offset of each key that was written since the last compaction."""
        keys = KeyMap(self._state.cleaned_offset, self._keys_max)
        for segment in dirty:
            start = segment.find(self._state.cleaned_offset)
            for _, header, batch in segment.batches(start):
                if self._should_stop():
                    raise Abandoned
                if keys.is_full:
                    return keys
                _, records = decode_raw(batch, header) or (b"", [])
                for raw in records:
                    if raw.key is not None:
                        keys.put(raw.key, header.base_offset + raw.offset_delta)
                keys.end_offset = header.next_offset
            keys.end_offset = segment.next_offset
        return keys

    def _group(self, segments: list[Segment]) -> list[list[Segment]]:
        """Neighbours that fit into one segment become one, or compaction leaves crumbs."""
        groups: list[list[Segment]] = []
        size = 0
        for segment in segments:
            size += segment.size
            fits = size <= self._state.config.segment_bytes
            if (
                groups
                and fits
                and segment.next_offset - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
            ):
                groups[-1].append(segment)
                continue
            groups.append([segment])
            size = segment.size
        return groups

    def _swap(self, groups: list[Group], cleaned_offset: int) -> list[Segment]:
        """The new segments; raises FileGone, with nothing changed, if an old one is gone."""
        state = self._state
        gone = [segment for group in groups for segment in group.old]
        new = [group.new for group in groups if group.new is not None]
        with state.lock:
            is_gone = any(segment not in state.segments for segment in gone)
            if is_gone or state.was_cut_since(self._cuts):
                raise FileGone("a segment was cut or removed while it was compacted")
            self._appender.sync()
            state.finish_swap()
            segments = state.segments.replace(gone, new)
            checkpoint = state.to_checkpoint()._replace(
                segments=tuple(segment.facts for segment in segments),
                cleaned_offset=cleaned_offset,
            )
            swap = Swap(
                cleaned=tuple(segment.base_offset for segment in new),
                gone=tuple(segment.base_offset for segment in gone),
                checkpoint=checkpoint.encode(),
            )
            commit_swap(state.directory, state.file_system, swap)
            state.note_flushed(checkpoint)
            state.cleaned_offset = cleaned_offset
            state.segments = segments
            for segment in gone:
                self._appender.forget(segment)
                segment.retire()
            state.unfinished_swap = lambda: self._finish(swap, new)
            state.finish_swap()
            # The new segments' indexes are in memory until a checkpoint saves them.
            state.has_rolled = True
        return new

    def _finish(self, swap: Swap, new: list[Segment]) -> None:
        state = self._state
        by_path = {segment.file.path: segment.file for segment in new}
        apply_swap(
            state.directory,
            state.file_system,
            swap,
            lambda old, final: by_path[old].move(final),
        )
