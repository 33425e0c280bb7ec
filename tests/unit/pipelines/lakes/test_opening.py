"""A path and a format name a table; what can't be opened is refused in a sentence."""

import os
from pathlib import Path

import pytest

from penstock.pipelines.lakes.lake_table import LakeRefused
from penstock.pipelines.lakes.opening import keeps_partition_columns, open_table, table_folder
from penstock.pipelines.specification.model import LakeFormat


@pytest.mark.parametrize("lake_format", list(LakeFormat))
def test_each_format_opens_without_making_anything(tmp_path: Path, lake_format: LakeFormat) -> None:
    table = open_table(lake_format, str(tmp_path / "t"), {})
    assert table.root == str(tmp_path / "t")
    assert not table.exists()
    assert table.version() == -1
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("/lake/t", "/lake/t"),
        ("/lake/../t/", "/t"),
        ("lake/t", f"{os.getcwd()}/lake/t"),
        ("file:///lake/a%20b", "/lake/a b"),
        ("file:/lake/t", "/lake/t"),
        ("/lake/a:b#c?d", "/lake/a:b#c?d"),
    ],
)
def test_paths_and_file_addresses_are_folders(path: str, folder: str) -> None:
    assert table_folder(path) == folder


@pytest.mark.parametrize("path", ["s3://bucket/t", "hdfs://host/t", "file://host/t", "s3a://b"])
def test_other_addresses_are_refused(path: str) -> None:
    with pytest.raises(LakeRefused) as refused:
        open_table(LakeFormat.DELTA, path)
    assert str(refused.value) == (
        f"The table {path!r} is not in a folder: tables can be in local or shared folders only."
    )


def test_options_are_refused_by_name() -> None:
    with pytest.raises(LakeRefused, match="Parquet table '/t' does not take the option 'speed'"):
        open_table(LakeFormat.PARQUET, "/t", {"speed": "high"})
    text = r"the option 'speed', only those that start with 'delta\.'"
    with pytest.raises(LakeRefused, match=text):
        open_table(LakeFormat.DELTA, "/t", {"speed": "high"})
    open_table(LakeFormat.DELTA, "/t", {"delta.appendOnly": "true"})


def test_only_delta_keeps_partition_columns_out_of_files() -> None:
    assert [keeps_partition_columns(each) for each in LakeFormat] == [True, False, True]
