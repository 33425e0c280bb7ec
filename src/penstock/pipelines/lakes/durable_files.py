"""Files and folders that outlive a power cut: a name counts once its folder is on the disk too."""

import contextlib
import errno
import os
import shutil
import uuid
from pathlib import Path

from penstock.pipelines.lakes.lake_table import LakeRefused

# Folders whose names this process knows to be on the disk: to look again would only cost time.
_lasting: set[Path] = set()
_LASTING_MAX = 10_000


def sync_path(path: str | os.PathLike[str]) -> None:
    """Bring a file's content, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(root: str, folder: str) -> None:
    """Make `folder` below the root, and see to it that each new name lasts."""
    path = Path(root)
    _make_folder(path)
    for name in Path(folder).parts:
        path = path / name
        _make_folder(path)


def _make_folder(path: Path) -> None:
    """One that is there may be of a process that was killed before it saw to the name."""
    is_there = path.is_dir()
    if is_there and path in _lasting:
        return
    if not is_there:
        _make_folder(path.parent)
        path.mkdir(exist_ok=True)
    try:
        sync_path(path.parent)
    except PermissionError:
        # Anyone who made it for us was allowed to look into the folder above, and we are not.
        if not is_there:
            raise
    if len(_lasting) >= _LASTING_MAX:
        _lasting.clear()
    _lasting.add(path)


def create_exclusively(path: Path, content: bytes) -> bool:
    """Make a file with all of its content at once; False if the name is taken already.

    A reader never sees a part of it: the name is a hard link to a file that is complete.
    """
    draft = path.parent / f".{uuid.uuid4().hex}.draft"
    try:
        _write(draft, content)
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError as failure:
        if failure.errno in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
            raise LakeRefused(
                f"The folder {str(path.parent)!r} is on a file system without hard links,"
                " which the manifest of a Parquet table needs."
            ) from failure
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
    sync_path(path.parent)
    return True


def replace_file(path: Path, content: bytes) -> None:
    """Give a file new content, so that readers see the old or the new."""
    draft = path.parent / f".{uuid.uuid4().hex}.draft"
    try:
        _write(draft, content)
        draft.replace(path)
    except OSError:
        # On a full disk every bit of room counts.
        draft.unlink(missing_ok=True)
        raise
    sync_path(path.parent)


def remove_tree(path: Path) -> None:
    """Remove a folder with all that is in it; one that is gone already is fine."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
