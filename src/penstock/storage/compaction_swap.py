"""Puts compacted segments in the place of the old ones, so that a crash leaves all or nothing.

One small file decides: while it is missing, the compacted files are rubbish; once it is there,
the swap is finished, now or by recovery, as often as it takes.
"""

import contextlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.storage.checksummed import unwrap, wrap
from penstock.storage.file_system import FileSystem, SyncFailed
from penstock.storage.layout import (
    CHECKPOINT,
    CLEANED_SUFFIX,
    COMPACTION,
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_path,
)

CLEANED_SEGMENT = SEGMENT_SUFFIX + CLEANED_SUFFIX

_MAGIC = b"PNSW"
_VERSION = 1
_FACTS_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    # Base offsets of the compacted segments, and of all that they replace.
    cleaned: tuple[int, ...]
    gone: tuple[int, ...]
    # What the checkpoint says once the swap is done, encoded.
    checkpoint: bytes

    def encode(self) -> bytes:
        text = json.dumps({"cleaned": self.cleaned, "gone": self.gone}).encode()
        return wrap(_MAGIC, _VERSION, _FACTS_LENGTH.pack(len(text)) + text + self.checkpoint)


def commit_swap(directory: Path, file_system: FileSystem, swap: Swap) -> None:
    """From here on the swap happens, so the files that it names must last: synced by name too.

    Raises OSError if it does not happen, or SyncFailed if that is for the next start to see.
    """
    path = directory / COMPACTION
    file_system.sync_directory(directory)
    try:
        file_system.write_atomically(path, swap.encode())
    except OSError as error:
        if file_system.exists(path):
            raise SyncFailed(error.errno, error.strerror, str(path)) from error
        raise


def finish_swap(directory: Path, file_system: FileSystem) -> None:
    """Finishes a swap that a crash interrupted, if there is one."""
    path = directory / COMPACTION
    if not file_system.exists(path):
        return
    content = unwrap(path, _MAGIC, _VERSION, file_system.read(path))
    (length,) = _FACTS_LENGTH.unpack_from(content)
    end = _FACTS_LENGTH.size + length
    facts = json.loads(content[_FACTS_LENGTH.size : end])
    swap = Swap(
        cleaned=tuple(facts["cleaned"]), gone=tuple(facts["gone"]), checkpoint=content[end:]
    )
    apply_swap(directory, file_system, swap, file_system.rename)


def apply_swap(
    directory: Path,
    file_system: FileSystem,
    swap: Swap,
    rename: Callable[[Path, Path], None],
) -> None:
    """Every step may be repeated; the deciding file goes last."""
    for base in swap.gone:
        # The old indexes would lie about the new segment of the same name.
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            _remove_if_there(file_system, segment_path(directory, base, suffix))
    for base in swap.cleaned:
        source = segment_path(directory, base, CLEANED_SEGMENT)
        if file_system.exists(source):
            rename(source, segment_path(directory, base))
    for base in swap.gone:
        if base not in swap.cleaned:
            _remove_if_there(file_system, segment_path(directory, base))
    # This syncs the directory, so the renames last before the deciding file goes.
    file_system.write_atomically(directory / CHECKPOINT, swap.checkpoint)
    _remove_if_there(file_system, directory / COMPACTION)
    file_system.sync_directory(directory)


def _remove_if_there(file_system: FileSystem, path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        file_system.remove(path)
