"""Small files that know whether they are whole: magic, version and checksum, then the content."""

import struct

from penstock.model.errors import StorageDamaged
from penstock.records.checksum import crc32c
from penstock.storage.file_system import AnyPath, Bytes

# Magic, version, checksum of what follows the prefix, and its length.
_PREFIX = struct.Struct(">4sHIQ")


def wrap(magic: bytes, version: int, content: Bytes) -> bytes:
    assert len(magic) == 4
    return _PREFIX.pack(magic, version, crc32c(content), len(content)) + bytes(content)


def unwrap(path: AnyPath, magic: bytes, version: int, data: bytes) -> bytes:
    """The content; raises StorageDamaged, naming the file, if it is not what was wrapped."""
    if len(data) < _PREFIX.size:
        raise StorageDamaged(str(path), len(data), "the file is too short")
    found_magic, found_version, checksum, length = _PREFIX.unpack_from(data)
    if found_magic != magic:
        raise StorageDamaged(str(path), 0, "the file does not start with the right bytes")
    content = data[_PREFIX.size :]
    if len(content) != length or crc32c(content) != checksum:
        raise StorageDamaged(str(path), _PREFIX.size, "the checksum does not match")
    if found_version != version:
        raise StorageDamaged(str(path), 4, f"the format {found_version} is not known")
    return content
