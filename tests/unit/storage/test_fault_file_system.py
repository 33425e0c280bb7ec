"""The disk that storage is tested with leaves what a real one may leave."""

import errno
from pathlib import Path

import pytest

from tests.unit.storage.fault_file_system import SECTOR_BYTES, FaultFile, FaultFileSystem

PATH = Path("/f")
SEEDS = range(200)


def sectors(letters: str) -> bytes:
    return b"".join(letter.encode() * SECTOR_BYTES for letter in letters)


def disk_with(letters: str) -> tuple[FaultFileSystem, FaultFile]:
    disk = FaultFileSystem()
    file = disk.create(PATH)
    file.pwrite(sectors(letters), 0)
    file.sync()
    disk.sync_directory(PATH.parent)
    return disk, file


def found_letters(disk: FaultFileSystem, *, in_order: bool) -> set[str]:
    """What a power loss may leave; a sector of zeros is a dot."""
    found = set()
    for seed in SEEDS:
        data = disk.after_power_loss(seed, in_order=in_order).read(PATH)
        places = range(0, len(data), SECTOR_BYTES)
        kept = [data[place : place + SECTOR_BYTES] for place in places]
        if all(sector == sector[:1] * SECTOR_BYTES for sector in kept):
            found.add("".join(chr(sector[0]) if sector[0] else "." for sector in kept))
    return found


def test_what_is_synced_survives() -> None:
    disk, _ = disk_with("ab")
    assert found_letters(disk, in_order=False) == found_letters(disk, in_order=True) == {"ab"}


def test_any_sectors_of_one_write_survive_with_zeros_between_them() -> None:
    disk, file = disk_with("a")
    file.pwrite(sectors("xyz"), SECTOR_BYTES)
    found = found_letters(disk, in_order=False)
    assert {"a", "axyz", "a.yz", "ax.z", "a..z", "a..."} <= found
    assert "a..z" not in found_letters(disk, in_order=True)


def test_old_and_new_sectors_are_mixed_where_a_region_was_written_twice() -> None:
    disk, file = disk_with("ab")
    file.pwrite(sectors("xy"), 0)
    file.pwrite(sectors("XY"), 0)
    assert found_letters(disk, in_order=False) == {
        first + second for first in "axX" for second in "byY"
    }


def test_what_was_truncated_may_come_back() -> None:
    disk, file = disk_with("abc")
    file.truncate(SECTOR_BYTES)
    file.pwrite(sectors("x"), SECTOR_BYTES)
    assert {"a", "ab", "abc", "ax", "axc", "ax."} <= found_letters(disk, in_order=False)


def test_what_a_failed_sync_lost_is_seen_by_readers_and_written_by_no_later_sync() -> None:
    kept = set()
    for seed in SEEDS:
        disk, file = disk_with("a")
        disk.chance.seed(seed)
        file.pwrite(sectors("x"), SECTOR_BYTES)
        disk.failing.add("sync")
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        disk.failing.clear()
        file.pwrite(sectors("y"), 2 * SECTOR_BYTES)
        file.sync()
        assert disk.read(PATH) == sectors("axy")
        kept |= found_letters(disk, in_order=True)
    assert kept == {"axy", "a.y"}


def test_reads_fail_for_as_long_as_they_shall() -> None:
    disk, file = disk_with("a")
    disk.failing.add("read")
    with pytest.raises(OSError, match="Input/output") as caught:
        file.pread(1, 0)
    assert caught.value.errno == errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        disk.read(PATH)
    disk.failing.clear()
    assert file.pread(1, 0) == b"a"


def test_a_misdirected_write_leaves_its_own_place_as_it_was() -> None:
    found = set()
    for seed in SEEDS:
        disk, file = disk_with("a")
        disk.chance.seed(seed)
        disk.misdirects = 1
        file.pwrite(b"x", 0)
        file.pwrite(b"y", 1)
        data = disk.read(PATH)
        assert data.count(b"x") <= 1
        assert data[1:2] == b"y"
        found.add(data.find(b"x"))
    assert len(found) > 50


def test_a_directory_that_is_lost_takes_with_it_what_lies_in_it() -> None:
    disk = FaultFileSystem()
    disk.make_directory(Path("/a/b"))
    disk.create(Path("/a/b/f"))
    for path in ("/a/b", "/a"):
        disk.sync_directory(Path(path))
    found = [disk.after_power_loss(seed) for seed in SEEDS]
    assert {tuple(survivor.names(Path("/"))) for survivor in found} == {(), ("a",)}
    for survivor in found:
        assert survivor.exists(Path("/a/b/f")) == survivor.exists(Path("/a"))
