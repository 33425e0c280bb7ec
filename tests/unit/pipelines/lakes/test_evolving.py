"""A table that may evolve gains columns and wider types, loses nothing, and survives a crash."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from penstock.pipelines.lakes import parquet_table
from penstock.pipelines.lakes.data_files import DataFileWriter
from penstock.pipelines.lakes.delta_table import DeltaTable
from penstock.pipelines.lakes.iceberg_table import IcebergTable
from penstock.pipelines.lakes.lake_table import LakeRefused, LakeTable
from penstock.pipelines.lakes.opening import keeps_partition_columns, open_table
from penstock.pipelines.lakes.schema_fit import fit, narrows
from penstock.pipelines.specification.model import LakeFormat
from tests.unit.pipelines.lakes.iceberg_rig import seen_by_pyiceberg
from tests.unit.pipelines.lakes.lake_rig import epoch

FORMATS = pytest.mark.parametrize("lake_format", list(LakeFormat), ids=str)
WIDENING = pytest.mark.parametrize("lake_format", [LakeFormat.PARQUET, LakeFormat.ICEBERG], ids=str)

PART = pa.struct([("x", pa.int32())])
OLD = pa.schema([("id", pa.int32()), ("parts", pa.list_(pa.field("element", PART))), ("at", PART)])
OLD_ROW = {"id": 1, "parts": [{"x": 1}, None], "at": {"x": 2}}

Row = Mapping[str, Any]


class Lake:
    """One table, as several processes find it."""

    def __init__(self, lake_format: LakeFormat, folder: Path) -> None:
        self.format = lake_format
        self.root = str(folder / "lake")

    def open(self, *, evolves: bool = True) -> LakeTable:
        return open_table(self.format, self.root, evolves=evolves)

    def append(
        self,
        batch: int,
        rows: Sequence[Row],
        schema: pa.Schema,
        *,
        evolves: bool = True,
        table: LakeTable | None = None,
        partition_by: Sequence[str] = (),
        query: str = "query-1",
    ) -> bool:
        """What the sink does with a batch: look how files hold it, write them, commit."""
        table = table or self.open(evolves=evolves)
        fitted = table.check(schema, partition_by)
        batch_of_rows = pa.RecordBatch.from_pylist(list(rows), schema)
        cast = [
            column.cast(field.type)
            for column, field in zip(batch_of_rows.columns, fitted, strict=True)
        ]
        with DataFileWriter(
            self.root,
            f"data/{query}/{batch}-a{table.version()}",
            fitted,
            partition_by,
            keeps_partition_columns=keeps_partition_columns(self.format),
        ) as writer:
            writer.write(pa.RecordBatch.from_arrays(cast, schema=fitted))
            files = writer.close()
        return table.commit(epoch(batch, query=query), files, fitted, partition_by, {})

    def read(self) -> pa.Table:
        """By the library that others have for such a table."""
        match self.format:
            case LakeFormat.PARQUET:
                table = self.open()
                return ds.dataset(table.paths(), schema=table.schema()).to_table()
            case LakeFormat.DELTA:
                return deltalake.DeltaTable(self.root).to_pyarrow_table()
            case LakeFormat.ICEBERG:
                return seen_by_pyiceberg(IcebergTable(self.root)).scan().to_arrow()

    def rows(self) -> list[Row]:
        return sorted(self.read().to_pylist(), key=lambda row: row["id"])


@pytest.fixture
def lake(lake_format: LakeFormat, tmp_path: Path) -> Lake:
    found = Lake(lake_format, tmp_path)
    found.append(0, [OLD_ROW], OLD)
    return found


@FORMATS
def test_columns_and_fields_are_added_and_old_rows_have_null_there(lake: Lake) -> None:
    more = pa.struct([*PART, ("y", pa.string())])
    schema = pa.schema(
        [
            ("room", pa.string()),
            ("local", pa.timestamp("us")),
            ("id", pa.int32()),
            ("parts", pa.list_(pa.field("element", more))),
            ("at", more),
        ]
    )
    row = {"room": "a", "local": None, "id": 2, "parts": [{"x": 1, "y": "b"}], "at": None}
    assert lake.append(1, [row], schema)
    none = {"room": None, "local": None}
    old = {**OLD_ROW, **none, "parts": [{"x": 1, "y": None}, None], "at": {"x": 2, "y": None}}
    assert lake.rows() == [old, row]
    assert lake.open().schema().names == ["id", "parts", "at", "room", "local"]


@WIDENING
def test_types_are_widened_and_old_files_are_read_as_the_wider_type(
    lake_format: LakeFormat, tmp_path: Path
) -> None:
    lake = Lake(lake_format, tmp_path)
    nested = [pa.struct([("n", kind)]) for kind in (pa.int32(), pa.int64())]
    small = pa.schema(
        [
            ("id", pa.int32()),
            ("real", pa.float32()),
            ("price", pa.decimal128(6, 2)),
            ("in", nested[0]),
        ]
    )
    wide = pa.schema(
        [
            ("id", pa.int64()),
            ("real", pa.float64()),
            ("price", pa.decimal128(20, 2)),
            ("in", nested[1]),
        ]
    )
    one = {"id": 1, "real": 0.5, "price": Decimal("1.25"), "in": {"n": 1}}
    two = {"id": 2**40, "real": 0.1, "price": Decimal("12345678901.25"), "in": {"n": 2**40}}
    lake.append(0, [one], small)
    lake.append(1, [two], wide)
    assert lake.rows() == [one, two]
    # Rows of the old kind are written in the table's types from here on.
    lake.append(2, [{**one, "id": 3}], small)
    assert lake.rows() == [one, {**one, "id": 3}, two]
    assert lake.open().schema().field("real").type == pa.float64()


def test_a_delta_table_is_not_widened_and_the_refusal_says_why(tmp_path: Path) -> None:
    lake = Lake(LakeFormat.DELTA, tmp_path)
    lake.append(0, [{"id": 1}], pa.schema([("id", pa.int32())]))
    with pytest.raises(LakeRefused, match="deltalake can't widen a column's type"):
        lake.append(1, [{"id": 2}], pa.schema([("id", pa.int64())]))
    # Narrower rows are written in the table's type.
    lake.append(1, [{"id": 2}], pa.schema([("id", pa.int8())]))
    assert lake.rows() == [{"id": 1}, {"id": 2}]
    assert lake.read().schema.field("id").type == pa.int32()


@FORMATS
def test_rows_that_lack_a_column_have_null_there_and_the_column_stays(lake: Lake) -> None:
    lake.append(1, [{"id": 2}], OLD.remove(2).remove(1))
    assert lake.rows() == [OLD_ROW, {"id": 2, "parts": None, "at": None}]


@FORMATS
def test_without_the_word_nothing_changes_and_the_refusal_names_it(lake: Lake) -> None:
    before = lake.open().version()
    wider = OLD.append(pa.field("room", pa.string()))
    text = "it has no column 'room'; `evolve: true` on the sink lets the table take them"
    with pytest.raises(LakeRefused, match=text):
        lake.append(1, [{**OLD_ROW, "room": "a"}], wider, evolves=False)
    assert lake.open().version() == before
    assert lake.open().schema().names == OLD.names


@FORMATS
@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.field("id", pa.string()), "its column 'id' is int32, and theirs is string"),
        (pa.field("id", pa.float64()), "its column 'id' is int32, and theirs is double"),
        (pa.field("ID", pa.int32()), "its column 'id' and theirs, 'ID', differ only in their case"),
        (
            pa.field("at", pa.struct([("y", pa.string()), ("x", pa.int32())])),
            "its column 'at' is struct<x: int32>, and theirs is struct<y: string, x: int32>",
        ),
    ],
)
def test_what_no_evolution_can_hold_is_refused_and_changes_nothing(
    lake: Lake, column: pa.Field, text: str
) -> None:
    before = lake.open().version()
    kept = [field for field in OLD if field.name.lower() != column.name.lower()]
    for evolves in (True, False):
        with pytest.raises(LakeRefused) as refused:
            lake.open(evolves=evolves).check(pa.schema([*kept, column]), ())
        assert text in str(refused.value)
        assert "evolve" not in str(refused.value)
    assert lake.open().version() == before


@FORMATS
def test_the_column_of_a_partition_keeps_its_type(lake_format: LakeFormat, tmp_path: Path) -> None:
    lake = Lake(lake_format, tmp_path)
    schema = pa.schema([("id", pa.int32()), ("day", pa.int32())])
    lake.append(0, [{"id": 1, "day": 1}], schema, partition_by=["day"])
    wide = schema.set(1, pa.field("day", pa.int64()))
    with pytest.raises(LakeRefused, match="int64, and the table is partitioned by it"):
        lake.append(1, [{"id": 2, "day": 2}], wide, partition_by=["day"])
    more = schema.append(pa.field("room", pa.string()))
    lake.append(1, [{"id": 2, "day": 2, "room": "a"}], more, partition_by=["day"])
    assert [(row["day"], row["room"]) for row in lake.rows()] == [(1, None), (2, "a")]


@FORMATS
def test_a_writer_that_began_before_the_change_goes_on(lake: Lake) -> None:
    running = lake.open()
    running.check(OLD, ())
    wider = OLD.append(pa.field("room", pa.string()))
    lake.append(0, [{**OLD_ROW, "id": 2, "room": "a"}], wider, query="query-2")
    lake.append(1, [{**OLD_ROW, "id": 3}], OLD, table=running)
    assert [(row["id"], row["room"]) for row in lake.rows()] == [(1, None), (2, "a"), (3, None)]


@FORMATS
def test_a_change_between_the_look_and_the_commit_is_seen(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are written for the table as it was; meanwhile another flow adds the same column."""
    wider = OLD.append(pa.field("room", pa.string()))
    table = lake.open()
    commit = type(table).commit

    def after_another(*given: Any) -> bool:
        monkeypatch.undo()
        lake.append(0, [{**OLD_ROW, "id": 2, "room": "a"}], wider, query="query-2")
        return commit(*given)

    monkeypatch.setattr(type(table), "commit", after_another)
    assert lake.append(1, [{**OLD_ROW, "id": 3, "room": "b"}], wider, table=table)
    assert [(row["id"], row["room"]) for row in lake.rows()] == [(1, None), (2, "a"), (3, "b")]
    assert lake.open().schema().names.count("room") == 1


