"""Tables evolve under pipelines that are started again and under those that run on.

They are read by those who know nothing of Penstock, and by Spark.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.pipelines.lakes.delta_table import DeltaTable
from penstock.pipelines.lakes.opening import open_table
from penstock.pipelines.lakes.table_source import table_frame
from penstock.pipelines.running.checkpoint_folder import last_committed
from penstock.pipelines.running.gate import StopGate
from penstock.pipelines.running.queries import start_query
from penstock.pipelines.running.refusals import FlowFailed
from penstock.pipelines.running.runner import run_pipeline
from penstock.pipelines.running.storage import Storage
from penstock.pipelines.sinks.lake_sink import LakeWriter
from penstock.pipelines.sinks.sink import Epoch, Written
from penstock.pipelines.specification.model import LakeFormat, Pipeline
from penstock.pipelines.specification.problems import SpecificationRefused
from penstock.pipelines.specification.reading import read_pipeline
from tests.spark.pipelines.test_lake_sinks import read_table

BEGIN_S = 1_700_000_000
BATCH_TIMEOUT_S = 120.0
# Delta can't be given wider types, and says so; its flow keeps to the old ones.
SPECIFICATION = """\
pipeline: evolving
parameters: {columns: {}, evolve: "true"}
sources:
  rows: {files: rows, format: json, schema: "${columns}", options: {maxFilesPerTrigger: 1}}
steps:
  narrow: {sql: "SELECT INT(id) AS id, FLOAT(real) AS real, * EXCEPT (id, real) FROM rows"}
flows:
  parquet: {from: rows, to: {parquet: lake/parquet, evolve: "${evolve}"}}
  delta: {from: narrow, to: {delta: lake/delta, evolve: "${evolve}"}}
  iceberg: {from: rows, to: {iceberg: lake/iceberg, evolve: "${evolve}"}}
