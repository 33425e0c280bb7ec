"""Proves that every Avro type, logical types included, becomes the value that fastavro wrote."""

import json
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numba
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type

from penstock.columns.values.avro.decoder import AvroFormat
from penstock.columns.values.avro.running import kernels
from penstock.spark.values.frames import decoded_spark_type
from tests.unit.columns.values.avro_rows import decoded, record, written

ENUM = {"type": "enum", "name": "Suit", "symbols": ["SPADES", "HEARTS"]}
FIXED = {"type": "fixed", "name": "Four", "size": 4}
ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "zip", "type": "string"}]}
NOW = datetime(2026, 3, 4, 5, 6, 7, 123000, UTC)
# As many digits as a DECIMAL has.
LONG_DECIMAL = Decimal("-" + "9" * 28 + "." + "9" * 10)


def logical(kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


# (schema, what is written, what comes out)
SAMPLES: list[tuple[Any, Any, Any]] = [
    ("boolean", True, True),
    ("int", -(1 << 31), -(1 << 31)),
    ("int", (1 << 31) - 1, (1 << 31) - 1),
    ("long", -(1 << 63), -(1 << 63)),
    ("long", (1 << 63) - 1, (1 << 63) - 1),
    ("float", 0.5, 0.5),
    ("double", -1e300, -1e300),
    ("double", 3.25, 3.25),
    ("bytes", b"\x00\xff", b"\x00\xff"),
    ("bytes", b"", b""),
    ("string", "grün \U0001f600", "grün \U0001f600"),
    ("string", "", ""),
    (ENUM, "HEARTS", "HEARTS"),
    (FIXED, b"abcd", b"abcd"),
    (ADDRESS, {"zip": "04109"}, {"zip": "04109"}),
    ({"type": "array", "items": "int"}, [1, 2, 3], [1, 2, 3]),
    ({"type": "array", "items": "int"}, [], []),
    ({"type": "map", "values": "long"}, {"a": 1, "b": 2}, [("a", 1), ("b", 2)]),
    ({"type": "array", "items": {"type": "array", "items": "string"}}, [["a"], []], [["a"], []]),
    ({"type": "array", "items": ADDRESS}, [{"zip": "1"}], [{"zip": "1"}]),
    ({"type": "map", "values": ["null", "int"]}, {"a": None}, [("a", None)]),
    (["null", "string"], None, None),
    (["null", "string"], "x", "x"),
    (["string", "null"], None, None),
    (["null", ADDRESS], {"zip": "1"}, {"zip": "1"}),
    (["null", {"type": "array", "items": "int"}], [4], [4]),
    (["int", "long"], 5, 5),
    (["null", "int", "long"], 1 << 40, 1 << 40),
    (["float", "double"], 1.5, 1.5),
    (["int", "string"], "x", {"member0": None, "member1": "x"}),
    (["int", "string"], 7, {"member0": 7, "member1": None}),
    (["null", "int", ADDRESS], {"zip": "1"}, {"member0": None, "member1": {"zip": "1"}}),
    (["null", "int", ADDRESS], None, None),
    (logical("int", "date"), date(2026, 3, 4), date(2026, 3, 4)),
    (logical("long", "timestamp-millis"), NOW, NOW),
    (logical("long", "timestamp-micros"), NOW, NOW),
    (logical("long", "local-timestamp-millis"), NOW.replace(tzinfo=None), NOW.replace(tzinfo=None)),
    (logical("long", "local-timestamp-micros"), NOW.replace(tzinfo=None), NOW.replace(tzinfo=None)),
    (logical("int", "time-millis"), 5000, 5000),
    (logical("long", "time-micros"), 5000, 5000),
    (logical("long", "timestamp-nanos"), 5000, 5000),
    (logical("string", "uuid"), str(uuid.UUID(int=5)), str(uuid.UUID(int=5))),
    (logical("fixed", "duration", name="Span", size=12), b"\1" * 12, b"\1" * 12),
    (logical("bytes", "decimal", precision=6, scale=2), Decimal("-1234.56"), Decimal("-1234.56")),
    (
        logical("bytes", "decimal", precision=38, scale=0),
        Decimal(10**38 - 1),
        Decimal(10**38 - 1),
    ),
    (
        logical("bytes", "decimal", precision=38, scale=10),
        LONG_DECIMAL,
        LONG_DECIMAL,
    ),
    (
        logical("fixed", "decimal", name="Money", size=20, precision=10, scale=3),
        Decimal("-7.125"),
        Decimal("-7.125"),
    ),
]


@pytest.mark.parametrize("kernels", ["numpy", "numba"])
@pytest.mark.parametrize("nested", [False, True])
def test_each_type_comes_out_as_it_was_written(
    kernels: str, nested: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_KERNELS", kernels)
    for schema, value, expected in SAMPLES:
        if nested:
            schema, value, expected = _in_a_record(schema, value, expected)
        data = written(schema, value)
        found = decoded(schema, [data, None, data])
        assert found.errors.to_pylist() == [None] * 3, schema
        assert found.values.to_pylist() == [expected, None, expected], schema


def test_values_are_the_same_where_numba_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """As NUMBA_DISABLE_JIT does: its functions then run as they are written, on numpy's numbers."""
    monkeypatch.setenv("PENSTOCK_KERNELS", "numba")
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    kernels.cache_clear()
    try:
        found = decoded("long", [written("long", 1_000_000)])
    finally:
        kernels.cache_clear()
    assert found.values.to_pylist() == [1_000_000]


def _in_a_record(schema: Any, value: Any, expected: Any) -> tuple[Any, Any, Any]:
    whole = record(before="string", inner=schema, after={"type": "array", "items": "int"})
    around = {"before": "x", "after": [1]}
    return whole, {**around, "inner": value}, {**around, "inner": expected}


def test_arrow_types_are_those_that_spark_expects() -> None:
    for schema, value, _ in SAMPLES:
        expected = to_arrow_type(
            decoded_spark_type(AvroFormat(schema=json.dumps(schema))), timezone="UTC"
        )
        assert decoded(schema, [written(schema, value)]).values.type == expected, schema


def test_a_null_type_is_a_column_of_nulls() -> None:
    schema = record(nothing="null", something="int")
    found = decoded(schema, [written(schema, {"nothing": None, "something": 1})])
    assert found.values.to_pylist() == [{"nothing": None, "something": 1}]


def test_a_type_may_be_used_again_by_its_name() -> None:
    schema = record(home=ADDRESS, work=["null", "Address"])
    value = {"home": {"zip": "1"}, "work": {"zip": "2"}}
    assert decoded(schema, [written(schema, value)]).values.to_pylist() == [value]


def test_blocks_with_their_size_in_bytes_are_read() -> None:
    # A count of -2, a size of 2 bytes, the items 1 and 2, and the end.
    found = decoded({"type": "array", "items": "int"}, [b"\x03\x04\x02\x04\x00"])
    assert found.values.to_pylist() == [[1, 2]]


def test_the_header_of_a_schema_registry_is_skipped() -> None:
    framed = b"\x00\x00\x00\x00\x07" + written("string", "x")
    found = decoded("string", [framed, b"\x01" + framed[1:], b"\x00\x00", None], header=5)
    assert found.values.to_pylist() == ["x", None, None, None]
    assert found.errors.to_pylist() == [
        None,
        "The header of the Avro value does not start with a zero byte.",
        "The Avro value is shorter than the five bytes of its header.",
        None,
    ]


def test_a_slice_of_a_column_is_decoded_as_that_slice() -> None:
    from penstock.columns.values.avro.decoder import AvroFormat

    values = pa.array([written("int", n) for n in range(10)], pa.binary())
    found = AvroFormat(schema="int").open().decode(values.slice(3, 4))
    assert found.values.to_pylist() == [3, 4, 5, 6]


def test_an_empty_column_gives_empty_columns() -> None:
    found = decoded(record(a="int", b={"type": "array", "items": "string"}), [])
    assert found.values.to_pylist() == []


def test_times_at_the_ends_of_what_spark_holds() -> None:
    schema = logical("long", "timestamp-micros")
    first = datetime(1, 1, 1, tzinfo=UTC)
    inside, outside = written(schema, first), written("long", _micros(first) - 1)
    found = decoded(schema, [inside, outside])
    assert found.values.to_pylist() == [first, None]
    assert found.errors[1].as_py().endswith("a number is outside the range of its type.")


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
