"""The log: what was appended is read back, in whole batches, up to where the reader may see."""

import errno
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import StorageDamaged
from penstock.model.ids import LogIndex, Offset
from penstock.model.topic_config import TopicConfig
from penstock.records.batch import parse_header
from penstock.storage.file_system import SyncFailed
from penstock.storage.open_files import FileGone
from tests.unit.storage.fault_file_system import FaultFileSystem
from tests.unit.storage.logs import (
    START_MS,
    Bench,
    batch,
    checkpoint,
    fill,
    headers,
    offsets,
    read_all,
    read_batches,
    record,
)

SMALL = TopicConfig(segment_bytes=1000, index_interval_bytes=200)


def test_a_new_log_is_empty_and_durable() -> None:
    disk = FaultFileSystem()
    Bench(disk).create()
    log = Bench(disk.after_power_loss(0)).open()
    assert (log.start_offset, log.end_offset, log.size_bytes) == (0, 0, 0)
    assert log.read(Offset(0), 100, Offset(0)) is None


def test_records_are_read_back_in_order_over_many_segments() -> None:
    bench = Bench(FaultFileSystem(), SMALL)
    log = bench.create()
    fill(log, 100)
    assert len([name for name in bench.disk.names(bench.directory) if name.endswith(".log")]) > 5
    assert offsets(read_all(log)) == list(range(100))
    assert log.size_bytes == sum(map(len, read_batches(log)))


def test_one_append_of_many_batches_rolls_segments_on_the_way() -> None:
    bench = Bench(FaultFileSystem(), SMALL)
    log = bench.create()
    log.append([batch(offset, record(bytes(50))) for offset in range(100)])
    assert offsets(read_all(log)) == list(range(100))
    log.sync()
    log = Bench(bench.disk.after_power_loss(0), SMALL).open()
    assert offsets(read_all(log)) == list(range(100))


def test_reading_from_inside_a_batch_gives_the_whole_batch() -> None:
    log = Bench(FaultFileSystem()).create()
    log.append([batch(0, *[record()] * 10), batch(10, *[record()] * 10)])
    (first, second) = read_batches(log, start=7)
    assert parse_header(first).base_offset == 0
    assert parse_header(second).base_offset == 10


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=40),
    counts=st.lists(st.integers(1, 4), min_size=40, max_size=40),
    bytes_max=st.integers(0, 2000),
    choice=st.randoms(use_true_random=False),
    reopen=st.booleans(),
)
def test_read_gives_whole_batches_as_promised(
    sizes: list[int], counts: list[int], bytes_max: int, choice: object, reopen: bool
) -> None:
    bench = Bench(FaultFileSystem(), SMALL)
    log = bench.create()
    for size, count in zip(sizes, counts, strict=False):
        log.append([batch(log.end_offset, *[record(bytes(size))] * count)])
    log.sync()
    if reopen:
        checkpoint(log)
        log = bench.open()
    boundaries = [header.base_offset for header in headers(log)] + [log.end_offset]
    for offset in range(log.end_offset):
        for end in boundaries:
            found = log.read(Offset(offset), bytes_max, Offset(end))
            if end <= offset:
                assert found is None or end > offset
                continue
            assert found is not None
            data = memoryview(found.read())
            got = []
            while len(data):
                got.append(parse_header(data))
                data = data[got[-1].size :]
            found.release()
            assert got[0].base_offset <= offset <= got[0].last_offset
            assert got[-1].last_offset < end
            assert len(got) == 1 or sum(header.size for header in got) <= bytes_max
            assert all(one.next_offset == next_.base_offset for one, next_ in pairwise(got))


def test_an_end_inside_a_batch_hides_the_batch() -> None:
    log = Bench(FaultFileSystem()).create()
    log.append([batch(0, *[record()] * 10)])
    assert log.read(Offset(0), 1000, Offset(5)) is None


