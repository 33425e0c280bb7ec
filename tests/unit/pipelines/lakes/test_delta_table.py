"""A Delta table holds each epoch once, as `deltalake`'s own readers see it."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from penstock.pipelines.lakes.data_files import DataFileWriter
from penstock.pipelines.lakes.delta_actions import refuse_renamed_columns
from penstock.pipelines.lakes.delta_log import added_paths, file_path
from penstock.pipelines.lakes.delta_table import DeltaTable
from penstock.pipelines.lakes.lake_table import LakeRefused
from penstock.pipelines.lakes.parquet_table import ParquetTable
from tests.unit.pipelines.lakes.lake_rig import SCHEMA, append, epoch, write_files

WRITERS = 3
EPOCHS = 8


def rows_of(root: str) -> list[dict[str, Any]]:
    """By both of its readers, which must agree."""
    table = deltalake.DeltaTable(root)
    rows: list[dict[str, Any]] = table.to_pyarrow_table().to_pylist()
    engine = deltalake.QueryBuilder().register("t", table)
    others = pa.table(engine.execute("SELECT * FROM t").read_all()).to_pylist()
    assert sorted(map(str, rows)) == sorted(map(str, others))
    return rows


def values_of(root: str) -> list[tuple[str | None, int]]:
    pairs = [(row["sensor"], row["value"]) for row in rows_of(root)]
    return sorted(pairs, key=lambda pair: pair[1])


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    return DeltaTable(str(tmp_path / "a lake"))


def test_a_table_that_is_not_there(table: DeltaTable) -> None:
    assert (table.exists(), table.version(), table.last_batch("query-1")) == (False, -1, None)
    assert table.queries("iot", "raw") == frozenset()
    table.check(SCHEMA, ())
    with pytest.raises(LakeRefused, match=r"^There is no Delta table at '.*/a lake'\.$"):
        table.paths()
    assert not Path(table.root).exists()


def test_commits_are_read_in_their_order(table: DeltaTable) -> None:
    assert append(table, 0, [("a", 1)]) is True
    assert append(table, 1, [("b", 2), (None, 3)]) is True
    assert values_of(table.root) == [("a", 1), ("b", 2), (None, 3)]
    assert (table.exists(), table.last_batch("query-1")) == (True, 1)
    assert table.schema() == SCHEMA
    everything = table.paths()
    last = table.version()
    assert len(everything) == 2
    assert table.paths(last - 1) == everything[1:]
    assert table.paths(until=last - 1) == everything[:1]
    assert table.paths(last) == []
    assert all(Path(path).is_file() for path in everything)
    told = deltalake.DeltaTable(table.root).history(1)[0]["penstock"]
    assert told == {
        "pipeline": "iot",
        "flow": "raw",
        "query": "query-1",
        "batch": 1,
        "details": '{"about": "a test"}',
    }


def test_an_epoch_that_is_there_is_left_alone(table: DeltaTable) -> None:
    append(table, 0, [("a", 1)])
    append(table, 1, [("b", 2)])
    assert append(table, 1, [("b", 2)]) is False
    assert append(DeltaTable(table.root), 0, [("a", 1)]) is False
    assert values_of(table.root) == [("a", 1), ("b", 2)]


def test_a_new_query_counts_from_zero_again(table: DeltaTable) -> None:
    append(table, 5, [("a", 1)])
    assert append(table, 0, [("b", 2)], query="query-2")
    assert append(table, 0, [("c", 3)], query="query-3", flow="other")
    assert values_of(table.root) == [("a", 1), ("b", 2), ("c", 3)]
    assert table.queries("iot", "raw") == {"query-1", "query-2"}
    assert table.queries("iot", "other") == {"query-3"}


def test_a_query_that_died_before_its_first_commit_is_not_there(table: DeltaTable) -> None:
    append(table, 0, [("a", 1)])
    table._note_query(epoch(0, query="query-2"))
    assert table.queries("iot", "raw") == {"query-1"}


def test_a_second_process_with_the_same_batch_does_not_double_it(table: DeltaTable) -> None:
    """Both have looked and found nothing; one of them comes too late."""
    append(table, 0, [("a", 1)])
    late = DeltaTable(table.root)
    handle = late._load()
    assert handle is not None
    files = write_files(table.root, [("b", 2)], folder="data/query-1/1-b")
    append(table, 1, [("b", 2)])
    assert late._append(handle, epoch(1), files, (), {}) is False
    assert late.commit(epoch(1), files, SCHEMA, (), {}) is False
    assert values_of(table.root) == [("a", 1), ("b", 2)]


def _append_epochs(root: str, writer: int) -> None:
    table = DeltaTable(root)
    for batch in range(EPOCHS):
        assert append(table, batch, [(f"w{writer}", batch)], query=f"query-{writer}")


def test_several_writers_lose_and_double_nothing(table: DeltaTable) -> None:
    Path(table.root).mkdir()
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(partial(_append_epochs, table.root), range(WRITERS)))
    assert sorted(values_of(table.root)) == sorted(
        (f"w{writer}", batch) for writer in range(WRITERS) for batch in range(EPOCHS)
    )


def test_transactions_outlive_checkpoints_of_the_log(table: DeltaTable) -> None:
    table = DeltaTable(table.root, {"delta.checkpointInterval": "2"})
    for batch in range(5):
        append(table, batch, [("a", batch)])
    deltalake.DeltaTable(table.root).create_checkpoint()
    assert list((Path(table.root) / "_delta_log").glob("*.checkpoint.parquet"))
    assert DeltaTable(table.root).last_batch("query-1") == 4
    assert append(DeltaTable(table.root), 4, [("a", 4)]) is False


ODD: list[str | None] = ["a/b", "..", None, "null", "x=y", "ü %20[*]", "a" * 300]


def test_partition_values_come_back_from_the_log(table: DeltaTable) -> None:
    rows = [(sensor, value) for value, sensor in enumerate(ODD)]
    files = write_files(table.root, rows, ("sensor",), keeps=False)
    table.commit(epoch(0), files, SCHEMA, ("sensor",), {})
    assert values_of(table.root) == rows
    found = deltalake.DeltaTable(table.root).to_pyarrow_table(filters=[("sensor", "=", "a/b")])
    assert found.to_pylist() == [{"sensor": "a/b", "value": 0}]
    # Files that hold the column too are no different to its readers.
    more = write_files(table.root, rows, ("sensor",), keeps=True)
    table.commit(epoch(1), more, SCHEMA, ("sensor",), {})
    assert values_of(table.root) == sorted(rows * 2, key=lambda row: row[1])


def test_an_empty_text_is_not_silently_made_null(table: DeltaTable) -> None:
    files = write_files(table.root, [("", 1)], ("sensor",), keeps=False)
    with pytest.raises(
        LakeRefused, match=r"^The partition column 'sensor' has a row with an empty"
    ):
        table.commit(epoch(0), files, SCHEMA, ("sensor",), {})
    assert table.last_batch("query-1") is None


TYPES = pa.schema(
    [
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("real", pa.float32()),
        ("price", pa.decimal128(38, 10)),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        (
            "nested",
            pa.list_(pa.field("element", pa.struct([("a", pa.map_(pa.string(), pa.date32()))]))),
        ),
    ]
)
ROW = {
    "flag": True,
    "tiny": -128,
    "real": 1.5,
    "price": Decimal("1234567890123456789012345678.0123456789"),
    "text": "ü\n",
    "bytes": b"\x00\xff",
    "day": date(1582, 10, 4),
    "at": datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    "local": datetime(9999, 12, 31, 23, 59, 59, 999999),
    "nested": [{"a": [("k", date(2026, 1, 1))]}, None, {"a": None}],
}


def test_all_types_come_back_and_statistics_skip_no_row(table: DeltaTable) -> None:
    with DataFileWriter(table.root, "data/q/0-a", TYPES) as writer:
        empty: dict[str, Any] = dict.fromkeys(TYPES.names)
        writer.write(pa.RecordBatch.from_pylist([ROW, empty], schema=TYPES))
        files = writer.close()
    table.commit(epoch(0), files, TYPES, (), {})
    assert rows_of(table.root) == [ROW, empty]
    statistics = json.loads(_add_of(table)["stats"])
    assert statistics["numRecords"] == 2
    assert statistics["nullCount"]["at"] == 1
    assert statistics["maxValues"]["at"] == "1969-12-31T23:59:59.999999Z"
    assert "price" not in statistics["maxValues"]
    engine = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(table.root))
    for condition in ("day = DATE '1582-10-04'", "tiny = -128", "real >= 1.5", "text LIKE 'ü%'"):
        query = f"SELECT count(*) AS found FROM t WHERE {condition}"
        assert pa.table(engine.execute(query).read_all()).to_pylist() == [{"found": 1}]


def test_the_first_year_is_a_year_too(table: DeltaTable) -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us"))])
    row = {"at": datetime(1, 2, 3, tzinfo=UTC), "local": datetime(99, 1, 1)}
    for batch, partition_by in enumerate([("local",), ("at",)]):
        other = DeltaTable(f"{table.root}-{batch}")
        with DataFileWriter(
            other.root, "data", schema, partition_by, keeps_partition_columns=False
        ) as writer:
            writer.write(pa.RecordBatch.from_pylist([row], schema=schema))
            other.commit(epoch(0), writer.close(), schema, partition_by, {})
        assert rows_of(other.root) == [row]
    assert '"0001-02-03T00:00:00.000000Z"' in _add_of(DeltaTable(f"{table.root}-0"))["stats"]


@pytest.mark.parametrize("year", [-300, 0, 15_000])
def test_a_year_that_no_reader_could_take_is_named(table: DeltaTable, year: int) -> None:
    schema = pa.schema([("day", pa.date32()), ("value", pa.int64())])
    days = (date(2026, 1, 1) - date(1970, 1, 1)).days + round((year - 2026) * 365.2425)
    with DataFileWriter(
        table.root, "data", schema, ("day",), keeps_partition_columns=False
    ) as writer:
        columns = [pa.array([days], pa.date32()), pa.array([1])]
        writer.write(pa.RecordBatch.from_arrays(columns, schema=schema))
        files = writer.close()
    with pytest.raises(LakeRefused, match=r"'day' has a row with '.*outside of the years 1 to"):
        table.commit(epoch(0), files, schema, ("day",), {})


def _add_of(table: DeltaTable) -> dict[str, Any]:
    path = Path(table.root) / "_delta_log" / f"{table.version():020d}.json"
    (add,) = [json.loads(line)["add"] for line in path.open() if '"add"' in line]
    assert isinstance(add, dict)
    return add


@pytest.mark.parametrize(
    ("schema", "partition_by", "text"),
    [
        (pa.schema([("clock", pa.list_(pa.time64("us")))]), (), "'clock' has the type time"),
        (pa.schema([("a b", pa.int32())]), (), "can't have a column of the name 'a b'"),
        (
            pa.schema([("price", pa.decimal128(5, 2)), ("x", pa.int32())]),
            ("price",),
            "can't be partitioned by the decimal column 'price'",
        ),
        (
            pa.schema([("at", pa.timestamp("us", "UTC")), ("x", pa.int32())]),
            ("day(at)",),
            r"can't be partitioned by 'day\(at\)', only by columns",
        ),
    ],
)
def test_what_delta_can_not_hold_is_refused(
    table: DeltaTable, schema: pa.Schema, partition_by: tuple[str, ...], text: str
) -> None:
    with pytest.raises(LakeRefused, match=text):
        table.check(schema, partition_by)


def test_tables_of_others_are_refused_where_their_rules_would_be_broken(table: DeltaTable) -> None:
    fields = [pa.field("sensor", pa.string(), nullable=False), pa.field("value", pa.int64())]
    deltalake.write_deltalake(
        table.root, pa.table({"sensor": ["z"], "value": [9]}, schema=pa.schema(fields))
    )
    assert append(table, 0, [("a", 1)])
    assert values_of(table.root) == [("a", 1), ("z", 9)]
    with pytest.raises(LakeRefused, match=r"The column 'sensor' of the table .* may not be null"):
        append(table, 1, [(None, 1)])
    with pytest.raises(LakeRefused, match="its column 'value' is int64, and theirs is string"):
        table.check(SCHEMA.set(1, pa.field("value", pa.string())), ())
    deltalake.DeltaTable(table.root).alter.add_constraint({"positive": "value > 0"})
    with pytest.raises(LakeRefused, match="has the constraint 'positive', which can't be checked"):
        append(table, 1, [("a", 1)])


def test_paths_of_files_that_others_wrote_are_found(table: DeltaTable) -> None:
    rows = pa.table({"sensor": ["a/b %20ü", "c"], "value": [1, 2]})
    deltalake.write_deltalake(table.root, rows, partition_by=["sensor"])
    deltalake.write_deltalake(table.root, rows, mode="append")
    for paths in (table.paths(), table.paths(0)):
        assert all(Path(path).is_file() for path in paths)
    assert len(table.paths(0)) == 2


def test_compaction_by_others_neither_doubles_nor_hides(table: DeltaTable) -> None:
    for batch in range(3):
        append(table, batch, [("a", batch)])
    before = table.version()
    deltalake.DeltaTable(table.root).optimize.compact()
    assert len(table.paths()) == 1
    assert table.paths(before) == []
    append(table, 3, [("a", 3)])
    assert len(table.paths(before)) == 1
    assert [value for _, value in values_of(table.root)] == [0, 1, 2, 3]


@pytest.mark.parametrize("change", ["update", "some", "overwrite"])
def test_rows_that_others_have_changed_are_not_told_as_new(table: DeltaTable, change: str) -> None:
    append(table, 0, [("a", 1), ("a", 2)])
    append(table, 1, [("a", 3)])
    theirs = deltalake.DeltaTable(table.root)
    before = theirs.version()
    if change == "update":
        theirs.update(updates={"value": "10"}, predicate="value = 1")
    elif change == "some":
        theirs.delete("value = 1")
    else:
        rows = pa.table({"sensor": ["a"], "value": pa.array([1], pa.int64())}, schema=SCHEMA)
        deltalake.write_deltalake(theirs, rows, mode="overwrite")
    append(table, 2, [("a", 4)])
    with pytest.raises(LakeRefused, match="was rewritten since it was last read"):
        table.paths(after=before)
    assert len(table.paths(after=before + 1)) == 1


def test_rows_that_others_have_deleted_in_whole_files_are_no_news(table: DeltaTable) -> None:
    append(table, 0, [("a", 1)])
    append(table, 1, [("a", 3)])
    theirs = deltalake.DeltaTable(table.root)
    theirs.delete("value = 1")
    append(table, 2, [("a", 4)])
    assert len(table.paths(after=theirs.version() - 1)) == 1


def test_a_log_that_was_cleaned_is_named(table: DeltaTable) -> None:
    for batch in range(3):
        append(table, batch, [("a", batch)])
    deltalake.DeltaTable(table.root).create_checkpoint()
    (Path(table.root) / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(LakeRefused, match="no longer has commit 1 in its log"):
        table.paths(0)
    assert len(table.paths()) == 3
    (Path(table.root) / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(LakeRefused, match="no longer has commit 1 in its log"):
        table.paths(until=1)


def test_a_dropped_table_is_gone(table: DeltaTable) -> None:
    append(table, 0, [("a", 1)])
    table.drop()
    assert not table.exists()
    assert table.queries("iot", "raw") == frozenset()
    assert append(table, 0, [("b", 2)])
    assert values_of(table.root) == [("b", 2)]


def test_the_folder_of_a_parquet_table_is_refused(table: DeltaTable) -> None:
    append(ParquetTable(table.root), 0, [("a", 1)])
    with pytest.raises(LakeRefused, match="already holds a Parquet table"):
        table.check(SCHEMA, ())


def test_rows_that_others_hid_or_renamed_are_not_read_from_files(table: DeltaTable) -> None:
    append(table, 0, [("a", 1)])
    append(table, 1, [("a", 2)])
    path = Path(table.root) / "_delta_log" / f"{table.version():020d}.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["deletionVector"] = {"storageType": "u"}
    path.write_text("\n".join(json.dumps(line) for line in lines))
    with pytest.raises(LakeRefused, match="rows that were deleted by deletion vectors"):
        list(added_paths(table.root, table.version()))
    with pytest.raises(LakeRefused, match="have other names in its files"):
        refuse_renamed_columns({"delta.columnMapping.mode": "name"}, table.root)
    with pytest.raises(LakeRefused, match="has a file outside its folder: 's3://b/f'"):
        file_path(table.root, "s3://b/f")


@pytest.mark.parametrize("name", ["a%20b", "a\\b", "a\nb"])
def test_a_path_that_would_not_be_found_again_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(LakeRefused, match="with which readers would not find it"):
        DeltaTable(str(tmp_path / name)).check(SCHEMA, ())


@pytest.mark.parametrize("name", ["a b", "ü", "a#b?c", "[a]{b}*", "a:b"])
def test_other_odd_paths_are_fine(tmp_path: Path, name: str) -> None:
    table = DeltaTable(str(tmp_path / name))
    table.check(SCHEMA, ())
    append(table, 0, [("a", 1)])
    append(table, 1, [("b", 2)])
    assert values_of(table.root) == [("a", 1), ("b", 2)]
    assert all(Path(path).is_file() for path in table.paths())
