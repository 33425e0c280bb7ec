"""What is found in records before they are delivered: their times and keys."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.file_ranges import FileRange
from penstock.model.topic_config import TimestampType
from penstock.queues.commands import Later, ShareSettings
from penstock.queues.looking import (
    DELAY_MS_MAX,
    LOOKED_RECORDS_MAX,
    Looked,
    keys_within,
    look_into,
    looked_at_a_time,
)
from penstock.queues.reading import LogBatch, scan_batches
from penstock.records.batch import build_batch, parse_header, seal
from penstock.records.compression import Codec
from penstock.records.errors import CorruptBatch
from penstock.records.raw_records import scan_records, skim_records
from penstock.records.record import Headers, Record

NOW_MS = 1_700_000_000_000
AT, AFTER = "penstock.deliver.at", "penstock.deliver.after"
BOTH = ShareSettings(has_delays=True, has_key_order=True)


class Bytes:
    """A file that is not one."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def fileno(self) -> int:
        raise AssertionError("nobody sends it")

    def pread(self, length: int, position: int) -> bytes:
        return self.data[position : position + length]

    def pin(self) -> None: ...

    def unpin(self) -> None: ...


def record(
    headers: Headers = (), *, key: bytes | None = None, timestamp_ms: int = NOW_MS
) -> Record:
    return Record(timestamp_ms=timestamp_ms, key=key, value=b"v" * 50, headers=headers)


def header(name: str, value: str | bytes) -> Headers:
    return ((name, value.encode() if isinstance(value, str) else value),)


def look(data: bytes, *, first: int = 0, settings: ShareSettings = BOTH) -> Looked:
    found = FileRange(Bytes(data), 0, len(data))
    return look_into(found, scan_batches(found), first=first, now_ms=NOW_MS, settings=settings)


def due_of(headers: Headers, **options: int) -> tuple[list[int], int, int]:
    """When it is due, and how many times were too far away or none."""
    looked = look(build_batch([record(headers, **options)]))  # type: ignore[arg-type]
    return [each.due_ms for each in looked.later], looked.clamped_count, looked.malformed_count


@pytest.mark.parametrize(
    ("name", "value", "due_ms"),
    [
        (AT, str(NOW_MS + 5), NOW_MS + 5),
        (AT, "2023-11-14T22:13:21Z", NOW_MS + 1_000),
        (AT, "2023-11-14T23:13:20.250+01:00", NOW_MS + 250),
        (AFTER, "1500", NOW_MS + 1_500),
        (AFTER, "PT1.5S", NOW_MS + 1_500),
        (AFTER, "P1D", NOW_MS + 86_400_000),
    ],
)
def test_a_time_can_be_said_in_several_ways(name: str, value: str, due_ms: int) -> None:
    assert due_of(header(name, value)) == ([due_ms], 0, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [(AT, str(NOW_MS)), (AT, "0"), (AT, "1970-01-01T00:00:00Z"), (AFTER, "0"), (AFTER, "PT0S")],
)
def test_a_time_that_is_over_is_now(name: str, value: str) -> None:
    assert due_of(header(name, value)) == ([], 0, 0)


def test_a_duration_begins_with_the_records_own_time() -> None:
    assert due_of(header(AFTER, "1000"), timestamp_ms=NOW_MS - 400) == ([NOW_MS + 600], 0, 0)
    assert due_of(header(AFTER, "1000"), timestamp_ms=NOW_MS - 1_000) == ([], 0, 0)
    assert due_of(header(AFTER, "1000"), timestamp_ms=-1) == ([], 0, 0)


def test_where_the_log_sets_the_time_a_duration_begins_with_that() -> None:
    batch = build_batch(
        [record(header(AFTER, "1000"), timestamp_ms=1), record(timestamp_ms=NOW_MS)],
        timestamp_type=TimestampType.LOG_APPEND_TIME,
    )
    assert look(batch).later == [Later(0, 0, NOW_MS + 1_000)]


@pytest.mark.parametrize(
    "value", [str(NOW_MS + DELAY_MS_MAX + 1), "9" * 90, "9999-01-01T00:00:00Z"]
)
def test_a_time_too_far_away_is_the_farthest_and_is_counted(value: str) -> None:
    assert due_of(header(AT, value)) == ([NOW_MS + DELAY_MS_MAX], 1, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((AT, value) for value in ("", "soon", "-5", "1e9", "2023-11-14T22:13:21", "10000-01-01")),
        *((AT, value) for value in (b"\xff\xfe", b"1" * 101, "²")),
        *((AFTER, value) for value in ("", "5s", "-5", "-PT5S", "P1Y", b"\xff")),
    ],
)
def test_what_is_not_a_time_is_now_and_is_counted(name: str, value: str | bytes) -> None:
    assert due_of(header(name, value)) == ([], 0, 1)


def test_a_header_without_a_value_is_not_a_time() -> None:
    assert due_of(((AT, None),)) == ([], 0, 1)


