"""The log of a Delta table gets checkpoints by itself, which are on the disk before they count."""

import json
import os
from pathlib import Path

import deltalake
import pytest

from penstock.pipelines.lakes.delta_table import DeltaTable
from tests.unit.pipelines.lakes.lake_rig import append


def test_a_checkpoint_comes_with_every_hundredth_commit(tmp_path: Path) -> None:
    append(DeltaTable(str(tmp_path / "lake")), 0, [("a", 1)])
    configuration = deltalake.DeltaTable(tmp_path / "lake").metadata().configuration
    assert configuration["delta.checkpointInterval"] == "100"


def noted_syncs(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    synced: set[str] = set()
    real = os.fsync

    def note(descriptor: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return synced


def test_every_commit_is_durable_and_so_is_the_table_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = noted_syncs(monkeypatch)
    table = DeltaTable(str(tmp_path / "lake"))
    for batch in range(2):
        assert append(table, batch, [("a", batch)])
    log = tmp_path / "lake" / "_delta_log"
    assert {str(path) for path in log.glob("*.json")} <= synced
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
    assert {str(checkpoint), str(log / "_last_checkpoint"), str(log)} <= synced
    # What came before the checkpoint is not needed to read the table.
    for path in log.glob("*.json"):
        if int(path.stem) < last:
            path.unlink()
    again = DeltaTable(str(root))
    assert again.last_batch("query-1") == 8
    assert len(again.paths()) == 9
    assert append(again, 8, [("a", 8)]) is False
    assert append(again, 9, [("a", 9)])
