"""Proves what an Iceberg table keeps of its past, and which changes of others a reader refuses."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.pipelines.lakes.iceberg_table import IcebergTable
from penstock.pipelines.lakes.lake_table import LakeRefused
from tests.unit.pipelines.lakes.iceberg_rig import append, reading, seen_by_pyiceberg

KEPT = 3
SLACK = 10


def numbers(paths: list[str]) -> list[float]:
    return [pq.read_table(path)["temperature"][0].as_py() for path in paths]


def test_old_snapshots_go_and_no_row_with_them(tmp_path: Path) -> None:
    table = IcebergTable(str(tmp_path / "readings"), {"snapshotsKept": str(KEPT)})
    commits = 2 * (KEPT + SLACK)
    for batch in range(commits):
        append(table, batch, [reading("a", 1, float(batch))], ["sensor"])

    found = seen_by_pyiceberg(table)
    assert KEPT <= len(found.snapshots()) < KEPT + SLACK
    assert found.scan().count() == commits
    assert table.version() == commits - 1
    # A reader that has not come by for longer than snapshots are kept misses nothing.
    assert numbers(table.paths()) == [float(batch) for batch in range(commits)]
    assert numbers(table.paths(after=1, until=6)) == [2.0, 3.0, 4.0, 5.0, 6.0]
    lists = list(Path(table.root, "metadata").glob("snap-*.avro"))
    assert len(lists) == len(found.snapshots())
    assert len(list(Path(table.root, "metadata").glob("*.metadata.json"))) <= 11


def test_merged_manifests_keep_the_order_of_commits(tmp_path: Path) -> None:
    table = IcebergTable(str(tmp_path / "readings"), {"snapshotsKept": "1"})
    append(table, 0, [reading("a", 1, 0.0)])
    with seen_by_pyiceberg(table).transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": "3"})
    for batch in range(1, 14):
        append(table, batch, [reading("a", 1, float(batch))])

    found = seen_by_pyiceberg(table)
    assert len(found.current_snapshot().manifests(found.io)) < 4
    assert numbers(table.paths()) == [float(batch) for batch in range(14)]
    assert numbers(table.paths(after=10)) == [11.0, 12.0, 13.0]
    # Manifests that were merged into others are gone with the snapshots that named them.
    assert len(list(Path(table.root, "metadata").glob("*-m*.avro"))) < 14


def test_tags_hold_the_past(tmp_path: Path) -> None:
    table = IcebergTable(str(tmp_path / "readings"), {"snapshotsKept": "1"})
    append(table, 0, [reading("a", 1, 0.0)])
    found = seen_by_pyiceberg(table)
    first = found.current_snapshot().snapshot_id
    found.manage_snapshots().create_tag(first, "audited").commit()
    for batch in range(1, SLACK + 2):
        append(table, batch, [reading("a", 1, float(batch))])
    assert seen_by_pyiceberg(table).scan(snapshot_id=first).count() == 1


def test_rows_deleted_by_others_are_not_read_and_a_stream_is_told(tmp_path: Path) -> None:
    table = IcebergTable(str(tmp_path / "readings"))
    append(table, 0, [reading("a", 1, 0.0)])
    append(table, 1, [reading("b", 1, 1.0)])
    seen_by_pyiceberg(table).delete("sensor = 'a'")
    append(table, 2, [reading("c", 1, 2.0)])

    assert numbers(table.paths()) == [1.0, 2.0]
    with pytest.raises(LakeRefused, match="was rewritten since it was last read"):
        table.paths(after=1)
    assert numbers(table.paths(after=2)) == [2.0]


def test_a_table_that_lost_its_metadata_is_named(tmp_path: Path) -> None:
    table = IcebergTable(str(tmp_path / "readings"))
    append(table, 0, [reading("a", 1, 0.0)])
    for path in Path(table.root, "metadata").iterdir():
        path.unlink()
    with pytest.raises(LakeRefused, match=r"The metadata of the Iceberg table '.*' is gone"):
        table.version()