@FORMATS
def test_a_crash_between_the_change_and_the_first_rows_is_made_good_by_the_next_attempt(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Delta the change is on its own by then; the other formats bring both or nothing."""
    wider = OLD.append(pa.field("room", pa.string()))
    row = {**OLD_ROW, "id": 2, "room": "a"}

    def die(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "_append", die)
        patched.setattr(IcebergTable, "_append", die)
        patched.setattr(parquet_table.Manifest, "append", die)
        with pytest.raises(KeyboardInterrupt):
            lake.append(1, [row], wider)
    is_changed = lake.format is LakeFormat.DELTA
    assert ("room" in lake.read().schema.names) is is_changed
    assert [row["id"] for row in lake.rows()] == [1]
    assert lake.open().last_batch("query-1") == 0
    assert lake.append(1, [row], wider)
    assert lake.rows() == [{**OLD_ROW, "room": None}, row]
    # Spark had not noted it, and does the batch again: with the new columns, and without them.
    assert not lake.append(1, [row], wider)
    assert not lake.append(1, [{**OLD_ROW, "id": 2}], OLD)
    assert lake.rows() == [{**OLD_ROW, "room": None}, row]


@FORMATS
def test_a_crash_after_the_change_can_be_followed_by_rows_of_the_old_kind(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody takes the change of the flow back before it is started again."""
    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "_append", lambda *_: 1 / 0)
        if lake.format is LakeFormat.DELTA:
            with pytest.raises(ZeroDivisionError):
                lake.append(1, [{**OLD_ROW, "x": 1}], OLD.append(pa.field("x", pa.int64())))
    assert lake.append(1, [{**OLD_ROW, "id": 2}], OLD)
    assert [row["id"] for row in lake.rows()] == [1, 2]


