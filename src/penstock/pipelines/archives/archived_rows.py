"""The records of one partition of an archive, in the order of their offsets.

Files of one epoch may overlap where they are kept by date, because times need not ascend with
offsets. So files that overlap are read side by side, and their rows merged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.columns.arrow_layout import arrow_schema
from penstock.pipelines.archives.ledger import ArchivedFile
from penstock.pipelines.archives.refusals import ArchiveRefused

# What a record is made of, and where it was.
RECORD_COLUMNS = ("key", "value", "headers", "timestamp", "offset")
RECORD_SCHEMA = arrow_schema(RECORD_COLUMNS)
ROWS_MAX = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The rows wanted of one partition; it travels to executors by pickle."""

    root: str
    partition: int
    files: tuple[ArchivedFile, ...]
    """Those that hold some of them, by their first offsets."""
    start: int
    stop: int
    from_ms: int | None = None
    until_ms: int | None = None


def archived_rows(stretch: Stretch) -> Iterator[pa.RecordBatch]:
    """Batches of at least one row each."""
    for files in overlapping(stretch.files):
        for batch in _merged([_rows_of(stretch, file) for file in files]):
            wanted = _filtered(stretch, batch)
            if wanted.num_rows:
                yield wanted


def overlapping(files: Sequence[ArchivedFile]) -> Iterator[list[ArchivedFile]]:
    """Files in groups, of which each ends before the next one begins."""
    group: list[ArchivedFile] = []
    last = -1
    for file in sorted(files, key=lambda file: file.first):
        if group and file.first > last:
            yield group
            group = []
        group.append(file)
        last = max(last, file.last)
    if group:
        yield group


def _rows_of(stretch: Stretch, file: ArchivedFile) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(Path(stretch.root) / file.path) as parquet:
            for batch in parquet.iter_batches(ROWS_MAX, columns=list(RECORD_COLUMNS)):
                yield _as_record(batch)
    except FileNotFoundError:
        raise ArchiveRefused(
            f"The file {file.path} of the archive {stretch.root} is missing."
        ) from None
    except (pa.ArrowException, OSError) as error:
        raise ArchiveRefused(
            f"The file {file.path} of the archive {stretch.root} can't be read:"
            f" {str(error).splitlines()[0].rstrip('.')}."
        ) from None


def _as_record(batch: pa.RecordBatch) -> pa.RecordBatch:
    """In our order of columns: Parquet gives them in the file's."""
    columns = [batch.column(name) for name in RECORD_COLUMNS]
    typed = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(columns, RECORD_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(typed, schema=RECORD_SCHEMA)


def _merged(sources: list[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Rows of several files by their offsets, which ascend in each of them."""
    if len(sources) == 1:
        yield from sources[0]
        return
    heads: dict[int, pa.RecordBatch] = {}
    for number, source in enumerate(sources):
        head = next(source, None)
        if head is not None:
            heads[number] = head
    while heads:
        # Up to here every file has shown what it has.
        safe = min(_last_offset(head) for head in heads.values())
        ready = []
        for number, head in list(heads.items()):
            count = int(np.searchsorted(_offsets(head), safe, side="right"))
            ready.append(head.slice(0, count))
            rest = head.slice(count) if count < head.num_rows else next(sources[number], None)
            if rest is None:
                del heads[number]
            else:
                heads[number] = rest
        yield _sorted(ready)


def _sorted(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches, RECORD_SCHEMA)
    ordered = table.take(pc.sort_indices(table.column("offset"))).combine_chunks()
    return ordered.to_batches()[0]


def _offsets(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    return np.asarray(batch.column("offset"), np.int64)


def _last_offset(batch: pa.RecordBatch) -> int:
    return int(_offsets(batch)[-1])


def _filtered(stretch: Stretch, batch: pa.RecordBatch) -> pa.RecordBatch:
    offsets = _offsets(batch)
    begin = int(np.searchsorted(offsets, stretch.start))
    end = int(np.searchsorted(offsets, stretch.stop))
    batch = batch.slice(begin, max(0, end - begin))
    if stretch.from_ms is None and stretch.until_ms is None:
        return batch
    times = timestamps_ms(batch)
    is_wanted = np.ones(batch.num_rows, np.bool_)
    if stretch.from_ms is not None:
        is_wanted &= times >= stretch.from_ms
    if stretch.until_ms is not None:
        is_wanted &= times < stretch.until_ms
    return batch.filter(pa.array(is_wanted))


def timestamps_ms(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """-1, Kafka's word for none, where a time was too far away for the archive to hold it."""
    microseconds = batch.column("timestamp").cast(pa.int64()).fill_null(-1)
    return np.floor_divide(np.asarray(microseconds, np.int64), 1000)
