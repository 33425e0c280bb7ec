"""A torn write is cut off in silence; rot behind the flush mark leaves a log that is in doubt."""

import json
import struct
from collections.abc import Callable

import pytest

from penstock.model.errors import StorageDamaged
from penstock.model.ids import UNKNOWN_END, LogEnd
from penstock.model.topic_config import TopicConfig
from penstock.records.own_entries import OwnKind
from penstock.storage.bad_tail import SECTOR_BYTES
from penstock.storage.checkpoint import decode_checkpoint
from penstock.storage.checksummed import unwrap, wrap
from penstock.storage.log import NO_DOUBT, Doubt, Log
from tests.unit.storage.fault_file_system import FaultFileSystem, PowerLoss
from tests.unit.storage.logs import Bench, batch, checkpoint, fill, offsets, own, read_all, record

SMALL = TopicConfig(segment_bytes=1000, index_interval_bytes=200)
LARGE = TopicConfig()


class Case:
    """Ten flushed batches, then a tail of `append` in the same segment or in later ones."""

    def __init__(self, append: Callable[[Log], None], config: TopicConfig = LARGE) -> None:
        self._disk = FaultFileSystem()
        bench = Bench(self._disk, config)
        log = bench.create()
        fill(log, 10)
        checkpoint(log, b"state")
        self.mark = log.size_bytes
        append(log)
        log.sync()
        self.size = log.size_bytes
        self.end = LogEnd(log.last_term, log.last_index)
        self.path = bench.segment(0)

    def copy(self) -> FaultFileSystem:
        return self._disk.after_kill()

    def opened(self, disk: FaultFileSystem) -> Log:
        return Bench(disk).open(is_shared=True)


def one_batch(log: Log) -> None:
    log.append([batch(10, *(record(b"%d" % number * 9) for number in range(5)))])


def one_large_batch(log: Log) -> None:
    log.append([batch(10, record(bytes(range(1, 256)) * 12))])


def an_own_entry(log: Log) -> None:
    log.append([own(log, OwnKind.NEW_TERM, term=3)])


def several(log: Log) -> None:
    fill(log, 2)
    log.append([own(log, OwnKind.NEW_TERM, term=3)])
    fill(log, 2, term=3)
    log.append([own(log, OwnKind.LOG_START, b"12345678")])
    fill(log, 1, term=3)


def test_no_flipped_bit_of_the_last_write_is_taken_for_a_torn_one() -> None:
    """And where the log ended is known: the checksum tells which bit it was."""
    for append in (one_batch, an_own_entry):
        case = Case(append)
        for position in range(case.mark, case.size):
            for bit in range(8):
                disk = case.copy()
                disk.inode(case.path).data[position] ^= 1 << bit
                log = case.opened(disk)
                assert log.end_offset == 10
                assert log.doubt.lost == case.end, (append, position, bit)


def test_of_a_batch_with_several_bad_bits_more_is_never_said_than_is_known() -> None:
    case = Case(one_batch)
    for position in range(case.mark, case.size - 1):
        disk = case.copy()
        disk.inode(case.path).data[position] ^= 0x10
        disk.inode(case.path).data[position + 1] ^= 0x24
        log = case.opened(disk)
        assert log.doubt.lost in (case.end, UNKNOWN_END), position


def test_no_flipped_bit_in_the_middle_of_the_tail_is_taken_for_a_torn_write() -> None:
    case = Case(several)
    for position in range(case.mark, case.size):
        disk = case.copy()
        disk.inode(case.path).data[position] ^= 1 << (position % 8)
        log = case.opened(disk)
        assert log.end_offset < 15 or log.last_index < case.end.index
        assert log.doubt.lost >= case.end, position
        assert log.doubt.lost in (case.end, UNKNOWN_END) or position < case.size - 200


def test_a_flipped_bit_among_zeros_is_no_torn_write() -> None:
    """What clients send may hold sectors of zeros."""
    case = Case(lambda log: log.append([batch(10, record(bytes(3000)))]))
    for position in range(case.mark, case.size, 61):
        disk = case.copy()
        disk.inode(case.path).data[position] ^= 0x10
        assert case.opened(disk).doubt != NO_DOUBT, position


def test_a_write_that_was_cut_short_at_any_byte_was_torn() -> None:
    for append in (one_batch, an_own_entry, one_large_batch):
        case = Case(append)
        for size in range(case.mark, case.size):
            disk = case.copy()
            del disk.inode(case.path).data[size:]
            log = case.opened(disk)
            assert (log.end_offset, log.doubt) == (10, NO_DOUBT), size


def test_a_write_that_lacks_a_sector_was_torn() -> None:
    case = Case(one_large_batch)
    for sector in range(case.mark - case.mark % 512, case.size, 512):
        disk = case.copy()
        low, high = max(sector, case.mark), min(sector + 512, case.size)
        disk.inode(case.path).data[low:high] = bytes(high - low)
        log = case.opened(disk)
        assert (log.end_offset, log.doubt) == (10, NO_DOUBT), sector


@pytest.mark.parametrize("in_sector", [8, 9, 10, 11])
def test_a_write_that_lacks_its_offset_alone_was_torn(in_sector: int) -> None:
    """The sector before ends with the offset, which no checksum covers."""

    def append(log: Log) -> None:
        left = SECTOR_BYTES - (log.size_bytes + len(batch(10, record(bytes(100)))) + in_sector)
        log.append([batch(10, record(b"x" * (100 + left % SECTOR_BYTES)))])
        starts.append(log.size_bytes)
        log.append([batch(11, record(b"value"))])

    starts: list[int] = []
    case = Case(append)
    (start,) = starts
    disk = case.copy()
    # The length of the record takes one byte more or not.
    low = -start % SECTOR_BYTES
    assert 8 <= low <= 11
    disk.inode(case.path).data[start : start + low] = bytes(low)
    log = case.opened(disk)
    assert (log.end_offset, log.doubt) == (11, NO_DOUBT)


