"""Recovery: a torn end is cut off, damage is named, and lost indexes come back."""

import errno
from pathlib import Path

import pytest

from penstock.model.errors import StorageDamaged
from penstock.model.ids import Offset
from penstock.model.topic_config import TopicConfig
from penstock.records.batch import HEADER_SIZE, parse_header
from penstock.records.own_entries import OwnKind
from penstock.storage.log import NO_DOUBT, Log
from tests.unit.storage.fault_file_system import FaultFileSystem, FaultWholeDisk
from tests.unit.storage.logs import (
    Bench,
    batch,
    checkpoint,
    fill,
    headers,
    ignore_batch,
    offsets,
    own,
    read_all,
    record,
)

SMALL = TopicConfig(segment_bytes=1000, index_interval_bytes=200)
BATCH_BYTES = len(batch(10, record(b"10" + bytes(20))))


class Case:
    """A log of 20 flushed batches and 5 later ones, all in one segment (or many small ones)."""

    def __init__(self, config: TopicConfig | None = None) -> None:
        self.disk = FaultFileSystem()
        self.bench = Bench(self.disk, config)
        log = self.bench.create()
        fill(log, 20)
        checkpoint(log, b"state")
        self.flushed_bytes = log.size_bytes
        fill(log, 5)
        self.size = log.size_bytes
        self.log = log
        self.path = self.bench.segment(0)

    def append_bytes(self, data: bytes) -> None:
        self.disk.inode(self.path).data += data

    def cut_bytes(self, count: int) -> None:
        del self.disk.inode(self.path).data[-count:]

    def reopen(self) -> Log:
        return self.bench.open()

    def damage_of(self) -> StorageDamaged:
        with pytest.raises(StorageDamaged) as caught:
            self.bench.open()
        return caught.value


@pytest.mark.parametrize("cut", [1, 10, BATCH_BYTES - 1])
def test_a_truncated_tail_loses_only_the_torn_batch(cut: int) -> None:
    case = Case()
    case.cut_bytes(cut)
    log = case.reopen()
    assert log.end_offset == 24
    fill(log, 2)
    assert offsets(read_all(case.reopen())) == list(range(26))


@pytest.mark.parametrize(
    "tail",
    [
        b"\0" * 500,
        b"\0",
        batch(25)[: HEADER_SIZE - 1],
        batch(25)[:-1],
        batch(25)[:-1] + b"\xff",
        # Valid, but older than what the log holds: bytes of an earlier life of the block.
        batch(3),
        # Valid, but with a flipped bit in the offset, which the CRC does not cover.
        batch(25 + 1024),
        b"noise" * 1000,
    ],
)
def test_what_a_crash_leaves_behind_the_last_batch_is_cut_off(tail: bytes) -> None:
    case = Case()
    case.append_bytes(tail)
    log = case.reopen()
    assert log.end_offset == 25
    assert case.disk.size(case.path) == case.size
    assert offsets(read_all(log)) == list(range(25))


def test_a_batch_from_the_future_is_no_batch() -> None:
    """The term lies outside the CRC, but no term begins without an entry that says so."""
    case = Case()
    case.append_bytes(batch(25, term=1 + 64))
    assert case.reopen().end_offset == 25


def test_a_flipped_bit_in_the_unflushed_last_batch_cuts_it_off() -> None:
    case = Case()
    case.disk.damage(case.path, case.size - 3)
    assert offsets(read_all(case.reopen())) == list(range(24))


@pytest.mark.parametrize("place", [0, 9, 16, 18, 30, HEADER_SIZE + 5])
def test_a_bad_batch_with_a_valid_one_behind_it_is_damage(place: int) -> None:
    case = Case()
    position = case.flushed_bytes + BATCH_BYTES
    case.disk.damage(case.path, position + place)
    damage = case.damage_of()
    assert damage.path == str(case.path)
    assert damage.position == position
    assert "a valid batch follows at byte" in damage.detail
    # Nothing was touched: the operator finds what the crash left.
    assert case.disk.size(case.path) == case.size


def test_a_hole_of_zeros_is_a_torn_write_even_if_a_valid_batch_follows() -> None:
    """One write holds many batches, and its pages reach the disk in any order."""
    case = Case()
    data = case.disk.inode(case.path).data
    data[case.flushed_bytes : case.flushed_bytes + BATCH_BYTES] = bytes(BATCH_BYTES)
    log = case.reopen()
    assert log.end_offset == 20
    assert log.doubt == NO_DOUBT


