"""Executors write the rows of a frame to files; only their receipts come back to the driver."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.pipelines.lakes.data_files import DataFileWriter
from penstock.pipelines.lakes.full_disk import full_disk_explained
from penstock.pipelines.lakes.lake_table import DataFile, LakeRefused
from penstock.pipelines.lakes.partition_folders import column_of
from penstock.pipelines.lakes.receipts import from_json, to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RECEIPT = pa.schema([pa.field("receipt", pa.string())])


def write_frame(
    frame: "DataFrame",
    schema: pa.Schema,
    root: str,
    folder: str,
    partition_by: Sequence[str] = (),
    *,
    keeps_partition_columns: bool = True,
) -> list[DataFile]:
    """Write all rows below `<root>/<folder>`, by exactly one action.

    The columns are those of the frame, in their order, and the files have the types of `schema`.
    Returns the files of those task attempts whose result Spark took, in the order of the tasks: a
    task that was tried twice leaves files that are in no receipt.
    """
    task = WritingTask(
        root=root,
        folder=folder,
        schema=schema,
        partition_by=tuple(partition_by),
        keeps_partition_columns=keeps_partition_columns,
    )
    # A name with a dot in it would be taken for a field of a struct on the way.
    numbered = frame.toDF(*(f"column_{index}" for index in range(len(schema))))
    if partition_by:
        # Spark's own sort spills to disk: without it, a task would need memory or a small file for
        # each partition of the table that it meets rows of.
        places = [schema.get_field_index(column_of(text)) for text in partition_by]
        numbered = numbered.sortWithinPartitions(*(f"column_{place}" for place in places))
    receipts = numbered.mapInArrow(task, "receipt STRING").collect()
    return [from_json(json.loads(row["receipt"])) for row in receipts]


@dataclass(frozen=True, kw_only=True)
class WritingTask:
    """Travels to the executors; called once per task."""

    root: str
    folder: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    keeps_partition_columns: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with full_disk_explained(f"the table {self.root!r}", LakeRefused):
            receipts = [json.dumps(to_json(file)) for file in self._write(batches)]
        yield pa.record_batch([pa.array(receipts, pa.string())], schema=_RECEIPT)

    def _write(self, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        with DataFileWriter(
            self.root,
            self.folder,
            self.schema,
            self.partition_by,
            keeps_partition_columns=self.keeps_partition_columns,
            name=_file_name(),
        ) as writer:
            for batch in batches:
                writer.write(self._typed(batch))
            return writer.close()

    def _typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """With the table's names and types: Spark's carry the session's time zone."""
        columns = [
            column if column.type.equals(field.type) else column.cast(field.type)
            for column, field in zip(batch.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _file_name() -> str:
    """Tells people which task wrote a file; what makes it unique is the writer's."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return "part" if context is None else f"part-{context.partitionId():05d}"