def test_appending_makes_no_seen_range_longer() -> None:
    log = Bench(FaultFileSystem()).create()
    log.append([batch(0)])
    found = log.read(Offset(0), 1000, Offset(1))
    log.append([batch(1)])
    again = log.read(Offset(0), 1000, Offset(1))
    assert found is not None
    assert again is not None
    assert found.length == again.length


def test_segments_roll_by_time_of_their_records() -> None:
    bench = Bench(FaultFileSystem(), TopicConfig(segment_ms=1000))
    log = bench.create()
    for offset, time_ms in enumerate([0, 1000, 1001, 1500, 9000]):
        log.append([batch(offset, record(timestamp_ms=START_MS + time_ms))])
    names = [name for name in bench.disk.names(bench.directory) if name.endswith(".log")]
    assert [int(name[:20]) for name in names] == [0, 2, 4]


def test_an_idle_segment_rolls_by_the_clock() -> None:
    bench = Bench(FaultFileSystem(), TopicConfig(segment_ms=1000))
    log = bench.create()
    assert not log.roll_if_due(START_MS + 5000)
    fill(log, 1)
    assert not log.roll_if_due(START_MS + 999)
    assert log.upkeep_due(START_MS + 1000, log.end_offset)
    assert log.roll_if_due(START_MS + 1000)
    assert log.checkpoint_due()
    fill(log, 1)
    assert offsets(read_all(log)) == [0, 1]


def test_is_hot_tells_the_active_segment() -> None:
    log = Bench(FaultFileSystem(), SMALL).create()
    fill(log, 30)
    old, new = log.read(Offset(0), 100, Offset(30)), log.read(Offset(29), 100, Offset(30))
    assert old is not None
    assert new is not None
    assert not log.is_hot(old)
    assert log.is_hot(new)
    log.warm(old)


def test_epochs_follow_the_terms_of_batches() -> None:
    bench = Bench(FaultFileSystem())
    log = bench.create()
    fill(log, 3, term=1)
    fill(log, 2, term=4)
    fill(log, 1, term=7)
    log = bench.open()
    assert log.epochs == [(1, 0), (4, 3), (7, 5)]
    assert log.end_offset_for_epoch(7) == (7, 6)
    assert log.end_offset_for_epoch(5) == (4, 5)
    assert log.end_offset_for_epoch(1) == (1, 3)
    assert log.end_offset_for_epoch(0) == (0, 0)
    assert log.end_offset_for_epoch(8) == (-1, -1)
    log.delete_before(Offset(4))
    assert log.epochs == [(4, 4), (7, 5)]
    log.truncate_to_index(LogIndex(log.last_index - 1))
    assert log.epochs == [(4, 4)]


def test_checkpoint_brings_the_state_back_and_only_newer_batches_are_shown() -> None:
    bench = Bench(FaultFileSystem(), SMALL)
    log = bench.create()
    fill(log, 30)
    checkpoint(log, b"thirty")
    fill(log, 20)
    seen: list[int] = []
    log = bench.open(lambda header: seen.append(header.base_offset))
    assert (log.state, log.state_offset) == (b"thirty", 30)
    assert seen == list(range(30, 50))


def test_batches_between_state_and_flush_mark_are_shown_too() -> None:
    bench = Bench(FaultFileSystem(), SMALL)
    log = bench.create()
    fill(log, 50)
    log.checkpoint(state=b"ten", state_offset=Offset(10), flushed_offset=Offset(50))
    seen: list[int] = []
    bench.open(lambda header: seen.append(header.base_offset))
    assert seen == list(range(10, 50))


def test_checkpoint_is_due_after_a_roll_and_not_after_it_was_written() -> None:
    log = Bench(FaultFileSystem(), SMALL).create()
    fill(log, 5)
    assert not log.checkpoint_due()
    fill(log, 30)
    assert log.checkpoint_due()
    checkpoint(log)
    assert not log.checkpoint_due()


