"""Compaction: a dict of what was written last is exactly what a reader of the log ends up with."""

import errno
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import StorageDamaged
from penstock.model.ids import Offset
from penstock.model.topic_config import TopicConfig
from penstock.records.batch import (
    HEADER_SIZE,
    build_batch,
    check_batch,
    decode_records,
    parse_header,
    seal,
)
from penstock.records.compression import Codec
from penstock.records.own_entries import OwnKind, build_gap
from penstock.records.record import Record
from penstock.storage.compaction import CompactionReport, Compactor
from penstock.storage.file_system import SyncFailed
from penstock.storage.log import Log
from penstock.storage.repair import check
from tests.unit.storage.fault_file_system import FaultFileSystem
from tests.unit.storage.logs import (
    START_MS,
    Bench,
    batch,
    checkpoint,
    fill,
    headers,
    offsets,
    own,
    read_all,
    read_batches,
    record,
)

HOUR_MS = 3_600_000


def settings_of(**changes: Any) -> TopicConfig:
    usual = {
        "segment_bytes": 600,
        "index_interval_bytes": 150,
        "cleanup_compact": True,
        "cleanup_delete": False,
        "min_cleanable_dirty_ratio": 0.0,
        "delete_retention_ms": HOUR_MS,
    }
    return TopicConfig(**{**usual, **changes})


class Table:
    """A compacted log beside the dict that it should amount to."""

    def __init__(self, config: TopicConfig | None = None, disk: FaultFileSystem | None = None):
        self.disk = disk or FaultFileSystem()
        self.bench = Bench(self.disk, config or settings_of())
        self.log = self.bench.create()
        self.written: dict[int, Record] = {}

    def put(self, *pairs: tuple[bytes, bytes | None], codec: Codec = Codec.NONE) -> None:
        base = self.log.end_offset
        records = [record(value, key, START_MS + base) for key, value in pairs]
        self.log.append([batch(base, *records, codec=codec)])
        for number, one in enumerate(records):
            self.written[base + number] = one
        self.log.sync()

    def roll(self) -> None:
        self.log.roll_if_due(2**60)

    def compact(
        self, now_ms: int = START_MS, end: int | None = None, keys_max: int = 10**6
    ) -> CompactionReport:
        compactor = Compactor(
            self.log._state,
            self.log._appender,
            should_stop=lambda: False,
            producer_expiry_ms=HOUR_MS,
            keys_max=keys_max,
        )
        return compactor.run(now_ms, self.log.end_offset if end is None else end)

    def check(self, log: Log | None = None) -> None:
        """Replaying the log gives the dict, and no record is another than the one written."""
        log = log or self.log
        found = read_all(log)
        for one in found:
            original = self.written[one.offset]
            assert (one.key, one.value) == (original.key, original.value)
            assert one.timestamp_ms == original.timestamp_ms
        assert offsets(found) == sorted(set(offsets(found)))
        expected = replay(self.written.values())
        assert {k: v for k, v in replay(found).items() if v is not None} == {
            k: v for k, v in expected.items() if v is not None
        }


def replay(records: Any) -> dict[bytes | None, bytes | None]:
    return {one.key: one.value for one in records}


PAIRS = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c", b"d", b"a key that is longer than its digest is"]),
        st.none() | st.sampled_from([b"1", b"2", bytes(100)]),
    ),
    min_size=1,
    max_size=5,
)
WORK = st.lists(
    st.one_of(
        PAIRS.map(lambda pairs: ("put", pairs)),
        st.sampled_from(
            [
                ("roll", None),
                ("compact", None),
                ("reopen", None),
                ("later", None),
                ("few keys", None),
            ]
        ),
    ),
    min_size=15,
    max_size=80,
)


@settings(deadline=None, max_examples=80)
@given(work=WORK, codec=st.sampled_from(Codec))
def test_a_compacted_log_amounts_to_the_dict(work: list[tuple[str, Any]], codec: Codec) -> None:
    table = Table()
    now_ms = START_MS
    for what, pairs in work:
        if what == "put":
            table.put(*pairs, codec=codec)
        elif what == "roll":
            table.roll()
        elif what == "later":
            now_ms += HOUR_MS
        elif what == "reopen":
            table.log.close()
            table.log = table.bench.open()
        else:
            before = table.log.size_bytes
            report = table.compact(now_ms, keys_max=2 if what == "few keys" else 1000)
            assert report.bytes_before - report.bytes_after == before - table.log.size_bytes
        end = table.log.end_offset
        table.check()
        assert end == len(table.written)
    table.log.scrub(lambda: False)
    table.check(table.bench.open())


