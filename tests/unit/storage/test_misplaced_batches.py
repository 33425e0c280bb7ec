"""A flipped bit in a batch's offset, length or term, which no checksum covers: whoever reads the
log gets what was written, or hears of damage."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.model.errors import StorageDamaged
from penstock.model.ids import LogIndex, Offset
from penstock.model.topic_config import TopicConfig
from penstock.records.batch import BatchHeader, decode_records, parse_header
from penstock.records.own_entries import OwnKind, build_gap
from penstock.storage.log import Log, LogBase
from penstock.storage.log_entries import DATA, GAP
from tests.unit.storage.fault_file_system import FaultFileSystem
from tests.unit.storage.logs import START_MS, Bench, batch, own, record

SMALL = TopicConfig(
    segment_bytes=700,
    index_interval_bytes=250,
    cleanup_compact=True,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=0,
)
# Bytes and bits of the base offset, the length and the term. Low bits above all: a batch that is
# wrong by little is the easiest to miss.
FLIPS = (
    *((7, 0x01), (7, 0x02), (7, 0x10), (6, 0x01), (0, 0x40)),
    *((11, 0x01), (11, 0x40), (10, 0x01), (8, 0x80)),
    *((15, 0x01), (15, 0x04), (12, 0x01)),
)


class Stored(NamedTuple):
    path: Path
    position: int
    header: BatchHeader
    data: bytes


class Archive:
    """A log of several terms and segments that another process wrote, and every batch in it."""

    def __init__(
        self,
        *,
        has_indexes: bool = True,
        state_offset: int | None = None,
        is_compacted: bool = False,
    ) -> None:
        self._keys = 4 if is_compacted else 1000
        self.disk = FaultFileSystem()
        self.bench = Bench(self.disk, SMALL)
        log = self.bench.create(LogBase())
        for term in (1, 2, 4):
            log.append([own(log, OwnKind.NEW_TERM, term=term)])
            for number in range(7):
                log.append([self._batch(log, term, number)])
        log.append([build_gap(offset=log.end_offset, span=3, term=4)])
        log.append([self._batch(log, 4, 1)])
        if is_compacted:
            assert log.compact(START_MS + 10**9, log.end_offset).records_dropped > 9
        self.end = log.end_offset
        covered = self.end if state_offset is None else Offset(state_offset)
        log.checkpoint(state=b"", state_offset=covered, flushed_offset=self.end)
        log.close()
        self.stored = list(self._read())
        if not has_indexes:
            for name in self.disk.names(self.bench.directory):
                if name.endswith("index"):
                    self.disk.remove(self.bench.directory / name)

    def _batch(self, log: Log, term: int, number: int) -> bytes:
        offset = log.end_offset
        records = [
            record(
                b"v" * (5 * number),
                b"%d" % ((offset + each) % self._keys),
                START_MS + offset + each,
            )
            for each in range(1 + number % 3)
        ]
        return batch(offset, *records, term=term)

    def _read(self) -> Iterator[Stored]:
        for name in sorted(self.disk.names(self.bench.directory)):
            if name.endswith(".log"):
                path = self.bench.directory / name
                data, position = self.disk.read(path), 0
                while position < len(data):
                    header = parse_header(data, position)
                    end = position + header.size
                    yield Stored(path, position, header, data[position:end])
                    position = end

    @property
    def clients(self) -> list[Stored]:
        return [each for each in self.stored if not each.header.is_own]

    def rots(self) -> Iterator[Stored]:
        """With one bit of one batch flipped, each in turn."""
        for each in self.clients:
            for byte, bits in FLIPS:
                self.disk.damage(each.path, each.position + byte, bits)
                yield each
                self.disk.damage(each.path, each.position + byte, bits)

    def gap_offsets(self) -> set[int]:
        gaps = [each.header for each in self.clients if each.header.is_gap]
        return {offset for gap in gaps for offset in range(gap.base_offset, gap.next_offset)}


def read_range(log: Log, offset: int, bytes_max: int) -> bytes:
    """As a consumer is served."""
    found = log.read(Offset(offset), bytes_max, log.end_offset)
    assert found is not None
    try:
        if not log.is_hot(found):
            log.warm(found)
        return found.read()
    finally:
        found.release()


def consume(archive: Archive, log: Log) -> None:
    for each in archive.clients:
        for bytes_max in (1, 300):
            with suppress(StorageDamaged):
                expect_written(archive, each, read_range(log, each.header.last_offset, bytes_max))


def expect_written(archive: Archive, first: Stored, data: bytes) -> None:
    """These are the bytes of whole batches, from the first on that is not a gap."""
    at = archive.clients.index(first)
    while archive.clients[at].header.is_gap:
        at += 1
    while data:
        each = archive.clients[at]
        assert data.startswith(each.data), f"instead of offset {each.header.base_offset}"
        data = data[len(each.data) :]
        at += 1


def replicate(archive: Archive, log: Log) -> None:
    by_offset = {each.header.base_offset: each.data for each in archive.clients}
    gaps = archive.gap_offsets()
    for index in range(1, log.last_index + 1):
        with suppress(StorageDamaged, LookupError):
            for entry in log.entries(LogIndex(index), LogIndex(log.last_index + 1), 1):
                first = log.offset_after(LogIndex(entry.first_index - 1))
                if entry.kind == GAP:
                    assert gaps.issuperset(range(first, log.offset_after(LogIndex(entry.index))))
                elif entry.kind == DATA:
                    assert entry.batch == by_offset[first]


def look_up(archive: Archive, log: Log) -> None:
    written = [
        (found.offset, each.header.leader_epoch)
        for each in archive.clients
        for found in decode_records(each.data)
    ]
    for offset in range(archive.end):
        with suppress(StorageDamaged):
            found = log.offset_for_timestamp(START_MS + offset, log.end_offset)
            later = [each for each in written if each[0] >= offset]
            assert later[:1] == ([] if found is None else [(found.offset, found.term)])


def find_starts(archive: Archive, log: Log) -> None:
    for each in archive.clients:
        header = each.header
        if header.is_gap:
            continue
        index = log.index_before(Offset(header.next_offset))
        with suppress(StorageDamaged):
            assert log.entry_start(index) == index - header.last_offset_delta


READERS = {each.__name__: each for each in (consume, replicate, look_up, find_starts)}


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("has_indexes", [True, False])
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
def test_a_reader_gets_what_was_written_or_hears_of_damage(
    reader: Callable[[Archive, Log], None], has_indexes: bool, is_compacted: bool
) -> None:
    archive = Archive(has_indexes=has_indexes, is_compacted=is_compacted)
    reader(archive, archive.bench.open())
    for _ in archive.rots():
        with suppress(StorageDamaged):
            reader(archive, archive.bench.open())


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_consumer_never_gets_past_a_batch_that_is_not_in_its_place(is_compacted: bool) -> None:
    archive = Archive(is_compacted=is_compacted)
    for bad in archive.rots():
        if bad.header.is_gap:
            # Nobody gets one from its begin.
            continue
        for bytes_max in (1, 2000):
            with pytest.raises(StorageDamaged):
                read_range(archive.bench.open(), bad.header.last_offset, bytes_max)


def test_compaction_copies_nothing_that_is_not_in_its_place() -> None:
    archive = Archive()
    active = archive.stored[-1].path
    for bad in archive.rots():
        if bad.path == active:
            continue
        before = {each.path: archive.disk.read(each.path) for each in archive.stored}
        log = archive.bench.open()
        with pytest.raises(StorageDamaged):
            log.compact(START_MS + 10**9, log.end_offset)
        assert all(archive.disk.read(path) == data for path, data in before.items())


def cut(archive: Archive, index: int) -> dict[str, int]:
    """How long the files of a copy of the log are after it was cut before an entry."""
    disk = deepcopy(archive.disk)
    bench = Bench(disk, SMALL)
    bench.open().truncate_to_index(LogIndex(index))
    names = [name for name in disk.names(bench.directory) if name.endswith(".log")]
    return {name: disk.size(bench.directory / name) for name in names}


def test_a_log_is_cut_where_its_entries_are_or_not_at_all() -> None:
    archive = Archive(state_offset=0)
    sound = archive.bench.open()
    indices = {sound.entry_start(LogIndex(index)) for index in range(4, sound.last_index, 5)}
    sizes = {index: cut(archive, index) for index in indices}
    for _ in archive.rots():
        for index in indices:
            with suppress(StorageDamaged):
                assert cut(archive, index) == sizes[index]


def test_a_start_shows_what_was_written_or_tells_of_damage() -> None:
    archive = Archive(state_offset=11)
    later = [each.header for each in archive.clients if each.header.next_offset > 11]
    written = [header for header in later if not header.is_gap]
    is_whole = 0
    for _ in archive.rots():
        seen: list[BatchHeader] = []
        with suppress(StorageDamaged):
            archive.bench.open(seen.append)
            assert [header for header in seen if not header.is_gap] == written
            is_whole += 1
    assert is_whole, "what rots before the checkpoint is not read"


def test_what_an_earlier_process_wrote_is_checked_before_it_is_sent() -> None:
    archive = Archive()
    log = archive.bench.open()
    last = archive.clients[-1].header
    old = log.read(Offset(last.base_offset), 1000, log.end_offset)
    assert old is not None
    assert not log.is_hot(old)
    log.append([batch(log.end_offset, term=4)])
    new = log.read(Offset(log.end_offset - 1), 1000, log.end_offset)
    assert new is not None
    assert log.is_hot(new)
    both = log.read(Offset(last.base_offset), 1000, log.end_offset)
    assert both is not None
    assert not log.is_hot(both)


def test_what_a_start_has_checked_is_not_checked_again() -> None:
    bench = Bench(FaultFileSystem(), SMALL)
    log = bench.create()
    log.append([batch(0)])
    log.sync()
    log.close()
    log = bench.open()
    found = log.read(Offset(0), 1000, log.end_offset)
    assert found is not None
    assert log.is_hot(found)