@pytest.mark.parametrize("with_checkpoint", [False, True])
@pytest.mark.parametrize("cut", [0, 1, 17, 40, 59])
def test_truncate_cuts_the_tail(cut: int, with_checkpoint: bool) -> None:
    bench = Bench(FaultFileSystem(), SMALL)
    log = bench.create()
    fill(log, 60)
    if with_checkpoint:
        log.checkpoint(state=b"none", state_offset=Offset(0), flushed_offset=log.end_offset)
    log.truncate_to_index(LogIndex(cut + 1))
    assert (log.end_offset, log.last_index) == (cut, cut)
    assert offsets(read_all(log)) == list(range(cut))
    fill(log, 5)
    reopened = Bench(bench.disk.after_power_loss(1), SMALL).open()
    assert offsets(read_all(reopened)) == list(range(cut + 5))


def test_what_is_past_the_end_can_be_cut_and_what_is_committed_cant() -> None:
    log = Bench(FaultFileSystem()).create()
    fill(log, 4)
    log.truncate_to_index(LogIndex(5))
    assert log.end_offset == 4
    log.checkpoint(state=b"three", state_offset=Offset(3), flushed_offset=Offset(4))
    with pytest.raises(AssertionError, match="committed"):
        log.truncate_to_index(LogIndex(3))


def test_a_batch_is_never_cut_in_two() -> None:
    log = Bench(FaultFileSystem()).create()
    log.append([batch(0, *[record()] * 4), batch(4, *[record()] * 4)])
    with pytest.raises(AssertionError, match="cut in two"):
        log.truncate_to_index(LogIndex(7))


