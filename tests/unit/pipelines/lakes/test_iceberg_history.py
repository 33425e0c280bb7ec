"""Proves what an Iceberg table keeps of its past, and which changes of others a reader refuses."""

import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.pipelines.lakes.iceberg_table import IcebergTable
from penstock.pipelines.lakes.lake_table import LakeRefused
from tests.unit.pipelines.lakes.iceberg_rig import append, reading, seen_by_pyiceberg

KEPT = 3
SLACK = 10
HOUR_S = 3600.0


def numbers(paths: list[str]) -> list[float]:
    return [pq.read_table(path)["temperature"][0].as_py() for path in paths]


def set_manifests_to_merge(table: IcebergTable, count: int) -> None:
    with seen_by_pyiceberg(table).transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": str(count)})


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
    set_manifests_to_merge(table, 3)
    for batch in range(1, 14):
        append(table, batch, [reading("a", 1, float(batch))])

    found = seen_by_pyiceberg(table)
    assert len(found.current_snapshot().manifests(found.io)) < 4
    assert numbers(table.paths()) == [float(batch) for batch in range(14)]
    assert numbers(table.paths(after=10)) == [11.0, 12.0, 13.0]
    # Manifests that were merged into others are gone with the snapshots that named them.
    assert len(list(Path(table.root, "metadata").glob("*-m*.avro"))) < 14


def test_a_clock_that_is_set_back_costs_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = IcebergTable(str(tmp_path / "readings"), {"snapshotsKept": str(KEPT)})
    commits = KEPT + SLACK
    for batch in range(commits - 1):
        append(table, batch, [reading("a", 1, float(batch))])
    monkeypatch.setattr(time, "time", lambda: HOUR_S)
    append(table, commits - 1, [reading("a", 1, float(commits - 1))])

    found = seen_by_pyiceberg(table)
    assert len(found.snapshots()) == KEPT
    assert numbers(table.paths()) == [float(batch) for batch in range(commits)]
    assert found.scan().count() == commits


def test_clocks_of_two_writers_that_differ_cost_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = IcebergTable(str(tmp_path / "readings"), {"snapshotsKept": str(KEPT)})
    commits = KEPT + SLACK
    for batch in range(commits):
        behind = HOUR_S if batch == commits - 2 else 0
        monkeypatch.setattr(time, "time", lambda behind=behind: 10 * HOUR_S - behind)
        append(table, batch, [reading("a", 1, float(batch))])
    assert numbers(table.paths()) == [float(batch) for batch in range(commits)]
    assert seen_by_pyiceberg(table).scan().count() == commits


def test_a_table_that_was_taken_back_keeps_what_it_went_back_to(tmp_path: Path) -> None:
    table = IcebergTable(str(tmp_path / "readings"), {"snapshotsKept": str(KEPT)})
    for batch in range(SLACK):
        append(table, batch, [reading("a", 1, float(batch))])
    earlier = seen_by_pyiceberg(table).current_snapshot().snapshot_id
    # Manifests are merged here, but not on the way that the table takes from the earlier one on.
    set_manifests_to_merge(table, 3)
    append(table, SLACK, [reading("a", 1, -1.0)])
    seen_by_pyiceberg(table).manage_snapshots().rollback_to_snapshot(earlier).commit()
    set_manifests_to_merge(table, 100)
    for batch in range(SLACK + 1, SLACK + KEPT):
        append(table, batch, [reading("a", 1, float(batch))])

    found = seen_by_pyiceberg(table)
    assert len(found.snapshots()) == KEPT
    wanted = [float(batch) for batch in range(SLACK + KEPT) if batch != SLACK]
    assert numbers(table.paths()) == wanted
    assert found.scan().count() == len(wanted)


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


@pytest.mark.parametrize("name", ["*.metadata.json", "*-m0.avro", "snap-*.avro", "../catalog.db"])
@pytest.mark.parametrize("is_cut", [True, False])
def test_a_table_whose_metadata_is_damaged_is_named(
    tmp_path: Path, name: str, is_cut: bool
) -> None:
    written = IcebergTable(str(tmp_path / "readings"))
    append(written, 0, [reading("a", 1, 0.0)])
    for path in Path(written.root, "metadata").glob(name):
        path.write_bytes(path.read_bytes()[:100] if is_cut else b"\xff" * 1000)
    with pytest.raises(LakeRefused, match=r"The Iceberg table '.*/readings' can't be read: \w"):
        IcebergTable(written.root).paths()


def test_a_table_that_lost_its_metadata_is_named(tmp_path: Path) -> None:
    table = IcebergTable(str(tmp_path / "readings"))
    append(table, 0, [reading("a", 1, 0.0)])
    for path in Path(table.root, "metadata").iterdir():
        path.unlink()
    with pytest.raises(LakeRefused, match=r"The metadata of the Iceberg table '.*' is gone"):
        table.version()
