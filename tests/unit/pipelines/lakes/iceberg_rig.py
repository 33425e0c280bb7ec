"""What tests of Iceberg tables share: rows as files, epochs, and the table as pyiceberg sees it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from penstock.pipelines.lakes.data_files import DataFileWriter
from penstock.pipelines.lakes.iceberg_table import IcebergTable
from penstock.pipelines.lakes.lake_table import DataFile
from penstock.pipelines.sinks.sink import Epoch

SCHEMA = pa.schema(
    [
        ("sensor", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("temperature", pa.float64()),
    ]
)


def moment(day: int, hour: int = 0) -> datetime:
    return datetime(2026, 1, day, hour, tzinfo=UTC)


def reading(sensor: str | None, day: int, temperature: float, hour: int = 0) -> dict[str, Any]:
    return {"sensor": sensor, "at": moment(day, hour), "temperature": temperature}


def epoch(batch: int, query: str = "query-a", flow: str = "flow") -> Epoch:
    return Epoch(query=query, batch=batch, pipeline="iot", flow=flow)


def files_of(
    table: IcebergTable,
    rows: Sequence[dict[str, Any]],
    partition_by: Sequence[str] = (),
    *,
    schema: pa.Schema = SCHEMA,
    folder: str = "data/query-a/0-x",
) -> list[DataFile]:
    with DataFileWriter(table.root, folder, schema, partition_by) as writer:
        writer.write(pa.RecordBatch.from_pylist(list(rows), schema))
        return writer.close()


def append(
    table: IcebergTable,
    batch: int,
    rows: Sequence[dict[str, Any]],
    partition_by: Sequence[str] = (),
    *,
    query: str = "query-a",
    details: dict[str, Any] | None = None,
) -> bool:
    files = files_of(table, rows, partition_by)
    return table.commit(epoch(batch, query), files, SCHEMA, partition_by, details or {})


def seen_by_pyiceberg(table: IcebergTable) -> Any:
    """The table as another program finds it, through the SQLite catalog in its folder."""
    catalog = SqlCatalog("penstock", uri=f"sqlite:///{table.root}/catalog.db")
    [identifier] = catalog.list_tables("penstock")
    return catalog.load_table(identifier)
