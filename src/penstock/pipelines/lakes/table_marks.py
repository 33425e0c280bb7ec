"""By what a folder is known to hold a table already, so that one format never buries another."""

from pathlib import Path

from penstock.pipelines.lakes.lake_table import LakeRefused

_MARKS = {"Parquet": "_manifest", "Delta": "_delta_log", "Iceberg": "catalog.db"}


def refuse_other_table(root: str, own: str) -> None:
    """Refuse a folder with a table of another format, or a path that is not a folder."""
    folder = Path(root)
    if folder.exists() and not folder.is_dir():
        raise LakeRefused(f"The table {root!r} can't be created: a file has that name.")
    for kind, mark in _MARKS.items():
        if kind != own and (folder / mark).exists():
            raise LakeRefused(f"The folder {root!r} already holds a {kind} table.")
