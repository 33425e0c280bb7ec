"""The log of a Delta table gets checkpoints by itself, which are on the disk before they count."""

import json
from pathlib import Path

import deltalake
import pytest

from penstock.pipelines.lakes import delta_log
from penstock.pipelines.lakes.delta_table import DeltaTable
from tests.unit.pipelines.lakes.dying import noted_syncs
from tests.unit.pipelines.lakes.lake_rig import append


def test_a_checkpoint_comes_with_every_hundredth_commit(tmp_path: Path) -> None:
    append(DeltaTable(str(tmp_path / "lake")), 0, [("a", 1)])
    configuration = deltalake.DeltaTable(tmp_path / "lake").metadata().configuration
    assert configuration["delta.checkpointInterval"] == "100"


def test_every_commit_is_durable_and_so_is_the_table_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = noted_syncs(monkeypatch)
    table = DeltaTable(str(tmp_path / "lake"))
    for batch in range(2):
        assert append(table, batch, [("a", batch)])
    log = tmp_path / "lake" / "_delta_log"
    assert {str(path) for path in log.glob("*.json")} <= set(synced)
    assert table.version() == 2


def test_checkpoints_hold_all_and_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = noted_syncs(monkeypatch)
    root = tmp_path / "lake"
    table = DeltaTable(str(root), {"delta.checkpointInterval": "4"})
    for batch in range(9):
        assert append(table, batch, [("a", batch)])
    log = root / "_delta_log"
    last = json.loads((log / "_last_checkpoint").read_bytes())["version"]
    checkpoint = log / f"{last:020d}.checkpoint.parquet"
    assert last >= 4
    assert {str(checkpoint), str(log / "_last_checkpoint"), str(log)} <= set(synced)
    # What came before the checkpoint is not needed to read the table.
    for path in log.glob("*.json"):
        if int(path.stem) < last:
            path.unlink()
    again = DeltaTable(str(root))
    assert again.last_batch("query-1") == 8
    assert len(again.paths()) == 9
    assert append(again, 8, [("a", 8)]) is False
    assert append(again, 9, [("a", 9)])


def test_a_commit_that_others_left_to_the_page_cache_is_durable_before_one_comes_on_top(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "lake"
    table = DeltaTable(str(root), {"delta.checkpointInterval": "4"})
    with monkeypatch.context() as killed:
        killed.setattr(delta_log, "sync_commits", lambda root, first: first)
        for batch in range(7):
            assert append(table, batch, [("a", batch)])
    synced = noted_syncs(monkeypatch)
    assert append(DeltaTable(str(root)), 0, [("b", 0)], query="query-2")
    log = root / "_delta_log"
    last = json.loads((log / "_last_checkpoint").read_bytes())["version"]
    needed = {log / f"{version:020d}.json" for version in range(last, 9)}
    needed |= {log / f"{last:020d}.checkpoint.parquet", log / "_last_checkpoint", log}
    assert {str(path) for path in needed} <= set(synced)


def test_a_table_that_was_made_anew_is_durable_from_its_first_commit_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "lake"
    table = DeltaTable(str(root))
    for batch in range(3):
        assert append(table, batch, [("a", batch)])
    table.drop()
    synced = noted_syncs(monkeypatch)
    assert append(table, 0, [("b", 0)])
    assert {str(path) for path in (root / "_delta_log").glob("*.json")} <= set(synced)