def test_only_the_last_record_of_a_key_stays_in_closed_segments() -> None:
    table = Table()
    for number in range(60):
        table.put((b"k%d" % (number % 3), b"v%d" % number))
    table.roll()
    report = table.compact()
    assert offsets(read_all(table.log)) == [57, 58, 59]
    assert (report.cleaned_offset, report.records_dropped, report.is_done) == (60, 57, True)
    assert table.log.end_offset == 60


def test_the_active_segment_and_what_is_not_committed_stay_untouched() -> None:
    table = Table()
    for number in range(60):
        table.put((b"k", b"v%d" % number))
    active = table.log._state.segments.active.base_offset
    table.compact(end=20)
    found = offsets(read_all(table.log))
    assert found[-(60 - 20) :] == list(range(20, 60))
    table.compact()
    assert offsets(read_all(table.log)) == [active - 1, *range(active, 60)]


def test_neighbours_become_one_segment() -> None:
    table = Table()
    for number in range(100):
        table.put((b"k%d" % (number % 4), bytes(20)))
    table.roll()
    before = len(table.log._state.segments)
    table.compact()
    table.put((b"x", b"y"))
    table.roll()
    table.compact()
    assert len(table.log._state.segments) < before / 3
    table.check()


def test_a_second_pass_without_new_records_does_nothing() -> None:
    table = Table()
    for number in range(60):
        table.put((b"k%d" % number, b"v"))
    table.roll()
    assert table.log.compaction_due(START_MS, table.log.end_offset)
    table.compact()
    assert not table.log.compaction_due(START_MS, table.log.end_offset)
    assert table.compact() == CompactionReport(cleaned_offset=60)
    checkpoint(table.log)
    reopened = table.bench.open()
    assert not reopened.compaction_due(START_MS, reopened.end_offset)


def test_the_dirty_ratio_decides() -> None:
    table = Table(settings_of(min_cleanable_dirty_ratio=0.5))
    for number in range(60):
        table.put((b"k%d" % number, bytes(30)))
    table.roll()
    assert table.compact().cleaned_offset == 60
    for number in range(20):
        table.put((b"k%d" % number, bytes(30)))
    table.roll()
    assert table.compact().cleaned_offset == 60
    for number in range(60):
        table.put((b"k%d" % number, bytes(30)))
    table.roll()
    assert table.compact().cleaned_offset == 140


def test_max_compaction_lag_overrules_the_dirty_ratio() -> None:
    table = Table(settings_of(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000))
    for number in range(30):
        table.put((b"k%d" % number, bytes(30)))
    table.roll()
    table.compact()
    table.put((b"k1", b"x"))
    table.roll()
    assert table.compact(START_MS + 500).cleaned_offset == 30
    assert table.compact(START_MS + 5000).cleaned_offset == 31


def test_max_compaction_lag_closes_the_active_segment() -> None:
    """What lies in it can't be compacted, however long it has been there (KIP-354)."""
    table = Table(settings_of(segment_bytes=10**6, max_compaction_lag_ms=1000))
    table.put((b"k", b"1"))
    table.put((b"k", b"2"))
    assert not table.log.roll_if_due(START_MS + 999)
    assert table.log.upkeep_due(START_MS + 1000, Offset(0))
    assert table.log.roll_if_due(START_MS + 1000)
    assert table.compact(START_MS + 5000).records_dropped == 1
    for time_ms in (0, 1000, 1001):
        end = table.log.end_offset
        table.log.append([batch(end, record(b"3", b"k", START_MS + time_ms))])
    assert [segment.base_offset for segment in table.log._state.segments] == [0, 2, 4]


def test_max_compaction_lag_closes_no_segment_of_other_topics() -> None:
    config = settings_of(max_compaction_lag_ms=1000, cleanup_compact=False, cleanup_delete=True)
    table = Table(config)
    table.put((b"k", b"1"))
    assert not table.log.roll_if_due(START_MS + 5000)


