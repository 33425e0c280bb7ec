"""Keys go where Kafka's Java producer puts them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from penstock.columns.partitioning import NO_PARTITION, murmur2_partitions
from tests.unit.columns.makes import MAKES, writing

# Hashes that Kafka itself is tested with.
_KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
_MASK = 0x7FFFFFFF


@pytest.mark.parametrize("make", MAKES)
def test_hashes_are_those_of_kafkas_own_tests(make: str) -> None:
    keys = pa.array(list(_KNOWN), pa.binary())
    found = murmur2_partitions(keys, _MASK, writing(make))
    assert found.tolist() == [(value & _MASK) % _MASK for value in _KNOWN.values()]
    hashes = np.empty(len(keys), np.uint32)
    data = np.frombuffer(keys.buffers()[2], np.uint8)
    offsets = np.frombuffer(keys.buffers()[1], np.int32).astype(np.int64)
    writing(make).choose(0).murmur2(data, offsets[:-1].copy(), np.diff(offsets), hashes)
    assert hashes.view(np.int32).tolist() == list(_KNOWN.values())


@pytest.mark.parametrize("make", MAKES)
@given(
    keys=st.lists(st.none() | st.binary(max_size=40) | st.binary(min_size=250, max_size=300)),
    count=st.integers(1, 1000),
    offset=st.integers(0, 2),
)
@settings(max_examples=100, deadline=None)
def test_partitions_are_those_of_another_client(
    make: str, keys: list[bytes | None], count: int, offset: int
) -> None:
    array = pa.array([*[b"before"] * offset, *keys], pa.binary())[offset:]
    found = murmur2_partitions(array, count, writing(make))
    assert found.dtype == np.int32
    assert found.tolist() == [
        NO_PARTITION if key is None else (murmur2(key) & _MASK) % count for key in keys
    ]


@pytest.mark.parametrize("make", MAKES)
def test_text_goes_where_its_bytes_go(make: str) -> None:
    texts = ["ä", "orders", "", None]
    keys = pa.array([None if text is None else text.encode() for text in texts], pa.binary())
    found = murmur2_partitions(pa.array(texts, pa.string()), 12, writing(make))
    assert found.tolist() == murmur2_partitions(keys, 12, writing(make)).tolist()
    assert murmur2_partitions(pa.nulls(2), 12, writing(make)).tolist() == [NO_PARTITION] * 2
