"""What all parts of one partition's log share.

Writers hold `lock`; readers hold nothing. They take `segments` or `end_offset` once and work with
that: both are replaced, never changed, and the end is published last.
"""

from collections.abc import Callable
from pathlib import Path
from threading import RLock

from penstock.model.clock import Clock
from penstock.model.topic_config import TopicConfig
from penstock.storage.checkpoint import Checkpoint
from penstock.storage.epochs import EpochHistory
from penstock.storage.file_system import FileSystem
from penstock.storage.layout import segment_path
from penstock.storage.open_files import OpenFiles
from penstock.storage.segment import Segment, SegmentFacts
from penstock.storage.segment_indexes import SegmentIndexes
from penstock.storage.segment_list import SegmentList


class LogState:
    __slots__ = (
        "cleaned_offset",
        "clock",
        "config",
        "directory",
        "end_offset",
        "epochs",
        "file_system",
        "flushed_offset",
        "has_rolled",
        "lock",
        "open_files",
        "segments",
        "sparse_below",
        "start_offset",
        "state",
        "state_offset",
        "unfinished_swap",
        "unsaved_batches",
        "unsaved_bytes",
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
        self.start_offset = checkpoint.start_offset
        self.cleaned_offset = checkpoint.cleaned_offset
        self.sparse_below = checkpoint.sparse_below
        self.epochs = EpochHistory(checkpoint.epochs)
        # The owner's state as the last checkpoint holds it.
        self.state = checkpoint.state
        self.state_offset = checkpoint.state_offset
        # Everything before this is on disk for good, and the checkpoint says so.
        self.flushed_offset = checkpoint.flushed_offset
        # What was written since the last checkpoint, and so would be read again after a crash.
        self.unsaved_bytes = 0
        self.unsaved_batches = 0
        self.has_rolled = False
        # A swap of compacted segments that is decided but not done; it comes before all else.
        self.unfinished_swap: Callable[[], None] | None = None
        known = [self.known_segment(facts) for facts in checkpoint.segments]
        self.segments = SegmentList(known or [self.new_segment(checkpoint.start_offset)])
        self.end_offset = self.segments.active.next_offset

    def new_segment(self, base_offset: int) -> Segment:
        """An empty segment, in memory only: its file is made with its first batch."""
        facts = SegmentFacts(base_offset, base_offset, created_ms=self.clock.now_ms())
        return Segment(
            self.open_files.file(segment_path(self.directory, base_offset)),
            facts,
            open_files=self.open_files,
            index_interval=self.config.index_interval_bytes,
            indexes=SegmentIndexes.empty(base_offset),
            is_on_disk=False,
        )

    def known_segment(self, facts: SegmentFacts, path: Path | None = None) -> Segment:
        """A segment that lies on disk; its indexes are loaded when somebody needs them."""
        path = path or segment_path(self.directory, facts.base_offset)
        return Segment(
            self.open_files.file(path),
            facts,
            open_files=self.open_files,
            index_interval=self.config.index_interval_bytes,
            indexes=None if facts.size > 0 else SegmentIndexes.empty(facts.base_offset),
            is_on_disk=facts.size > 0,
        )

    def finish_swap(self) -> None:
        if self.unfinished_swap is not None:
            self.unfinished_swap()
            self.unfinished_swap = None

    def to_checkpoint(self) -> Checkpoint:
        return Checkpoint(
            start_offset=self.start_offset,
            segments=tuple(segment.facts for segment in self.segments),
            epochs=self.epochs.entries,
            cleaned_offset=self.cleaned_offset,
            sparse_below=self.sparse_below,
            state=self.state,
            state_offset=self.state_offset,
        )
