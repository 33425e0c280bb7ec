"""Timestamps: the same answers as looking at every record."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.ids import LogIndex, Offset
from penstock.model.topic_config import TimestampType, TopicConfig
from penstock.records.batch import HEADER_SIZE, build_batch, parse_header, seal, stamp
from penstock.records.own_entries import OwnKind
from penstock.records.record import Record
from penstock.storage.log import Log
from tests.unit.storage.fault_file_system import FaultFileSystem
from tests.unit.storage.logs import Bench, batch, checkpoint, headers, own, read_all, record

SMALL = TopicConfig(segment_bytes=700, index_interval_bytes=150)
TIMES = st.lists(st.lists(st.integers(0, 100), min_size=1, max_size=4), min_size=0, max_size=25)


def brute_force_first(records: list[Record], timestamp_ms: int, end: int) -> Record | None:
    return next(
        (one for one in records if one.offset < end and one.timestamp_ms >= timestamp_ms), None
    )


def brute_force_latest(records: list[Record], end: int) -> Record | None:
    below = [one for one in records if one.offset < end]
    return max(below, key=lambda one: (one.timestamp_ms, -one.offset), default=None)


def check(log: Log, start: int) -> None:
    records = [one for one in read_all(log) if one.offset >= start]
    # The high watermark lies between batches.
    ends = {0, start}
    ends |= {header.next_offset for header in headers(log) if header.next_offset > start}
    for end in ends:
        for timestamp_ms in (0, 1, 50, 51, 100, 101):
            expected = brute_force_first(records, timestamp_ms, end)
            found = log.offset_for_timestamp(timestamp_ms, Offset(end))
            assert (found and (found.offset, found.timestamp_ms, found.term)) == (
                expected and (expected.offset, expected.timestamp_ms, 1)
            )
        latest = log.offset_of_max_timestamp(Offset(end))
        expected = brute_force_latest(records, end)
        assert (latest and latest[:2]) == (expected and (expected.offset, expected.timestamp_ms))


@settings(deadline=None, max_examples=40)
@given(times=TIMES, with_checkpoint=st.booleans())
def test_lookups_agree_with_brute_force(times: list[list[int]], with_checkpoint: bool) -> None:
    bench = Bench(FaultFileSystem(), SMALL)
    log = bench.create()
    for some in times:
        log.append([batch(log.end_offset, *[record(timestamp_ms=time) for time in some])])
    check(log, 0)
    if with_checkpoint:
        checkpoint(log)
    check(bench.open(), 0)


@settings(deadline=None, max_examples=30)
@given(times=TIMES.filter(len), part=st.floats(0, 1))
def test_lookups_agree_after_truncation_and_deletion(times: list[list[int]], part: float) -> None:
    log = Bench(FaultFileSystem(), SMALL).create()
    for some in times:
        log.append([batch(log.end_offset, *[record(timestamp_ms=time) for time in some])])
        log.append([own(log, OwnKind.LOG_START)])
    index = log.index_before(Offset(int(log.end_offset * part))) + 1
    log.truncate_to_index(log.entry_start(LogIndex(index)))
    check(log, 0)
    start = log.end_offset // 2
    log.delete_before(Offset(start))
    check(log, start)


def test_a_deleted_record_hides_no_later_one_that_is_the_latest() -> None:
    log = Bench(FaultFileSystem(), SMALL).create()
    log.append([batch(0, record(timestamp_ms=100), record(timestamp_ms=5))])
    log.append([batch(2, record(timestamp_ms=50))])
    assert log.offset_of_max_timestamp(Offset(3)) == (0, 100, 1)
    log.delete_before(Offset(1))
    assert log.offset_of_max_timestamp(Offset(3)) == (2, 50, 1)
    assert log.offset_of_max_timestamp(Offset(2)) == (1, 5, 1)


def test_a_time_of_more_than_64_bits_is_no_time() -> None:
    """It would fit into no answer; the header is all that such a batch is known by."""
    log = Bench(FaultFileSystem(), SMALL).create()
    late = batch(0, record(timestamp_ms=0), record(timestamp_ms=2**62))
    header = parse_header(late)._replace(base_timestamp=2**62 + 2**61, max_timestamp=20)
    log.append([seal(header, late[HEADER_SIZE:])])
    assert log.offset_for_timestamp(11, log.end_offset) == (0, 20, 1)
    assert log.offset_of_max_timestamp(log.end_offset) == (0, 20, 1)


def test_append_time_counts_for_every_record_of_a_batch() -> None:
    log = Bench(FaultFileSystem()).create()
    data = bytearray(build_batch([record(timestamp_ms=5), record(timestamp_ms=6)]))
    stamp(data, 0, base_offset=0, term=1, append_time_ms=50)
    log.append([data])
    assert log.offset_for_timestamp(50, Offset(2)) == (0, 50, 1)
    assert log.offset_for_timestamp(51, Offset(2)) is None
    assert log.offset_of_max_timestamp(Offset(2)) == (0, 50, 1)
    assert TimestampType.LOG_APPEND_TIME.value == "LogAppendTime"


def test_what_a_producer_sent_as_records_and_is_none_counts_as_one_and_not_as_damage() -> None:
    """Its CRC is right, so the disk is whole: a bad producer must not stop the partition."""
    bench = Bench(FaultFileSystem(), SMALL)
    log = bench.create()
    good = batch(0, record(timestamp_ms=10))
    header = parse_header(batch(1, record(timestamp_ms=20)))
    log.append([good, seal(header, b"this is no record"), batch(2, record(timestamp_ms=15))])
    found = log.offset_for_timestamp(11, log.end_offset)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (1, 20)
    latest = log.offset_of_max_timestamp(log.end_offset)
    assert latest is not None
    assert latest.offset == 1
