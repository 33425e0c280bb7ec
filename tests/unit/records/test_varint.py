"""Variable-length integers: all 64-bit values, and nothing longer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.records.errors import CorruptBatch
from penstock.records.varint import append_varint, read_varint


@settings(deadline=None)
@given(value=st.integers(-(2**63), 2**63 - 1), before=st.binary(max_size=3))
def test_round_trip(value: int, before: bytes) -> None:
    out = bytearray(before)
    append_varint(out, value)
    assert read_varint(bytes(out), len(before)) == (value, len(out))


@pytest.mark.parametrize(("value", "data"), [(0, b"\0"), (-1, b"\1"), (1, b"\2"), (-64, b"\x7f")])
def test_known_encodings(value: int, data: bytes) -> None:
    out = bytearray()
    append_varint(out, value)
    assert out == data


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9, b"\xff" * 11, b"\xff" * 9 + b"\x02"])
def test_bad_numbers_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        read_varint(data, 0)
