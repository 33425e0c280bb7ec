"""The log as Raft sees it, against a model: indices for life, no holes, nothing for clients."""

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import StorageDamaged
from penstock.model.ids import LogEnd, LogIndex, Offset
from penstock.model.topic_config import TopicConfig
from penstock.records.batch import BatchHeader, decode_records, parse_header
from penstock.records.own_entries import OwnKind, build_gap, build_own
from penstock.storage.file_system import SyncFailed
from penstock.storage.log import NO_DOUBT, EntriesCut, EntriesGone, Log, LogBase, LogEntry
from penstock.storage.log_entries import DATA, GAP
from penstock.storage.own_table import OwnEntry, read_own
from penstock.storage.repair import check, cut
from tests.unit.storage.fault_file_system import FaultFileSystem
from tests.unit.storage.logs import (
    START_MS,
    Bench,
    batch,
    checkpoint,
    fill,
    offsets,
    own,
    read_all,
    read_batches,
    record,
)

SMALL = TopicConfig(segment_bytes=700, index_interval_bytes=150)
COMPACTED = TopicConfig(
    segment_bytes=700,
    index_interval_bytes=150,
    cleanup_compact=True,
    cleanup_delete=False,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=0,
)
FOUNDERS = LogBase(membership=b"founders")


@dataclass
class Model:
    """All entries as they were appended; offsets and indices follow from them."""

    entries: list[LogEntry]
    base: LogBase
    committed: int = 0

    @property
    def last_index(self) -> int:
        return self.entries[-1].index if self.entries else self.base.index

    def term_at(self, index: int) -> int:
        for entry in self.entries:
            if entry.first_index <= index <= entry.index:
                return entry.term
        assert index == self.base.index
        return self.base.term

    def offset_after(self, index: int) -> int:
        offset = self.base.offset
        for entry in self.entries:
            if entry.first_index > index:
                break
            if entry.kind <= 0:
                offset += min(index, entry.index) - entry.first_index + 1
        return offset