"""
OLD = "id INT, real FLOAT"
NEW = "id BIGINT, room STRUCT<name: STRING>, real DOUBLE"

Row = Mapping[str, Any]


def write_rows(folder: Path, number: int, *rows: Row) -> None:
    """One file for each micro-batch, in the order of their times, which is what Spark goes by."""
    path = folder / "rows" / f"{number}.json"
    path.parent.mkdir(exist_ok=True)
    draft = folder / f"{number}.draft"
    draft.write_text("\n".join(json.dumps(row) for row in rows))
    os.utime(draft, (BEGIN_S + number, BEGIN_S + number))
    draft.rename(path)


def check_tables(spark: SparkSession, folder: Path, *expected: Row) -> None:
    """By their own libraries, and by Spark as a source of a pipeline reads them."""
    for lake_format in LakeFormat:
        root = str(folder / "lake" / lake_format.value)
        found = read_table(lake_format, open_table(lake_format, root)).to_pylist()
        assert sorted(found, key=lambda row: row["id"]) == list(expected), lake_format
        rows = table_frame(spark, lake_format, root, is_stream=False).orderBy("id").collect()
        assert [row.asDict(recursive=True) for row in rows] == list(expected), lake_format


def described(folder: Path, **given: str) -> Pipeline:
    (folder / "evolving.yaml").write_text(SPECIFICATION)
    return read_pipeline(folder / "evolving.yaml", given, environment={})


@pytest.mark.slow
def test_a_pipeline_that_is_started_again_with_more_columns(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path, 0, {"id": 1, "real": 0.5})
    run_pipeline(described(tmp_path, columns=OLD, evolve="false"), once=True, spark=spark)
    one = {"id": 1, "real": 0.5}
    check_tables(spark, tmp_path, one)

    # Without the word nothing is started, and nothing changes.
    write_rows(tmp_path, 1, {"id": 2, "real": 0.25, "room": {"name": "hall"}})
    with pytest.raises(SpecificationRefused) as refused:
        run_pipeline(described(tmp_path, columns=NEW, evolve="false"), once=True, spark=spark)
    assert len(refused.value.problems) == len(LakeFormat)
    for problem in refused.value.problems:
        assert "; `evolve: true` on the sink lets the table take them." in str(problem)
    check_tables(spark, tmp_path, one)

    # It ends between the change of the Delta table and the first rows with the new column.
    pipeline = described(tmp_path, columns=NEW)
    append = DeltaTable._append
    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "_append", lambda *_: 1 / 0)
        with pytest.raises(FlowFailed, match=r"The flow delta failed: ZeroDivisionError"):
            run_pipeline(pipeline, once=True, spark=spark)
    assert DeltaTable._append is append
    delta = open_table(LakeFormat.DELTA, str(tmp_path / "lake" / "delta"))
    assert delta.schema().names == ["id", "real", "room"]
    assert read_table(LakeFormat.DELTA, delta).num_rows == 1
    run_pipeline(pipeline, once=True, spark=spark)
    one, two = {**one, "room": None}, {"id": 2, "real": 0.25, "room": {"name": "hall"}}
    check_tables(spark, tmp_path, one, two)

    # Spark had not noted the first batch with the new columns, and does it again before the next.
    for name in pipeline.flows:
        commits = Storage(Path(pipeline.storage)).flow(name).checkpoint / "commits"
        last = last_committed(commits.parent)
        for path in (commits / str(last), commits / f".{last}.crc"):
            path.unlink(missing_ok=True)
    write_rows(tmp_path, 2, {"id": 3, "room": {"name": "attic"}})
    run_pipeline(pipeline, once=True, spark=spark)
    three = {"id": 3, "real": None, "room": {"name": "attic"}}
    check_tables(spark, tmp_path, one, two, three)

    # The change is taken back: what is there stays, and rows of the old kind have null there.
    write_rows(tmp_path, 3, {"id": 4, "real": 4.0})
    run_pipeline(described(tmp_path, columns=OLD), once=True, spark=spark)
    check_tables(spark, tmp_path, one, two, three, {"id": 4, "real": 4.0, "room": None})


@pytest.fixture
def queries() -> Iterator[list[StreamingQuery]]:
    started: list[StreamingQuery] = []
    yield started
    for query in started:
        query.stop()


def test_a_pipeline_that_runs_on_while_another_one_adds_columns(
    spark: SparkSession, tmp_path: Path, queries: list[StreamingQuery]
) -> None:
    write_rows(tmp_path, 0, {"id": 1})
    frame = spark.readStream.schema("id INT").json(str(tmp_path / "rows"))
    written: Queue[tuple[str, int]] = Queue()

    def note(epoch: Epoch, _: Written) -> None:
        written.put((epoch.flow, epoch.batch))

    def table(lake_format: LakeFormat) -> LakeWriter:
        root = str(tmp_path / "lake" / lake_format.value)
        return LakeWriter(open_table(lake_format, root, evolves=True))

    queries.extend(
        start_query(
            frame,
            table(lake_format),
            pipeline="running",
            flow=lake_format.value,
            checkpoint=tmp_path / "checkpoints" / lake_format.value,
            interval=None,
            once=False,
            mode="append",
            gate=StopGate(),
            on_written=note,
        )
        for lake_format in LakeFormat
    )

    def wait_for(batch: int) -> None:
        found = {written.get(timeout=BATCH_TIMEOUT_S) for _ in LakeFormat}
        assert found == {(lake_format.value, batch) for lake_format in LakeFormat}

    wait_for(0)
    more = spark.createDataFrame([(2, "hall")], "id INT, room STRING")
    for lake_format in LakeFormat:
        other = Epoch(query="other", batch=0, pipeline="other", flow="more")
        assert table(lake_format).write(more, other).rows == 1
    write_rows(tmp_path, 1, {"id": 3})
    wait_for(1)
    expected = [(1, None), (2, "hall"), (3, None)]
    check_tables(spark, tmp_path, *({"id": number, "room": room} for number, room in expected))
