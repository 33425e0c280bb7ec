"""Tables hold each micro-batch exactly once, wherever their process was killed.

What a table holds is told by readers that know nothing of Penstock: pyarrow, `deltalake`,
`pyiceberg` and Spark itself.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrame, SparkSession

from penstock.pipelines.lakes.lake_table import LakeTable
from penstock.pipelines.lakes.opening import keeps_partition_columns, open_table
from penstock.pipelines.sinks.lake_sink import LakeWriter
from penstock.pipelines.sinks.sink import Epoch, SinkRefused, Written
from penstock.pipelines.specification.model import LakeFormat
from tests.spark.pipelines import blocking_lakes
from tests.spark.pipelines.blocking_lakes import FLOWS, flow_name, rows_of_files, start_flow

SENSORS = ["a/b", "ü %20[*]", None, ".."]
BATCHES = 3
ROWS_PER_BATCH = 20
BEGIN_S = 1_700_000_000
KILL_TIMEOUT_S = 240.0
LISTENERS_TIMEOUT_MS = 60_000


def read_table(lake_format: LakeFormat, table: LakeTable) -> pa.Table:
    match lake_format:
        case LakeFormat.PARQUET:
            return ds.dataset(table.paths(), schema=table.schema()).to_table()
        case LakeFormat.DELTA:
            return deltalake.DeltaTable(table.root).to_pyarrow_table()
        case LakeFormat.ICEBERG:
            return _read_iceberg(table.root)


def _read_iceberg(root: str) -> pa.Table:
    catalog = SqlCatalog("penstock", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")
    (identifier,) = [
        name for namespace in catalog.list_namespaces() for name in catalog.list_tables(namespace)
    ]
    return catalog.load_table(identifier).scan().to_arrow()


def files_of(table: LakeTable) -> set[str]:
    return {str(path) for path in Path(table.root, "data").rglob("*.parquet")}


def given_row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "sensor": SENSORS[number % len(SENSORS)],
        "nested": {
            "at": datetime(2026, 1, 1, 0, 0, number % 60, 123456, UTC),
            "parts": [{"x": number / 2}, None, {}] if number % 3 else None,
        },
    }


def write_rows(folder: Path) -> list[dict[str, Any]]:
    """One file per micro-batch, in the order of their times, which is what Spark goes by."""
    (folder / "rows").mkdir()
    rows = [given_row(number) for number in range(BATCHES * ROWS_PER_BATCH)]
    for batch in range(BATCHES):
        part = rows[batch * ROWS_PER_BATCH : (batch + 1) * ROWS_PER_BATCH]
        lines = [json.dumps(row, default=datetime.isoformat) for row in part]
        file = folder / "rows" / f"{batch}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (BEGIN_S + batch, BEGIN_S + batch))
    return rows


def kill_in_second_batch(folder: Path) -> None:
    """Run all flows in a process of their own until each stands at its point, and kill it."""
    process = subprocess.Popen(
        [sys.executable, "-m", blocking_lakes.__name__, str(folder)], start_new_session=True
    )
    try:
        deadline = time.monotonic() + KILL_TIMEOUT_S
        while not all((folder / flow_name(*flow)).exists() for flow in FLOWS):
            assert process.poll() is None, "The program ended before it could be killed."
            assert time.monotonic() < deadline, sorted(path.name for path in folder.iterdir())
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As rows compare: readers give maps as pairs."""

    def parts(value: Any) -> Any:
        return value and [part if part is None else dict(part) for part in value]

    nested = [{**row["nested"], "parts": parts(row["nested"]["parts"])} for row in rows]
    merged = [{**row, "nested": value} for row, value in zip(rows, nested, strict=True)]
    return sorted(merged, key=lambda row: row["id"])


@pytest.mark.timeout(600)
def test_a_kill_before_or_after_the_commit_doubles_and_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    expected = write_rows(tmp_path)
    kill_in_second_batch(tmp_path)
    frame = rows_of_files(spark, tmp_path)
    written: dict[str, list[tuple[int, Written]]] = {flow_name(*flow): [] for flow in FLOWS}
    queries = []
    for flow in FLOWS:
        table = open_table(flow[0], str(tmp_path / "lake" / flow_name(*flow)))
        _check_killed(flow[0], table, flow[1])

        def note(epoch: Epoch, result: Written) -> None:
            written[epoch.flow].append((epoch.batch, result))

        queries.append(start_flow(frame, tmp_path, *flow, steps=lambda _: None, on_written=note))
    for query in queries:
        query.awaitTermination()
    for lake_format, point in FLOWS:
        name = flow_name(lake_format, point)
        table = open_table(lake_format, str(tmp_path / "lake" / name))
        rows = read_table(lake_format, table).to_pylist()
        assert plain(rows) == plain(expected), name
        assert files_of(table) == set(table.paths()), "files of given up attempts are gone"
        assert [batch for batch, _ in written[name]] == [1, 2]
        assert [result.was_there for _, result in written[name]] == [point == "committed", False]
        (query_id,) = table.queries("lakes", name)
        assert table.last_batch(query_id) == BATCHES - 1