class Pair:
    """A log and its model, kept in step by the same operations."""

    def __init__(self, seed: int, config: TopicConfig) -> None:
        self.chance = random.Random(seed)
        self.bench = Bench(FaultFileSystem(), config)
        self.log = self.bench.create(FOUNDERS)
        self.model = Model([], FOUNDERS)
        self.term = 0
        self.append_own(OwnKind.NEW_TERM)

    def _append(self, kind: int, span: int, data: bytes) -> None:
        first = self.model.last_index + 1
        last = first + span - 1
        entry = LogEntry(first, last, self.term, kind, b"" if kind == GAP else data)
        self.log.append([data])
        self.model.entries.append(entry)

    def append_own(self, kind: OwnKind) -> None:
        self.term += kind is OwnKind.NEW_TERM
        payload = b"%d" % self.model.last_index if kind is not OwnKind.NEW_TERM else b""
        self._append(kind, 1, own(self.log, kind, payload, term=self.term))

    def append_data(self) -> None:
        count = self.chance.randint(1, 4)
        keys = [b"k%d" % self.chance.randrange(6) for _ in range(count)]
        records = [record(bytes(self.chance.randrange(60)), key) for key in keys]
        self._append(DATA, count, batch(self.log.end_offset, *records, term=self.term))

    def append_gap(self) -> None:
        span = self.chance.randint(1, 5)
        gap = build_gap(offset=self.log.end_offset, span=span, term=self.term)
        self._append(GAP, span, gap)

    def commit(self) -> None:
        self.log.sync()
        self.model.committed = self.model.last_index

    def truncate(self) -> None:
        choices = [
            entry.first_index
            for entry in self.model.entries
            if entry.first_index > self.model.committed
        ]
        if choices:
            index = self.chance.choice(choices)
            self.log.truncate_to_index(LogIndex(index))
            self.model.entries = [one for one in self.model.entries if one.index < index]
            self.term = max([entry.term for entry in self.model.entries], default=0)

    def compact(self) -> None:
        self.log.compact(START_MS, Offset(self.model.offset_after(self.model.committed)))

    def delete(self) -> None:
        low, high = self.log.start_offset, self.model.offset_after(self.model.committed)
        self.log.delete_before(Offset(self.chance.randint(low, max(low, high))))

    def checkpoint(self) -> None:
        offset = Offset(self.model.offset_after(self.model.committed))
        self.log.checkpoint(state=b"", state_offset=offset, flushed_offset=offset)

    def reopen(self) -> None:
        self.log.sync()
        self.log = self.bench.open()

    def check(self) -> None:
        log, model = self.log, self.model
        assert log.last_index == model.last_index
        assert log.last_term == model.term_at(model.last_index) == self.term
        assert log.end_offset == model.offset_after(model.last_index)
        for index in range(log.first_index - 1, log.last_index + 1):
            assert log.term_at(LogIndex(index)) == model.term_at(index)
            assert log.offset_after(LogIndex(index)) == model.offset_after(index)
        for offset in range(log.base.offset, log.end_offset + 1):
            index = log.index_before(Offset(offset))
            assert model.offset_after(index) == offset
            assert index == log.base.index or model.offset_after(index - 1) < offset
        self.check_entries()
        self.check_memberships()
        self.check_clients()

    def check_entries(self) -> None:
        log = self.log
        found: list[LogEntry] = []
        low, high = log.first_index, LogIndex(log.last_index + 1)
        while low < high:
            some = log.entries(low, high, self.chance.randrange(800))
            assert some[0].first_index == low
            found += some
            low = LogIndex(some[-1].index + 1)
        assert low == high
        kept = {entry.first_index: entry for entry in found if entry.kind != GAP}
        for entry in self.model.entries:
            if entry.first_index < log.first_index:
                continue
            there = kept.pop(entry.first_index, None)
            if entry.kind == DATA:
                self.check_data(entry, there)
            elif entry.kind == GAP:
                assert there is None
            else:
                assert there == entry
        assert not kept
        for gap in found:
            assert gap.term == self.model.term_at(gap.first_index)
            assert gap.term == self.model.term_at(gap.index)

    def check_data(self, entry: LogEntry, there: LogEntry | None) -> None:
        may_be_compacted = self.bench.config.cleanup_compact
        if there is None:
            assert may_be_compacted
            assert entry.index <= self.model.committed
            return
        assert there.index == entry.index
        assert there.batch == entry.batch or may_be_compacted
        for index in range(entry.first_index, entry.index + 1):
            assert self.log.entry_start(LogIndex(index)) == entry.first_index

    def check_memberships(self) -> None:
        wanted = [
            (entry.index, b"%d" % (entry.index - 1))
            for entry in self.model.entries
            if entry.kind == OwnKind.MEMBERSHIP
        ]
        wanted = [(0, b"founders"), *wanted]
        found = self.log.memberships()
        assert found == wanted[-len(found) :]
        assert found[0][0] <= self.log.base.index

    def check_clients(self) -> None:
        """Whole batches, never Raft's own, from every offset and to every high watermark."""
        log = self.log
        for index in range(log.first_index - 1, log.last_index + 1):
            end = log.offset_after(LogIndex(index))
            for start in range(log.start_offset, end, 3):
                place = log.read(Offset(start), self.chance.randrange(500), end)
                if place is None:
                    continue
                data = memoryview(place.read())
                place.release()
                while len(data):
                    header = parse_header(data)
                    assert not header.is_own
                    assert start <= header.last_offset < end
                    data = data[header.size :]
        found = offsets(read_all(log))
        assert found == sorted(set(found))
        if not self.bench.config.cleanup_compact:
            data_offsets = self.data_offsets()
            start = log.start_offset
            assert [one for one in found if one >= start] == [
                one for one in data_offsets if one >= start
            ]

    def data_offsets(self) -> list[int]:
        return [
            offset
            for entry in self.model.entries
            if entry.kind == DATA
            for offset in range(
                self.model.offset_after(entry.first_index - 1), self.model.offset_after(entry.index)
            )
        ]


ACTIONS = {
    "append_data": 30,
    "append_gap": 3,
    "commit": 8,
    "truncate": 4,
    "checkpoint": 3,
    "reopen": 3,
    "delete": 1,
    "compact": 3,
}
OWN = {OwnKind.NEW_TERM: 3, OwnKind.MEMBERSHIP: 3, OwnKind.LOG_START: 2}


@pytest.mark.parametrize("config", [SMALL, COMPACTED], ids=["plain", "compacted"])
@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**9))
def test_the_log_agrees_with_its_model(config: TopicConfig, seed: int) -> None:
    pair = Pair(seed, config)
    names = [*ACTIONS, *OWN]
    weights = [*ACTIONS.values(), *OWN.values()]
    for _ in range(60):
        action = pair.chance.choices(names, weights)[0]
        if isinstance(action, OwnKind):
            pair.append_own(action)
        else:
            getattr(pair, action)()
    pair.check()
    pair.reopen()
    pair.check()
    pair.log.scrub(lambda: False)


