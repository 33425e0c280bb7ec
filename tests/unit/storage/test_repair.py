"""Repair: check finds what a start would refuse, and after a repair the log starts."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import StorageDamaged
from penstock.model.ids import Offset
from penstock.model.topic_config import TopicConfig
from penstock.storage.repair import check, cut
from tests.unit.storage.fault_file_system import FaultFileSystem
from tests.unit.storage.logs import (
    START_MS,
    Bench,
    batch,
    checkpoint,
    fill,
    offsets,
    read_all,
    record,
)

SMALL = TopicConfig(segment_bytes=1000, index_interval_bytes=200)


class Case:
    def __init__(self) -> None:
        self.disk = FaultFileSystem()
        self.bench = Bench(self.disk, SMALL)
        log = self.bench.create()
        fill(log, 40)
        checkpoint(log, b"state")
        fill(log, 20, term=2)
        self.size = log.size_bytes
        self.names = [
            name for name in self.disk.names(self.bench.directory) if name.endswith(".log")
        ]

    def flip(self, base: int, position: int) -> None:
        self.disk.damage(self.bench.segment(base), position)

    def side_bytes(self) -> int:
        directory = self.bench.directory
        return sum(
            self.disk.size(directory / name)
            for name in self.disk.names(directory)
            if name.endswith(".cut")
        )


def test_a_sound_log_has_no_damage_and_is_not_touched() -> None:
    case = Case()
    before = case.disk.names(case.bench.directory)
    for operation in (check, cut):
        assert operation(case.bench.directory, case.disk) == []
    assert case.disk.names(case.bench.directory) == before


def test_a_torn_end_is_no_damage() -> None:
    case = Case()
    case.disk.inode(case.bench.directory / case.names[-1]).data += b"torn"
    assert check(case.bench.directory, case.disk) == []


def test_cut_ends_the_log_before_the_damage_and_keeps_the_bytes() -> None:
    case = Case()
    case.flip(11, 500)
    (damage,) = check(case.bench.directory, case.disk)
    assert (damage.path, damage.detail) == (
        str(case.bench.segment(11)),
        "the checksum does not match",
    )
    assert "is damaged at byte" in str(damage)
    (report,) = cut(case.bench.directory, case.disk)
    assert report.position == damage.position
    assert report.lost_bytes == case.side_bytes() > 3000
    log = case.bench.open()
    assert log.end_offset == 16
    assert offsets(read_all(log)) == list(range(16))
    assert log.epochs == [(1, 0)]
    assert log.state == b""
    assert check(case.bench.directory, case.disk) == []
    fill(log, 20)
    assert offsets(read_all(case.bench.open())) == list(range(36))


def test_a_log_is_cut_where_a_segment_is_lost() -> None:
    case = Case()
    case.disk.remove(case.bench.segment(22))
    (damage,) = check(case.bench.directory, case.disk)
    assert damage.detail == "the segment is missing"
    cut(case.bench.directory, case.disk)
    assert offsets(read_all(case.bench.open())) == list(range(22))


@pytest.mark.parametrize("how", ["lost", "flipped"])
def test_a_lost_checkpoint_is_made_again(how: str) -> None:
    case = Case()
    path = case.bench.directory / "checkpoint"
    if how == "lost":
        case.disk.remove(path)
    else:
        case.disk.damage(path, 30)
    (damage,) = check(case.bench.directory, case.disk)
    assert damage.path == str(path)
    (report,) = cut(case.bench.directory, case.disk)
    assert report.lost_bytes == 0
    seen: list[int] = []
    log = case.bench.open(lambda header: seen.append(header.base_offset))
    assert offsets(read_all(log)) == list(range(60))
    assert seen == list(range(60))
    assert log.epochs == [(1, 0), (2, 40)]


def test_a_missing_directory_is_named() -> None:
    (damage,) = check(Bench(FaultFileSystem()).directory, FaultFileSystem())
    assert "missing" in damage.detail


def test_a_compacted_log_is_sound() -> None:
    disk = FaultFileSystem()
    config = TopicConfig(
        segment_bytes=600,
        cleanup_compact=True,
        cleanup_delete=False,
        min_cleanable_dirty_ratio=0.0,
    )
    bench = Bench(disk, config)
    log = bench.create()
    for number in range(50):
        log.append([batch(number, record(b"v", b"k%d" % (number % 3)))])
    log.compact(START_MS, log.end_offset)
    assert check(bench.directory, disk) == []
    log.delete_before(Offset(46))
    assert check(bench.directory, disk) == []


# Not random: two faults can conspire so that no checksum tells them from good data.
@settings(deadline=None, max_examples=150, derandomize=True)
@given(seed=st.integers(0, 10**6), damages=st.integers(1, 3))
def test_whatever_happened_to_the_files_a_repair_makes_the_log_start(
    seed: int, damages: int
) -> None:
    case = Case()
    chance = random.Random(seed)
    for _ in range(damages):
        spoil(case, chance)
    try:
        case.bench.open()
        is_refused = False
    except StorageDamaged:
        is_refused = True
    if is_refused:
        assert check(case.bench.directory, case.disk)
    cut(case.bench.directory, case.disk)
    log = case.bench.open()
    log.scrub(lambda: False)
    found = read_all(log)
    assert offsets(found) == sorted(set(offsets(found)))
    for one in found:
        assert one.value is not None
        assert one.value.rstrip(b"\0") == b"%d" % one.offset
    end = log.end_offset
    fill(log, 3, term=9)
    assert case.bench.open().end_offset == end + 3


def spoil(case: Case, chance: random.Random) -> None:
    names = [name for name in case.names if case.disk.exists(case.bench.directory / name)]
    if not names:
        return
    path = case.bench.directory / chance.choice(names)
    data = case.disk.inode(path).data
    match chance.randrange(6):
        case 0 | 1:
            if data:
                case.disk.damage(path, chance.randrange(len(data)))
        case 2:
            case.disk.remove(path)
        case 3:
            del data[chance.randrange(len(data) + 1) :]
        case 4:
            data += bytes(chance.randrange(200))
        case 5:
            start = chance.randrange(len(data) + 1)
            data[start : start + 300] = b"\xff" * min(300, len(data) - start)
