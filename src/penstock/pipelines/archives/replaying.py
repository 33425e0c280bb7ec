"""Brings an archive, or a range of it, back into a topic; a killed replay goes on where it was."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.client.errors import ClientError
from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.settings import OUTAGE_S_MAX, WireSettings
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.pipelines.archives.archived_rows import Stretch
from penstock.pipelines.archives.chain import check_numbers, check_spans, covered
from penstock.pipelines.archives.description import Description, archive_at
from penstock.pipelines.archives.ledger import ArchivedFile, Entry, Ledger, Span
from penstock.pipelines.archives.refusals import ArchiveRefused
from penstock.pipelines.archives.replay_note import (
    ReplayNote,
    State,
    new_replay_id,
    notes,
    write_note,
)
from penstock.pipelines.archives.replay_task import Outcome, PartitionReplay, run_replay
from penstock.pipelines.archives.selection import Selection
from penstock.pipelines.archives.topic_facts import TopicFacts
from penstock.pipelines.lakes.opening import open_table
from penstock.records.compression import Codec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Only the bar of a person who looks on depends on it.
LOOK_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayWanted:
    root: Path
    """Absolute."""
    bootstrap: str
    selection: Selection = field(default_factory=Selection)
    compression: str = "none"
    """The codec's name."""
    outage_s_max: float = OUTAGE_S_MAX
    """How long brokers may be away."""
    is_again: bool = False
    """Whether a replay that was finished may be done once more, which doubles its records."""


class Archived:
    """What an archive holds at this moment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.description: Description = archive_at(root)
        table = open_table(self.description.format, str(root), self.description.options)
        self.entries: list[Entry] = list(Ledger(root).committed(table.last_batch))

    def check(self, selection: Selection) -> None:
        """A topic is not brought back with a hole in it that nobody knows of."""
        selection.check(self.description.partitions)
        numbers = [entry.number for entry in self.entries]
        for finding in (*check_numbers(numbers), *check_spans(self.entries)):
            raise ArchiveRefused(
                f"The archive {self.root} is not complete: {finding[:1].lower()}{finding[1:]}"
            )

    def spans(self, selection: Selection) -> tuple[Span, ...]:
        cut = (selection.cut(span) for span in covered(self.entries))
        return tuple(span for span in cut if span.start < span.stop)

    def files(self, span: Span) -> tuple[ArchivedFile, ...]:
        """Those that hold offsets of the span, by their first ones."""
        found = [
            file
            for entry in self.entries
            for file in entry.files
            if file.partition == span.partition
            and file.first < span.stop
            and file.last >= span.start
        ]
        return tuple(sorted(found, key=lambda file: file.first))


class Replaying:
    """One run of one replay, of which an earlier run may have been killed.

    The archive was checked: before its target was made, so that a mistake leaves no topic behind.
    """

    def __init__(
        self,
        wanted: ReplayWanted,
        archived: Archived,
        target: TopicFacts,
        cluster: WireCluster | None = None,
    ) -> None:
        self._wanted = wanted
        self._archived = archived
        self._target = target
        # The facts about the target came from its brokers, so their address is right.
        self._wire = WireSettings(
            bootstrap=wanted.bootstrap, retry_timeout_s=wanted.outage_s_max
        ).once_reached()
        self._cluster = cluster or WireCluster(self._wire)
        self._looking = cluster or WireCluster(self._wire.hurried(LOOK_TIMEOUT_S))
        self._written = 0
        self.note, self.is_resumed = self._noted()
        self.tasks = [self._task(span) for span in self.note.spans]

    def close(self) -> None:
        self._cluster.close()
        self._looking.close()

    @property
    def rows_max(self) -> int:
        """How many records there are to write: exactly, unless only some of a file are wanted."""
        return sum(file.rows for task in self.tasks for file in task.stretch.files)

    def written(self) -> int:
        """How many records the target holds of it, by the last look that was answered."""
        if self.tasks:
            with suppress(ClientError):
                ends = self._looking.latest([task.place for task in self.tasks])
                self._written = sum(max(0, ends[task.place] - task.base) for task in self.tasks)
        return self._written

    def run(
        self, spark: "SparkSession", task: Callable[[PartitionReplay], Outcome] = run_replay
    ) -> int:
        """How many records were brought back, by this run and by earlier ones."""
        outcomes: Sequence[Outcome] = []
        if self.tasks:
            # One for each partition, whose order only one task can keep.
            context = spark.sparkContext
            outcomes = context.parallelize(self.tasks, len(self.tasks)).map(task).collect()
        for outcome in outcomes:
            if outcome.refusal is not None:
                raise ArchiveRefused(outcome.refusal)
        write_note(self._wanted.root, dataclasses.replace(self.note, state=State.FINISHED))
        return sum(outcome.records for outcome in outcomes)

    def _noted(self) -> tuple[ReplayNote, bool]:
        """The note of the replay that goes on, or of the one that begins."""
        root, target = self._wanted.root, self._target
        selection = self._wanted.selection.to_json()
        earlier = [
            note
            for note in notes(root)
            if (note.topic, note.topic_id) == (target.name, target.topic_id)
        ]
        unfinished = [note for note in earlier if note.state is State.UNFINISHED]
        asked = self._wanted.selection
        same = [note for note in unfinished if asked.is_said_by(note.words, note.selection)]
        if same:
            return same[0], True
        self._check_first(note for note in earlier if note.selection == selection)
        for note in unfinished:
            write_note(root, dataclasses.replace(note, state=State.ABANDONED))
        note = self._new_note()
        write_note(root, note)
        return note, False

    def _check_first(self, earlier: Iterable[ReplayNote]) -> None:
        if self._wanted.is_again or all(note.state is not State.FINISHED for note in earlier):
            return
        raise ArchiveRefused(
            f"The archive {self._wanted.root} was already replayed into topic {self._target.name};"
            " with --again all records would be there twice."
        )

    def _new_note(self) -> ReplayNote:
        spans = self._archived.spans(self._wanted.selection)
        ends = self._cluster.latest([self._place(span.partition) for span in spans])
        return ReplayNote(
            replay=new_replay_id(),
            topic=self._target.name,
            topic_id=self._target.topic_id,
            selection=self._wanted.selection.to_json(),
            words=self._wanted.selection.words,
            spans=spans,
            bases={span.partition: ends[self._place(span.partition)] for span in spans},
        )

    def _place(self, partition: int) -> TopicPartition:
        return TopicPartition(TopicName(self._target.name), PartitionIndex(partition))

    def _task(self, span: Span) -> PartitionReplay:
        # As it was when the replay began, if that was said by how long ago.
        selection = self.note.selection
        return PartitionReplay(
            stretch=Stretch(
                root=str(self._wanted.root),
                partition=span.partition,
                files=self._archived.files(span),
                start=span.start,
                stop=span.stop,
                from_ms=selection["from_ms"],
                until_ms=selection["until_ms"],
            ),
            topic=self._target.name,
            base=self.note.bases[span.partition],
            wire=self._wire,
            codec=Codec[self._wanted.compression.upper()],
        )
