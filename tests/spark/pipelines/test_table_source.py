"""Proves that a lake table comes back whole in batch, and once and only once as a stream."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.pipelines.lakes.data_files import DataFileWriter
from penstock.pipelines.lakes.lake_table import LakeRefused, LakeTable
from penstock.pipelines.lakes.opening import keeps_partition_columns, open_table
from penstock.pipelines.lakes.table_source import table_frame
from penstock.pipelines.sinks.sink import Epoch
from penstock.pipelines.specification.model import LakeFormat
from tests.spark.reading import forget_last_batch, last_line, planned_end
from tests.spark.rig import Output, finish, wait_for_query

SCHEMA = pa.schema(
    [
        ("sensor", pa.string()),
        ("number", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.map_(pa.string(), pa.list_(pa.field("element", pa.int16())))),
    ]
)
BY = ("sensor",)
MOMENT = datetime(2026, 1, 31, 12, 30, 15, 250_001, UTC)


def append(table: LakeTable, lake_format: LakeFormat, batch: int, numbers: range) -> None:
    rows = [
        {"sensor": "ab"[n % 2], "number": n, "at": MOMENT, "tags": [("x", [n])]} for n in numbers
    ]
    keeps = keeps_partition_columns(lake_format)
    folder = f"data/query/{batch}-x"
    with DataFileWriter(table.root, folder, SCHEMA, BY, keeps_partition_columns=keeps) as writer:
        writer.write(pa.RecordBatch.from_pylist(rows, SCHEMA))
        files = writer.close()
    epoch = Epoch(query="query", batch=batch, pipeline="iot", flow="flow")
    assert table.commit(epoch, files, SCHEMA, BY, {})


def numbers(rows: list[Any]) -> list[int]:
    return sorted(row.number for row in rows)


@pytest.mark.parametrize("lake_format", list(LakeFormat))
def test_a_table_in_batch_and_as_a_stream(
    spark: SparkSession, tmp_path: Path, lake_format: LakeFormat
) -> None:
    path = str(tmp_path / "lake [1] a{b}*")
    table = open_table(lake_format, path)
    for batch in range(3):
        append(table, lake_format, batch, range(10 * batch, 10 * batch + 10))

    batch_frame = table_frame(spark, lake_format, path, False)
    found = batch_frame.collect()
    assert batch_frame.columns == SCHEMA.names
    assert numbers(found) == list(range(30))
    assert {row.sensor for row in found} == {"a", "b"}
    assert next(row for row in found if row.number == 7).tags == {"x": [7]}
    assert batch_frame.where("sensor = 'b' AND number < 10").count() == 5
    assert (
        batch_frame.selectExpr("unix_micros(at) AS at").distinct().collect()[0].at
        == int(MOMENT.timestamp()) * 1_000_000 + 250_001
    )

    # Two commits at a time; then a batch that died, and what came meanwhile.
    frame = table_frame(spark, lake_format, path, True, {"maxCommitsPerTrigger": "2"})
    assert frame.schema == batch_frame.schema
    output = Output(tmp_path)
    first = output.start(frame, availableNow=True)
    finish(first)
    assert numbers(output.rows(frame)) == list(range(30))
    assert planned_end(output) == {"start": -1, "version": 1}
    append(table, lake_format, 3, range(30, 35))
    forget_last_batch(output)
    finish(output.start(frame, availableNow=True))
    assert numbers(output.rows(frame)) == list(range(35))


def test_a_stream_waits_for_its_table_and_names_a_file_that_is_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "later")
    ddl = "sensor STRING, number LONG, at TIMESTAMP, tags MAP<STRING, ARRAY<SHORT>>"
    with pytest.raises(LakeRefused, match="its source needs a schema"):
        table_frame(spark, LakeFormat.PARQUET, path, True)
    assert table_frame(spark, LakeFormat.PARQUET, path, False, schema=ddl).collect() == []

    frame = table_frame(spark, LakeFormat.PARQUET, path, True, schema=ddl)
    output = Output(tmp_path)
    query = output.start(frame, processingTime="0 seconds")
    try:
        wait_for_query(query, "a first look", lambda: query.lastProgress is not None)
        table = open_table(LakeFormat.PARQUET, path)
        append(table, LakeFormat.PARQUET, 0, range(5))
        wait_for_query(query, "the rows", lambda: numbers(read(output, frame)) == list(range(5)))
    finally:
        query.stop()

    append(table, LakeFormat.PARQUET, 1, range(5, 10))
    gone = table.paths(after=0)[0]
    os.unlink(gone)
    with pytest.raises(PySparkException) as caught:
        finish(output.start(frame, availableNow=True))
    assert f"The file '{gone}' of the table '{path}' is gone" in last_line(caught.value)
    with pytest.raises(LakeRefused, match="is gone"):
        table_frame(spark, LakeFormat.PARQUET, path, False)


def read(output: Output, frame: DataFrame) -> list[Any]:
    return output.rows(frame) if (output.parquet / "_spark_metadata").exists() else []