def test_max_compaction_lag_counts_from_a_record_that_came_with_a_new_term() -> None:
    table = Table(settings_of(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000))
    for number in range(30):
        table.put((b"k%d" % number, bytes(30)))
    table.roll()
    table.compact()
    end = table.log.end_offset
    first = own(table.log, OwnKind.NEW_TERM, term=2)
    table.log.append([first, batch(end, record(b"x", b"k1", START_MS), term=2)])
    table.roll()
    assert table.compact(START_MS + 500).cleaned_offset == 30
    assert table.compact(START_MS + 5000).cleaned_offset == 31


def test_min_compaction_lag_protects_young_records() -> None:
    table = Table(settings_of(min_compaction_lag_ms=1000))
    for number in range(30):
        table.put((b"k", b"%d" % number))
    table.roll()
    assert table.compact(START_MS + 500).records_dropped == 0
    assert table.compact(START_MS + 1029).records_dropped == 29


def test_a_tombstone_stays_readable_for_delete_retention_ms_and_then_goes() -> None:
    table = Table()
    table.put((b"gone", b"x"), (b"kept", b"y"))
    table.put((b"gone", None))
    table.roll()
    table.compact(START_MS)
    assert offsets(read_all(table.log)) == [1, 2]
    table.check()
    table.put((b"other", b"z"))
    table.roll()
    table.compact(START_MS + HOUR_MS - 1)
    assert 2 in offsets(read_all(table.log))
    table.put((b"other", b"z"))
    table.roll()
    table.compact(START_MS + HOUR_MS)
    assert offsets(read_all(table.log)) == [1, 4]


def test_a_tombstone_can_be_kept_for_ever() -> None:
    """The longest setting lies further ahead than a timestamp can say."""
    table = Table(settings_of(delete_retention_ms=2**63 - 1))
    table.put((b"gone", b"x"))
    table.put((b"gone", None))
    for _ in range(2):
        table.roll()
        table.compact(START_MS)
        table.check()
        assert offsets(read_all(table.log))[0] == 1
        table.put((b"other", b"z"))


def test_the_delete_horizon_keeps_timestamps_right() -> None:
    table = Table()
    table.put((b"a", None), (b"b", b"x"), codec=Codec.ZSTD)
    table.roll()
    table.compact(START_MS + 12345)
    (data,) = read_batches(table.log)
    header = check_batch(data) if parse_header(data).record_count == 2 else parse_header(data)
    assert header.delete_horizon_ms == START_MS + 12345 + HOUR_MS
    assert header.max_timestamp == START_MS
    table.check()


def test_a_tombstone_beyond_the_key_map_is_not_marked_yet() -> None:
    """Else it could go before the values that it deletes."""
    table = Table(settings_of(segment_bytes=100_000))
    for number in range(10):
        table.put((b"k%d" % number, b"v"))
    table.put((b"k0", None))
    table.roll()
    report = table.compact(keys_max=5)
    assert (report.cleaned_offset, report.is_done) == (5, False)
    assert all(parse_header(data).delete_horizon_ms is None for data in read_batches(table.log))
    while not table.compact(START_MS + 10 * HOUR_MS, keys_max=5).is_done:
        table.check()
    table.check()


def test_batches_keep_their_offsets_and_sequences() -> None:
    table = Table()
    records = [record(b"x", b"k%d" % number) for number in range(5)]
    table.log.append([batch(0, *records, codec=Codec.LZ4, producer=(9, 2, 100))])
    table.log.append([batch(5, record(b"y", b"k1"), producer=(9, 2, 105))])
    table.roll()
    table.compact()
    first, _ = map(parse_header, read_batches(table.log))
    assert (first.base_offset, first.last_offset, first.record_count) == (0, 4, 4)
    assert (first.producer_id, first.producer_epoch, first.base_sequence) == (9, 2, 100)
    assert first.last_sequence == 104
    assert first.codec is Codec.LZ4
    assert first.leader_epoch == 1


