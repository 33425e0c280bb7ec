"""Rows become record batches that hold exactly them: read back by the plain decoder, by our own
vectorised one, and by another client's reader. Both makes of kernels write the same bytes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns.arrow_layout import HEADERS_TYPE
from penstock.columns.encoding import EncodedBatch, Encoder, EncoderColumns, RecordTooLarge
from penstock.records.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER_SIZE,
    decode_records,
    parse_header,
)
from penstock.records.checksum import crc32c
from penstock.records.compression import Codec
from penstock.records.record import Record
from tests.unit.columns.makes import MAKES, RECORDS, decode, rows, writing


def _columns(make: str, records: Sequence[Record], offset: int = 0) -> EncoderColumns:
    """The records as columns, cut out of longer arrays."""
    padded = [Record(key=b"before", value=b"before", headers=(("a", b"b"),))] * offset
    padded += records
    headers = [
        [{"key": name, "value": value} for name, value in record.headers] or None
        for record in padded
    ]
    return EncoderColumns(
        key=pa.array([record.key for record in padded], pa.binary())[offset:],
        value=pa.array([record.value for record in padded], pa.binary())[offset:],
        headers=pa.array(headers, HEADERS_TYPE)[offset:],
        timestamps_ms=np.array([record.timestamp_ms for record in records], np.int64),
        kernels=writing(make),
    )


def _encode(
    columns: EncoderColumns,
    chosen: Sequence[int],
    *,
    codec: Codec = Codec.NONE,
    batch_bytes_max: int = 1 << 20,
    level: int | None = None,
) -> list[EncodedBatch]:
    encoder = Encoder(codec=codec, level=level, batch_bytes_max=batch_bytes_max)
    return list(encoder.encode(columns, np.array(chosen, np.int64)))


def _contents(record: Record) -> tuple[Any, ...]:
    return record.timestamp_ms, record.key, record.value, record.headers


def _sealed(batch: EncodedBatch) -> bytes:
    data = bytearray(batch.data)
    data[CRC_POSITION:ATTRIBUTES_POSITION] = crc32c(data[ATTRIBUTES_POSITION:]).to_bytes(4, "big")
    return bytes(data)


@given(
    records=st.lists(RECORDS, min_size=1, max_size=30),
    codec=st.sampled_from(Codec),
    batch_bytes_max=st.integers(0, 3000),
    offset=st.integers(0, 3),
    data=st.data(),
)
@settings(max_examples=100, deadline=None)
def test_batches_hold_the_chosen_rows(
    records: list[Record], codec: Codec, batch_bytes_max: int, offset: int, data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(records) - 1), max_size=40))
    compiled, plain = (
        _encode(
            _columns(make, records, offset), chosen, codec=codec, batch_bytes_max=batch_bytes_max
        )
        for make in MAKES
    )
    assert compiled == plain
    found = [record for batch in compiled for record in decode_records(batch.data)]
    assert [_contents(record) for record in found] == [_contents(records[at]) for at in chosen]
    for batch in compiled:
        header = parse_header(batch.data)
        assert header.record_count == batch.count == header.last_offset_delta + 1
        assert header.size == len(batch.data)
        assert (header.base_offset, header.producer_id, header.base_sequence) == (0, -1, -1)
        times = [record.timestamp_ms for record in decode_records(batch.data)]
        assert (header.base_timestamp, header.max_timestamp) == (times[0], max(times))
        if codec is Codec.NONE:
            assert batch.count == 1 or len(batch.data) <= batch_bytes_max


@pytest.mark.parametrize("make", MAKES)
def test_batches_are_filled_as_far_as_they_go(make: str) -> None:
    columns = _columns(make, [Record(key=b"k", value=b"v" * 100)] * 5000)
    batches = _encode(columns, range(5000), batch_bytes_max=16_384)
    assert sum(batch.count for batch in batches) == 5000
    assert all(16_384 - 120 < len(batch.data) <= 16_384 for batch in batches[:-1])


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("codec", Codec)
def test_another_clients_reader_reads_them(make: str, codec: Codec) -> None:
    records = [
        Record(
            timestamp_ms=10 + at % 7, key=b"k" * (at % 3), value=b"v" * at, headers=(("h", None),)
        )
        for at in range(300)
    ]
    (batch,) = _encode(_columns(make, records), range(300), codec=codec)
    reader = DefaultRecordBatch(_sealed(batch))
    assert reader.validate_crc()
    found = [(r.timestamp, r.key, r.value, tuple(r.headers)) for r in reader]
    assert found == [_contents(record) for record in records]


@pytest.mark.parametrize("make", MAKES)
def test_rows_survive_the_way_there_and_back(make: str) -> None:
    records = [Record(timestamp_ms=at, key=None, value=b"%d" % at) for at in range(1000)]
    answer = b"".join(
        _sealed(batch)
        for batch in _encode(_columns(make, records), range(1000), batch_bytes_max=1 << 20)
    )
    assert [row["value"] for row in rows(decode(make, answer))] == [r.value for r in records]


@pytest.mark.parametrize("make", MAKES)
def test_text_and_large_arrays_are_taken_as_well(make: str) -> None:
    columns = EncoderColumns(
        key=pa.array(["ä", None, ""], pa.large_string()),
        value=pa.array(["x", None, "z"], pa.string()),
        headers=None,
        timestamps_ms=np.zeros(3, np.int64),
        kernels=writing(make),
    )
    (batch,) = _encode(columns, [2, 1, 0])
    found = [(record.key, record.value) for record in decode_records(batch.data)]
    assert found == [(b"", b"z"), (None, None), ("ä".encode(), b"x")]


@pytest.mark.parametrize("make", MAKES)
def test_without_keys_and_headers_there_are_none(make: str) -> None:
    columns = EncoderColumns(
        key=None,
        value=pa.nulls(2),
        headers=pa.array([None, []], HEADERS_TYPE),
        timestamps_ms=np.zeros(2, np.int64),
        kernels=writing(make),
    )
    (batch,) = _encode(columns, [0, 1])
    assert [_contents(r) for r in decode_records(batch.data)] == [(0, None, None, ())] * 2


@pytest.mark.parametrize("make", MAKES)
def test_no_rows_give_no_batch(make: str) -> None:
    assert _encode(_columns(make, []), []) == []


@pytest.mark.parametrize("make", MAKES)
def test_a_header_without_a_name_is_refused(make: str) -> None:
    for headers in ([{"key": None, "value": b""}], [None]):
        with pytest.raises(
            ValueError, match=r"^The key of a header is null; only its value may be\.$"
        ):
            EncoderColumns(
                key=None,
                value=pa.nulls(1),
                headers=pa.array([headers], HEADERS_TYPE),
                timestamps_ms=np.zeros(1, np.int64),
                kernels=writing(make),
            )


def test_levels_reach_the_codec() -> None:
    rng = np.random.default_rng(1)
    values = [b"".join(rng.choice([b"one", b"two", b"three"], 300)) for _ in range(50)]
    columns = _columns("numba", [Record(value=value) for value in values])
    for codec in (Codec.GZIP, Codec.ZSTD, Codec.LZ4):
        sizes = [
            len(_encode(columns, range(50), codec=codec, level=level)[0].data) for level in (1, 9)
        ]
        assert sizes[1] < sizes[0], codec


def test_a_record_that_no_batch_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.columns.encoding._RECORDS_BYTES_MAX", 100)
    columns = _columns("numpy", [Record(value=b"v" * 200)])
    with pytest.raises(RecordTooLarge, match="larger than a record batch can be"):
        _encode(columns, [0], batch_bytes_max=HEADER_SIZE)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_record_that_readers_would_take_for_a_bomb_is_refused(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.columns.encoding.DECOMPRESSED_BYTES_MAX", 1000)
    columns = _columns("numpy", [Record(value=b"v" * 600), Record(value=b"v" * 2000)])
    assert len(_encode(columns, [0, 0], codec=codec, batch_bytes_max=10_000)) == 2
    with pytest.raises(RecordTooLarge, match="larger than a record batch can be"):
        _encode(columns, [1], codec=codec, batch_bytes_max=10_000)
    assert len(_encode(columns, [1], codec=Codec.NONE, batch_bytes_max=10_000)) == 1