def test_the_last_header_of_a_name_counts_and_a_time_before_a_duration() -> None:
    headers = (*header(AFTER, "7"), *header(AT, str(NOW_MS + 1)), *header(AT, str(NOW_MS + 2)))
    assert due_of(headers) == ([NOW_MS + 2], 0, 0)


def test_other_headers_and_a_value_that_looks_like_one_say_nothing() -> None:
    headers = (*header("penstock.deliver.atlas", "9"), *header("penstock.deliver.a", "9"))
    assert due_of(headers) == ([], 0, 0)
    lookalike = Record(timestamp_ms=NOW_MS, value=AT.encode() + b"\x0a99")
    assert look(build_batch([lookalike])).later == []


@pytest.mark.parametrize("codec", list(Codec))
def test_neighbours_of_one_time_are_one_also_in_compressed_batches(codec: Codec) -> None:
    soon, late = header(AT, str(NOW_MS + 5)), header(AT, str(NOW_MS + 9))
    records = [record(soon), record(soon), record(), record(soon), record(late), record(late)]
    batch = build_batch(records, base_offset=100, codec=codec)
    five, nine = NOW_MS + 5, NOW_MS + 9
    assert look(batch).later == [
        Later(100, 101, five),
        Later(103, 103, five),
        Later(104, 105, nine),
    ]


def test_keys_are_known_by_their_hashes_and_null_has_none() -> None:
    batch = build_batch([record(key=b"a"), record(), record(key=b""), record(key=b"a" * 300)])
    assert look(batch).keys == [(0, hash(b"a")), (2, hash(b"")), (3, hash(b"a" * 300))]


def test_only_what_is_asked_for_is_looked_at() -> None:
    batch = build_batch([record(header(AFTER, "5"), key=b"k")] * 3)
    assert look(batch, first=2).later == [Later(2, 2, NOW_MS + 5)]
    assert look(batch, first=2).keys == [(2, hash(b"k"))]
    assert look(batch, settings=ShareSettings(has_delays=True)).keys == []
    assert look(batch, settings=ShareSettings(has_key_order=True)).later == []


def test_a_batch_that_can_not_be_read_is_delivered_as_it_is() -> None:
    good = build_batch([record(header(AFTER, "5"), key=b"k")], base_offset=1)
    head = parse_header(build_batch([record()]))
    bad = seal(head._replace(record_count=7), good[61:])
    looked = look(bad + good)
    assert (looked.later, looked.keys) == ([Later(1, 1, NOW_MS + 5)], [(1, hash(b"k"))])


def test_offsets_that_go_back_or_leave_their_batch_are_not_believed() -> None:
    payload = build_batch([record(key=b"k")] * 3)[61:]
    with pytest.raises(CorruptBatch):
        list(skim_records(payload, 3, 1))
    size = len(payload) // 3
    with pytest.raises(CorruptBatch):
        list(skim_records(payload[size : 2 * size] + payload[:size], 2, 2))


def test_a_poll_looks_at_a_few_batches_at_a_time_and_at_one_at_least() -> None:
    def of(count: int, size: int, *, is_data: bool = True) -> LogBatch:
        return LogBatch(0, count - 1, 0, size, count, is_data)

    assert len(looked_at_a_time([of(LOOKED_RECORDS_MAX + 1, 10)] * 3)) == 1
    assert len(looked_at_a_time([of(LOOKED_RECORDS_MAX // 2, 10)] * 3)) == 2
    assert len(looked_at_a_time([of(1, 900_000)] * 3)) == 1
    assert len(looked_at_a_time([of(1, 10)] * 3)) == 3
    others, large = of(LOOKED_RECORDS_MAX, 10, is_data=False), of(LOOKED_RECORDS_MAX + 1, 10)
    assert looked_at_a_time([others, large, large]) == [others, large], (
        "those of others don't count"
    )


def test_keys_are_found_in_spans_alone(tmp_path: Path) -> None:
    data = b"".join(
        build_batch([record(key=b"%d" % (base + at)) for at in range(4)], base_offset=base)
        for base in (0, 4, 8, 12)
    )
    found = FileRange(Bytes(data), 0, len(data))
    keys = keys_within(found, scan_batches(found), [(1, 1), (3, 4), (13, 99)])
    assert [offset for offset, _ in keys] == [1, 3, 4, 13, 14, 15]


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=200), st.binary(max_size=200)), max_size=9)
)
def test_a_skimmed_record_is_the_same_as_one_that_was_read(
    parts: list[tuple[bytes | None, bytes]],
) -> None:
    records = [
        Record(timestamp_ms=NOW_MS + 7 * i, key=k, value=v) for i, (k, v) in enumerate(parts)
    ]
    if not records:
        return
    payload = build_batch(records)[61:]
    skimmed = list(skim_records(payload, len(records), len(records) - 1))
    for one, other in zip(skimmed, scan_records(payload, len(records)), strict=True):
        assert one[:4] == (other.end, other.timestamp_delta, other.offset_delta, other.key)


@given(st.binary(max_size=60), st.integers(0, 5))
def test_any_bytes_are_records_or_corrupt(data: bytes, count: int) -> None:
    with contextlib.suppress(CorruptBatch):
        list(skim_records(data, count, 5))
