"""Proves that an Iceberg table holds each epoch once, and that pyiceberg's own scan agrees."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError

from penstock.pipelines.lakes.data_files import DataFileWriter
from penstock.pipelines.lakes.iceberg_table import ATTEMPTS_MAX, IcebergTable
from penstock.pipelines.lakes.lake_table import LakeRefused
from tests.unit.pipelines.lakes.iceberg_rig import (
    SCHEMA,
    append,
    epoch,
    files_of,
    reading,
    seen_by_pyiceberg,
)


@pytest.fixture
def table(tmp_path: Path) -> IcebergTable:
    return IcebergTable(str(tmp_path / "readings"), pause=lambda _: None)


def test_looking_at_a_table_that_is_not_there_makes_nothing(
    table: IcebergTable, tmp_path: Path
) -> None:
    assert not table.exists()
    assert table.version() == -1
    assert table.paths() == []
    assert table.last_batch("query-a") is None
    assert table.queries("iot", "flow") == frozenset()
    table.check(SCHEMA, ["day(at)"])
    table.drop()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LakeRefused, match=r"There is no Iceberg table at '.*readings'\.$"):
        table.schema()


def test_epochs_are_kept_once_and_by_the_query_alone(table: IcebergTable) -> None:
    assert append(table, 0, [reading("a", 1, 20.5), reading("b", 1, 21.0)])
    assert append(table, 3, [reading("a", 2, 22.0)], details={"offsets": {"0": [5, 9]}})
    # The same batch of a query that was killed after its commit, and an older one.
    assert not append(table, 3, [reading("a", 2, 22.0)])
    assert not append(table, 0, [reading("a", 1, 20.5)])
    # A new checkpoint counts from 0 again.
    assert append(table, 0, [reading("c", 3, 1.0)], query="query-b")

    found = seen_by_pyiceberg(table)
    assert sorted(found.scan().to_arrow()["temperature"].to_pylist()) == [1.0, 20.5, 21.0, 22.0]
    assert table.last_batch("query-a") == 3
    assert table.last_batch("query-b") == 0
    assert table.queries("iot", "flow") == {"query-a", "query-b"}
    assert table.queries("iot", "other") == frozenset()
    assert found.properties["penstock.epoch.query-a"] == "3"
    summary = found.snapshots()[1].summary
    assert summary["penstock.flow"] == "flow"
    assert json.loads(summary["penstock.details"]) == {"offsets": {"0": [5, 9]}}
    assert [snapshot.summary["penstock.batch"] for snapshot in found.snapshots()] == ["0", "3", "0"]
    assert table.schema() == SCHEMA


def test_paths_are_those_that_commits_added_in_their_order(table: IcebergTable) -> None:
    for batch in range(4):
        append(table, batch, [reading("a", 1, float(batch))])

    def temperatures(after: int = -1, until: int | None = None) -> list[float]:
        paths = table.paths(after, until)
        return [pq.read_table(path)["temperature"][0].as_py() for path in paths]

    assert table.version() == 3
    assert temperatures() == [0.0, 1.0, 2.0, 3.0]
    assert temperatures(after=1) == [2.0, 3.0]
    assert temperatures(after=0, until=2) == [1.0, 2.0]
    assert temperatures(until=0) == [0.0]
    assert temperatures(after=3) == []


def test_an_epoch_without_files_leaves_no_trace(table: IcebergTable) -> None:
    assert table.commit(epoch(0), [], SCHEMA, [], {})
    assert not table.exists()


def test_partitions_prune_and_hold_nulls(table: IcebergTable) -> None:
    by = ["sensor", "day(at)"]
    rows = [reading(sensor, day, 1.0) for sensor in ("a", "x" * 300, None) for day in (1, 2, 3)]
    append(table, 0, rows, by)
    append(table, 1, [reading("a", 2, 2.0, hour=23)], by)

    found = seen_by_pyiceberg(table)
    assert found.scan().count() == 10
    assert [str(field.transform) for field in found.spec().fields] == ["identity", "day"]
    assert [field.name for field in found.spec().fields] == ["sensor", "at_day"]
    one_day = found.scan("at >= '2026-01-02T00:00:00+00:00' and at < '2026-01-03T00:00:00+00:00'")
    assert len(list(one_day.plan_files())) == 4
    assert len(list(found.scan("sensor = 'a'").plan_files())) == 4
    assert len(list(found.scan("sensor is null").plan_files())) == 3
    values = {entry["partition"]["sensor"] for entry in found.inspect.files().to_pylist()}
    assert values == {"a", "x" * 300, None}
    with pytest.raises(LakeRefused, match=r"is partitioned by 'sensor', 'day\(at\)'"):
        table.check(SCHEMA, ["day(at)"])
    table.check(SCHEMA, ["sensor", "days(at)"])


@pytest.mark.parametrize(
    ("partition_by", "files"),
    [(["hour(at)"], 3), (["day(at)"], 2), (["month(at)"], 1), (["year(at)", "sensor"], 2)],
)
def test_each_transform_gives_files_of_one_partition(
    table: IcebergTable, partition_by: list[str], files: int
) -> None:
    rows = [reading("a", 1, 1.0, 5), reading("a", 1, 2.0, 6), reading("b", 2, 3.0, 6)]
    append(table, 0, rows, partition_by)
    found = seen_by_pyiceberg(table)
    assert len(list(found.scan().plan_files())) == files
    assert found.scan("at >= '2026-01-02T00:00:00+00:00'").count() == 1


def test_every_type_that_cuts_a_table_is_found_in_the_files(tmp_path: Path) -> None:
    from datetime import date, datetime
    from decimal import Decimal

    kinds: dict[str, tuple[pa.DataType, Any]] = {
        "boolean": (pa.bool_(), True),
        "byte": (pa.int8(), -3),
        "long": (pa.int64(), 2**40),
        "date": (pa.date32(), date(1969, 12, 31)),
        "decimal": (pa.decimal128(10, 2), Decimal("-12.30")),
        "plain_time": (pa.timestamp("us"), datetime(1969, 12, 31, 23, 59, 59, 5)),
    }
    schema = pa.schema([(name, kind) for name, (kind, _) in kinds.items()] + [("row", pa.int32())])
    row = {name: value for name, (_, value) in kinds.items()} | {"row": 1}
    by = [*kinds, "day(plain_time)", "month(date)"]
    table = IcebergTable(str(tmp_path / "kinds"))
    files = files_of(table, [row, dict.fromkeys(kinds) | {"row": 2}], by, schema=schema)
    assert len(files) == 2
    table.commit(epoch(0), files, schema, by, {})
    found = seen_by_pyiceberg(table)
    partitions = [entry["partition"] for entry in found.inspect.files().to_pylist()]
    expected = row | {"plain_time_day": date(1969, 12, 31), "date_month": -1}
    del expected["row"]
    assert expected in partitions
    assert dict.fromkeys(expected) in partitions
    assert found.scan("long = 1099511627776").to_arrow()["row"].to_pylist() == [1]


def test_columns_inside_columns_and_small_numbers_come_back(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("small", pa.int16(), nullable=False),
            ("tags", pa.map_(pa.string(), pa.list_(pa.struct([("n", pa.int64())])))),
            ("raw", pa.binary()),
        ]
    )
    row = {"small": 7, "tags": [("a", [{"n": 1}, {"n": None}])], "raw": b"\x00\xff"}
    table = IcebergTable(str(tmp_path / "nested"))
    table.commit(epoch(0), files_of(table, [row], schema=schema), schema, [], {})
    # Spark says in one batch that a column is never null, and in the next that it may be.
    loose = pa.schema([field.with_nullable(True) for field in schema])
    again = files_of(table, [row | {"small": None}], schema=loose)
    table.check(loose, [])
    table.commit(epoch(1), again, loose, [], {})
    found = seen_by_pyiceberg(table).scan().to_arrow().to_pylist()
    assert sorted(found, key=str) == sorted([row, row | {"small": None}], key=str)
    assert table.schema().field("small").type == pa.int32()


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (SCHEMA.append(pa.field("humidity", pa.float64())), "it has no column 'humidity'"),
        (SCHEMA.remove(2), "they have no column 'temperature'"),
        (SCHEMA.set(2, pa.field("temperature", pa.string())), "'temperature' is double"),
        (SCHEMA.append(pa.field("x", pa.month_day_nano_interval())), "Iceberg has no type for"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    table: IcebergTable, schema: pa.Schema, sentence: str
) -> None:
    append(table, 0, [reading("a", 1, 1.0)])
    with pytest.raises(LakeRefused) as refused:
        table.check(schema, [])
    assert sentence in str(refused.value)
    assert str(refused.value).endswith(".")


@pytest.mark.parametrize(
    ("column", "partition_by", "sentence"),
    [
        # pyiceberg would note each of its partitions as null, and find nothing in them.
        ("sensor.id", "sensor.id", "because of the dot in its name."),
        ("at_day", "day(at)", "have a column 'at_day', which is what Iceberg calls the partition."),
        ("place", "day(sensor)", "the column 'sensor' is of type string, which has no day."),
        ("place", "bucket(4, at)", "only columns and year(), month(), day() and hour() of a col"),
        ("place", "rooom", "the rows have no column 'rooom'."),
    ],
)
def test_tables_that_can_not_be_cut_so_are_refused(
    table: IcebergTable, column: str, partition_by: str, sentence: str
) -> None:
    with pytest.raises(LakeRefused) as refused:
        table.check(SCHEMA.append(pa.field(column, pa.string())), [partition_by])
    assert sentence in str(refused.value)


def test_odd_names_of_columns_come_back(tmp_path: Path) -> None:
    schema = pa.schema([("sensor.id", pa.string()), ("a b", pa.int64()), ("größe", pa.int64())])
    row = {"sensor.id": "x", "a b": 1, "größe": 2}
    table = IcebergTable(str(tmp_path / "odd"))
    table.commit(epoch(0), files_of(table, [row], ["a b"], schema=schema), schema, ["a b"], {})
    found = seen_by_pyiceberg(table)
    assert found.scan().to_arrow().to_pylist() == [row]
    inner = pa.struct([("id", pa.string())])
    with pytest.raises(LakeRefused, match="two columns have the same name in it"):
        table.check(schema.append(pa.field("sensor", inner)), ["a b"])


@pytest.mark.parametrize("partition_by", [(), ("day(at)",)])
def test_a_year_that_pyiceberg_can_not_hold_is_named(
    table: IcebergTable, partition_by: tuple[str, ...]
) -> None:
    far = pa.array([10**18], SCHEMA.field("at").type)
    columns = [pa.array(["a"]), far, pa.array([1.0])]
    with DataFileWriter(table.root, "data/query-a/0-x", SCHEMA, partition_by) as writer:
        writer.write(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        files = writer.close()
    with pytest.raises(LakeRefused, match="does not take a date or time outside of the years 1"):
        table.commit(epoch(0), files, SCHEMA, partition_by, {})
    assert table.last_batch("query-a") is None


def test_a_folder_of_another_format_is_refused(table: IcebergTable) -> None:
    os.makedirs(f"{table.root}/_delta_log")
    with pytest.raises(LakeRefused, match="already holds a Delta table"):
        table.check(SCHEMA, [])


class TestRaces:
    """Another writer, or a catalog that answers badly, in the moment of a commit."""

    def test_a_commit_that_loses_a_race_is_tried_again(
        self, table: IcebergTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append(table, 0, [reading("a", 1, 0.0)])
        rival = IcebergTable(table.root)
        race(monkeypatch, lambda: append(rival, 0, [reading("r", 1, 9.0)], query="rival"))
        assert append(table, 1, [reading("a", 1, 1.0)])
        assert temperatures(table) == [0.0, 1.0, 9.0]
        assert table.queries("iot", "flow") == {"query-a", "rival"}

    def test_two_drivers_of_one_epoch_do_not_both_add_it(
        self, table: IcebergTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append(table, 0, [reading("a", 1, 0.0)])
        rival = IcebergTable(table.root)
        race(monkeypatch, lambda: append(rival, 1, [reading("a", 1, 1.0)]))
        assert not append(table, 1, [reading("a", 1, 1.0)])
        assert temperatures(table) == [0.0, 1.0]

    @pytest.mark.parametrize(
        "failure", [OSError("lost"), OperationalError("x", {}, Exception("locked"))]
    )
    def test_a_commit_that_came_through_before_it_failed_is_ours(
        self, table: IcebergTable, monkeypatch: pytest.MonkeyPatch, failure: Exception
    ) -> None:
        append(table, 0, [reading("a", 1, 0.0)])
        honest = SqlCatalog.commit_table

        def commit_and_fail(*given: Any) -> Any:
            monkeypatch.setattr(SqlCatalog, "commit_table", honest)
            honest(*given)
            raise failure

        monkeypatch.setattr(SqlCatalog, "commit_table", commit_and_fail)
        # The caller removes files that are not the table's, so that the answer matters.
        assert append(table, 1, [reading("a", 1, 1.0)])
        assert temperatures(table) == [0.0, 1.0]

    def test_giving_up_says_why(self, table: IcebergTable, monkeypatch: pytest.MonkeyPatch) -> None:
        append(table, 0, [reading("a", 1, 0.0)])
        attempts = []

        def refuse(*given: Any) -> None:
            attempts.append(given)
            raise CommitFailedException("somebody was faster")

        monkeypatch.setattr(SqlCatalog, "commit_table", refuse)
        with pytest.raises(LakeRefused, match="Other writers changed the Iceberg table"):
            append(table, 1, [reading("a", 1, 1.0)])
        assert len(attempts) == ATTEMPTS_MAX
        monkeypatch.undo()
        assert temperatures(table) == [0.0]


def race(monkeypatch: pytest.MonkeyPatch, first: Any) -> None:
    """`first` happens after the next commit was prepared, and before it reaches the catalog."""
    honest = Table._do_commit

    def late(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(Table, "_do_commit", honest)
        first()
        return honest(*given, **named)

    monkeypatch.setattr(Table, "_do_commit", late)


def temperatures(table: IcebergTable) -> list[float]:
    return sorted(seen_by_pyiceberg(table).scan().to_arrow()["temperature"].to_pylist())
