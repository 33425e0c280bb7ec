"""Proves that the folders of a new table outlive a power cut, each by its name in the one above."""

import os
from pathlib import Path

import pytest

from penstock.pipelines.lakes.durable_files import make_folders


def test_each_new_name_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(_path_of(number)))
    make_folders(str(tmp_path / "lake" / "raw"), "data/query")
    above = [tmp_path, tmp_path / "lake", tmp_path / "lake/raw", tmp_path / "lake/raw/data"]
    assert synced == [str(folder) for folder in above]
    make_folders(str(tmp_path / "lake" / "raw"), "data/query")
    assert len(synced) == len(above)


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")