def test_a_valid_batch_far_behind_the_bad_one_is_found() -> None:
    case = Case()
    case.append_bytes(b"\x02" * 5_000_000 + batch(30))
    assert "valid batch follows" in case.damage_of().detail


def test_a_file_that_ends_before_the_flush_mark_is_damage() -> None:
    case = Case()
    case.cut_bytes(case.size - case.flushed_bytes + 1)
    damage = case.damage_of()
    assert damage.position == case.flushed_bytes - 1


def test_a_flipped_bit_below_the_flush_mark_is_met_when_the_header_is_walked() -> None:
    disk = FaultFileSystem()
    bench = Bench(disk)
    log = bench.create()
    fill(log, 20)
    log.checkpoint(state=b"", state_offset=Offset(5), flushed_offset=Offset(20))
    disk.damage(bench.segment(0), 10 * BATCH_BYTES + 16)
    with pytest.raises(StorageDamaged) as caught:
        bench.open()
    assert caught.value.path == str(bench.segment(0))


def test_a_flipped_bit_below_the_flush_mark_is_met_by_a_reader() -> None:
    case = Case()
    log = case.reopen()
    case.disk.damage(case.path, 16)
    with pytest.raises(StorageDamaged, match="byte 0: the magic byte"):
        log.read(Offset(3), 10, Offset(25))


def test_a_flipped_bit_in_an_old_segment_is_found_by_scrubbing() -> None:
    case = Case(SMALL)
    log = case.reopen()
    log.scrub(lambda: False)
    case.disk.damage(case.path, 3 * BATCH_BYTES)
    with pytest.raises(StorageDamaged) as caught:
        log.scrub(lambda: False)
    assert (caught.value.path, caught.value.position) == (str(case.path), 3 * BATCH_BYTES - 3)


@pytest.mark.parametrize("number", [0, 7, 19])
@pytest.mark.parametrize("place", [3, 17, BATCH_BYTES - 4])
def test_a_flipped_bit_in_the_active_segment_is_found_by_scrubbing(number: int, place: int) -> None:
    case = Case()
    checkpoint(case.log)
    log = case.reopen()
    assert log.scrub(lambda: False).offset == 25
    position = sum(header.size for header in headers(log)[:number])
    case.disk.damage(case.path, position + place)
    with pytest.raises(StorageDamaged) as caught:
        case.reopen().scrub(lambda: False)
    assert (caught.value.path, caught.value.position) == (str(case.path), position)


@pytest.mark.parametrize("config", [None, SMALL])
def test_scrubbing_in_slices_sees_everything(config: TopicConfig | None) -> None:
    log = Case(config).reopen()
    offset, slices = Offset(0), 0
    while offset < log.end_offset:
        steps = iter(range(4))
        offset = Offset(log.scrub(lambda steps=steps: next(steps, None) is None, offset).offset)
        slices += 1
    assert offset == log.end_offset
    assert 5 < slices < 30


def elected() -> tuple[FaultFileSystem, list[Path], Log]:
    """Several segments with own entries of Raft before, between and behind the batches."""
    disk = FaultFileSystem()
    bench = Bench(disk, SMALL)
    log = bench.create()
    for term in range(2, 12):
        log.append([own(log, OwnKind.NEW_TERM, term=term)])
        log.append([own(log, OwnKind.LOG_START, b"12345678")])
        log.append([batch(log.end_offset, record(bytes(50)), term=term)])
    log.append([own(log, OwnKind.MEMBERSHIP, b"all of them")])
    log.sync()
    names = [name for name in disk.names(bench.directory) if name.endswith(".log")]
    return disk, [bench.directory / name for name in names], log


def scrub_in_slices(log: Log, bytes_max: int) -> int:
    offset, size = Offset(0), 0
    while True:
        found = log.scrub(lambda: False, offset, bytes_max)
        assert found.size > 0
        offset, size = Offset(found.offset), size + found.size
        if offset >= found.end_offset:
            return size


