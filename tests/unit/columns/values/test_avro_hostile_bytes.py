"""Proves that no bytes make Avro decoding fail: each row gets its value or a reason, alone."""

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns.values.avro.decoder import AvroFormat
from tests.unit.columns.values.avro_rows import decoded, record, written

EVERYTHING = record(
    flag="boolean",
    small="int",
    large="long",
    part="float",
    double="double",
    raw="bytes",
    text="string",
    choice={"type": "enum", "name": "Suit", "symbols": ["A", "B"]},
    four={"type": "fixed", "name": "Four", "size": 4},
    maybe=["null", "string"],
    any_of=["int", "string", {"type": "array", "items": "long"}],
    money={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    items={"type": "array", "items": {"type": "map", "values": ["null", "string"]}},
)
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0}
SUIT = {"type": "enum", "name": "Suit", "symbols": ["A", "B"]}
INTS = {"type": "array", "items": "int"}

# (schema, bytes, what the sentence says)
DAMAGED: list[tuple[Any, bytes, str]] = [
    ("int", b"", "the value ends too early"),
    ("int", b"\xff", "the value ends too early"),
    ("long", b"\xff" * 9 + b"\x02", "a number has more than 64 bits"),
    ("long", b"\x80" * 10 + b"\x01", "a number has more than 64 bits"),
    ("int", b"\xff\xff\xff\xff\x1f", "a number is outside the range of its type"),
    ("boolean", b"\x02", "a boolean is neither 0 nor 1"),
    ("boolean", b"", "the value ends too early"),
    ("float", b"\x00\x00", "the value ends too early"),
    ("double", b"\x00" * 7, "the value ends too early"),
    ("string", b"\x10ab", "a length is negative or goes past the end of the value"),
    ("bytes", b"\x01", "a length is negative or goes past the end of the value"),
    ("bytes", b"\xfe" + b"\xff" * 8 + b"\x01", "a length is negative or goes past the end"),
    ("string", b"\x02\xff", "a string is not valid UTF-8"),
    ("string", b"\x04\xc0\x80", "a string is not valid UTF-8"),
    ("string", b"\x06\xed\xa0\x80", "a string is not valid UTF-8"),
    ("string", b"\x08\xf4\x90\x80\x80", "a string is not valid UTF-8"),
    (SUIT, b"\x04", "the enum has no symbol of that number"),
    (SUIT, b"\x01", "the enum has no symbol of that number"),
    (["null", "int"], b"\x04", "the union has no branch of that number"),
    (["null", "int"], b"\x03", "the union has no branch of that number"),
    ({"type": "fixed", "name": "Four", "size": 4}, b"abc", "the value ends too early"),
    (INTS, b"\x02", "a count goes past the end of the value"),
    (INTS, b"\x02\x02", "the value ends too early"),
    (INTS, b"\xfe" + b"\xff" * 8 + b"\x01\x02", "a count goes past the end of the value"),
    (INTS, b"\xff" * 9 + b"\x01\x02", "a count goes past the end of the value"),
    (INTS, b"\x01\x01\x02\x00", "a length is negative or goes past the end of the value"),
    (DECIMAL, b"\x04\x03\xe8", "a decimal has more digits than its precision"),
    (DECIMAL, b"\x22" + b"\x01" + b"\x00" * 16, "a decimal has more digits than its precision"),
    (DECIMAL, b"\x22" + b"\x00" + b"\xff" * 16, "a decimal has more digits than its precision"),
    (DECIMAL, b"\x00", "a length is negative or goes past the end of the value"),
]