@pytest.mark.parametrize("failing", ["sync", "truncate", "remove"])
def test_a_log_that_is_half_cut_is_broken(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory it ends where it should, on disk it may not: what was written then would
    lie beside what was to be cut."""
    disk = FaultFileSystem()
    bench = Bench(disk, SMALL)
    log = bench.create()
    fill(log, 30)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "failing", {failing})
        if failing == "remove":
            patch.setattr(disk, "remove", lambda _: disk.fail_if("remove"))
        with pytest.raises(SyncFailed):
            log.truncate_to_index(LogIndex(12))
    for seed in range(20):
        found = Bench(disk.after_power_loss(seed), SMALL).open()
        assert offsets(read_all(found)) == list(range(found.end_offset))
        assert 11 <= found.end_offset <= 30


def test_a_cut_that_cant_be_noted_leaves_the_log_as_it_was() -> None:
    disk = FaultFileSystem()
    bench = Bench(disk, SMALL)
    log = bench.create()
    fill(log, 30)
    log.checkpoint(state=b"", state_offset=Offset(0), flushed_offset=Offset(30))
    disk.bytes_max = 10
    with pytest.raises(OSError, match="No space") as failed:
        log.truncate_to_index(LogIndex(12))
    assert not isinstance(failed.value, SyncFailed)
    assert offsets(read_all(log)) == list(range(30))
    disk.bytes_max = None
    log.truncate_to_index(LogIndex(12))
    assert offsets(read_all(bench.open())) == list(range(11))


def test_a_cut_below_a_checkpoint_that_may_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its write failed, but only after it had its name: it must not name what is cut."""
    disk = FaultFileSystem()
    bench = Bench(disk)
    log = bench.create()
    fill(log, 10)
    log.checkpoint(state=b"", state_offset=Offset(0), flushed_offset=Offset(10))
    fill(log, 5)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync_directory", failing_sync)
        with pytest.raises(OSError, match="Input/output"):
            log.checkpoint(state=b"", state_offset=Offset(0), flushed_offset=Offset(15))
    log.truncate_to_index(LogIndex(log.last_index - 4))
    for survivor in (disk.after_kill(), *map(disk.after_power_loss, range(10))):
        assert Bench(survivor).open().end_offset == 10


def failing_sync(path: Path) -> None:
    raise OSError(errno.EIO, "Input/output error", str(path))


@pytest.mark.parametrize("start", [1, 20, 59, 60])
def test_delete_before_moves_the_start_for_good(start: int) -> None:
    bench = Bench(FaultFileSystem(), SMALL)
    log = bench.create()
    fill(log, 60)
    log.delete_before(Offset(start))
    for found in (log, Bench(bench.disk.after_power_loss(3), SMALL).open()):
        assert found.start_offset == start
        assert found.end_offset == 60
        assert offsets(read_all(found)) in (list(range(start, 60)), list(range(60))[start - 9 :])
    assert log.size_bytes < 6000 - start * 60
    log.delete_before(Offset(0))
    assert log.start_offset == start


def test_deleting_everything_frees_the_disk_and_appends_go_on() -> None:
    bench = Bench(FaultFileSystem(), SMALL)
    log = bench.create()
    fill(log, 60)
    log.delete_before(Offset(60))
    assert log.size_bytes == 0
    assert not [name for name in bench.disk.names(bench.directory) if name.endswith(".log")]
    fill(log, 3)
    assert offsets(read_all(bench.open())) == [60, 61, 62]


def test_a_range_that_is_being_sent_outlives_its_segment() -> None:
    log = Bench(FaultFileSystem(), SMALL).create()
    fill(log, 60)
    found = log.read(Offset(0), 500, Offset(60))
    assert found is not None
    expected = found.read()
    log.delete_before(Offset(60))
    assert found.read() == expected
    found.release()


def test_delete_removes_the_directory() -> None:
    bench = Bench(FaultFileSystem(), SMALL)
    log = bench.create()
    fill(log, 30)
    log.delete()
    assert not bench.disk.exists(bench.directory)
    with pytest.raises(FileGone):
        log.read(Offset(0), 100, Offset(30))


def test_other_files_in_the_directory_are_left_alone() -> None:
    bench = Bench(FaultFileSystem(), SMALL)
    log = bench.create()
    fill(log, 30)
    bench.disk.write_atomically(bench.directory / "state.snapshot", b"mine")
    bench.open()
    assert bench.disk.read(bench.directory / "state.snapshot") == b"mine"


def test_exists_and_create_after_a_half_made_log() -> None:
    disk = FaultFileSystem()
    bench = Bench(disk)
    assert not bench.create().exists(bench.directory / "other", file_system=disk)
    disk.make_directory(bench.directory.with_name("1"))
    disk.create(bench.directory.with_name("1") / "checkpoint.tmp")
    half = Bench(disk, directory=bench.directory.with_name("1"))
    assert half.create().end_offset == 0
    assert half.open().end_offset == 0
    fill(half.open(), 1)
    disk.remove(half.directory / "checkpoint")
    with pytest.raises(StorageDamaged, match="checkpoint is missing"):
        half.create()


def test_a_full_disk_leaves_the_log_as_it_was_and_heals() -> None:
    disk = FaultFileSystem()
    bench = Bench(disk, SMALL)
    log = bench.create()
    fill(log, 13)
    before = log.size_bytes
    disk.bytes_max = disk_used(disk) + 150
    many = [batch(offset, record(bytes(100))) for offset in range(13, 40)]
    for _ in range(3):
        with pytest.raises(OSError, match="No space") as failed:
            log.append(many)
        assert failed.value.errno == errno.ENOSPC
        assert not isinstance(failed.value, SyncFailed)
        assert (log.end_offset, log.size_bytes) == (13, before)
        assert offsets(read_all(log)) == list(range(13))
    disk.bytes_max = None
    log.append(many)
    log.sync()
    assert offsets(read_all(Bench(disk.after_power_loss(0), SMALL).open())) == list(range(40))


def disk_used(disk: FaultFileSystem) -> int:
    disk.bytes_max = 10**9
    return 10**9 - disk.room()


def test_a_failed_write_that_cant_be_cut_back_is_cut_before_the_next() -> None:
    disk = FaultFileSystem()
    bench = Bench(disk, SMALL)
    log = bench.create()
    fill(log, 3)
    disk.bytes_max = disk_used(disk) + 200
    disk.failing.add("truncate")
    with pytest.raises(OSError, match="No space"):
        log.append([batch(offset, record(bytes(100))) for offset in range(3, 9)])
    disk.bytes_max = None
    with pytest.raises(OSError, match="Input/output"):
        log.append([batch(3)])
    disk.failing.clear()
    fill(log, 4)
    assert offsets(read_all(Bench(disk.after_kill(), SMALL).open())) == list(range(7))


def test_a_failed_write_is_cut_back_before_the_log_is_cut() -> None:
    """Cut back later, it would make the segment longer than what it holds."""
    disk = FaultFileSystem()
    bench = Bench(disk, SMALL)
    log = bench.create()
    fill(log, 4)
    disk.bytes_max = disk_used(disk) + 50
    disk.failing.add("truncate")
    with pytest.raises(OSError, match="No space"):
        log.append([batch(4)])
    disk.failing.clear()
    disk.bytes_max = None
    log.truncate_to_index(LogIndex(log.last_index - 1))
    log.append([batch(2, record(bytes(SMALL.segment_bytes)))])
    checkpoint(log)
    assert offsets(read_all(Bench(disk.after_kill(), SMALL).open())) == list(range(3))


def test_a_full_disk_does_not_stop_retention_from_making_room() -> None:
    disk = FaultFileSystem()
    bench = Bench(disk, SMALL)
    log = bench.create()
    fill(log, 60)
    checkpoint(log)
    disk.bytes_max = disk_used(disk)
    log.delete_before(Offset(50))
    assert log.start_offset == 50
    fill(log, 1)
    reopened = Bench(disk.after_power_loss(0), SMALL).open()
    assert reopened.start_offset == 50
    assert reopened.end_offset == 61


def test_a_failed_sync_is_told_apart() -> None:
    disk = FaultFileSystem()
    log = Bench(disk, SMALL).create()
    log.append([batch(0)])
    disk.failing.add("sync")
    with pytest.raises(SyncFailed):
        log.sync()
    with pytest.raises(SyncFailed):
        log.append([batch(offset, record(bytes(100))) for offset in range(1, 20)])
    assert log.end_offset == 1


@pytest.mark.parametrize("chance", range(10))
def test_what_a_failed_sync_lost_is_durable_before_the_next_process_serves_it(chance: int) -> None:
    """The page cache still shows it, and another sync would not write it."""
    disk = FaultFileSystem()
    disk.chance = Random(chance)
    bench = Bench(disk, SMALL)
    log = bench.create()
    fill(log, 3)
    log.append([batch(offset, record(bytes(100))) for offset in range(3, 6)])
    disk.failing.add("sync")
    with pytest.raises(SyncFailed):
        log.sync()
    disk.failing.clear()
    assert bench.open().end_offset == 6
    for seed in range(10):
        assert Bench(disk.after_power_loss(seed), SMALL).open().end_offset == 6


def test_batches_must_follow_on() -> None:
    log = Bench(FaultFileSystem()).create()
    with pytest.raises(AssertionError, match="contiguous"):
        log.append([batch(5)])


def test_an_index_of_what_was_cut_off_is_not_taken_for_one_of_what_came_after() -> None:
    """One large batch needs no index of its own, and lies where the index of others pointed."""
    disk = FaultFileSystem()
    bench = Bench(disk, TopicConfig(index_interval_bytes=100))
    log = bench.create()
    fill(log, 10, value_bytes=50)
    # Nothing of it is committed yet.
    log.checkpoint(state=b"", state_offset=Offset(0), flushed_offset=log.end_offset)
    log.truncate_to_index(LogIndex(1))
    log.append([batch(0, *(record(b"%d" % number * 100) for number in range(9)))])
    checkpoint(log)
    again = Bench(disk.after_kill(), bench.config).open()
    fill(again, 3)
    for offset in range(again.end_offset):
        assert offset in offsets(read_all(again, start=offset))
