"""Compares what the nodes of a stopped cluster hold on disk, entry by entry and byte by byte."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from penstock.model.topic_config import TopicConfig
from penstock.records.batch import BatchHeader
from penstock.server import SystemClock
from penstock.storage.data_directory import DataDirectory
from penstock.storage.file_system import RealFileSystem
from penstock.storage.log import Log, LogEntry
from penstock.storage.open_files import OpenFiles

OPEN_FILES_MAX = 64
CHUNK_BYTES = 8 << 20
REPLICAS_MIN = 2


def compare_logs(data_dirs: Sequence[Path]) -> int:
    """How many entries are held by more than one node; raises where two of them differ.

    Compared is what all replicas of a group have: from the latest log start to the earliest end.
    The nodes must have been stopped at one moment, after they caught up, so that the ends differ
    by nothing that was acknowledged.
    """
    directories: dict[Path, list[Path]] = {}
    for data_dir in data_dirs:
        for path in log_directories(data_dir):
            directories.setdefault(path.relative_to(data_dir), []).append(path)
    return sum(
        compare_group(name, paths)
        for name, paths in directories.items()
        if len(paths) >= REPLICAS_MIN
    )


def log_directories(data_dir: Path) -> list[Path]:
    file_system = RealFileSystem()
    directory = DataDirectory.open_stopped(data_dir, file_system=file_system)
    try:
        found = directory.log_directories()
        return [path for path in found if Log.exists(path, file_system=file_system)]
    finally:
        directory.close()


def compare_group(name: Path, paths: Sequence[Path]) -> int:
    with open_logs(paths) as logs:
        low = max(log.first_index for log in logs.values())
        high = min(log.last_index for log in logs.values()) + 1
        contents = {path: list(entries(log, low, high)) for path, log in logs.items()}
    (first, expected), *others = contents.items()
    for path, found in others:
        check_equal(name, {first: expected, path: found})
    return len(expected)


def check_equal(name: Path, contents: Mapping[Path, Sequence[LogEntry]]) -> None:
    (one, left), (two, right) = contents.items()
    for a, b in zip(left, right, strict=False):
        assert a == b, f"{name} differs between {one} and {two}: {a} against {b}"
    assert len(left) == len(right), f"{name}: {len(left)} entries in {one}, {len(right)} in {two}"


def entries(log: Log, low: int, high: int) -> Iterator[LogEntry]:
    while low < high:
        chunk = log.entries(low, high, CHUNK_BYTES)
        yield from chunk
        low = chunk[-1].index + 1


@contextmanager
def open_logs(paths: Sequence[Path]) -> Iterator[dict[Path, Log]]:
    file_system = RealFileSystem()
    logs: dict[Path, Log] = {}
    try:
        for path in paths:
            logs[path] = Log.open(
                path,
                config=TopicConfig(),
                file_system=file_system,
                open_files=OpenFiles(file_system, OPEN_FILES_MAX),
                clock=SystemClock(),
                on_batch=ignore,
            )
        yield logs
    finally:
        for log in logs.values():
            log.close()


def ignore(header: BatchHeader) -> None:
    """Nobody's state is rebuilt here."""
