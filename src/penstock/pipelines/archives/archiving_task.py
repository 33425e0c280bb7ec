"""What a task of an archive does: fetch a stretch of a partition and write it to Parquet itself."""

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from penstock.pipelines.archives.layout import archive_schema, with_date
from penstock.pipelines.archives.ledger import Span
from penstock.pipelines.archives.receipts import Receipt
from penstock.pipelines.archives.refusals import ArchiveRefused
from penstock.pipelines.lakes.data_files import DataFileWriter
from penstock.pipelines.lakes.full_disk import full_disk_explained
from penstock.pipelines.lakes.lake_table import DataFile
from penstock.pipelines.lakes.parquet_file import Encodings
from penstock.spark.options.reading import ReadOptions
from penstock.spark.reading.scanning import Lost, scan
from penstock.spark.reading.topic_range import TopicRange
from penstock.spark.writing.epoch import TaskContextLike, task_attempt

# Trying a dictionary on keys and values, which mostly differ, takes as long as writing them.
ENCODINGS = Encodings(
    dictionary=("topic", "partition", "timestampType", "date"), delta=("offset", "timestamp")
)
# Below the archive's folder.
DATA = "data"
# For attempts of no epoch, which only tests make.
NO_EPOCH = "no-epoch"

Scan = Callable[[TopicRange, ReadOptions, Lost], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where files go; it travels to executors by pickle."""

    root: str
    is_by_date: bool
    keeps_partition_columns: bool

    @property
    def partition_by(self) -> tuple[str, ...]:
        return ("partition", "date") if self.is_by_date else ("partition",)


def archive_range(
    wanted: TopicRange, options: ReadOptions, target: Target, scanned: Scan = scan
) -> Receipt:
    lost: list[Span] = []

    def note(start: int, stop: int) -> None:
        lost.append(Span(partition=wanted.partition, start=start, stop=stop))

    with full_disk_explained(f"the archive {target.root}", ArchiveRefused):
        files = _write(wanted, target, scanned(wanted, options, note))
    span = Span(partition=wanted.partition, start=wanted.start, stop=wanted.stop)
    return Receipt(span=span, files=files, lost=tuple(lost))


def _write(
    wanted: TopicRange, target: Target, batches: Iterable[pa.RecordBatch]
) -> tuple[DataFile, ...]:
    writer = DataFileWriter(
        target.root,
        attempt_folder(TaskContext.get(), wanted.partition),
        archive_schema(is_by_date=target.is_by_date),
        target.partition_by,
        keeps_partition_columns=target.keeps_partition_columns,
        encodings=ENCODINGS,
    )
    with writer:
        for batch in batches:
            writer.write(with_date(batch) if target.is_by_date else batch)
        return tuple(writer.close())


def attempt_folder(context: TaskContextLike | None, partition: int) -> str:
    """One that no other attempt writes to, under the name of its epoch."""
    epoch = task_attempt(context).epoch
    random = secrets.token_hex(8)
    if epoch is None:
        return f"{DATA}/{NO_EPOCH}/{partition}-{random}"
    return f"{DATA}/{epoch.query_id}/{epoch.batch_id}-{random}"
