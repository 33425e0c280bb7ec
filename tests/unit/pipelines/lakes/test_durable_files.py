"""Proves that folders of a table outlive a power cut, each by its name in the one above."""

import os
from pathlib import Path

import pytest

from penstock.pipelines.lakes import durable_files
from penstock.pipelines.lakes.durable_files import make_folders
from tests.unit.pipelines.lakes.dying import noted_syncs


def test_each_new_name_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = noted_syncs(monkeypatch)
    make_folders(str(tmp_path / "lake" / "raw"), "data/query")
    above = [tmp_path, tmp_path / "lake", tmp_path / "lake/raw", tmp_path / "lake/raw/data"]
    assert synced == [str(tmp_path.parent), *map(str, above)]
    make_folders(str(tmp_path / "lake" / "raw"), "data/query")
    assert len(synced) == 1 + len(above)


def test_a_name_that_a_killed_process_left_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lake" / "data" / "query").mkdir(parents=True)
    synced = noted_syncs(monkeypatch)
    make_folders(str(tmp_path / "lake"), "data/query")
    assert synced == [str(tmp_path), str(tmp_path / "lake"), str(tmp_path / "lake/data")]


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    for _ in range(2):
        make_folders(str(tmp_path), "data")
        (tmp_path / "data").rmdir()


def test_a_folder_may_lie_where_nobody_may_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        if path == tmp_path:
            raise PermissionError

    monkeypatch.setattr(durable_files, "sync_path", refuse)
    (tmp_path / "lake").mkdir()
    make_folders(str(tmp_path / "lake"), "data")
    with pytest.raises(PermissionError):
        make_folders(str(tmp_path / "other"), "data")


def test_what_is_known_of_folders_takes_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable_files, "_LASTING_MAX", 5)
    for number in range(20):
        make_folders(str(tmp_path), f"data/{number}")
        assert len(durable_files._lasting) <= 5
    assert len(os.listdir(tmp_path / "data")) == 20
