"""Batches: every field survives, what is wrong is refused, what is stamped stays valid."""

from typing import Any

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_python_records
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.topic_config import TimestampType
from penstock.records.batch import (
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    CorruptBatch,
    build_batch,
    check_batch,
    crc_matches,
    decode_records,
    parse_header,
    seal,
    stamp,
)
from penstock.records.compression import Codec
from penstock.records.record import Record

TIMESTAMPS = st.integers(min_value=-1, max_value=2**50)
RECORDS = st.lists(
    st.builds(
        Record,
        timestamp_ms=TIMESTAMPS,
        key=st.none() | st.binary(max_size=200),
        value=st.none() | st.binary(max_size=500),
        headers=st.lists(
            st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=20)), max_size=4
        ).map(tuple),
    ),
    min_size=1,
    max_size=20,
)
ONE = [Record(key=b"key", value=b"value", timestamp_ms=77)]


@settings(deadline=None)
@given(records=RECORDS, codec=st.sampled_from(Codec), base_offset=st.integers(0, 2**62))
def test_records_survive_a_batch_in_every_codec(
    records: list[Record], codec: Codec, base_offset: int
) -> None:
    data = build_batch(records, base_offset=base_offset, codec=codec, term=3)
    header = check_batch(data)
    assert header.codec is codec
    assert header.size == len(data)
    assert header.next_offset == base_offset + len(records)
    assert header.max_timestamp == max(record.timestamp_ms for record in records)
    decoded = list(decode_records(data))
    assert [record.offset - base_offset for record in decoded] == list(range(len(records)))
    for record, original in zip(decoded, records, strict=True):
        assert record.key == original.key
        assert record.value == original.value
        assert record.headers == original.headers
        assert record.timestamp_ms == original.timestamp_ms


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("client", [aiokafka_records, kafka_python_records])
def test_what_clients_build_is_read(client: Any, codec: Codec) -> None:
    builder = client.DefaultRecordBatchBuilder(2, int(codec), False, 7, 1, 5, 1 << 20)
    for number in range(50):
        builder.append(number, 1000 + number, b"k%d" % number, b"v" * 100, headers=[("name", b"x")])
    data = bytes(builder.build())
    header = check_batch(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 5)
    assert header.last_sequence == 54
    records = list(decode_records(data))
    assert [record.key for record in records] == [b"k%d" % number for number in range(50)]
    assert [record.timestamp_ms for record in records] == list(range(1000, 1050))
    assert records[0].headers == (("name", b"x"),)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("client", [aiokafka_records, kafka_python_records])
def test_what_we_build_is_read_by_clients(client: Any, codec: Codec) -> None:
    records = [
        Record(key=b"k%d" % number, value=b"v" * 1000, timestamp_ms=number) for number in range(90)
    ]
    data = build_batch(records, base_offset=40, codec=codec)
    found = client.DefaultRecordBatch(data)
    assert found.validate_crc()
    assert [(record.offset, record.key, record.timestamp) for record in found] == [
        (40 + number, b"k%d" % number, number) for number in range(90)
    ]


def test_stamp_changes_offset_and_term_and_keeps_the_crc() -> None:
    data = bytearray(b"prefix") + bytearray(build_batch(ONE))
    stamp(memoryview(data), 6, base_offset=1234, term=9)
    header = parse_header(data, 6)
    assert (header.base_offset, header.leader_epoch) == (1234, 9)
    assert crc_matches(data, 6, header)


def test_stamp_with_append_time_gives_it_to_every_record() -> None:
    data = bytearray(build_batch(ONE * 3, codec=Codec.LZ4))
    stamp(data, 0, base_offset=10, term=1, append_time_ms=5555)
    header = check_batch(data)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp_ms for record in decode_records(data)] == [5555] * 3


def test_sequence_numbers_wrap() -> None:
    data = build_batch(ONE * 4, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert parse_header(data).last_sequence == 1


def test_no_sequence_stays_none() -> None:
    assert parse_header(build_batch(ONE * 4)).last_sequence == -1


def test_delete_horizon_is_the_base_timestamp() -> None:
    header = parse_header(build_batch(ONE))
    assert header.delete_horizon_ms is None
    marked = header._replace(attributes=header.attributes | DELETE_HORIZON_BIT)
    assert marked.delete_horizon_ms == 77


def test_a_batch_inside_a_larger_buffer_is_checked_where_it_lies() -> None:
    first, second = build_batch(ONE), build_batch(ONE * 2)
    assert check_batch(first + second, len(first)).record_count == 2


@pytest.mark.parametrize("length", [0, 5, HEADER_SIZE - 1])
def test_a_short_header_is_refused(length: int) -> None:
    with pytest.raises(CorruptBatch, match=f"{length} are left"):
        parse_header(build_batch(ONE)[:length])


def test_a_cut_batch_is_refused() -> None:
    data = build_batch(ONE)
    with pytest.raises(CorruptBatch, match="are left"):
        check_batch(data[:-1])
    assert not crc_matches(data[:-1], 0, parse_header(data))


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_magic_is_refused(magic: int) -> None:
    data = bytearray(build_batch(ONE))
    data[16] = magic
    with pytest.raises(CorruptBatch, match=f"magic byte is {magic}"):
        parse_header(data)


@pytest.mark.parametrize(
    "change",
    [
        {"record_count": 2},
        {"record_count": 0},
        {"last_offset_delta": 5},
        {"last_offset_delta": -1, "record_count": 0},
        {"attributes": 6},
        {"base_offset": -1},
    ],
)
def test_a_header_that_contradicts_itself_is_refused(change: dict[str, int]) -> None:
    header = parse_header(build_batch(ONE))._replace(**change)
    with pytest.raises(CorruptBatch):
        check_batch(seal(header, build_batch(ONE)[HEADER_SIZE:]))


@settings(deadline=None)
@given(position=st.integers(min_value=17, max_value=200), bit=st.integers(0, 7))
def test_every_flipped_bit_behind_the_term_is_found(position: int, bit: int) -> None:
    data = bytearray(build_batch([Record(value=b"x" * 200)]))
    data[position % len(data)] ^= 1 << bit
    if position % len(data) < 17:
        return
    with pytest.raises(CorruptBatch):
        check_batch(data)


@settings(deadline=None)
@given(
    payload=st.binary(max_size=80), count=st.integers(0, 2**31 - 1), codec=st.sampled_from(Codec)
)
def test_any_payload_gives_records_or_corrupt_batch(
    payload: bytes, count: int, codec: Codec
) -> None:
    header = parse_header(build_batch(ONE))._replace(record_count=count, attributes=int(codec))
    try:
        records = list(decode_records(seal(header, payload)))
    except CorruptBatch:
        return
    assert len(records) == count


def test_headers_that_are_not_utf8_are_corrupt() -> None:
    data = bytearray(build_batch([Record(headers=(("ab", b"x"),))]))
    at = data.index(b"ab")
    data[at] = 0xFF
    with pytest.raises(CorruptBatch, match="UTF-8"):
        list(decode_records(bytes(data)))