def elected(config: TopicConfig = SMALL, terms: int = 3, count: int = 6) -> tuple[Bench, Log]:
    """Terms of some batches each, with a membership in the middle of each."""
    bench = Bench(FaultFileSystem(), config)
    log = bench.create(FOUNDERS)
    for term in range(1, terms + 1):
        fill(log, count // 2, term=term)
        log.append([own(log, OwnKind.MEMBERSHIP, b"voters %d" % term)])
        fill(log, count - count // 2, term=term)
    return bench, log


def disk_of(bench: Bench) -> FaultFileSystem:
    assert isinstance(bench.disk, FaultFileSystem)
    return bench.disk


def positions(log: Log) -> dict[int, int]:
    """Where each entry begins, in a log of one segment."""
    found, place = {}, 0
    for entry in log.entries(log.first_index, LogIndex(log.last_index + 1), 10**6):
        found[entry.first_index] = place
        place += len(entry.batch)
    return found


def test_a_new_log_has_no_term_and_its_founders() -> None:
    log = Bench(FaultFileSystem()).create(FOUNDERS)
    assert (log.first_index, log.last_index, log.last_term) == (1, 0, 0)
    assert log.term_at(LogIndex(0)) == 0
    assert log.memberships() == [(0, b"founders")]
    assert log.epochs == []
    assert log.offset_after(LogIndex(0)) == 0


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (batch(3, term=2), "a term begins"),
        (build_own(OwnKind.MEMBERSHIP, index=5, term=2, offset=3), "from term 2"),
        (build_own(OwnKind.NEW_TERM, index=5, term=1, offset=3), "from term 1"),
        (build_own(OwnKind.NEW_TERM, index=6, term=2, offset=3), "index 6 instead of 5"),
        (build_own(OwnKind.NEW_TERM, index=5, term=2, offset=4), "contiguous"),
    ],
)
def test_only_what_follows_on_is_appended(wrong: bytes, why: str) -> None:
    log = Bench(FaultFileSystem()).create(FOUNDERS)
    fill(log, 3)
    with pytest.raises(AssertionError, match=why):
        log.append([wrong])
    assert (log.last_index, log.end_offset) == (4, 3)


def test_own_entries_alone_never_roll_a_segment() -> None:
    bench = Bench(FaultFileSystem(), TopicConfig(segment_bytes=300, segment_ms=1000))
    log = bench.create(FOUNDERS)
    for term in range(1, 21):
        log.append([own(log, OwnKind.NEW_TERM, term=term)])
    log.sync()
    assert not log.roll_if_due(START_MS + 5000)
    assert not log.upkeep_due(START_MS + 10**12, log.end_offset)
    fill(log, 1, term=20)
    assert log.last_index == 21
    assert offsets(read_all(bench.open())) == [0]
    log.delete_before(log.end_offset)
    assert not log.upkeep_due(START_MS + 10**12, log.end_offset)


def test_a_log_that_begins_anew_keeps_its_last_membership_and_term() -> None:
    bench, log = elected()
    log.append([own(log, OwnKind.LOG_START)])
    log.delete_before(log.end_offset)
    for found in (log, bench.open()):
        assert found.base == LogBase(18, 24, 3, b"voters 3", 21)
        assert (found.first_index, found.last_index, found.last_term) == (25, 25, 3)
        (entry,) = found.entries(LogIndex(25), LogIndex(26), 0)
        assert entry.kind == OwnKind.LOG_START
        with pytest.raises(EntriesGone):
            found.term_at(LogIndex(23))
        with pytest.raises(EntriesGone):
            found.entries(LogIndex(24), LogIndex(26), 100)
    # It may still be cut, although no segment holds it any more.
    log.truncate_to_index(LogIndex(25))
    assert bench.open().last_index == log.last_index == 24


def test_retention_tells_where_the_log_would_begin_and_leaves_it() -> None:
    bench, log = elected(TopicConfig(segment_bytes=300, retention_bytes=700))
    wanted = log.retention_offset(START_MS, log.end_offset)
    assert 0 < wanted < log.end_offset
    assert log.start_offset == 0
    assert log.retention_offset(START_MS, Offset(0)) == 0
    log.delete_before(wanted)
    assert log.retention_offset(START_MS, log.end_offset) == wanted == bench.open().start_offset