@pytest.mark.parametrize("bytes_max", [1, 300, 10**6])
def test_slices_of_any_size_check_every_byte_once(bytes_max: int) -> None:
    """Also Raft's own entries, which take no offset for a slice to begin with."""
    disk, segments, log = elected()
    sizes = [disk.size(path) for path in segments]
    assert len(sizes) > 2
    assert scrub_in_slices(log, bytes_max) == sum(sizes)
    for path, size in zip(segments, sizes, strict=True):
        # Offsets and terms too, which no checksum covers.
        for place in range(0, size, 7):
            disk.damage(path, place)
            with pytest.raises(StorageDamaged):
                scrub_in_slices(log, bytes_max)
            disk.damage(path, place)
    assert scrub_in_slices(log, bytes_max) == sum(sizes)


def test_a_slice_finds_only_what_it_reads() -> None:
    case = Case(SMALL)
    log = case.reopen()
    case.disk.damage(case.path, 3 * BATCH_BYTES)
    assert log.scrub(lambda: True) == (0, 25, 0)
    assert log.scrub(lambda: False, Offset(11)).offset == 25
    with pytest.raises(StorageDamaged):
        log.scrub(lambda: False, Offset(2))


@pytest.mark.parametrize("lost", [[".index"], [".timeindex"], [".index", ".timeindex"]])
@pytest.mark.parametrize("how", ["lost", "flipped", "emptied", "cut"])
def test_indexes_are_rebuilt(lost: list[str], how: str) -> None:
    case = Case(SMALL)
    for base in (0, 11):
        for suffix in lost:
            path = case.bench.segment(base, suffix)
            if how == "lost":
                case.disk.remove(path)
            elif how == "flipped":
                case.disk.damage(path, case.disk.size(path) - 2)
            else:
                case.disk.inode(path).data = bytearray(b"" if how == "emptied" else b"PNIX\0\1")
    log = case.reopen()
    assert offsets(read_all(log)) == list(range(25))
    assert log.offset_for_timestamp(1, log.end_offset) is not None
    checkpoint(log)
    fill(log, 30)
    checkpoint(log)
    assert case.disk.exists(case.bench.segment(0, ".index"))
    assert offsets(read_all(case.reopen())) == list(range(55))


@pytest.mark.parametrize("seed", range(5))
def test_a_segment_that_a_killed_process_made_does_not_lose_its_name(seed: int) -> None:
    disk = FaultFileSystem()
    Bench(disk).create().append([batch(0)])
    # The process ends before it syncs; its successor finds what the kernel has.
    log = Bench(disk).open()
    assert log.end_offset == 1
    fill(log, 2)
    assert offsets(read_all(Bench(disk.after_power_loss(seed)).open())) == [0, 1, 2]


@pytest.mark.parametrize("byte", [2, 3, 7])
def test_an_index_is_not_built_from_offsets_that_make_no_sense(byte: int) -> None:
    """No checksum covers them; the neighbours do."""
    case = Case(SMALL)
    for suffix in (".index", ".timeindex"):
        case.disk.remove(case.bench.segment(0, suffix))
    size = parse_header(case.disk.read(case.path)).size
    case.disk.damage(case.path, 3 * size + byte)
    log = case.reopen()
    with pytest.raises(StorageDamaged) as caught:
        log.load_index(Offset(9))
    assert caught.value.path == str(case.path)
    assert caught.value.position in (3 * size, 4 * size)


def test_an_index_of_another_segment_is_not_believed() -> None:
    case = Case(SMALL)
    for suffix in (".index", ".timeindex"):
        data = case.disk.read(case.bench.segment(11, suffix))
        case.disk.inode(case.bench.segment(0, suffix)).data = bytearray(data)
    assert offsets(read_all(case.reopen())) == list(range(25))


def test_a_lost_segment_is_damage() -> None:
    case = Case(SMALL)
    case.disk.remove(case.bench.segment(11))
    damage = case.damage_of()
    assert damage.path == str(case.bench.segment(11))
    assert "missing" in damage.detail


def test_a_lost_segment_behind_the_flush_mark_is_damage() -> None:
    case = Case(SMALL)
    fill(case.log, 60)
    names = [name for name in case.disk.names(case.bench.directory) if name.endswith(".log")]
    case.disk.remove(case.bench.directory / names[-2])
    damage = case.damage_of()
    assert damage.path.endswith(names[-1])
    assert "the one before it ends at" in damage.detail


def test_a_torn_segment_with_a_later_one_is_damage() -> None:
    case = Case(SMALL)
    fill(case.log, 60)
    names = [name for name in case.disk.names(case.bench.directory) if name.endswith(".log")]
    path = case.bench.directory / names[-2]
    case.disk.damage(path, case.disk.size(path) - 1)
    damage = case.damage_of()
    assert damage.path == str(path)
    assert "later segments follow" in damage.detail


