"""A state machine's snapshot on disk: its bytes, and the offset up to which it applied the log."""

import struct
from pathlib import Path
from typing import NamedTuple

from penstock.model.ids import Offset
from penstock.storage.checksummed import unwrap, wrap
from penstock.storage.file_system import FileSystem

_MAGIC = b"PNSN"
_VERSION = 1
_OFFSET = struct.Struct(">q")


class Snapshot(NamedTuple):
    data: bytes
    # The first offset that the state has not applied yet.
    offset: Offset


def write_snapshot(file_system: FileSystem, path: Path, snapshot: Snapshot) -> None:
    """Durable and atomic: after a crash the old snapshot or the new one is there."""
    content = _OFFSET.pack(snapshot.offset) + snapshot.data
    file_system.write_atomically(path, wrap(_MAGIC, _VERSION, content))


def read_snapshot(file_system: FileSystem, path: Path) -> Snapshot | None:
    """None if there is none; raises StorageDamaged if it is not whole."""
    if not file_system.exists(path):
        return None
    content = unwrap(path, _MAGIC, _VERSION, file_system.read(path))
    (offset,) = _OFFSET.unpack_from(content)
    return Snapshot(content[_OFFSET.size :], Offset(offset))