def test_what_was_removed_is_one_gap_and_each_batch_follows_on_the_last() -> None:
    table = Table()
    for number in range(60):
        table.put((b"old" if number % 7 else b"k%d" % number, b"v" * 20))
    table.roll()
    for _ in range(2):
        table.compact()
        table.put((b"new", b"v"))
        table.roll()
    table.compact()
    assert any(header.is_gap for header in headers(table.log))
    for segment in table.log._state.segments.closed:
        found = [header for _, header in segment.headers()]
        ends = [header.next_offset for header in found]
        assert [header.base_offset for header in found] == [segment.base_offset, *ends[:-1]]
        assert ends[-1] == segment.next_offset
        assert (True, True) not in pairwise(header.is_gap for header in found)
    assert table.log._state.sparse_below == 0
    assert check(table.bench.directory, table.disk) == []


def test_a_segment_with_gaps_is_left_alone_when_nothing_more_goes() -> None:
    table = Table(settings_of(segment_bytes=400))
    for number in range(30):
        table.put((b"same" if number % 2 else b"k%d" % number, b"v" * 30))
    table.roll()
    table.compact()
    first = table.log._state.segments.first
    assert any(header.is_gap for _, header in first.headers())
    table.put((b"new", b"v"))
    table.roll()
    table.compact()
    assert table.log._state.segments.first is first


def test_the_last_batch_of_a_producer_stays_even_if_it_is_empty() -> None:
    table = Table()
    table.log.append([batch(0, record(b"x", b"k"), producer=(7, 0, 0))])
    table.log.append([batch(1, record(b"y", b"k"), producer=(7, 0, 1))])
    table.log.append([batch(2, record(b"z", b"k"))])
    table.roll()
    table.compact()
    assert offsets(read_all(table.log)) == [2]
    empty, last = map(parse_header, read_batches(table.log))
    assert (empty.base_offset, empty.record_count, empty.base_sequence) == (1, 0, 1)
    assert last.base_offset == 2
    # It goes once its producer has been silent for too long.
    table.put((b"other", b"v"))
    table.roll()
    table.compact(START_MS + 2 * HOUR_MS)
    assert [parse_header(data).base_offset for data in read_batches(table.log)] == [2, 3]


def test_a_batch_that_may_be_taken_back_does_not_take_the_place_of_a_producer_s_last() -> None:
    """Only what is committed is sure to tell anyone who reads the log what the producer did."""
    table = Table()
    table.log.append([batch(0, record(b"x", b"k"), producer=(7, 0, 0))])
    table.log.append([batch(1, record(b"y", b"k"))])
    table.roll()
    table.log.append([batch(2, record(b"z", b"k"), producer=(7, 0, 1))])
    table.compact(end=2)
    first, *_ = map(parse_header, read_batches(table.log))
    assert (first.base_offset, first.record_count, first.producer_id) == (0, 0, 7)


def test_the_end_of_the_log_survives_even_if_its_last_batch_is_emptied() -> None:
    table = Table()
    table.put((b"a", b"1"))
    table.log.append([batch(1, record(b"no key at all", None))])
    table.roll()
    table.compact()
    assert offsets(read_all(table.log)) == [0]
    assert [parse_header(data).base_offset for data in read_batches(table.log)] == [0, 1]
    assert table.bench.open().end_offset == 2


def test_control_batches_stay() -> None:
    table = Table()
    marker = build_batch(
        [record(b"", b"\0\0\0\1")], base_offset=0, term=1, is_control=True, producer_id=3
    )
    table.log.append([marker, batch(1, record(b"x", b"k"))])
    table.roll()
    table.compact()
    assert [parse_header(data).is_control for data in read_batches(table.log)] == [True, False]


def test_a_batch_that_cant_be_decoded_stays_as_it_is() -> None:
    table = Table()
    header = parse_header(batch(0, record(b"x", b"k")))
    table.log.append([seal(header, b"not records"), batch(1, record(b"y", b"k"))])
    table.roll()
    table.compact()
    first = next(iter(read_batches(table.log)))
    assert first[HEADER_SIZE:] == b"not records"


