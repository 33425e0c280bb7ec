"""Open files: never more than allowed, except for those that somebody holds."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from penstock.storage.file_system import File, RealFileSystem
from penstock.storage.index_cache import IndexCache
from penstock.storage.offset_index import OffsetIndex
from penstock.storage.open_files import CachedFile, FileGone, OpenFiles

PATIENCE_S = 10


def make(tmp_path: Path, open_files: OpenFiles, count: int) -> list[CachedFile]:
    files = []
    for number in range(count):
        (tmp_path / str(number)).write_bytes(b"content of %d" % number)
        files.append(open_files.file(tmp_path / str(number)))
    return files


def test_the_bound_holds_and_closed_files_open_again(tmp_path: Path) -> None:
    open_files = OpenFiles(RealFileSystem(), 3)
    files = make(tmp_path, open_files, 10)
    for _ in range(3):
        for number, file in enumerate(files):
            assert file.pread(100, 0) == b"content of %d" % number
            assert open_files.open_count <= 3


def test_a_pinned_file_is_never_closed(tmp_path: Path) -> None:
    open_files = OpenFiles(RealFileSystem(), 2)
    files = make(tmp_path, open_files, 8)
    for file in files[:4]:
        file.pin()
    descriptors = [file.fileno() for file in files[:4]]
    for file in files:
        file.pread(1, 0)
    assert [file.fileno() for file in files[:4]] == descriptors
    for file in files[:4]:
        file.unpin()
    files[7].pread(1, 0)
    assert open_files.open_count <= 2


def test_a_retired_file_serves_those_who_hold_it_and_nobody_else(tmp_path: Path) -> None:
    open_files = OpenFiles(RealFileSystem(), 2)
    held, unused = make(tmp_path, open_files, 2)
    held.pin()
    held.retire()
    unused.retire()
    (tmp_path / "0").unlink()
    assert held.pread(7, 0) == b"content"
    with pytest.raises(FileGone):
        unused.pread(7, 0)
    held.unpin()
    assert open_files.open_count == 0
    with pytest.raises(FileGone):
        held.pin()


def test_a_moved_file_is_opened_under_its_new_name(tmp_path: Path) -> None:
    open_files = OpenFiles(RealFileSystem(), 2)
    (file,) = make(tmp_path, open_files, 1)
    file.move(tmp_path / "moved")
    assert file.pread(7, 0) == b"content"
    assert not (tmp_path / "0").exists()


class HangingDisk(RealFileSystem):
    """Makes and renames nothing until it is thawed, as a file system that is frozen."""

    def __init__(self) -> None:
        self.hangs = Event()
        self.is_thawed = Event()

    def create(self, path: Path) -> File:
        self._hang()
        return super().create(path)

    def rename(self, old: Path, new: Path) -> None:
        self._hang()
        super().rename(old, new)

    def _hang(self) -> None:
        self.hangs.set()
        assert self.is_thawed.wait(PATIENCE_S)


@pytest.mark.parametrize("change", ["create", "rename"])
def test_files_are_read_while_a_thread_hangs_in_a_change(tmp_path: Path, change: str) -> None:
    disk = HangingDisk()
    open_files = OpenFiles(disk, 1)
    changed, other = make(tmp_path, open_files, 2)
    with ThreadPoolExecutor(2) as threads:
        if change == "create":
            hanging = threads.submit(changed.create)
        else:
            hanging = threads.submit(changed.move, tmp_path / "moved")
        assert disk.hangs.wait(PATIENCE_S)
        try:
            reading = threads.submit(other.pread, 7, 0)
            assert reading.result(PATIENCE_S) == b"content"
        finally:
            disk.is_thawed.set()
        hanging.result(PATIENCE_S)


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_file_that_goes_while_it_is_opened_is_gone(tmp_path: Path, is_removed: bool) -> None:
    """Another file may have its name by then, or none."""

    class Racing(RealFileSystem):
        def open(self, path: Path) -> File:
            file.retire()
            if is_removed:
                path.unlink()
            return super().open(path)

    open_files = OpenFiles(Racing(), 2)
    (file,) = make(tmp_path, open_files, 1)
    with pytest.raises(FileGone):
        file.pread(7, 0)
    assert open_files.open_count == 0


def test_a_file_that_moves_while_it_is_opened_is_found(tmp_path: Path) -> None:
    class Racing(RealFileSystem):
        def rename(self, old: Path, new: Path) -> None:
            super().rename(old, new)
            assert file.pread(7, 0) == b"content"

    open_files = OpenFiles(Racing(), 2)
    (file,) = make(tmp_path, open_files, 1)
    file.move(tmp_path / "moved")
    assert file.pread(7, 0) == b"content"


def test_the_index_cache_is_bounded_by_bytes() -> None:
    cache = IndexCache(1000)
    indexes = {}
    for owner in range(20):
        index = OffsetIndex(0)
        for number in range(20):
            index.append(number, number)
        indexes[owner] = index
        cache.put(owner, index)
    kept = [owner for owner in range(20) if cache.get(owner) is not None]
    assert kept == list(range(14, 20))
    assert cache.get(19) is indexes[19]
    cache.drop(19)
    assert cache.get(19) is None