def test_all_segments_lost_is_damage_and_not_an_empty_log() -> None:
    case = Case()
    case.disk.remove(case.path)
    assert "missing" in case.damage_of().detail


def test_a_lost_checkpoint_is_damage() -> None:
    case = Case()
    case.disk.remove(case.bench.directory / "checkpoint")
    damage = case.damage_of()
    assert damage.path.endswith("checkpoint")
    assert "missing" in damage.detail


def test_a_lost_directory_is_damage() -> None:
    case = Case()
    case.disk.remove_tree(case.bench.directory)
    assert "missing" in case.damage_of().detail


@pytest.mark.parametrize("position", [0, 5, 20, 60])
def test_a_damaged_checkpoint_is_damage(position: int) -> None:
    case = Case()
    case.disk.damage(case.bench.directory / "checkpoint", position)
    assert case.damage_of().path.endswith("checkpoint")


def test_a_closed_segment_of_another_size_is_damage() -> None:
    case = Case(SMALL)
    case.append_bytes(b"more")
    assert "bytes instead of" in case.damage_of().detail


def test_a_segment_that_the_checkpoint_never_knew_is_damage() -> None:
    case = Case(SMALL)
    case.disk.create(case.bench.segment(5)).pwrite(batch(5), 0)
    assert "does not name this segment" in case.damage_of().detail


def test_recovery_reads_only_what_is_behind_the_checkpoint() -> None:
    """Half of the data could rot and a start would not notice: that is what scrubbing is for."""
    case = Case(SMALL)
    case.disk.damage(case.path, 100)
    assert case.reopen().end_offset == 25


def test_recovered_batches_are_synced_before_they_are_served() -> None:
    case = Case()
    case.log.append([batch(25)])
    after_kill = case.disk.after_kill()
    # The kernel still has the unsynced batch when the next process starts.
    inode = after_kill.inode(case.path)
    inode.durable = inode.durable[: case.size]
    inode.pending = [(case.size, bytes(inode.data[case.size :]))]
    assert Bench(after_kill).open().end_offset == 26
    for seed in range(5):
        assert Bench(after_kill.after_power_loss(seed)).open().end_offset == 26


class TogetherCase:
    """Two logs on one disk whose tails a former process wrote, and whose sync failed."""

    def __init__(self) -> None:
        self.disk = FaultFileSystem()
        self.benches = [
            Bench(self.disk, directory=Path("/data/topics/t") / str(number)) for number in range(2)
        ]
        for bench in self.benches:
            log = bench.create()
            fill(log, 2)
            log.append([batch(2, record(b"lost"))])
            self.disk.failing.add("sync")
            with pytest.raises(OSError, match="Input/output"):
                log.sync()
            self.disk.failing.clear()
            log.close()

    def open(self) -> list[Log]:
        return [
            Log.open(bench.directory, on_batch=ignore_batch, syncs_tail=False, **bench.parts())
            for bench in self.benches
        ]

    def ends_after_power_loss(self) -> set[int]:
        return {
            int(
                Bench(self.disk.after_power_loss(seed), directory=bench.directory).open().end_offset
            )
            for bench in self.benches
            for seed in range(10)
        }


@pytest.mark.parametrize("together", [True, False])
def test_tails_that_are_synced_together_are_there_after_a_power_loss(together: bool) -> None:
    case = TogetherCase()
    logs = case.open()
    disk = FaultWholeDisk(case.disk) if together else None
    assert Log.sync_tails(logs, disk) == [None, None]
    assert case.ends_after_power_loss() == {3}


def test_tails_are_synced_one_by_one_if_the_whole_disk_refuses() -> None:
    class Refusing(FaultWholeDisk):
        def sync(self) -> None:
            raise OSError(errno.EIO, "Input/output error")

    case = TogetherCase()
    assert Log.sync_tails(case.open(), Refusing(case.disk)) == [None, None]
    assert case.ends_after_power_loss() == {3}


def test_a_tail_that_cant_be_synced_is_reported_for_its_log() -> None:
    case = TogetherCase()
    logs = case.open()
    case.disk.failing.add("sync")
    for error in Log.sync_tails(logs, FaultWholeDisk(case.disk)):
        assert isinstance(error, OSError)
