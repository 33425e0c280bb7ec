"""The lake sink commits what its tasks wrote, once, and removes what nobody committed."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.pipelines.lakes.lake_table import DataFile
from penstock.pipelines.lakes.opening import open_table
from penstock.pipelines.lakes.parquet_table import ParquetTable
from penstock.pipelines.sinks import lake_sink
from penstock.pipelines.sinks.lake_sink import LakeWriter
from penstock.pipelines.sinks.sink import SinkRefused, Written
from penstock.pipelines.specification.model import LakeFormat
from tests.unit.pipelines.lakes.dying import noted_syncs
from tests.unit.pipelines.lakes.lake_rig import append, epoch, write_files


class Frame:
    """As much of a DataFrame as is looked at on the driver."""

    schema = StructType([StructField("sensor", StringType()), StructField("value", LongType())])


FRAME: Any = Frame()


class Tasks:
    """Stands for Spark: each call writes rows, and perhaps files of an attempt that failed."""

    def __init__(self, rows: list[tuple[str | None, int]], orphans: int = 0) -> None:
        self.rows = rows
        self.orphans = orphans

    def __call__(
        self, _: Any, __: Any, root: str, folder: str, partition_by: tuple[str, ...], **___: Any
    ) -> list[DataFile]:
        for _ in range(self.orphans):
            write_files(root, [("orphan", -1)], folder=folder)
        if not self.rows:
            return []
        return write_files(root, self.rows, partition_by, folder=folder)


@pytest.fixture
def table(tmp_path: Path) -> ParquetTable:
    return ParquetTable(str(tmp_path / "lake"))


def use(monkeypatch: pytest.MonkeyPatch, tasks: Any) -> None:
    monkeypatch.setattr(lake_sink, "write_frame", tasks)


def files_of(table: ParquetTable) -> set[str]:
    return {str(path) for path in Path(table.root).rglob("*.parquet")}


def test_files_of_tasks_that_were_tried_again_are_removed(
    table: ParquetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Tasks([("a", 1), (None, 2)], orphans=2))
    steps: list[str] = []
    written = LakeWriter(table, ["sensor"], steps=steps.append).write(FRAME, epoch(0))
    assert (written.rows, written.files, written.was_there) == (2, 2, False)
    assert steps == ["written", "committed"]
    assert files_of(table) == set(table.paths())


@pytest.mark.parametrize("point", ["written", "committed"])
def test_an_attempt_that_ended_half_way_leaves_no_trace(
    table: ParquetTable, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    use(monkeypatch, Tasks([("a", 1)], orphans=1))

    def crash(step: str) -> None:
        if step == point:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LakeWriter(table, steps=crash).write(FRAME, epoch(0))
    assert len(files_of(table)) == 2
    again = LakeWriter(table).write(FRAME, epoch(0))
    assert again.was_there is (point == "committed")
    assert len(table.paths()) == 1
    assert files_of(table) == set(table.paths())


@pytest.mark.parametrize(
    ("lake_format", "lasting"),
    [
        (LakeFormat.PARQUET, ["_manifest"]),
        (LakeFormat.DELTA, ["_delta_log", "_delta_log/00000000000000000001.json"]),
        (LakeFormat.ICEBERG, ["", "catalog.db"]),
    ],
    ids=str,
)
def test_a_commit_that_is_there_already_is_on_the_disk_before_others_rely_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake_format: LakeFormat, lasting: list[str]
) -> None:
    """Anyone who made it may have been killed before it saw to that."""
    assert append(open_table(lake_format, str(tmp_path)), 0, [("a", 1)])
    synced = noted_syncs(monkeypatch)
    assert LakeWriter(open_table(lake_format, str(tmp_path))).write(FRAME, epoch(0)).was_there
    assert {str(tmp_path / path) for path in lasting} <= set(synced)
    # So it is for who finds out only when it commits.
    synced.clear()
    assert not append(open_table(lake_format, str(tmp_path)), 0, [("a", 1)])
    assert {str(tmp_path / path) for path in lasting} <= set(synced)


def test_a_batch_without_rows_commits_nothing(
    table: ParquetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Tasks([]))
    assert LakeWriter(table).write(FRAME, epoch(0)) == Written(rows=0)
    assert not table.exists()
    use(monkeypatch, Tasks([("a", 1)]))
    assert LakeWriter(table).write(FRAME, epoch(1)).rows == 1


def test_another_process_that_was_faster_keeps_its_files(
    table: ParquetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Tasks([("late", 1)]))
    other = ParquetTable(table.root)

    def be_faster(step: str) -> None:
        if step == "written":
            append(other, 0, [("first", 1)])

    written = LakeWriter(table, steps=be_faster).write(FRAME, epoch(0))
    assert written.was_there
    assert files_of(table) == set(table.paths())
    assert len(table.paths()) == 1


def test_a_folder_that_the_driver_does_not_see_is_refused(
    table: ParquetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = DataFile(path="data/elsewhere.parquet", rows=1, size=1, sha256="00")
    use(monkeypatch, lambda *_, **__: [missing])
    with pytest.raises(
        SinkRefused, match="all machines must share the table's folder under one path"
    ):
        LakeWriter(table).write(FRAME, epoch(0))
    assert not table.exists()


def test_what_can_not_fit_is_refused_before_the_start(table: ParquetTable) -> None:
    with pytest.raises(SinkRefused, match="the rows have no column 'room'"):
        LakeWriter(table, ["room"]).prepare(FRAME.schema)
    with pytest.raises(SinkRefused, match="The rows have no columns"):
        LakeWriter(table).prepare(StructType([]))
    append(table, 0, [("a", 1)])
    LakeWriter(table).prepare(FRAME.schema)
    changed = StructType([StructField("sensor", LongType()), StructField("value", LongType())])
    with pytest.raises(SinkRefused, match="its column 'sensor' is string, and theirs is int64"):
        LakeWriter(table).prepare(changed)
    Path(table.root, "file").touch()
    with pytest.raises(SinkRefused, match="a file has that name"):
        LakeWriter(ParquetTable(f"{table.root}/file")).prepare(FRAME.schema)


def test_clearing_removes_the_table_and_its_files(table: ParquetTable) -> None:
    append(table, 0, [("a", 1)])
    sink = LakeWriter(table)
    assert sink.queries_before("iot", "raw") == {"query-1"}
    sink.clear()
    assert not table.exists()
    assert not files_of(table)
    assert sink.queries_before("iot", "raw") == frozenset()
