"""The real file system: short writes, vectors beyond the kernel's limit, atomic replacement."""

import errno
import os
import sys
from pathlib import Path

import pytest

from penstock.storage.file_system import (
    FILES_FOR_ONE_SYNC,
    RealFileSystem,
    can_sync_whole_disks,
)

DISK = RealFileSystem()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = DISK.create(tmp_path / "f")
    file.pwrite(memoryview(b"hello world"), 3)
    assert file.pread(100, 0) == b"\0\0\0hello world"
    assert file.pread(5, 3) == b"hello"
    assert file.pread(5, 100) == b""
    file.truncate(4)
    assert file.size() == DISK.size(tmp_path / "f") == 4
    file.sync()
    file.close()
    assert DISK.read(tmp_path / "f") == b"\0\0\0h"


def test_vectors_beyond_the_kernels_limit(tmp_path: Path) -> None:
    file = DISK.create(tmp_path / "f")
    parts = [b"%d," % number for number in range(5000)]
    file.pwritev(parts, 7)
    assert file.pread(10**6, 7) == b"".join(parts)
    file.close()


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_pwrite, real_pwritev = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real_pwrite(fd, data[:3], at))
    monkeypatch.setattr(
        os, "pwritev", lambda fd, parts, at: real_pwritev(fd, [b"".join(parts)[:3]], at)
    )
    file = DISK.create(tmp_path / "f")
    file.pwrite(b"0123456789", 0)
    file.pwritev([b"abc", b"defg", b"h"], 10)
    assert file.pread(100, 0) == b"0123456789abcdefgh"
    file.close()


def test_short_reads_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DISK.create(tmp_path / "f")
    file.pwrite(b"0123456789", 0)
    real_pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, at: real_pread(fd, min(3, length), at))
    assert file.pread(8, 1) == b"12345678"
    assert file.pread(80, 1) == b"123456789"
    file.close()


def test_write_atomically_replaces_and_leaves_nothing_behind(tmp_path: Path) -> None:
    DISK.write_atomically(tmp_path / "f", b"one")
    DISK.write_atomically(tmp_path / "f", b"two")
    assert DISK.names(tmp_path) == ["f"]
    assert DISK.read(tmp_path / "f") == b"two"


def test_an_atomic_write_syncs_the_content_before_the_name_and_the_name_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the system calls themselves: a test without a power cut sees no difference."""
    calls = record_calls(monkeypatch)
    DISK.write_atomically(tmp_path / "f", b"whole")
    assert calls == [
        ("pwrite", tmp_path / "f.tmp"),
        ("sync", tmp_path / "f.tmp"),
        ("replace", tmp_path / "f.tmp", tmp_path / "f"),
        ("sync", tmp_path),
    ]


def record_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What writes, renames and syncs from now on, in order; files by their paths."""
    calls: list[tuple[object, ...]] = []
    paths: dict[int, Path] = {}
    real_open, real_pwrite, real_replace = os.open, os.pwrite, os.replace

    def open_file(path: Path, flags: int, mode: int = 0o777) -> int:
        descriptor = real_open(path, flags, mode)
        paths[descriptor] = path
        return descriptor

    def pwrite(descriptor: int, data: bytes, position: int) -> int:
        calls.append(("pwrite", paths[descriptor]))
        return real_pwrite(descriptor, data, position)

    def replace(old: Path, new: Path) -> None:
        calls.append(("replace", old, new))
        real_replace(old, new)

    def sync(descriptor: int) -> None:
        calls.append(("sync", paths[descriptor]))

    monkeypatch.setattr(os, "open", open_file)
    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "fdatasync", sync, raising=False)
    return calls


def test_a_failed_atomic_write_keeps_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DISK.write_atomically(tmp_path / "f", b"one")

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(OSError, match="No space"):
        DISK.write_atomically(tmp_path / "f", b"two")
    assert DISK.names(tmp_path) == ["f"]
    assert DISK.read(tmp_path / "f") == b"one"


def test_make_directory_says_what_to_sync(tmp_path: Path) -> None:
    assert DISK.make_directory(tmp_path / "a" / "b") == [tmp_path, tmp_path / "a"]
    assert DISK.make_directory(tmp_path / "a" / "b") == []
    assert DISK.is_directory(tmp_path / "a" / "b")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        DISK.make_directory(tmp_path / "file")


def test_a_read_only_file_can_still_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DISK.write_atomically(tmp_path / "f", b"data")
    real_open = os.open

    def read_only(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, "Read-only file system")
        return real_open(path, flags, mode)

    monkeypatch.setattr(os, "open", read_only)
    file = DISK.open(tmp_path / "f")
    assert file.pread(4, 0) == b"data"
    file.close()


def test_locks_exclude(tmp_path: Path) -> None:
    lock = DISK.lock(tmp_path / "lock")
    with pytest.raises(BlockingIOError):
        DISK.lock(tmp_path / "lock")
    lock.release()
    DISK.lock(tmp_path / "lock").release()


def test_disk_free(tmp_path: Path) -> None:
    assert DISK.disk_free(tmp_path) > 0


def test_the_whole_disk_is_synced_only_for_many_files(tmp_path: Path) -> None:
    assert DISK.whole_disk(tmp_path, FILES_FOR_ONE_SYNC - 1) is None
    disk = DISK.whole_disk(tmp_path, FILES_FOR_ONE_SYNC)
    assert disk is not None
    DISK.create(tmp_path / "f").close()
    disk.sync()
    disk.close()


def test_a_sync_of_the_whole_disk_that_fails_says_so(tmp_path: Path) -> None:
    disk = DISK.whole_disk(tmp_path, FILES_FOR_ONE_SYNC)
    assert disk is not None
    disk.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.sync()


@pytest.mark.parametrize(
    ("system", "release", "can"),
    [
        ("linux", "5.8.0", True),
        ("linux", "5.7.19-generic", False),
        ("linux", "4.18.0-553.el8_10.x86_64", False),
        ("linux", "6.12-rc1", True),
        ("linux", "6.12+", True),
        ("linux", "of somebody's own", False),
        ("darwin", "24.0.0", False),
    ],
)
def test_whole_disks_are_synced_where_the_kernel_tells_of_failures(
    monkeypatch: pytest.MonkeyPatch, system: str, release: str, can: bool
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    assert can_sync_whole_disks(release) is can
