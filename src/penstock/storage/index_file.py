"""Index files: checksummed, because an index that lies is worse than one that is lost.

They are never synced: a lost or torn one is rebuilt from its segment.
"""

import struct
import sys
from pathlib import Path
from typing import NamedTuple

from penstock.model.errors import StorageDamaged
from penstock.storage.checksummed import unwrap, wrap
from penstock.storage.file_system import FileSystem

_MAGIC = b"PNIX"
_VERSION = 1
# Base offset, covered bytes, number of entries, width of an entry, whether it is little-endian.
_PREFIX = struct.Struct(">qQQH?")


class IndexContent(NamedTuple):
    base_offset: int
    # The index knows the segment up to this position.
    covered: int
    entries: int
    columns: bytes


def write_index(file_system: FileSystem, path: Path, content: IndexContent) -> None:
    width = len(content.columns) // content.entries if content.entries else 0
    prefix = _PREFIX.pack(
        content.base_offset, content.covered, content.entries, width, sys.byteorder == "little"
    )
    file = file_system.create(path)
    try:
        file.pwrite(wrap(_MAGIC, _VERSION, prefix + content.columns), 0)
    finally:
        file.close()


def read_index(
    file_system: FileSystem, path: Path, base_offset: int, width: int
) -> IndexContent | None:
    """None if the index is missing, torn, or not this segment's."""
    try:
        data = unwrap(path, _MAGIC, _VERSION, file_system.read(path))
    except (FileNotFoundError, StorageDamaged):
        return None
    if len(data) < _PREFIX.size:
        return None
    base, covered, count, found_width, is_little = _PREFIX.unpack_from(data)
    columns = data[_PREFIX.size :]
    is_ours = base == base_offset and found_width == width and len(columns) == count * width
    if not is_ours or is_little != (sys.byteorder == "little"):
        return None
    return IndexContent(base, covered, count, columns)
