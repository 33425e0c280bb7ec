"""Keeps bytes that leave a log beside it, in files that end in `.cut`, for its operator."""

from pathlib import Path

from penstock.storage.file_system import FileSystem

CUT_SUFFIX = ".cut"

_COPY_BYTES = 4 * 1024 * 1024


def free_name(path: Path, file_system: FileSystem) -> Path:
    """A name beside the file that nothing has yet."""
    names = set(file_system.names(path.parent))
    name, number = path.name + CUT_SUFFIX, 1
    while name in names:
        number += 1
        name = f"{path.name}.{number}{CUT_SUFFIX}"
    return path.with_name(name)


def move_aside(path: Path, file_system: FileSystem) -> None:
    file_system.rename(path, free_name(path, file_system))


def copy_aside(path: Path, start: int, end: int, file_system: FileSystem) -> None:
    """Copies these bytes of the file, durably."""
    if start >= end:
        return
    source, out = file_system.open(path), file_system.create(free_name(path, file_system))
    try:
        for position in range(start, end, _COPY_BYTES):
            data = source.pread(min(_COPY_BYTES, end - position), position)
            out.pwrite(data, position - start)
        out.sync()
    finally:
        source.close()
        out.close()
    file_system.sync_directory(path.parent)