def _check_killed(lake_format: LakeFormat, table: LakeTable, point: str) -> None:
    """The table holds one batch or two, and nothing in between, while files lie about."""
    batches = 1 if point == "written" else 2
    assert read_table(lake_format, table).num_rows == batches * ROWS_PER_BATCH
    assert files_of(table) > set(table.paths())


TYPES = """
    `a.b` INT, flag BOOLEAN, tiny TINYINT, small SMALLINT, long BIGINT, real FLOAT, number DOUBLE,
    price DECIMAL(38, 10), sensor STRING, bytes BINARY, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ,
    nested ARRAY<STRUCT<times: MAP<STRING, TIMESTAMP>, deep: STRUCT<numbers: ARRAY<SMALLINT>>>>
"""
FULL_ROW = (
    1,
    True,
    -128,
    -32768,
    2**63 - 1,
    1.5,
    float("inf"),
    Decimal("1234567890123456789012345678.0123456789"),
    "ü/ =",
    bytearray(b"\x00\xff"),
    date(1582, 10, 4),
    datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
    [({"k": datetime(2026, 1, 1, tzinfo=UTC), "none": None}, ([1, None],)), None, (None, None)],
)


@pytest.fixture
def types_frame(spark: SparkSession) -> Iterator[DataFrame]:
    """Rows of all types, in a session whose time zone is not UTC."""
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    nothing = (None,) * len(FULL_ROW)
    yield spark.createDataFrame([FULL_ROW, nothing, (2, *FULL_ROW[1:])], TYPES)
    spark.conf.unset("spark.sql.session.timeZone")


@pytest.mark.parametrize("lake_format", list(LakeFormat))
def test_all_types_come_back_by_every_reader(
    spark: SparkSession, types_frame: DataFrame, tmp_path: Path, lake_format: LakeFormat
) -> None:
    table = open_table(lake_format, str(tmp_path / "a lake"))
    sink = LakeWriter(
        table, ["sensor", "tiny"], keeps_partition_columns=keeps_partition_columns(lake_format)
    )
    sink.prepare(types_frame.schema)
    assert not Path(table.root).exists()
    spark.sparkContext.setJobGroup(str(tmp_path), "one write")
    written = sink.write(types_frame, Epoch(query="q1", batch=0, pipeline="p", flow="f"))
    assert _jobs_of_group(spark, str(tmp_path)) == 1
    assert written.rows == 3
    assert written.size == sum(os.path.getsize(path) for path in table.paths())
    rows = read_table(lake_format, table)
    assert rows.num_rows == 3
    first = next(row for row in rows.to_pylist() if row["a.b"] == 1)
    assert first["at"] == FULL_ROW[11]
    assert (first["local"], first["day"], first["price"]) == (
        FULL_ROW[12],
        FULL_ROW[10],
        FULL_ROW[7],
    )
    assert dict(first["nested"][0]["times"])["k"] == datetime(2026, 1, 1, tzinfo=UTC)
    seen = spark.read.parquet(*table.paths())
    expected = types_frame.select([f"`{name}`" for name in seen.columns])
    assert seen.schema.simpleString() == expected.schema.simpleString()
    assert sorted(map(str, seen.collect())) == sorted(map(str, expected.collect()))
    _refuse_what_does_not_fit(types_frame, sink, table)


def _jobs_of_group(spark: SparkSession, group: str) -> int:
    """Spark's books of jobs are kept by a thread of their own, which may be behind."""
    context = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty(LISTENERS_TIMEOUT_MS)
    return len(context.statusTracker().getJobIdsForGroup(group))


def _refuse_what_does_not_fit(frame: DataFrame, sink: LakeWriter, table: LakeTable) -> None:
    """The column is named, whether before the start or in a batch, and nothing changes."""
    before = table.version()
    changed = frame.selectExpr("* EXCEPT (real)", "string(real) AS real")
    text = "its column 'real' is float, and theirs is string"
    with pytest.raises(SinkRefused, match=text):
        sink.prepare(changed.schema)
    with pytest.raises(SinkRefused, match=text):
        sink.write(changed, Epoch(query="q1", batch=1, pipeline="p", flow="f"))
    with pytest.raises(SinkRefused, match="it has no column 'more'"):
        sink.prepare(frame.selectExpr("*", "1 AS more").schema)
    with pytest.raises(SinkRefused, match=r"The column 'span' has the type interval day"):
        sink.prepare(frame.selectExpr("*", "INTERVAL '1' DAY AS span").schema)
    empty = sink.write(frame.limit(0), Epoch(query="q1", batch=1, pipeline="p", flow="f"))
    assert empty == Written(rows=0)
    assert table.version() == before
    again = sink.write(frame, Epoch(query="q1", batch=0, pipeline="p", flow="f"))
    assert again.was_there
    assert table.version() == before
    assert files_of(table) == set(table.paths())
    again = sink.write(frame, Epoch(query="q2", batch=0, pipeline="p", flow="f"))
    assert again.rows == 3, "a new checkpoint counts from 0 and is not skipped"
    assert sink.queries_before("p", "f") == {"q1", "q2"}
    sink.clear()
    assert not table.exists()
    assert not files_of(table)
