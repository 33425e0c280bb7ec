"""Reads a table's Parquet files in Spark's tasks, as Arrow batches of exactly the asked columns."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.pipelines.lakes.lake_table import LakeRefused
from penstock.pipelines.lakes.schema_fit import narrows
from penstock.pipelines.lakes.table_source_planning import TableFile, file_gone

# The size at which Spark takes Arrow batches fastest.
BATCH_ROWS = 10_000


def read_files(
    files: Sequence[TableFile], schema: pa.Schema, root: str
) -> Iterator[pa.RecordBatch]:
    for file in files:
        yield from _read_file(file, schema, root)


def _read_file(file: TableFile, schema: pa.Schema, root: str) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(file.path) as parquet:
            inside = set(parquet.schema_arrow.names) - file.outside.keys()
            names = [name for name in schema.names if name in inside]
            for batch in parquet.iter_batches(BATCH_ROWS, columns=names):
                yield _conformed(batch, schema, file.outside, root)
    except FileNotFoundError:
        raise file_gone(file.path, root) from None
    except pa.ArrowInvalid as failure:
        reason = str(failure).splitlines()[0].rstrip(".")
        raise LakeRefused(
            f"The file {file.path!r} of the table {root!r} can't be read: {reason}."
        ) from failure


def _conformed(
    batch: pa.RecordBatch, schema: pa.Schema, outside: Mapping[str, str | None], root: str
) -> pa.RecordBatch:
    """Spark takes no other types than those it expects, to the names of inner fields."""
    columns = [_column(batch, field, outside, root) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(
    batch: pa.RecordBatch, field: pa.Field, outside: Mapping[str, str | None], root: str
) -> pa.Array:
    if field.name in outside:
        return pa.repeat(value_of(outside[field.name], field.type), batch.num_rows)
    place = batch.schema.get_field_index(field.name)
    if place < 0:
        # The column came to the table after the file.
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(place)
    if column.type.equals(field.type, check_metadata=True):
        return column
    if narrows(column.type, field.type):
        # A cast would round numbers without a word.
        raise LakeRefused(
            f"The column {field.name!r} of the table {root!r} has been widened from {field.type} to"
            f" {column.type} while it was read: restart the flow to read the new type."
        )
    return column.cast(field.type)


def value_of(text: str | None, kind: pa.DataType) -> Any:
    """The value of a partition column, which a table's log keeps as text."""
    if text is None:
        return pa.scalar(None, kind)
    if pa.types.is_binary(kind):
        return pa.scalar(text.encode(), kind)
    if pa.types.is_timestamp(kind) and kind.tz is not None and not text.endswith("Z"):
        return pa.scalar(f"{text}Z").cast(kind)
    return pa.scalar(text).cast(kind)