def test_a_column_that_others_require_is_neither_left_out_nor_loosened(tmp_path: Path) -> None:
    lake = Lake(LakeFormat.ICEBERG, tmp_path)
    lake.append(0, [{"id": 1, "n": 1}], pa.schema([("id", pa.int32()), ("n", pa.int32())]))
    with seen_by_pyiceberg(IcebergTable(lake.root)).update_schema(
        allow_incompatible_changes=True
    ) as update:
        update.update_column("n", required=True)
    for schema in (
        pa.schema([("id", pa.int32())]),
        pa.schema([("id", pa.int32()), ("n", pa.int64())]),
    ):
        with pytest.raises(LakeRefused, match=r"The column 'n' of the table .* may not be null"):
            lake.open().check(schema, ())


def test_a_fit_says_what_changes_and_how_rows_are_written() -> None:
    held = pa.schema([("a", pa.int64()), ("b", pa.float32())])
    given = pa.schema([("b", pa.float64()), ("c", pa.string()), ("a", pa.int16())])
    found = fit(held, given, [], [], "/t", evolves=True)
    assert found.table == pa.schema([("a", pa.int64()), ("b", pa.float64()), ("c", pa.string())])
    assert [field.name for field in found.changed] == ["b", "c"]
    assert found.rows == pa.schema([("b", pa.float64()), ("c", pa.string()), ("a", pa.int64())])
    same = fit(held, held, [], [], "/t", evolves=True)
    assert (same.table, same.changed, same.rows) == (held, (), held)


def test_a_type_narrows_where_something_inside_it_does() -> None:
    inside = [
        pa.list_(pa.map_(pa.string(), pa.struct([("a", pa.string()), ("n", kind)])))
        for kind in (pa.float32(), pa.float64())
    ]
    assert narrows(inside[1], inside[0])
    assert not narrows(inside[0], inside[1])
    assert not narrows(inside[0], inside[0])
    assert not narrows(pa.string(), pa.int8())
