"""Message sets of old clients: read as those clients write them, written as they read them."""

import zlib
from typing import Any

import aiokafka.record.legacy_records as aiokafka_records
import cramjam
import kafka.record.legacy_records as kafka_python_records
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.topic_config import TimestampType
from penstock.records.batch import build_batch, check_batch, decode_records, parse_header
from penstock.records.compression import Codec, compress
from penstock.records.errors import CorruptBatch
from penstock.records.legacy import build_message, downgrade, upgrade
from penstock.records.legacy_lz4 import with_right_checksum, xxh32_short
from penstock.records.record import Record

CLIENTS = [aiokafka_records, kafka_python_records]


@pytest.mark.parametrize(
    ("magic", "codec"),
    # Without LZ4 of magic 0, which these clients don't write any more; it has its own test.
    [
        *((0, codec) for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY)),
        *((1, codec) for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)),
    ],
)
@pytest.mark.parametrize("client", CLIENTS)
def test_what_old_clients_send_becomes_one_batch(client: Any, magic: int, codec: Codec) -> None:
    builder = client.LegacyRecordBatchBuilder(magic, int(codec), 1 << 20)
    for number in range(20):
        builder.append(number, timestamp=1000 + number, key=b"k%d" % number, value=b"v" * 50)
    batch = upgrade(bytes(builder.build()))
    header = check_batch(batch)
    assert header.codec is codec
    assert header.base_offset == 0
    records = list(decode_records(batch))
    assert [record.key for record in records] == [b"k%d" % number for number in range(20)]
    expected = [-1] * 20 if magic == 0 else list(range(1000, 1020))
    assert [record.timestamp_ms for record in records] == expected


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("client", CLIENTS)
def test_old_clients_read_what_we_downgrade(client: Any, magic: int) -> None:
    first = [Record(key=b"a", value=b"1", timestamp_ms=5), Record(value=None, timestamp_ms=6)]
    second = [Record(key=b"b", value=b"2", timestamp_ms=7, headers=(("gone", b"x"),))]
    batches = build_batch(first, base_offset=10, codec=Codec.ZSTD) + build_batch(
        second, base_offset=20
    )
    data = downgrade(batches, magic)
    found = []
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        batch = client.LegacyRecordBatch(bytearray(data[:size]), magic)
        assert batch.validate_crc()
        found += [(record.offset, record.key, record.value, record.timestamp) for record in batch]
        data = data[size:]
    times = (None, None, None) if magic == 0 else (5, 6, 7)
    assert found == [
        (10, b"a", b"1", times[0]),
        (11, None, None, times[1]),
        (20, b"b", b"2", times[2]),
    ]


def test_markers_are_left_out_of_a_downgrade() -> None:
    marker = build_batch([Record(key=b"\0\0\0\1", value=b"")], is_control=True)
    data = build_batch([Record(value=b"x")], base_offset=1)
    assert downgrade(marker + data, 1) == downgrade(data, 1)


def test_downgrade_keeps_the_timestamp_type() -> None:
    data = build_batch([Record(value=b"x")], timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert downgrade(data, 1)[17] == 0x08
    assert downgrade(data, 0)[17] == 0


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            Record,
            timestamp_ms=st.integers(-1, 2**50),
            key=st.none() | st.binary(max_size=50),
            value=st.none() | st.binary(max_size=50),
        ),
        min_size=1,
        max_size=10,
    )
)
def test_upgrade_undoes_downgrade(records: list[Record]) -> None:
    upgraded = upgrade(downgrade(build_batch(records), 1))
    found = list(decode_records(upgraded))
    assert [(r.key, r.value, r.timestamp_ms) for r in found] == [
        (r.key, r.value, r.timestamp_ms) for r in records
    ]


def test_lz4_of_magic_0_is_read_with_the_wrong_header_checksum() -> None:
    inner = build_message(Record(key=b"k", value=b"v" * 100), magic=0)
    frame = bytearray(compress(Codec.LZ4, inner))
    frame[6] ^= 0x55
    wrapper = build_message(Record(value=bytes(frame)), magic=0, attributes=int(Codec.LZ4))
    (record,) = decode_records(upgrade(wrapper))
    assert record.value == b"v" * 100


@pytest.mark.parametrize("data", [b"x", b"abc" * 30_000])
def test_right_checksum_of_lz4_header_is_what_encoders_write(data: bytes) -> None:
    frame = bytes(cramjam.lz4.compress(data))
    assert with_right_checksum(frame) == frame


def test_xxh32_known_value() -> None:
    assert xxh32_short(b"") == 0x02CC5D05
    assert xxh32_short(b"a") == 0x550D7456
    assert xxh32_short(b"abcd") == 0xA3643705


@pytest.mark.parametrize("cut", [1, 10, 20])
def test_a_cut_set_is_refused(cut: int) -> None:
    with pytest.raises(CorruptBatch):
        upgrade(build_message(Record(value=b"v" * 30), magic=1)[:-cut])


def test_an_empty_set_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="empty"):
        upgrade(b"")


def test_a_flipped_bit_is_refused() -> None:
    data = bytearray(build_message(Record(value=b"v" * 30), magic=1))
    data[-1] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        upgrade(data)


def test_zstd_is_unknown_to_old_messages() -> None:
    with pytest.raises(CorruptBatch, match="codec 4"):
        upgrade(build_message(Record(value=b"v"), magic=1, attributes=4))


def test_nesting_is_refused() -> None:
    inner = build_message(Record(value=b"v"), magic=1, attributes=int(Codec.GZIP))
    value = compress(Codec.GZIP, inner)
    with pytest.raises(CorruptBatch, match="is inside"):
        upgrade(build_message(Record(value=value), magic=1, attributes=int(Codec.GZIP)))


def test_a_bomb_is_refused() -> None:
    value = compress(Codec.GZIP, bytes(100_000))
    with pytest.raises(CorruptBatch):
        upgrade(build_message(Record(value=value), magic=1, attributes=1), size_max=50_000)


@settings(deadline=None)
@given(data=st.binary(max_size=60), magic=st.sampled_from([0, 1]))
def test_any_body_with_a_right_checksum_gives_a_batch_or_corrupt_batch(
    data: bytes, magic: int
) -> None:
    body = bytes((magic, 0)) + data
    message = (
        bytes(8) + (len(body) + 4).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body
    )
    try:
        assert parse_header(upgrade(message)).record_count == 1
    except CorruptBatch:
        return
