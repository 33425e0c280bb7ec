"""Proves that files come back with exactly the columns and types that are asked for."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.pipelines.lakes.lake_table import LakeRefused
from penstock.pipelines.lakes.table_source_planning import TableFile
from penstock.pipelines.lakes.table_source_reading import BATCH_ROWS, read_files, value_of

ROOT = "/lake/readings"


def read(path: Path, schema: pa.Schema, **outside: str | None) -> pa.Table:
    file = TableFile(path=str(path), size=1, outside=outside)
    return pa.Table.from_batches(list(read_files([file], schema, ROOT)), schema)


def test_columns_are_put_in_order_cast_and_filled(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    given = pa.table(
        {
            "tags": pa.array([[1], None], pa.list_(pa.field("item", pa.int16()))),
            "small": pa.array([1, None], pa.int8()),
            "sensor": ["inside", "inside"],
            "unasked": [1, 2],
        }
    )
    pq.write_table(given, path)
    schema = pa.schema(
        [
            ("small", pa.int32()),
            ("later", pa.struct([("a", pa.int64())])),
            ("sensor", pa.string()),
            ("tags", pa.list_(pa.field("element", pa.int32()))),
        ]
    )
    found = read(path, schema, sensor="a")
    assert found.schema.equals(schema)
    assert found.to_pylist() == [
        {"small": 1, "later": None, "sensor": "a", "tags": [1]},
        {"small": None, "later": None, "sensor": "a", "tags": None},
    ]


def test_rows_survive_where_no_asked_column_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"unasked": [1, 2, 3]}), path)
    found = read(path, pa.schema([("sensor", pa.string())]), sensor="a")
    assert found["sensor"].to_pylist() == ["a"] * 3


def test_large_files_come_in_batches(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"n": range(3 * BATCH_ROWS)}), path)
    file = TableFile(path=str(path), size=1, outside={})
    batches = list(read_files([file, file], pa.schema([("n", pa.int64())]), ROOT))
    assert sum(batch.num_rows for batch in batches) == 6 * BATCH_ROWS
    assert max(batch.num_rows for batch in batches) == BATCH_ROWS


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        (None, pa.int32(), None),
        ("-7", pa.int8(), -7),
        ("true", pa.bool_(), True),
        ("2026-01-31", pa.date32(), date(2026, 1, 31)),
        ("12.30", pa.decimal128(10, 2), Decimal("12.30")),
        ("", pa.string(), ""),
        ("x", pa.binary(), b"x"),
        (
            "2026-01-31T01:02:03.000004Z",
            pa.timestamp("us", "UTC"),
            datetime(2026, 1, 31, 1, 2, 3, 4, UTC),
        ),
        (
            "2026-01-31 01:02:03.000004",
            pa.timestamp("us", "UTC"),
            datetime(2026, 1, 31, 1, 2, 3, 4, UTC),
        ),
        ("2026-01-31 01:02:03", pa.timestamp("us"), datetime(2026, 1, 31, 1, 2, 3)),
    ],
)
def test_values_outside_of_files_get_their_type(text: str | None, kind: Any, value: Any) -> None:
    scalar = value_of(text, kind)
    assert scalar.type == kind
    assert scalar.as_py() == value


def test_files_that_are_gone_or_no_files_are_named(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64())])
    with pytest.raises(LakeRefused, match=r"The file '.*gone\.parquet' of the table '/lake/readi"):
        read(tmp_path / "gone.parquet", schema)
    (tmp_path / "odd.parquet").write_bytes(b"no Parquet")
    with pytest.raises(LakeRefused, match=r"The file '.*odd\.parquet' .* can't be read: .*\.$"):
        read(tmp_path / "odd.parquet", schema)


def test_a_column_that_was_widened_is_never_read_as_the_narrower_type(tmp_path: Path) -> None:
    """A cast from double to float would round, and say nothing."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"real": [0.1], "in": [{"n": 1}]}), path)
    for name, kind in (("real", pa.float32()), ("in", pa.struct([("n", pa.int32())]))):
        with pytest.raises(LakeRefused, match=rf"The column '{name}' .* has been widened from"):
            read(path, pa.schema([(name, kind)]))