def test_a_gap_can_be_cut_in_two() -> None:
    bench, log = elected()
    end, last = log.end_offset, log.last_index
    log.append([build_gap(offset=end, span=10, term=3)])
    (gap,) = log.entries(LogIndex(last + 4), LogIndex(last + 11), 100)
    assert (gap.first_index, gap.index, gap.kind, gap.term) == (last + 4, last + 10, GAP, 3)
    log.truncate_to_index(LogIndex(last + 4))
    log.sync()
    for found in (log, bench.open()):
        assert (found.last_index, found.end_offset) == (last + 3, end + 3)


def test_a_reset_log_begins_where_the_snapshot_ends() -> None:
    bench, log = elected()
    base = LogBase(100, 130, 7, b"others", 99)
    for _ in range(2):
        log.reset(base, state=b"producers")
        assert (log.start_offset, log.end_offset) == (100, 100)
        assert (log.last_index, log.last_term) == (130, 7)
        assert (log.state, log.state_offset, log.base) == (b"producers", 100, base)
        assert log.read(Offset(0), 100, Offset(18)) is None
    fill(log, 3, term=8)
    again = bench.open()
    assert again.memberships() == [(99, b"others")]
    assert offsets(read_all(again)) == [100, 101, 102]
    assert again.last_index == 134


def test_a_log_that_cant_be_reset_stays_as_it_was() -> None:
    bench, log = elected()
    disk_of(bench).bytes_max = 10
    with pytest.raises(OSError, match="No space"):
        log.reset(LogBase(100, 130, 7), state=b"")
    disk_of(bench).bytes_max = None
    fill(log, 2, term=3)
    assert offsets(read_all(bench.open())) == list(range(20))


