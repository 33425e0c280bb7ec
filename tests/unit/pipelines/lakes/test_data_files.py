"""Data files hold every row once, within a bounded memory, and say what they hold."""

import hashlib
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock.pipelines.lakes import data_files
from penstock.pipelines.lakes.data_files import DataFileWriter
from penstock.pipelines.lakes.lake_table import ColumnStatistics, DataFile, LakeRefused
from penstock.pipelines.lakes.partition_folders import check_partition_columns

SCHEMA = pa.schema([("sensor", pa.string()), ("value", pa.int64())])


def batch(sensors: list[str | None], first: int = 0) -> pa.RecordBatch:
    values = list(range(first, first + len(sensors)))
    return pa.record_batch([pa.array(sensors, pa.string()), pa.array(values)], schema=SCHEMA)


def rows_of(root: Path, files: list[DataFile]) -> list[dict[str, object]]:
    """By a reader that knows nothing of us, one file after the other."""
    return [row for file in files for row in pq.ParquetFile(root / file.path).read().to_pylist()]


def test_files_are_what_their_receipts_say(tmp_path: Path) -> None:
    with DataFileWriter(str(tmp_path), "data/q/0-a", SCHEMA) as writer:
        writer.write(batch(["a", None, "c"]))
        writer.write(batch(["b"], 3))
        (file,) = writer.close()
    content = (tmp_path / file.path).read_bytes()
    assert file.path.startswith("data/q/0-a/part-")
    assert (file.rows, file.size) == (4, len(content))
    assert file.sha256 == hashlib.sha256(content).hexdigest()
    assert file.statistics == {
        "sensor": ColumnStatistics(nulls=1, least="a", greatest="c"),
        "value": ColumnStatistics(nulls=0, least=0, greatest=3),
    }
    assert [row["value"] for row in rows_of(tmp_path, [file])] == [0, 1, 2, 3]
    metadata = pq.ParquetFile(tmp_path / file.path).metadata
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def test_no_rows_give_no_files_and_no_folders(tmp_path: Path) -> None:
    with DataFileWriter(str(tmp_path), "data", SCHEMA, ["sensor"]) as writer:
        writer.write(batch([]))
        assert writer.close() == []
    assert list(tmp_path.iterdir()) == []


ODD = ["a/b", "..", "", None, "null", "x=y", "ü %20[*]", "a" * 300, "data-1"]


@pytest.mark.parametrize("keeps", [True, False])
def test_each_partition_gets_its_rows_in_their_order(tmp_path: Path, keeps: bool) -> None:
    with DataFileWriter(
        str(tmp_path), "data", SCHEMA, ["sensor"], keeps_partition_columns=keeps
    ) as writer:
        for first in (0, 100):
            writer.write(batch(ODD * 2, first))
        files = writer.close()
    assert {file.partition["sensor"] for file in files} == set(ODD)
    assert len({(tmp_path / file.path).parent for file in files}) == len(ODD)
    for file in files:
        assert "=" not in file.path
        place = ODD.index(file.partition["sensor"])
        rows = rows_of(tmp_path, [file])
        size = len(ODD)
        assert [row["value"] for row in rows] == [
            place,
            place + size,
            place + 100,
            place + size + 100,
        ]
        assert all(("sensor" in row) is keeps for row in rows)
    inside = [
        path for path in tmp_path.rglob("*.parquet") if path.is_relative_to(tmp_path / "data")
    ]
    assert len(inside) == len(files)


def test_values_of_partitions_are_texts_of_all_their_columns(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("flag", pa.bool_()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("price", pa.decimal128(9, 2)),
            ("number", pa.int8()),
            ("value", pa.int64()),
        ]
    )
    row = {
        "flag": True,
        "day": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, 23, 59, 59, 1, UTC),
        "local": datetime(2026, 1, 31),
        "price": Decimal("-1.50"),
        "number": -3,
    }
    with DataFileWriter(str(tmp_path), "data", schema, schema.names[:-1]) as writer:
        writer.write(pa.RecordBatch.from_pylist([row, {}, row], schema=schema))
        full, empty = sorted(writer.close(), key=lambda file: file.partition["flag"] is None)
    assert (full.rows, empty.rows) == (2, 1)
    assert set(empty.partition.values()) == {None}
    assert dict(full.partition) == {
        "flag": "true",
        "day": "2026-01-31",
        "at": "2026-01-31T23:59:59.000001Z",
        "local": "2026-01-31 00:00:00.000000",
        "price": "-1.50",
        "number": "-3",
    }