@pytest.mark.parametrize("kernels", ["numpy", "numba"])
def test_each_kind_of_damage_has_its_sentence(
    kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_KERNELS", kernels)
    for schema, data, reason in DAMAGED:
        whole = record(inner=schema)
        found = decoded(whole, [data])
        assert found.values.to_pylist() == [None], data
        sentence = found.errors[0].as_py()
        assert sentence.startswith("The Avro field 'inner"), sentence
        assert reason in sentence, (data, sentence)
        assert sentence.endswith("."), sentence


def test_bytes_after_the_value_are_a_reason() -> None:
    found = decoded("int", [b"\x02", b"\x02\x00", b"\x02\x00\x00"])
    assert found.values.to_pylist() == [1, None, None]
    assert found.errors.to_pylist() == [
        None,
        "After the Avro value 1 byte is left.",
        "After the Avro value 2 bytes are left.",
    ]


def test_a_damaged_row_leaves_its_neighbours_alone() -> None:
    schema = record(tags={"type": "array", "items": "string"}, note=["null", "string"])
    good = written(schema, {"tags": ["a", "b"], "note": "x"})
    found = decoded(schema, [good, good[:-1], good, b"\x04\x02a\x02\xff\x00\x00", good])
    expected = {"tags": ["a", "b"], "note": "x"}
    assert found.values.to_pylist() == [expected, None, expected, None, expected]
    assert [error is None for error in found.errors.to_pylist()] == [True, False, True, False, True]


VALUES = st.fixed_dictionaries(
    {
        "flag": st.booleans(),
        "small": st.integers(-(1 << 31), (1 << 31) - 1),
        "large": st.integers(-(1 << 63), (1 << 63) - 1),
        "part": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "raw": st.binary(max_size=20),
        "text": st.text(max_size=20),
        "choice": st.sampled_from(["A", "B"]),
        "four": st.binary(min_size=4, max_size=4),
        "maybe": st.none() | st.text(max_size=5),
        "any_of": st.integers(0, 9) | st.text(max_size=3) | st.lists(st.integers(0, 9), max_size=3),
        "money": st.decimals(-9999999, 9999999, places=2, allow_nan=False),
        "items": st.lists(
            st.dictionaries(st.text(max_size=3), st.none() | st.text(max_size=3), max_size=3),
            max_size=3,
        ),
    }
)


@st.composite
def rows(draw: st.DrawFn) -> bytes:
    """A good value, now and then with some of its bytes changed, cut off or added."""
    data = bytearray(written(EVERYTHING, draw(VALUES)))
    if draw(st.booleans()):
        for _ in range(draw(st.integers(1, 3))):
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
        data = data[: draw(st.integers(0, len(data)))] + draw(st.binary(max_size=3))
    return bytes(data)


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.none() | rows() | st.binary(max_size=60), max_size=12))
def test_compiled_or_not_the_result_is_the_same(values: list[bytes | None]) -> None:
    column = pa.array(values, pa.binary())
    results = []
    for kernels in ("numpy", "numba"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PENSTOCK_KERNELS", kernels)
            found = AvroFormat(schema=json.dumps(EVERYTHING)).open().decode(column)
        found.values.validate(full=True)
        results.append(found)
    plain, compiled = results
    assert plain.values.equals(compiled.values)
    assert plain.errors.equals(compiled.errors)
    for value, decoded_value, error in zip(
        values, plain.values.to_pylist(), plain.errors.to_pylist(), strict=True
    ):
        assert (decoded_value is None) == (value is None or error is not None)


@settings(max_examples=60, deadline=None)
@given(values=st.lists(VALUES, min_size=1, max_size=8))
def test_fastavro_reads_the_same(values: list[dict[str, Any]]) -> None:
    found = decoded(EVERYTHING, [written(EVERYTHING, value) for value in values])
    assert found.errors.null_count == len(values)
    for value, ours in zip(values, found.values.to_pylist(), strict=True):
        for name in ("flag", "small", "large", "part", "double", "raw", "text", "choice", "maybe"):
            assert ours[name] == value[name]
        assert ours["money"] == value["money"]
        assert [dict(pairs) for pairs in ours["items"]] == value["items"]
        assert value["any_of"] in ours["any_of"].values()


def test_fastavro_itself_would_take_some_of_these() -> None:
    """Why the walk is our own: a negative branch number silently means another branch."""
    assert fastavro.schemaless_reader(io.BytesIO(b"\x03"), ["null", "int"]) is None
