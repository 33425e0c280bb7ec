"""Takes the receipts of a micro-batch and makes the files they name part of the archive."""

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipelines.archives.description import Description, write_description
from penstock.pipelines.archives.ledger import ArchivedFile, Entry, Ledger, Span
from penstock.pipelines.archives.receipts import Receipt, joined_spans
from penstock.pipelines.archives.refusals import ArchiveRefused
from penstock.pipelines.lakes.full_disk import full_disk_explained, is_own_disk_full
from penstock.pipelines.lakes.lake_table import DataFile, LakeTable
from penstock.pipelines.sinks.sink import Epoch, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

# How many partitions the topic has at this moment.
CountPartitions = Callable[[], int]


def _nothing(step: str) -> None:
    """Steps are reported to tests, which end the process there."""


class ReceiptsSink:
    """`archived` is called with each epoch; `steps` with "noted" (in the ledger) and"
    " "committed"."""

    def __init__(
        self,
        root: Path,
        table: LakeTable,
        description: Description,
        count_partitions: CountPartitions,
        *,
        archived: Callable[[Entry], None] = lambda entry: None,
        steps: Callable[[str], None] = _nothing,
    ) -> None:
        self._root = root
        self._table = table
        self._description = description
        self._count_partitions = count_partitions
        self._archived = archived
        self._steps = steps
        self._ledger = Ledger(root)
        self._last = self._ledger.last_committed(table.last_batch)
        # What comes next begins where that one ends, so it must last.
        table.sync()

    @property
    def last(self) -> Entry | None:
        """The last epoch that the archive holds."""
        return self._last

    @property
    def ends(self) -> Mapping[int, int]:
        """By partition: where the next epoch must begin."""
        return {} if self._last is None else self._last.ends

    def prepare(self, schema: "StructType") -> None:
        """The rows are our own."""

    def queries_before(self, pipeline: str, flow: str) -> frozenset[str]:
        """Whatever query comes next, it begins where the ledger ends."""
        return frozenset()

    def clear(self) -> None:
        raise ArchiveRefused(
            f"The archive {self._root} can't be emptied: remove its folder instead."
        )

    def write(self, frame: "DataFrame", epoch: Epoch) -> Written:
        if self._is_committed(epoch):
            return Written(was_there=True)
        with self._given_up(epoch, is_commit=False):
            receipts = [Receipt.from_json(row[0]) for row in frame.collect()]
        return self.take(receipts, epoch)

    def take(self, receipts: Sequence[Receipt], epoch: Epoch) -> Written:
        with (
            full_disk_explained(f"the archive {self._root}", ArchiveRefused),
            self._given_up(epoch, is_commit=True),
        ):
            return self._take(receipts, epoch)

    @contextmanager
    def _given_up(self, epoch: Epoch, *, is_commit: bool) -> Iterator[None]:
        """Leave nothing on a disk that may be full of it, unless it became part of the archive.

        A catalog elsewhere may still take a commit of which we heard nothing more.
        """
        try:
            yield
        except Exception as failure:
            with suppress(Exception):
                last = self._table.last_batch(epoch.query)
                is_held = last is not None and last >= epoch.batch
                if not is_held and (is_own_disk_full(failure) or not is_commit):
                    self._remove_other_attempts(epoch, ())
            raise

    def _take(self, receipts: Sequence[Receipt], epoch: Epoch) -> Written:
        entry = self._entry(receipts, epoch)
        files = [file for receipt in receipts for file in receipt.files]
        self._ledger.write(entry)
        self._steps("noted")
        if files:
            self._commit(entry, files, epoch)
        self._steps("committed")
        self.note_partitions(entry.partitions)
        self._remove_other_attempts(epoch, files)
        self._ledger.fold_behind(entry)
        self._last = entry
        self._archived(entry)
        size = sum(file.size for file in files)
        return Written(rows=entry.rows, files=len(files), size=size)

    def _is_committed(self, epoch: Epoch) -> bool:
        last = self._last
        return last is not None and last.query == epoch.query and last.batch >= epoch.batch

    def _commit(self, entry: Entry, files: Sequence[DataFile], epoch: Epoch) -> None:
        from penstock.pipelines.archives.layout import archive_schema

        description = self._description
        details = {
            "topic": description.topic,
            "topic_id": description.topic_id,
            "partitions": entry.partitions,
            "offsets": {str(one.partition): [one.start, one.stop] for one in entry.spans},
        }
        schema = archive_schema(is_by_date=description.is_by_date)
        is_ours = self._table.commit(epoch, files, schema, description.partition_by, details)
        assert is_ours, "the ledger would have known of the epoch"

    def _entry(self, receipts: Sequence[Receipt], epoch: Epoch) -> Entry:
        spans = joined_spans(receipt.span for receipt in receipts)
        self._check_follows(spans)
        lost = sorted(
            (span for receipt in receipts for span in receipt.lost),
            key=lambda span: (span.partition, span.start),
        )
        files = [_archived(file, receipt) for receipt in receipts for file in receipt.files]
        return Entry(
            number=0 if self._last is None else self._last.number + 1,
            query=epoch.query,
            batch=epoch.batch,
            partitions=self._count_partitions(),
            spans=spans,
            lost=tuple(lost),
            files=tuple(sorted(files, key=lambda file: (file.partition, file.first))),
            ends={**self.ends, **{span.partition: span.stop for span in spans}},
        )

    def _check_follows(self, spans: Sequence[Span]) -> None:
        """An archive has each offset once, so that a topic made again does not go into it."""
        for span in spans:
            end = self.ends.get(span.partition, span.start)
            if span.start != end:
                raise ArchiveRefused(
                    f"Partition {span.partition} of topic {self._description.topic} is archived up"
                    f" to offset {end}, but the next read starts at offset {span.start}: was the"
                    " topic deleted and created again?"
                )

    def note_partitions(self, count: int) -> None:
        """A partition without records is in no epoch, but it belongs to the topic."""
        if count != self._description.partitions:
            self._description = dataclasses.replace(self._description, partitions=count)
            write_description(self._root, self._description)

    def _remove_other_attempts(self, epoch: Epoch, files: Sequence[DataFile]) -> None:
        """Tasks that were repeated, and runs that were killed, leave folders that nobody names."""
        kept = {Path(file.path).parts[2] for file in files}
        for folder in (self._root / "data" / epoch.query).glob(f"{epoch.batch}-*"):
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)


def _archived(file: DataFile, receipt: Receipt) -> ArchivedFile:
    offsets = file.statistics["offset"]
    return ArchivedFile(
        path=file.path,
        partition=receipt.span.partition,
        first=offsets.least,
        last=offsets.greatest,
        rows=file.rows,
        size=file.size,
        sha256=file.sha256,
    )