def test_times_that_python_can_not_hold_have_a_partition_too(tmp_path: Path) -> None:
    schema = pa.schema([("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))])
    days = [0, 5_000_000, -800_000]
    times = [day * 86_400_000_000 for day in days]
    columns = [pa.array(days, pa.date32()), pa.array(times, schema.field("at").type)]
    with DataFileWriter(str(tmp_path), "data", schema, ["day", "at"]) as writer:
        writer.write(pa.RecordBatch.from_arrays(columns, schema=schema))
        files = writer.close()
    assert {file.partition["day"]: file.partition["at"] for file in files} == {
        "1970-01-01": "1970-01-01T00:00:00.000000Z",
        "15659-07-15": "15659-07-15 00:00:00.000000Z",
        "-0221-09-04": "-0221-09-04 00:00:00.000000Z",
    }
    assert [file.rows for file in files] == [1, 1, 1]


def test_a_transform_cuts_by_the_day(tmp_path: Path) -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("value", pa.int64())])
    times = [datetime(2026, 1, day, hour, tzinfo=UTC) for day in (1, 2) for hour in (0, 23)]
    with DataFileWriter(str(tmp_path), "data", schema, ["day(at)"]) as writer:
        writer.write(
            pa.record_batch(
                [pa.array([*times, None], schema.field(0).type), range(5)], schema=schema
            )
        )
        files = writer.close()
    assert {file.partition["day(at)"]: file.rows for file in files} == {
        "2026-01-01": 2,
        "2026-01-02": 2,
        None: 1,
    }
    assert all("at_day-" in file.path for file in files)


def test_files_are_cut_at_their_number_of_rows(tmp_path: Path) -> None:
    with DataFileWriter(str(tmp_path), "data", SCHEMA, rows_max=4) as writer:
        for first in range(0, 9, 3):
            writer.write(batch(["s"] * 3, first))
        files = writer.close()
    assert [file.rows for file in files] == [4, 4, 1]
    assert [row["value"] for row in rows_of(tmp_path, files)] == list(range(9))
    assert sorted(file.path for file in files) == [file.path for file in files]


def test_files_are_cut_at_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "ROW_GROUP_ROWS_MAX", 100)
    with DataFileWriter(str(tmp_path), "data", SCHEMA, bytes_max=100) as writer:
        for first in range(0, 300, 50):
            writer.write(batch(["s"] * 50, first))
        files = writer.close()
    assert [file.rows for file in files] == [100, 100, 100]


def test_memory_and_open_files_stay_bounded_with_many_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "OPEN_FILES_MAX", 3)
    limit = 48 * 1024
    greatest = 0
    with DataFileWriter(
        str(tmp_path), "data", SCHEMA, ["sensor"], waiting_bytes_max=limit
    ) as writer:
        for round_ in range(8):
            sensors = [f"s{(round_ * 7 + index) % 40}" for index in range(200)]
            writer.write(batch(sensors, round_ * 200))
            greatest = max(greatest, writer.waiting_bytes)
            assert len(writer._open) <= 3
        files = writer.close()
        assert writer.waiting_bytes == 0
    assert greatest <= limit
    values = [row["value"] for row in rows_of(tmp_path, files)]
    assert sorted(values) == list(range(1600))


def write_and_fail(root: Path) -> None:
    with DataFileWriter(str(root), "data", SCHEMA, rows_max=2) as writer:
        writer.write(batch(["s"] * 5))
        raise RuntimeError("the task fails")


def test_an_exception_removes_all_files(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the task fails"):
        write_and_fail(tmp_path)
    assert list(tmp_path.rglob("*.parquet")) == []


def test_bounds_are_left_out_where_readers_could_skip_a_row_by_them(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("number", pa.float64()),
            ("plain", pa.float32()),
            ("text", pa.string()),
            ("bytes", pa.binary()),
            ("nothing", pa.int32()),
            ("nested", pa.list_(pa.int32())),
        ]
    )
    rows = [
        {"number": float("nan"), "plain": 1.5, "text": "a" * 500, "bytes": b"x", "nested": [1]},
        {"number": 2.0, "plain": -1.5, "text": "b"},
    ]
    with DataFileWriter(str(tmp_path), "data", schema) as writer:
        writer.write(pa.RecordBatch.from_pylist(rows, schema=schema))
        (file,) = writer.close()
    assert file.statistics == {
        "number": ColumnStatistics(nulls=0, least=2.0),
        "plain": ColumnStatistics(nulls=0, least=-1.5, greatest=1.5),
        "text": ColumnStatistics(nulls=0),
        "bytes": ColumnStatistics(nulls=1),
        "nothing": ColumnStatistics(nulls=2),
    }


def test_bounds_cover_all_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "ROW_GROUP_ROWS_MAX", 2)
    with DataFileWriter(str(tmp_path), "data", SCHEMA) as writer:
        for sensors in (["d", "c"], [None, None], ["a", "b"]):
            writer.write(batch(sensors, 10))
        (file,) = writer.close()
    assert pq.ParquetFile(tmp_path / file.path).num_row_groups == 3
    assert file.statistics["sensor"] == ColumnStatistics(nulls=2, least="a", greatest="d")
    column = pq.read_table(tmp_path / file.path).column("sensor")
    assert pc.count(column, mode="only_null").as_py() == 2


@pytest.mark.parametrize(
    ("schema", "partition_by", "text"),
    [
        (SCHEMA, ["room"], "can't be partitioned by 'room': the rows have no column 'room'."),
        (
            pa.schema([("x", pa.float64()), ("y", pa.int32())]),
            ["x"],
            "can't be partitioned by the column 'x', whose type is double.",
        ),
        (SCHEMA, ["sensor", "sensor"], "is partitioned by 'sensor' twice."),
        (SCHEMA, ["sensor", "value"], "needs a column that it is not partitioned by."),
    ],
)
def test_partition_columns_are_refused_by_name(
    schema: pa.Schema, partition_by: list[str], text: str
) -> None:
    with pytest.raises(LakeRefused) as refused:
        check_partition_columns(schema, partition_by, "/lake/t")
    assert str(refused.value) == f"The table '/lake/t' {text}"
