"""Reads the numbered files of Delta's log, for what `deltalake` does not tell."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from penstock.pipelines.lakes.durable_files import sync_path
from penstock.pipelines.lakes.lake_table import LakeRefused

FOLDER = "_delta_log"
_LAST_CHECKPOINT = "_last_checkpoint"


def sync_commits(root: str, first: int) -> int:
    """Bring commits from this one on to the disk; returns the version after the last of them.

    `deltalake` leaves them to the page cache, and Spark's checkpoint must not outlive them. Nor
    must a checkpoint of the log be named that is not on the disk.
    """
    folder = Path(root) / FOLDER
    version = first
    while (path := _path(root, version)).exists():
        sync_path(path)
        if (checkpoint := _checkpoint(root, version)).exists():
            sync_path(checkpoint)
            sync_path(folder / _LAST_CHECKPOINT)
        version += 1
    sync_path(folder)
    sync_path(root)
    return version


def first_needed(root: str, version: int) -> int:
    """The oldest commit that a version can't be read without: of a checkpoint, or the first."""
    while (
        version > 0
        and not _checkpoint(root, version).exists()
        and _path(root, version - 1).exists()
    ):
        version -= 1
    return version


def added_paths(root: str, version: int) -> Iterator[str]:
    """Absolute paths of files that a commit brought, without those that only moved rows.

    Refuses a commit that changed rows: what it left as it was can't be told from what is new.
    """
    path = _path(root, version)
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError as missing:
        raise LakeRefused(
            f"The Delta table {root!r} no longer has commit {version} in its log."
        ) from missing
    actions = [json.loads(line) for line in lines if line]
    added = [each["add"] for each in actions if "add" in each and each["add"]["dataChange"]]
    removed = [each["remove"] for each in actions if "remove" in each]
    if added and any(remove.get("dataChange", True) for remove in removed):
        raise LakeRefused(
            f"The Delta table {root!r} was rewritten since it was last read (commit {version}), so"
            " its new rows can't be told from the old ones: read it from the start, with a new"
            " checkpoint."
        )
    for add in added:
        yield _added_path(root, add)


def _added_path(root: str, add: dict[str, Any]) -> str:
    if add.get("deletionVector"):
        raise deletion_vectors_refused(root)
    return file_path(root, add["path"])


def file_path(root: str, address: str) -> str:
    """The absolute path of what an action calls its path: an address, relative or not."""
    parts = urlsplit(address)
    if parts.scheme not in ("", "file"):
        raise LakeRefused(f"The Delta table {root!r} has a file outside its folder: {address!r}.")
    path = unquote(parts.path)
    return path if path.startswith("/") else f"{root}/{path}"


def deletion_vectors_refused(root: str) -> LakeRefused:
    return LakeRefused(
        f"The Delta table {root!r} has rows that were deleted by deletion vectors,"
        " which are not supported: compact it first."
    )


def _path(root: str, version: int) -> Path:
    return Path(root) / FOLDER / f"{version:020d}.json"


def _checkpoint(root: str, version: int) -> Path:
    return _path(root, version).with_suffix(".checkpoint.parquet")
