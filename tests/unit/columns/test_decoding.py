"""Record batches become the rows that they hold: the same by compiled kernels and by numpy's, and
the same as decoding record by record gives."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns.arrow_layout import arrow_schema
from penstock.columns.decoding import Decoder
from penstock.columns.layout import COLUMNS
from penstock.model.topic_config import TimestampType
from penstock.records.batch import CONTROL_BIT, DELETE_HORIZON_BIT, TRANSACTIONAL_BIT, build_batch
from penstock.records.compression import Codec, compress
from penstock.records.legacy import build_message
from penstock.records.own_entries import OwnKind, build_gap, build_own
from penstock.records.record import Record
from tests.unit.columns.makes import (
    MAKES,
    NO_BOUND,
    RECORDS,
    batch_of,
    decode,
    payload_of,
    reading,
    rows,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RECORD = Record(timestamp_ms=1_700_000_000_123, key=b"k", value=b"v")


def _row(record: Record, offset: int, timestamp_type: int = 0) -> dict[str, Any]:
    headers = [{"key": name, "value": value} for name, value in record.headers]
    return {
        "key": record.key,
        "value": record.value,
        "topic": "orders",
        "partition": 3,
        "offset": offset,
        "timestamp": _EPOCH + timedelta(milliseconds=record.timestamp_ms),
        "timestampType": timestamp_type,
        "headers": headers or None,
    }


@pytest.mark.parametrize("make", MAKES)
@given(
    groups=st.lists(
        st.tuples(st.lists(RECORDS, min_size=1, max_size=8), st.sampled_from(Codec)), max_size=5
    ),
    rows_max=st.integers(1, 20),
    bytes_max=st.integers(1, 2000),
)
@settings(max_examples=60, deadline=None)
def test_rows_are_the_records(
    make: str, groups: list[tuple[list[Record], Codec]], rows_max: int, bytes_max: int
) -> None:
    answer = b""
    expected = []
    for records, codec in groups:
        answer += build_batch(records, base_offset=len(expected), codec=codec)
        expected += [_row(record, len(expected) + at) for at, record in enumerate(records)]
    batches = decode(make, answer, rows_max=rows_max, bytes_max=bytes_max)
    assert rows(batches) == expected
    assert all(batch.schema.equals(arrow_schema(COLUMNS)) for batch in batches)
    assert all(batch.num_rows <= rows_max for batch in batches)
    for batch in batches:
        size = sum(len(row["key"] or b"") + len(row["value"] or b"") for row in batch.to_pylist())
        assert batch.num_rows == 1 or size <= bytes_max


@pytest.mark.parametrize("make", MAKES)
def test_small_batches_are_joined_across_answers(make: str) -> None:
    answers = [build_batch([_RECORD] * 3, base_offset=3 * index) for index in range(100)]
    batches = decode(make, *answers, rows_max=128)
    assert [batch.num_rows for batch in batches] == [128, 128, 44]
    assert [row["offset"] for row in rows(batches)] == list(range(300))


@pytest.mark.parametrize("make", MAKES)
def test_a_record_larger_than_an_arrow_batch_gets_one_of_its_own(make: str) -> None:
    records = [_RECORD, Record(value=b"x" * 1000), _RECORD]
    batches = decode(make, build_batch(records), bytes_max=100)
    assert [batch.num_rows for batch in batches] == [1, 1, 1]


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("codec", Codec)
def test_offsets_outside_of_the_range_are_cut_away(make: str, codec: Codec) -> None:
    answer = b"".join(
        build_batch([_RECORD] * 10, base_offset=base, codec=codec) for base in range(0, 50, 10)
    )
    decoder = Decoder(
        topic="orders", partition=3, columns=("offset",), start=15, stop=32, kernels=reading(make)
    )
    found = [*decoder.decode(memoryview(answer)), *decoder.finish()]
    assert [row["offset"] for row in rows(found)] == list(range(15, 32))
    assert decoder.next_offset == 32


@pytest.mark.parametrize("make", MAKES)
def test_only_the_columns_wanted_come_in_their_order(make: str) -> None:
    answer = build_batch([_RECORD])
    assert rows(decode(make, answer, columns=("offset", "key"))) == [{"offset": 0, "key": b"k"}]
    (batch,) = decode(make, answer, columns=())
    assert (batch.num_rows, batch.num_columns) == (1, 0)


@pytest.mark.parametrize("make", MAKES)
def test_null_and_empty_are_kept_apart(make: str) -> None:
    records = [
        Record(key=None, value=b"", headers=(("a", None), ("a", b""), ("", b"x"))),
        Record(key=b"", value=None),
    ]
    found = rows(decode(make, build_batch(records), columns=("key", "value", "headers")))
    assert found == [
        {
            "key": None,
            "value": b"",
            "headers": [
                {"key": "a", "value": None},
                {"key": "a", "value": b""},
                {"key": "", "value": b"x"},
            ],
        },
        {"key": b"", "value": None, "headers": None},
    ]


@pytest.mark.parametrize("make", MAKES)
def test_append_time_comes_from_the_header(make: str) -> None:
    records = [_RECORD, Record(timestamp_ms=1_700_000_000_999, value=b"w")]
    answer = build_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME)
    found = rows(decode(make, answer, columns=("timestamp", "timestampType")))
    time = _EPOCH + timedelta(milliseconds=1_700_000_000_999)
    assert found == [{"timestamp": time, "timestampType": 1}] * 2


@pytest.mark.parametrize("make", MAKES)
def test_a_timestamp_that_microseconds_cannot_hold_is_null(make: str) -> None:
    payload = payload_of([Record(timestamp_ms=0), Record(timestamp_ms=1)])
    far = batch_of(payload, count=2, base_timestamp=2**63 - 1)
    near = batch_of(payload, count=2, base_offset=2, base_timestamp=-1)
    found = rows(decode(make, far + near, columns=("timestamp",)))
    before = _EPOCH - timedelta(milliseconds=1)
    assert [row["timestamp"] for row in found] == [None, None, before, _EPOCH]


@pytest.mark.parametrize("make", MAKES)
def test_deltas_count_from_a_delete_horizon_as_from_any_base(make: str) -> None:
    payload = payload_of([Record(timestamp_ms=0)])
    answer = batch_of(payload, count=1, attributes=DELETE_HORIZON_BIT, base_timestamp=5)
    (row,) = rows(decode(make, answer, columns=("timestamp",)))
    assert row["timestamp"] == _EPOCH + timedelta(milliseconds=5)


@pytest.mark.parametrize("make", MAKES)
def test_gaps_and_control_batches_give_no_rows_and_count_as_seen(make: str) -> None:
    answer = (
        build_batch([_RECORD], base_offset=5)
        + build_gap(offset=6, span=10, term=1)
        + build_own(OwnKind.NEW_TERM, index=9, term=2, offset=16)
        + build_batch([_RECORD], base_offset=16, is_control=True)
        + batch_of(payload_of([_RECORD]), count=1, base_offset=30, last_offset_delta=9)
        + build_batch([_RECORD], base_offset=50, is_control=True)
    )
    decoder = Decoder(
        topic="orders",
        partition=3,
        columns=("offset",),
        start=0,
        stop=NO_BOUND,
        kernels=reading(make),
    )
    found = [*decoder.decode(memoryview(answer)), *decoder.finish()]
    assert [row["offset"] for row in rows(found)] == [5, 30]
    assert decoder.next_offset == 51


@pytest.mark.parametrize("make", MAKES)
def test_aborted_transactions_are_left_out(make: str) -> None:
    payload = payload_of([_RECORD, _RECORD])

    def data(base: int, producer: int) -> bytes:
        return batch_of(
            payload,
            count=2,
            base_offset=base,
            producer_id=producer,
            attributes=TRANSACTIONAL_BIT,
        )

    def marker(base: int, producer: int, kind: int) -> bytes:
        key = b"\x00\x00" + kind.to_bytes(2, "big")
        return batch_of(
            payload_of([Record(key=key, value=b"\x00" * 6)]),
            count=1,
            base_offset=base,
            producer_id=producer,
            attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        )

    answer = (
        data(0, 7)
        + data(2, 8)
        + marker(4, 7, 0)
        + data(5, 7)
        + build_batch([_RECORD], base_offset=7)
        + marker(8, 7, 1)
        + marker(9, 8, 1)
        + data(10, 8)
        + marker(12, 8, 0)
    )
    found = rows(decode(make, answer, columns=("offset",), aborted=[(8, 10), (7, 0)]))
    assert [row["offset"] for row in found] == [2, 3, 5, 6, 7]
    everything = rows(decode(make, answer, columns=("offset",)))
    assert [row["offset"] for row in everything] == [0, 1, 2, 3, 5, 6, 7, 10, 11]


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_from_before_batches_are_read(make: str, magic: int) -> None:
    inner = [Record(offset=at, timestamp_ms=9, value=b"in") for at in range(3)]
    packed = compress(Codec.GZIP, b"".join(build_message(r, magic=magic) for r in inner))
    wrapper = Record(offset=22, timestamp_ms=9, value=packed)
    answer = (
        build_message(Record(offset=7, timestamp_ms=5, key=b"k", value=b"old"), magic=magic)
        + build_message(wrapper, magic=magic, attributes=Codec.GZIP)
        + build_batch([_RECORD], base_offset=23)
    )
    found = rows(decode(make, answer, columns=("offset", "value", "timestampType")))
    kind = -1 if magic == 0 else 0
    assert [tuple(row.values()) for row in found] == [
        (7, b"old", kind),
        (20, b"in", kind),
        (21, b"in", kind),
        (22, b"in", kind),
        (23, b"v", 0),
    ]


@pytest.mark.parametrize("make", MAKES)
def test_names_of_headers_that_are_no_text_are_replaced_as_java_does(make: str) -> None:
    payload = payload_of([Record(headers=(("ab", b""), ("ü", None)))])
    answer = batch_of(payload.replace(b"ab", b"\xffb"), count=1)
    (row,) = rows(decode(make, answer, columns=("headers",)))
    assert [header["key"] for header in row["headers"]] == ["\ufffdb", "ü"]


@pytest.mark.parametrize("make", MAKES)
def test_what_was_decompressed_is_not_kept_between_batches(make: str) -> None:
    value = bytes(range(256)) * 2000
    answer = b"".join(
        build_batch([Record(value=value)], base_offset=at, codec=Codec.LZ4) for at in range(8)
    )
    assert [row["value"] for row in rows(decode(make, answer, columns=("value",)))] == [value] * 8
