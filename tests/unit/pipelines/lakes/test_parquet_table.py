"""A Parquet table holds each epoch once, no matter who else writes or dies: its manifest
decides.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from penstock.pipelines.lakes import durable_files, manifest
from penstock.pipelines.lakes.lake_table import LakeRefused
from penstock.pipelines.lakes.parquet_table import ParquetTable
from tests.unit.pipelines.lakes.lake_rig import SCHEMA, append, epoch, write_files

WRITERS = 3
EPOCHS = 12


def rows_of(table: ParquetTable) -> list[tuple[str | None, int]]:
    rows = ds.dataset(table.paths(), schema=table.schema()).to_table().to_pylist()
    return sorted((row["sensor"], row["value"]) for row in rows)


@pytest.fixture
def table(tmp_path: Path) -> ParquetTable:
    return ParquetTable(str(tmp_path / "lake"))


def test_a_table_that_is_not_there(table: ParquetTable) -> None:
    assert (table.exists(), table.version(), table.last_batch("query-1")) == (False, -1, None)
    assert table.queries("iot", "raw") == frozenset()
    assert table.paths() == []
    with pytest.raises(LakeRefused, match=r"^There is no table at '.*/lake'\.$"):
        table.schema()
    assert not Path(table.root).exists()


def test_commits_are_read_in_their_order(table: ParquetTable) -> None:
    assert append(table, 0, [("a", 1)])
    assert append(table, 1, [("b", 2), (None, 3)]) is True
    assert (table.exists(), table.version(), table.last_batch("query-1")) == (True, 1, 1)
    assert table.schema() == SCHEMA
    first, second = table.commits()
    assert (first.epoch, second.epoch) == (epoch(0), epoch(1))
    assert first.details == {"about": "a test"}
    assert first.files[0].statistics["value"].greatest == 1
    assert table.paths(0) == [f"{table.root}/{second.files[0].path}"]
    assert table.paths(until=0) == [f"{table.root}/{first.files[0].path}"]
    assert table.paths(1) == []


def test_an_epoch_that_is_there_is_left_alone(table: ParquetTable) -> None:
    append(table, 0, [("a", 1)])
    append(table, 1, [("b", 2)])
    assert append(table, 1, [("b", 2)]) is False
    assert append(table, 0, [("a", 1)]) is False
    assert rows_of(table) == [("a", 1), ("b", 2)]


def test_a_new_query_counts_from_zero_again(table: ParquetTable) -> None:
    append(table, 5, [("a", 1)])
    assert append(table, 0, [("b", 2)], query="query-2")
    assert append(table, 0, [("c", 3)], query="query-3", flow="other")
    assert rows_of(table) == [("a", 1), ("b", 2), ("c", 3)]
    assert table.queries("iot", "raw") == {"query-1", "query-2"}
    assert table.queries("iot", "other") == {"query-3"}
    assert table.queries("else", "raw") == frozenset()


@pytest.mark.parametrize("hint", [None, "0", "77", "no number", ""])
def test_the_hint_is_only_a_hint(table: ParquetTable, hint: str | None) -> None:
    for batch in range(3):
        append(table, batch, [("a", batch)])
    path = Path(table.root) / manifest.FOLDER / "latest"
    path.unlink() if hint is None else path.write_text(hint)
    assert table.version() == 2
    assert append(table, 3, [("a", 3)])
    assert path.read_text() == "3"


def test_a_crash_before_the_name_is_made_leaves_the_table_as_it_was(
    table: ParquetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(table, 0, [("a", 1)])

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(durable_files.os, "link", crash)
        with pytest.raises(KeyboardInterrupt):
            append(table, 1, [("b", 2)])
    assert ParquetTable(table.root).version() == 0
    assert append(table, 1, [("b", 2)])
    assert rows_of(table) == [("a", 1), ("b", 2)]


def test_a_file_system_without_hard_links_is_refused(
    table: ParquetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(durable_files.os, "link", refuse)
    with pytest.raises(LakeRefused, match="is on a file system without hard links"):
        append(table, 0, [("a", 1)])


def _append_epochs(root: str, writer: int) -> None:
    table = ParquetTable(root)
    for batch in range(EPOCHS):
        assert append(table, batch, [(f"w{writer}", batch)], query=f"query-{writer}")


def test_several_writers_lose_and_double_nothing(table: ParquetTable) -> None:
    Path(table.root).mkdir()
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(partial(_append_epochs, table.root), range(WRITERS)))
    assert table.version() == WRITERS * EPOCHS - 1
    assert rows_of(table) == sorted(
        (f"w{writer}", batch) for writer in range(WRITERS) for batch in range(EPOCHS)
    )
    assert not list((Path(table.root) / manifest.FOLDER).glob("*.draft"))


def test_what_does_not_fit_is_refused_and_changes_nothing(table: ParquetTable) -> None:
    append(table, 0, [("a", 1)])
    other = SCHEMA.set(1, pa.field("value", pa.string()))
    for refuse in (
        lambda: table.check(other, ()),
        lambda: table.commit(epoch(1), write_files(table.root, [("a", 1)]), other, (), {}),
    ):
        with pytest.raises(LakeRefused, match="its column 'value' is int64, and theirs is string"):
            refuse()
    with pytest.raises(LakeRefused, match="is partitioned by nothing, not by 'sensor'"):
        table.check(SCHEMA, ["sensor"])
    assert table.version() == 0


def test_a_damaged_manifest_is_named(table: ParquetTable) -> None:
    append(table, 0, [("a", 1)])
    path = Path(table.root) / manifest.FOLDER / f"{0:020d}.json"
    value = json.loads(path.read_bytes())
    for content, text in [
        ("{", "can't be read: "),
        (
            json.dumps({**value, "format": 2}),
            "its format is 2, but this Penstock knows 1",
        ),
    ]:
        path.write_text(content)
        with pytest.raises(LakeRefused, match=text):
            table.schema()


def test_a_dropped_table_is_gone(table: ParquetTable) -> None:
    append(table, 0, [("a", 1)])
    table.drop()
    assert not table.exists()
    table.drop()


def test_the_folder_of_a_delta_table_is_refused(table: ParquetTable) -> None:
    (Path(table.root) / "_delta_log").mkdir(parents=True)
    with pytest.raises(LakeRefused, match="already holds a Delta table"):
        table.check(SCHEMA, ())
