"""Proves that rows are gathered across Arrow batches, in order, up to a size, and as bytes."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from penstock.spark.writing.errors import InputError
from penstock.spark.writing.layout import InputLayout
from penstock.spark.writing.slab import (
    HEADERS_TYPE,
    SLAB_BYTES_MAX,
    SLAB_BYTES_MIN,
    Slab,
    SlabTarget,
    slabs,
)
from tests.unit.spark.writing.arrow_rows import arrow_batch, layout_of

BATCH_BYTES = 1000


def one_slab(batch: pa.RecordBatch, layout: InputLayout | None = None) -> Slab:
    (slab,) = slabs([batch], layout or layout_of(batch), SlabTarget(BATCH_BYTES), lambda: 5_000)
    return slab


def test_small_arrow_batches_are_gathered_in_order() -> None:
    batches = [arrow_batch(value=[b"%d" % number, None]) for number in range(3)]
    times = iter([10, 20, 30])
    (slab,) = slabs(batches, layout_of(batches[0]), SlabTarget(BATCH_BYTES), lambda: next(times))
    assert slab.value.to_pylist() == [b"0", None, b"1", None, b"2", None]
    assert slab.timestamps_ms.tolist() == [10, 10, 20, 20, 30, 30]
    assert slab.count == 6


def test_a_slab_ends_when_it_is_large_enough() -> None:
    batch = arrow_batch(value=[bytes(SLAB_BYTES_MIN // 2)])
    found = list(slabs([batch] * 5, layout_of(batch), SlabTarget(BATCH_BYTES)))
    assert [slab.count for slab in found] == [2, 2, 1]


def test_a_slab_grows_with_the_partitions_in_use_up_to_a_limit() -> None:
    target = SlabTarget(1 << 20)
    assert target.bytes == SLAB_BYTES_MIN
    target.note_partitions(4)
    assert target.bytes == 4 << 20
    target.note_partitions(100_000)
    assert target.bytes == SLAB_BYTES_MAX
    target.note_partitions(1)
    assert target.bytes == SLAB_BYTES_MIN


def test_empty_arrow_batches_give_nothing() -> None:
    batch = arrow_batch(value=[])
    assert list(slabs([batch, batch], layout_of(batch), SlabTarget(BATCH_BYTES))) == []


def test_strings_become_their_bytes() -> None:
    batch = pa.record_batch(
        [pa.array(["ключ", None]), pa.array(["", "value"])], names=["key", "value"]
    )
    slab = one_slab(batch)
    assert slab.key.to_pylist() == ["ключ".encode(), None]
    assert slab.value.to_pylist() == [b"", b"value"]


def test_wide_offsets_are_narrowed() -> None:
    wide_headers = pa.large_list(
        pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])
    )
    batch = pa.record_batch(
        [
            pa.array([b"key"], pa.large_binary()),
            pa.array(["value"], pa.large_string()),
            pa.array([[{"key": "a", "value": b"b"}]], wide_headers),
            pa.array(["orders"], pa.large_string()),
        ],
        names=["key", "value", "headers", "topic"],
    )
    slab = one_slab(batch, layout_of(batch, None))
    assert (slab.key.type, slab.value.type) == (pa.binary(), pa.binary())
    assert slab.headers.type == HEADERS_TYPE
    assert slab.headers.to_pylist() == [[{"key": "a", "value": b"b"}]]
    assert slab.topic.to_pylist() == ["orders"]


def test_timestamps_are_the_rows_own_where_they_have_one() -> None:
    moment = datetime(2024, 5, 17, 12, 0, 0, 123_999, UTC)
    batch = arrow_batch(value=[b"a", b"b"], timestamp=[moment, None])
    assert one_slab(batch).timestamps_ms.tolist() == [1_715_947_200_123, 5_000]


def test_a_session_in_another_time_zone_means_the_same_moments() -> None:
    moment = pa.array([1_715_947_200_123_000], pa.timestamp("us", "Asia/Tokyo"))
    batch = pa.record_batch([pa.array([b"a"]), moment], names=["value", "timestamp"])
    assert one_slab(batch).timestamps_ms.tolist() == [1_715_947_200_123]


def test_a_timestamp_before_1970_is_refused() -> None:
    batch = arrow_batch(value=[b"a"], timestamp=[datetime(1969, 12, 31, tzinfo=UTC)])
    with pytest.raises(InputError, match="before 1970"):
        one_slab(batch)


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"b"}])
def test_a_header_without_a_key_is_refused(header: object) -> None:
    batch = arrow_batch(value=[b"a", b"b"], headers=[None, [header]])
    with pytest.raises(InputError, match="header without a key"):
        one_slab(batch)


def test_headers_that_are_null_everywhere_are_none() -> None:
    assert one_slab(arrow_batch(value=[b"a"], headers=[None])).headers is None


def test_sizes_follow_keys_and_values_also_of_a_slice() -> None:
    batch = arrow_batch(key=[b"ignored", b"12", None], value=[b"", b"1234", b"1"]).slice(1)
    plain = one_slab(arrow_batch(key=[b""], value=[b""])).sizes()[0]
    assert (one_slab(batch).sizes() - plain).tolist() == [6, 1]
