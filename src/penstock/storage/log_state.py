"""What all parts of one partition's log share.

Writers hold `lock`; readers hold nothing. They take `extent`, `segments` or `own` once and work
with that: all are replaced, never changed. An append publishes Raft's own entries first and the
extent last; a cut the other way round. Two rules follow for readers:

- Who takes `extent` and then `segments` finds all of it in them, unless `cuts` changes meanwhile.
  Retention may have removed the begin: `own` knows that before `segments` shows it.
- Who looks at a segment's tail and then at `own` knows of every own entry in it, unless `segments`
  was replaced meanwhile.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import NamedTuple

from penstock.model.clock import Clock
from penstock.model.topic_config import TopicConfig
from penstock.storage.checkpoint import Checkpoint
from penstock.storage.file_system import FileSystem
from penstock.storage.layout import segment_path
from penstock.storage.open_files import OpenFiles
from penstock.storage.own_table import EntriesCut, OwnTable
from penstock.storage.segment import Segment, SegmentFacts
from penstock.storage.segment_indexes import SegmentIndexes
from penstock.storage.segment_list import SegmentList


class Extent(NamedTuple):
    """What a log holds; one value, so that its parts are always those of one moment."""

    own: OwnTable
    end_offset: int
    last_index: int

    @classmethod
    def of(cls, own: OwnTable, end_offset: int) -> "Extent":
        return cls(own, end_offset, own.last_index(end_offset))

    def check_reaches(self, index: int) -> None:
        if index > self.last_index:
            raise EntriesCut(f"index {index} is after the log's last, {self.last_index}")


class LogState:
    __slots__ = (
        "cleaned_offset",
        "clock",
        "config",
        "cuts",
        "directory",
        "doubt",
        "extent",
        "file_system",
        "flushed_base",
        "flushed_index",
        "has_rolled",
        "lock",
        "open_files",
        "own",
        "saved_offset",
        "segments",
        "sparse_below",
        "start_offset",
        "state",
        "state_offset",
        "unfinished_swap",
        "unsaved_batches",
        "unsaved_bytes",
        "unsynced_tail",
    )

    def __init__(
        self,
        directory: Path,
        *,
        config: TopicConfig,
        file_system: FileSystem,
        open_files: OpenFiles,
        clock: Clock,
        checkpoint: Checkpoint,
    ) -> None:
        self.directory = directory
        self.config = config
        self.file_system = file_system
        self.open_files = open_files
        self.clock = clock
        self.lock = RLock()
        # Counts the steps of cuts: who reads beside one may see what makes no sense.
        self.cuts = 0
        # What a start found behind the flush mark and has not synced yet: segments and positions.
        self.unsynced_tail: list[tuple[Segment, int]] = []
        self.restore(checkpoint)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Everything as the checkpoint says."""
        own = OwnTable(checkpoint.base, checkpoint.own)
        known = [self.known_segment(facts) for facts in checkpoint.segments]
        segments = SegmentList(known or [self.new_segment(checkpoint.start_offset)])
        self.publish_cut(own, segments.active.next_offset)
        self.start_offset = checkpoint.start_offset
        self.cleaned_offset = checkpoint.cleaned_offset
        self.sparse_below = checkpoint.sparse_below
        self.doubt = checkpoint.doubt
        self.own = own
        self.segments = segments
        # The owner's state for the next checkpoint; on disk it may be older, if one failed.
        self.state = checkpoint.state
        self.state_offset = checkpoint.state_offset
        self.note_flushed(checkpoint, own)
        # What was written since the last checkpoint, and so would be read again after a crash.
        self.unsaved_bytes = 0
        self.unsaved_batches = 0
        self.has_rolled = False
        # A swap of compacted segments that is decided but not done; it comes before all else.
        self.unfinished_swap: Callable[[], None] | None = None

    @property
    def end_offset(self) -> int:
        return self.extent.end_offset

    @property
    def last_index(self) -> int:
        return self.extent.last_index

    def publish_extent(self) -> None:
        """Everything that was appended is part of the log."""
        self.extent = Extent.of(self.own, self.segments.active.next_offset)

    def publish_cut(self, own: OwnTable, end_offset: int) -> None:
        """Nobody begins to look at what goes, and who looks at it will look again."""
        self.extent = Extent.of(own, end_offset)
        self.cuts += 1

    def note_flushed(self, checkpoint: Checkpoint, own: OwnTable | None = None) -> None:
        """This checkpoint is on disk, or will be there before anything else is; `own`: its table,
        if the caller has it."""
        own = own or OwnTable(checkpoint.base, checkpoint.own)
        # Everything up to this index is on disk for good, and the last segment of the checkpoint.
        self.flushed_index = own.last_index(checkpoint.flushed_offset)
        self.flushed_base = checkpoint.flushed_base
        self.saved_offset = checkpoint.saved_offset

    def note_maybe_flushed(self, checkpoint: Checkpoint) -> None:
        """This checkpoint is on disk, or the one before it."""
        self.flushed_index = max(self.flushed_index, checkpoint.flushed_index)
        self.flushed_base = min(self.flushed_base, checkpoint.flushed_base)
        self.saved_offset = min(self.saved_offset, checkpoint.saved_offset)

    def new_segment(self, base_offset: int) -> Segment:
        """An empty segment, in memory only: its file is made with its first batch."""
        facts = SegmentFacts(base_offset, base_offset, created_ms=self.clock.now_ms())
        return Segment(
            self.open_files.file(segment_path(self.directory, base_offset)),
            facts,
            log=self,
            open_files=self.open_files,
            index_interval=self.config.index_interval_bytes,
            indexes=SegmentIndexes.empty(base_offset),
            is_on_disk=False,
        )

    def known_segment(self, facts: SegmentFacts, path: Path | None = None) -> Segment:
        """A segment that is on disk; its indexes are loaded when somebody needs them."""
        path = path or segment_path(self.directory, facts.base_offset)
        return Segment(
            self.open_files.file(path),
            facts,
            log=self,
            open_files=self.open_files,
            index_interval=self.config.index_interval_bytes,
            indexes=None if facts.size > 0 else SegmentIndexes.empty(facts.base_offset),
            is_on_disk=facts.size > 0,
        )

    @contextmanager
    def cutting(self) -> Iterator[None]:
        """While entries are cut off; with the lock held."""
        self.cuts += 1
        try:
            yield
        finally:
            self.cuts += 1

    def was_cut_since(self, cuts: int) -> bool:
        """Whether what was seen since `cuts` may be half of a cut; waits until one is done."""
        with self.lock:
            return self.cuts != cuts

    def finish_swap(self) -> None:
        if self.unfinished_swap is not None:
            self.unfinished_swap()
            self.unfinished_swap = None

    def to_checkpoint(self) -> Checkpoint:
        return Checkpoint(
            start_offset=self.start_offset,
            segments=tuple(segment.facts for segment in self.segments),
            base=self.own.base,
            own=self.own.entries,
            cleaned_offset=self.cleaned_offset,
            sparse_below=self.sparse_below,
            state=self.state,
            state_offset=self.state_offset,
            doubt=self.doubt,
        )