@pytest.mark.parametrize(
    "change", [{"base_timestamp": 2**63 - 1}, {"last_offset_delta": 0}], ids=["time", "offset"]
)
def test_a_record_that_cant_be_of_its_batch_is_no_reason_to_drop_others(
    change: dict[str, int],
) -> None:
    """Nor to give up: whatever a producer sent, the rest of the log is compacted."""
    table = Table()
    strange = batch(0, record(b"1", b"k", 0), record(b"2", b"k", 1))
    sealed = seal(parse_header(strange)._replace(**change), strange[HEADER_SIZE:])
    table.log.append([sealed])
    end = table.log.end_offset
    table.log.append([batch(end, record(b"3", b"k")), batch(end + 1, record(b"4", b"k"))])
    table.roll()
    assert table.compact().records_dropped == 1
    gap = build_gap(offset=end, span=1, term=1)
    assert list(read_batches(table.log)) == [sealed, gap, batch(end + 1, record(b"4", b"k"))]


def test_a_damaged_batch_stops_compaction_and_changes_nothing() -> None:
    table = Table()
    for number in range(40):
        table.put((b"k", b"%d" % number))
    checkpoint(table.log)
    names = table.disk.names(table.bench.directory)
    table.disk.damage(table.bench.segment(0), 80)
    with pytest.raises(StorageDamaged) as caught:
        table.compact()
    assert caught.value.path == str(table.bench.segment(0))
    assert table.disk.names(table.bench.directory) == names


def test_readers_of_replaced_segments_finish_and_new_ones_see_the_new() -> None:
    table = Table()
    for number in range(60):
        table.put((b"k", b"%d" % number))
    held = table.log.read(Offset(0), 300, Offset(60))
    assert held is not None
    before = held.read()
    table.compact()
    assert held.read() == before
    assert [one.offset for one in decode_records(before)] == [0]
    held.release()
    table.check()


def test_compaction_gives_way_to_retention() -> None:
    table = Table(settings_of(cleanup_delete=True))
    for number in range(60):
        table.put((b"k%d" % number, b"%d" % number))
    compactor = Compactor(
        table.log._state, table.log._appender, should_stop=lambda: False, producer_expiry_ms=1
    )
    original = compactor._map_keys

    def delete_meanwhile(dirty: Any) -> Any:
        keys = original(dirty)
        table.log.delete_before(Offset(30))
        return keys

    compactor._map_keys = delete_meanwhile  # type: ignore[method-assign]
    assert not compactor.run(START_MS, 60).is_done
    assert not [name for name in table.disk.names(table.bench.directory) if "cleaned" in name]
    table.written = {offset: one for offset, one in table.written.items() if offset >= 30}
    table.compact()
    table.check(table.bench.open())


def test_compaction_stops_when_asked() -> None:
    table = Table()
    for number in range(60):
        table.put((b"k", b"%d" % number))
    names = table.disk.names(table.bench.directory)
    chance = random.Random(5)
    for _ in range(20):
        report = table.log.compact(
            START_MS, table.log.end_offset, should_stop=lambda: chance.random() < 0.1
        )
        if report.is_done:
            break
        assert table.disk.names(table.bench.directory) == names
    table.check()


def test_a_full_disk_stops_compaction_and_leaves_the_log_whole() -> None:
    for room in range(0, 1500, 60):
        table = Table()
        for number in range(60):
            table.put((b"k%d" % (number % 20), bytes(30)))
        table.disk.bytes_max = 10**9
        table.disk.bytes_max = 10**9 - table.disk.room() + room
        try:
            table.compact()
        except OSError:
            table.check()
        table.disk.bytes_max = None
        table.check()
        fill(table.log, 1)
        checkpoint(table.log)
        reopened = Bench(table.disk.after_power_loss(room), settings_of()).open()
        assert reopened.end_offset == 61