def test_a_reset_that_was_decided_is_finished_by_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, log = elected()

    def fail(path: Path) -> None:
        raise OSError(5, "Input/output error", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(bench.disk, "remove", fail)
        with pytest.raises(SyncFailed):
            log.reset(LogBase(100, 130, 7), state=b"")
    assert bench.open().last_index == 130


def test_what_rotted_is_not_sent_to_others() -> None:
    bench, log = elected()
    first = positions_of_first_data(log)
    for place in (12, 16, 63):
        disk_of(bench).damage(bench.segment(0), first + place)
        with pytest.raises(StorageDamaged) as caught:
            log.entries(LogIndex(1), LogIndex(10), 1000)
        assert caught.value.position == first
        disk_of(bench).damage(bench.segment(0), first + place)
    assert len(log.entries(LogIndex(1), LogIndex(10), 10_000)) == 9


@pytest.mark.parametrize("place", [0, 2, 6, 7])
def test_an_offset_that_rotted_is_not_taken_for_a_gap(place: int) -> None:
    """Offsets lie outside the checksum, and a gap of their size would go to every follower."""
    bench, log = elected()
    _, first, second = log.entries(LogIndex(1), LogIndex(4), 10_000)
    assert first.kind == second.kind == DATA
    position = positions_of_first_data(log) + len(first.batch)
    disk_of(bench).damage(bench.segment(0), position + place)
    with pytest.raises(StorageDamaged):
        log.entries(LogIndex(1), LogIndex(4), 10_000)


def test_a_batch_is_not_read_from_its_middle_and_that_is_not_taken_for_damage() -> None:
    """One who asks for it has seen the log before it was cut and written again."""
    bench = Bench(FaultFileSystem())
    log = bench.create()
    log.append([batch(offset, *[record()] * 4) for offset in range(0, 32, 4)])
    for low, high in ((15, 33), (13, 16), (33, 33), (30, 34)):
        with pytest.raises(EntriesCut):
            log.entries(LogIndex(low), LogIndex(high), 10_000)
    (first, *_) = log.entries(LogIndex(21), LogIndex(33), 10_000)
    # A batch that claims offset 4 instead of 20 has rotted: those before it reach to 20.
    disk_of(bench).damage(bench.segment(0), 5 * len(first.batch) + 7)
    with pytest.raises(StorageDamaged):
        log.entries(LogIndex(21), LogIndex(33), 10_000)


def positions_of_first_data(log: Log) -> int:
    return len(log.entries(LogIndex(1), LogIndex(2), 0)[0].batch)


@pytest.mark.parametrize("place", [3, 8, 13, 16, 18, 30, 61, 65, 69])
@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_flipped_bit_in_an_own_entry_is_found(place: int, is_flushed: bool) -> None:
    bench, log = elected(TopicConfig(), terms=1)
    if is_flushed:
        checkpoint(log)
    disk_of(bench).damage(bench.segment(0), place)
    with pytest.raises(StorageDamaged) as caught:
        bench.open().scrub(lambda: False)
    assert (caught.value.path, caught.value.position) == (str(bench.segment(0)), 0)
    assert [damage.position for damage in check(bench.directory, bench.disk)][:1] == [0]


def test_retention_in_the_middle_of_a_look_at_an_own_entry_is_not_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, log = elected()
    end = log.end_offset

    def read_and_delete(batch: memoryview, header: BatchHeader) -> OwnEntry:
        log.delete_before(end)
        return read_own(batch, header)

    monkeypatch.setattr("penstock.storage.scrub.read_own", read_and_delete)
    log.scrub(lambda: False)
    assert log.start_offset == end, "it met an own entry"


def test_own_entries_and_gaps_are_sound() -> None:
    bench, log = elected()
    log.append([build_gap(offset=log.end_offset, span=4, term=3)])
    for _ in range(2):
        assert check(bench.directory, bench.disk) == []
        checkpoint(log)


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_cut_keeps_the_own_entries_before_it_and_marks_the_log(is_flushed: bool) -> None:
    bench, log = elected(TopicConfig())
    if is_flushed:
        checkpoint(log)
    assert log.doubt == NO_DOUBT
    end = LogEnd(log.last_term, log.last_index)
    # The second membership, which lies at offset 9.
    disk_of(bench).damage(bench.segment(0), positions(log)[13] + 65)
    cut(bench.directory, bench.disk)
    log = bench.open()
    assert log.doubt.lost == end
    assert (log.end_offset, log.last_index, log.last_term) == (9, 12, 2)
    assert log.memberships() == [(0, b"founders"), (5, b"voters 1")]
    fill(log, 3, term=5)
    assert bench.open().doubt.lost == end
    log.reset(LogBase(5, 9, 5), state=b"")
    assert log.doubt.lost == end
    log.set_doubt(NO_DOUBT)
    assert bench.open().doubt == NO_DOUBT


def test_a_lost_checkpoint_is_told_by_the_own_entries() -> None:
    bench, log = elected()
    log.delete_before(Offset(11))
    base, own_before = log.base, log.own_entries
    assert base.index > 0
    bench.disk.remove(bench.directory / "checkpoint")
    cut(bench.directory, bench.disk)
    log = bench.open()
    assert log.doubt.lost == LogEnd(log.last_term, log.last_index)
    assert (log.base.offset, log.base.index, log.base.term) == base[:3]
    assert log.own_entries == own_before
    assert log.memberships()[0] == (0, b"")


def test_a_damaged_reset_is_put_aside() -> None:
    bench, log = elected()
    fill(log, 1, term=4)
    bench.disk.write_atomically(bench.directory / "reset", b"rubbish")
    with pytest.raises(StorageDamaged):
        bench.open()
    (damage, *_) = cut(bench.directory, bench.disk)
    assert damage.path.endswith("reset")
    assert offsets(read_all(bench.open())) == list(range(19))


def test_a_range_for_clients_ends_where_an_own_entry_lies() -> None:
    _, log = elected(TopicConfig())
    assert [len(list(decode_records(one))) for one in read_batches(log)] == [1] * 18
    ends = []
    for start in range(18):
        place = log.read(Offset(start), 10**6, log.end_offset)
        assert place is not None
        data = memoryview(place.read())
        while len(data):
            header = parse_header(data)
            data = data[header.size :]
        ends.append(header.next_offset)
    assert ends == [3] * 3 + [6] * 3 + [9] * 3 + [12] * 3 + [15] * 3 + [18] * 3


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_a_full_disk_never_costs_an_own_entry(with_checkpoint: bool) -> None:
    """Retention makes room by emptying segments, but only those whose entries are known."""
    for room in range(0, 900, 60):
        bench, log = elected()
        if with_checkpoint:
            checkpoint(log)
            fill(log, 2, term=4)
        log.append([own(log, OwnKind.LOG_START)])
        log.sync()
        disk = disk_of(bench)
        disk.bytes_max = 10**9
        disk.bytes_max = 10**9 - disk.room() + room
        try:
            log.delete_before(log.end_offset)
            is_done = True
        except OSError:
            is_done = False
        own_entries, last = log.own_entries, log.last_index
        for survivor in (disk.after_kill(), disk.after_power_loss(room)):
            survivor.bytes_max = None
            found = Bench(survivor, SMALL).open()
            assert found.last_index == last
            assert found.own_entries[-len(own_entries) :] == own_entries
            assert not is_done or found.start_offset == found.end_offset
