"""Retention: what is too old or too much goes, from the front, and never what is not committed."""

from penstock.model.ids import Offset
from penstock.model.topic_config import FOREVER, TopicConfig
from tests.unit.storage.fault_file_system import FaultFileSystem
from tests.unit.storage.logs import START_MS, Bench, batch, fill, offsets, read_all, record


def config(**changes: int) -> TopicConfig:
    return TopicConfig(segment_bytes=500, **changes)


def filled(settings: TopicConfig, times_ms: list[int]) -> Bench:
    bench = Bench(FaultFileSystem(), settings)
    log = bench.create()
    for offset, time_ms in enumerate(times_ms):
        log.append([batch(offset, record(bytes(100), timestamp_ms=time_ms))])
    log.sync()
    return bench


def test_old_segments_go_by_the_latest_of_their_records() -> None:
    bench = filled(config(retention_ms=1000), [START_MS + number * 100 for number in range(30)])
    log = bench.open()
    now_ms = START_MS + 2500
    assert log.upkeep_due(now_ms, log.end_offset)
    start = log.apply_retention(now_ms, log.end_offset)
    assert 9 <= start <= 15
    assert offsets(read_all(log)) == list(range(start, 30))
    assert not log.upkeep_due(now_ms, log.end_offset)
    assert log.apply_retention(now_ms, log.end_offset) == start
    assert bench.open().start_offset == start


def test_even_the_active_segment_goes_when_it_is_too_old() -> None:
    log = filled(config(retention_ms=1000), [START_MS] * 10).open()
    assert log.apply_retention(START_MS + 1001, log.end_offset) == 10
    assert log.size_bytes == 0
    fill(log, 1)
    assert offsets(read_all(log)) == [10]


def test_nothing_goes_that_is_not_committed() -> None:
    log = filled(config(retention_ms=1), [START_MS] * 30).open()
    start = log.apply_retention(START_MS + 10_000, Offset(10))
    assert 5 < start <= 10


def test_too_much_goes_until_the_size_fits() -> None:
    log = filled(config(retention_bytes=2000), [START_MS] * 60).open()
    log.apply_retention(START_MS, log.end_offset)
    assert 2000 <= log.size_bytes < 2500
    assert offsets(read_all(log))[-1] == 59


def test_records_from_the_future_do_not_stop_retention_by_size() -> None:
    times = [START_MS + 10**9] * 30 + [START_MS] * 30
    log = filled(config(retention_bytes=1000, retention_ms=1000), times).open()
    assert log.apply_retention(START_MS + 5000, log.end_offset) > 40


def test_records_without_timestamps_age_with_their_segment() -> None:
    bench = filled(config(retention_ms=1000), [-1] * 20)
    log = bench.open()
    assert log.apply_retention(START_MS + 1000, log.end_offset) == 0
    assert log.apply_retention(START_MS + 1001, log.end_offset) == 20


def test_forever_keeps_everything() -> None:
    log = filled(config(retention_ms=FOREVER), [0] * 30).open()
    assert log.apply_retention(START_MS, log.end_offset) == 0


def test_a_topic_that_is_only_compacted_loses_nothing_by_age() -> None:
    bench = filled(
        TopicConfig(segment_bytes=500, retention_ms=1, cleanup_delete=False, cleanup_compact=True),
        [START_MS] * 30,
    )
    log = bench.open()
    assert log.apply_retention(START_MS + 10_000, log.end_offset) == 0


def test_new_settings_act_at_once() -> None:
    log = filled(config(retention_ms=FOREVER), [START_MS] * 30).open()
    log.config = config(retention_ms=1)
    assert log.apply_retention(START_MS + 10_000, log.end_offset) == 30