@pytest.mark.parametrize("failing", [1, 2])
def test_a_swap_that_may_be_decided_is_left_to_the_next_start(
    failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second sync of the directory is that of the deciding file: it is there by then."""
    table = Table()
    for number in range(40):
        table.put((b"k%d" % (number % 3), b"v%d" % number))
    disk, left = table.disk, failing
    sync_directory = disk.sync_directory

    def fail(path: Path) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise OSError(errno.EIO, "Input/output error", str(path))
        sync_directory(path)

    before = {one.key: one.value for one in read_all(table.log)}
    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync_directory", fail)
        with pytest.raises(OSError, match="Input/output") as failed:
            table.compact()
    assert isinstance(failed.value, SyncFailed) == (failing == 2)
    for survivor in (disk.after_kill(), *map(disk.after_power_loss, range(20))):
        found = Bench(survivor, settings_of()).open()
        assert {one.key: one.value for one in read_all(found)} == before
        found.scrub(lambda: False)


def test_the_time_index_follows_compaction() -> None:
    table = Table()
    for number in range(60):
        table.put((b"k%d" % (number % 7), bytes(20)))
    table.roll()
    table.compact()
    for log in (table.log, table.bench.open()):
        found = read_all(log)
        for timestamp_ms in range(START_MS - 1, START_MS + 62):
            expected = next((one for one in found if one.timestamp_ms >= timestamp_ms), None)
            got = log.offset_for_timestamp(timestamp_ms, log.end_offset)
            assert (got and got.offset) == (expected and expected.offset)


def test_old_indexes_go_with_the_swap() -> None:
    """An index of the old segment would be believed if the new one happened to be as long."""
    table = Table()
    for number in range(60):
        table.put((b"k%d" % (number % 30), bytes(20)))
    checkpoint(table.log)
    first = table.log._state.segments.all[0].base_offset
    assert table.disk.exists(table.bench.segment(first, ".index"))
    table.compact()
    assert not table.disk.exists(table.bench.segment(first, ".index"))
    assert not table.disk.exists(table.bench.segment(first, ".timeindex"))


@settings(deadline=None, max_examples=150)
@given(
    steps=st.lists(st.sampled_from(["put", "put", "roll", "compact", "later"]), max_size=30),
    ratio=st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
    lags=st.sampled_from([(0, 2**63 - 1), (0, 500), (300, 2**63 - 1), (300, 500), (0, 0)]),
    reach=st.floats(0.0, 1.0),
)
def test_when_a_compaction_falls_due_is_known_ahead(
    steps: list[str], ratio: float, lags: tuple[int, int], reach: float
) -> None:
    """At that time, and at no earlier one, it finds something worth its while."""
    shortest_ms, longest_ms = lags
    config = settings_of(
        min_cleanable_dirty_ratio=ratio,
        min_compaction_lag_ms=shortest_ms,
        max_compaction_lag_ms=longest_ms,
    )
    table = Table(config)
    now_ms = START_MS
    for number, step in enumerate(steps):
        if step == "put":
            base = table.log.end_offset
            table.log.append([batch(base, record(b"x", b"%d" % number, now_ms))])
        elif step == "roll":
            table.roll()
        elif step == "compact":
            table.compact(now_ms)
        else:
            now_ms += 200
    end = Offset(int(reach * table.log.end_offset))
    compactor = table.log._compactor(lambda: False, HOUR_MS)
    due_at = compactor.due_at(end)
    times = [START_MS - 1, *range(START_MS, now_ms + 1_500, 50)]
    if due_at is not None and due_at > START_MS:
        times += [due_at - 1, due_at]
    for time_ms in times:
        finds_some = bool(compactor._plan(time_ms, end)[1])
        assert finds_some == (due_at is not None and due_at <= time_ms)
        assert table.log.compaction_due(time_ms, end) == finds_some


def test_a_reader_never_gets_a_gap_alone() -> None:
    """kafkajs asks for the same offset again, forever, where all that it gets is empty."""
    table = Table()
    for number in range(40):
        table.put((b"old" if number % 9 else b"k%d" % number, b"v" * 20))
    table.log.append([own(table.log, OwnKind.NEW_TERM, term=2)])
    table.log.append([build_gap(offset=table.log.end_offset, span=5, term=2)])
    end = table.log.end_offset
    table.log.append([batch(end, record(b"last", b"k"), term=2)])
    table.roll()
    table.compact()
    data = [header for header in headers(table.log) if header.record_count]
    for log in (table.log, table.bench.open()):
        for offset in range(end + 1):
            for bytes_max in (1, 100, 1000):
                found = log.read(Offset(offset), bytes_max, log.end_offset)
                assert found is not None
                first = parse_header(found.read())
                found.release()
                assert first == next(each for each in data if each.last_offset >= offset)