def test_a_write_whose_pages_came_to_the_disk_out_of_order_was_torn() -> None:
    """Zeros, then valid batches: nothing of it was ever promised."""
    case = Case(lambda log: fill(log, 40))
    for page in range(1, case.size // 512):
        disk = case.copy()
        disk.inode(case.path).data[page * 512 : page * 512 + 512] = bytes(512)
        if page * 512 < case.mark:
            continue
        log = case.opened(disk)
        assert 10 <= log.end_offset < 50
        assert log.doubt == NO_DOUBT
        assert offsets(read_all(log)) == list(range(log.end_offset))


def test_the_only_copy_is_cut_if_nothing_follows_and_stops_if_something_does() -> None:
    case = Case(several)
    disk = case.copy()
    disk.damage(case.path, case.size - 3)
    log = Bench(disk).open()
    assert (log.end_offset, log.doubt.lost) == (14, case.end)
    disk = case.copy()
    disk.damage(case.path, case.mark + 70)
    with pytest.raises(StorageDamaged, match="a valid batch follows"):
        Bench(disk).open()


def test_what_is_cut_off_is_kept_aside_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    case = Case(one_batch)
    disk = case.copy()
    disk.damage(case.path, case.size - 3)
    expected = disk.read(case.path)[case.mark :]
    case.opened(disk)
    (kept,) = [name for name in disk.names(case.path.parent) if name.endswith(".cut")]
    assert disk.read(case.path.parent / kept) == expected
    (line,) = [entry.getMessage() for entry in caplog.records if entry.levelname == "ERROR"]
    for part in (str(case.path), f"byte {case.mark}", f"{len(expected)} bytes", "offset 10"):
        assert part in line
    assert str(case.end) in line


def test_a_torn_write_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    case = Case(one_batch)
    disk = case.copy()
    del disk.inode(case.path).data[-5:]
    case.opened(disk)
    (line,) = [entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING"]
    for part in (str(case.path), f"byte {case.mark}", "offset 10", "bytes"):
        assert part in line


def test_rot_before_later_segments_cuts_them_off_too() -> None:
    case = Case(lambda log: fill(log, 60), SMALL)
    names = [name for name in case.copy().names(case.path.parent) if name.endswith(".log")]
    assert len(names) > 4
    disk = case.copy()
    path = case.path.parent / names[3]
    disk.inode(path).data[-100:] = bytes(100)
    log = Bench(disk, SMALL).open(is_shared=True)
    assert 30 < log.end_offset < 50
    assert log.doubt.lost == case.end
    assert offsets(read_all(log)) == list(range(log.end_offset))
    end = log.end_offset
    fill(log, 30)
    found = Bench(disk, SMALL).open(is_shared=True)
    assert found.end_offset == end + 30
    assert found.doubt.lost == case.end


def test_a_segment_that_is_missing_behind_the_mark_leaves_the_log_in_doubt() -> None:
    case = Case(lambda log: fill(log, 60), SMALL)
    disk = case.copy()
    names = [name for name in disk.names(case.path.parent) if name.endswith(".log")]
    disk.remove(case.path.parent / names[-2])
    log = Bench(disk, SMALL).open(is_shared=True)
    assert log.doubt.lost == case.end
    assert offsets(read_all(log)) == list(range(log.end_offset))


@pytest.mark.parametrize("lost_power", [False, True])
def test_the_doubt_is_on_disk_before_anything_is_cut(lost_power: bool) -> None:
    """Whenever the process dies in between, the next one knows as much."""
    case = Case(lambda log: fill(log, 60), SMALL)
    names = [name for name in case.copy().names(case.path.parent) if name.endswith(".log")]
    steps = 0
    while True:
        disk = case.copy()
        disk.damage(case.path.parent / names[3], 120)
        disk.steps_left = steps
        try:
            Bench(disk, SMALL).open(is_shared=True)
            break
        except PowerLoss:
            found = disk.after_power_loss(steps) if lost_power else disk.after_kill()
        log = Bench(found, SMALL).open(is_shared=True)
        assert log.doubt == Doubt(lost=case.end), steps
        assert offsets(read_all(log)) == list(range(log.end_offset))
        steps += 1
    assert steps > 10


def test_a_checkpoint_without_a_recorded_end_is_of_an_unknown_one() -> None:
    """As earlier versions wrote it after a repair."""
    disk = FaultFileSystem()
    bench = Bench(disk)
    log = bench.create()
    log.set_doubt(Doubt(lost=LogEnd(1, 1)))
    path = bench.directory / "checkpoint"
    content = unwrap(path, b"PNCP", 2, disk.read(path))
    (length,) = struct.unpack_from(">I", content)
    facts = json.loads(content[4 : 4 + length])
    del facts["doubt"]
    for has_lost, doubt in ((True, Doubt(lost=UNKNOWN_END)), (False, NO_DOUBT)):
        text = json.dumps({**facts, "has_lost": has_lost}).encode()
        data = wrap(b"PNCP", 2, struct.pack(">I", len(text)) + text)
        assert decode_checkpoint(path, data).doubt == doubt
