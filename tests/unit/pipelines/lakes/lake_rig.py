"""Rows, files and epochs for tests of tables."""

from pathlib import Path

import pyarrow as pa

from penstock.pipelines.lakes.data_files import DataFileWriter
from penstock.pipelines.lakes.lake_table import DataFile, LakeTable
from penstock.pipelines.sinks.sink import Epoch

SCHEMA = pa.schema([("sensor", pa.string()), ("value", pa.int64())])


def epoch(batch: int, query: str = "query-1", flow: str = "raw") -> Epoch:
    return Epoch(query=query, batch=batch, pipeline="iot", flow=flow)


def write_files(
    root: str,
    rows: list[tuple[str | None, int]],
    partition_by: tuple[str, ...] = (),
    *,
    keeps: bool = True,
    folder: str = "data/query-1/0-a",
) -> list[DataFile]:
    columns = [pa.array([row[index] for row in rows], SCHEMA.field(index).type) for index in (0, 1)]
    with DataFileWriter(
        root, folder, SCHEMA, partition_by, keeps_partition_columns=keeps
    ) as writer:
        writer.write(pa.record_batch(columns, schema=SCHEMA))
        return writer.close()


def append(table: LakeTable, batch: int, rows: list[tuple[str | None, int]], **names: str) -> bool:
    Path(table.root).mkdir(parents=True, exist_ok=True)
    files = write_files(table.root, rows)
    return table.commit(epoch(batch, **names), files, SCHEMA, (), {"about": "a test"})
