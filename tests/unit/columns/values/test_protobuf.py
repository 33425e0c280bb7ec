"""Proves that Protobuf messages become typed values, and that damaged ones get a reason each."""

import pickle
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from penstock.columns.values.protobuf.decoder import ProtobufFormat
from penstock.columns.values.protobuf.mapping import message_columns
from penstock.columns.values.protobuf.sources import message_source
from penstock.columns.values.results import Decoded, decoded_type
from penstock.spark.values import DecodeRefused
from penstock.spark.values.frames import decoded_spark_type
from tests.unit.columns.values.messages import (
    descriptor_set,
    message_class,
    old_file,
    sample_file,
)

Sample = message_class(sample_file(), "sample.Sample")
Old = message_class(old_file(), "old.Old")


def decoded(schema: Any, values: list[bytes | None], *, framed: bool = False) -> Decoded:
    wanted = ProtobufFormat(source=message_source(schema, None), framed=framed)
    # As it travels to the workers.
    found = pickle.loads(pickle.dumps(wanted)).open().decode(pa.array(values, pa.binary()))
    found.values.validate(full=True)
    assert len(found.values) == len(found.errors) == len(values)
    return found


def one(message: Any) -> Any:
    found = decoded(type(message), [message.SerializeToString()])
    assert found.errors.to_pylist() == [None]
    return found.values[0].as_py()


def test_scalars_at_their_bounds() -> None:
    for kind, low, high in (
        ("int32", -(1 << 31), (1 << 31) - 1),
        ("sint32", -(1 << 31), (1 << 31) - 1),
        ("sfixed32", -(1 << 31), (1 << 31) - 1),
        ("uint32", 0, (1 << 32) - 1),
        ("fixed32", 0, (1 << 32) - 1),
        ("int64", -(1 << 63), (1 << 63) - 1),
        ("sint64", -(1 << 63), (1 << 63) - 1),
        ("sfixed64", -(1 << 63), (1 << 63) - 1),
        ("uint64", 0, (1 << 64) - 1),
        ("fixed64", 0, (1 << 64) - 1),
        ("float", -0.5, 1.5),
        ("double", -1e300, 1e-300),
        ("bool", False, True),
        ("string", "", "grün"),
        ("bytes", b"", b"\x00\xff"),
    ):
        for value in (low, high):
            assert one(Sample(**{f"a_{kind}": value}))[f"a_{kind}"] == value, kind


def test_unset_fields_are_null_when_the_message_knows_and_default_otherwise() -> None:
    row = one(Sample())
    assert row["a_int32"] == 0
    assert row["a_string"] == ""
    assert row["suit"] == "SPADES"
    assert row["numbers"] == []
    assert row["counts"] == []
    for name in ("point", "one_text", "one_point", "at", "during", "wrapped", "free", "maybe"):
        assert row[name] is None, name


def test_an_optional_field_set_to_its_default_is_not_null() -> None:
    assert one(Sample(maybe=0))["maybe"] == 0
    assert one(Sample(one_text=""))["one_text"] == ""
    assert one(Sample(point={}))["point"] == {"x": 0, "label": ""}


def test_enums_are_names_and_unknown_numbers_are_text() -> None:
    row = one(Sample(suit=1, suits=[0, 1, 7]))
    assert row["suit"] == "HEARTS"
    assert row["suits"] == ["SPADES", "HEARTS", "7"]


def test_nested_repeated_and_map_fields() -> None:
    point = {"x": 1, "label": "a"}
    row = one(
        Sample(point=point, numbers=[1, 2], points=[point, {}], counts={"a": 1}, places={5: point})
    )
    assert row["point"] == point
    assert row["numbers"] == [1, 2]
    assert row["points"] == [point, {"x": 0, "label": ""}]
    assert row["counts"] == [("a", 1)]
    assert row["places"] == [(5, point)]


def test_of_a_oneof_only_the_member_that_is_set_is_there() -> None:
    row = one(Sample(one_text="x"))
    assert (row["one_text"], row["one_point"]) == ("x", None)
    row = one(Sample(one_point={"x": 2}))
    assert (row["one_text"], row["one_point"]) == (None, {"x": 2, "label": ""})


def test_well_known_messages_have_types_of_their_own() -> None:
    moment = datetime(2026, 3, 4, 5, 6, 7, 8, UTC)
    sample = Sample(wrapped={"value": 0})
    sample.at.FromDatetime(moment)
    sample.during.FromTimedelta(timedelta(seconds=-1, microseconds=-5))
    sample.free.update({"a": [1, None]})
    row = one(sample)
    assert row["at"] == moment
    assert row["during"] == timedelta(seconds=-1, microseconds=-5)
    assert row["wrapped"] == 0
    assert row["free"] == '{"a": [1.0, null]}'


def test_a_message_without_fields_is_left_out() -> None:
    assert "nothing" not in one(Sample(nothing={}))


def test_arrow_types_are_those_that_spark_expects() -> None:
    kind = decoded_spark_type(ProtobufFormat(source=message_source(Sample, None)))
    found = decoded(Sample, [Sample().SerializeToString(), None])
    assert found.values.type == to_arrow_type(kind, timezone="UTC")


def test_null_stays_null_and_damage_stays_in_its_row() -> None:
    good = Sample(a_string="x").SerializeToString()
    found = decoded(Sample, [good, None, b"\xff\xff", good, b""])
    assert [None if row is None else row["a_string"] for row in found.values.to_pylist()] == [
        *("x", None, None, "x", "")
    ]
    broken = "The value is not a Protobuf message sample.Sample."
    assert found.errors.to_pylist() == [None, None, broken, None, None]


def test_a_time_that_no_column_holds_is_found_among_many() -> None:
    values: list[bytes | None] = [Sample(a_int32=n).SerializeToString() for n in range(100)]
    for bad in (3, 64, 65):
        values[bad] = Sample(at={"seconds": 1 << 60}).SerializeToString()
    found = decoded(Sample, values)
    sentence = "The Protobuf field 'at' is not a time of a year 1 to 9999."
    errors = found.errors.to_pylist()
    assert [n for n, error in enumerate(errors) if error == sentence] == [3, 64, 65]
    assert [n for n, row in enumerate(found.values.to_pylist()) if row is None] == [3, 64, 65]
    assert found.values[99].as_py()["a_int32"] == 99


def test_required_fields_and_unchecked_strings_of_proto2() -> None:
    good = Old(needed=1).SerializeToString()
    found = decoded(Old, [good, b"", good + b"\x12\x01\xff"])
    assert found.values.to_pylist() == [{"needed": 1, "text": None, "level": None}, None, None]
    assert found.errors.to_pylist() == [
        None,
        "The Protobuf message old.Old does not have needed.",
        "A string in the Protobuf message old.Old is not valid UTF-8.",
    ]


def test_the_header_of_a_schema_registry_is_skipped() -> None:
    data = Sample(a_int32=7).SerializeToString()
    header = b"\x00\x00\x00\x00\x09"
    # The list of message numbers: a lone 0, or a count of two (as zigzag) and two numbers.
    values: list[bytes | None] = [header + b"\x00" + data, header + b"\x04\x02\x00" + data]
    values += [b"\x01" + header[1:] + b"\x00", header, header + b"\x80", None]
    found = decoded(Sample, values, framed=True)
    assert [row and row["a_int32"] for row in found.values.to_pylist()] == [7, 7, *[None] * 4]
    assert found.errors.to_pylist() == [
        None,
        None,
        "The header of the Protobuf value does not start with a zero byte.",
        "The Protobuf value is shorter than its header.",
        "The list of message numbers in the header of the Protobuf value is cut.",
        None,
    ]


@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.none() | st.binary(max_size=40), max_size=10), framed=st.booleans())
def test_any_bytes_give_a_value_or_a_reason(values: list[bytes | None], framed: bool) -> None:
    found = decoded(Sample, values, framed=framed)
    for value, row, error in zip(
        values, found.values.to_pylist(), found.errors.to_pylist(), strict=True
    ):
        assert (row is None) == (value is None or error is not None)


def test_a_class_a_file_and_bytes_describe_the_same(tmp_path: Path) -> None:
    packed = descriptor_set(sample_file())
    file = tmp_path / "sample.desc"
    file.write_bytes(packed)
    expected = decoded_type(ProtobufFormat(source=message_source(Sample, None)))
    for schema in (packed, file, str(file)):
        source = message_source(schema, "sample.Sample")
        assert decoded_type(ProtobufFormat(source=source)) == expected


@pytest.mark.parametrize(
    ("schema", "message", "sentence"),
    [
        (None, None, "Protobuf needs schema=, a generated class or a descriptor set"),
        (b"", None, "Protobuf needs message=, the full name of a message in the schema."),
        (b"\xff\xff", "a.B", "The schema is not a Protobuf descriptor set."),
        ("/nowhere/sample.desc", "a.B", "can't be read: No such file or directory."),
        (descriptor_set(sample_file()), "a.B", "no message 'a.B'; it has: sample.Point, sample"),
        (descriptor_set(sample_file()), "sample.Node", "Node contains itself (at 'next')"),
        (descriptor_set(sample_file()), "sample.Nothing", "sample.Nothing has no fields."),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(
    schema: Any, message: str | None, sentence: str
) -> None:
    with pytest.raises(DecodeRefused) as refused:
        message_columns(message_source(schema, message).descriptor())
    assert sentence in str(refused.value)
    assert str(refused.value).endswith(".")


def test_a_descriptor_set_without_its_imports_is_refused() -> None:
    from google.protobuf import descriptor_pb2

    alone = descriptor_pb2.FileDescriptorSet(file=[sample_file()]).SerializeToString()
    with pytest.raises(DecodeRefused, match="--include_imports"):
        message_source(alone, "sample.Sample")


def test_decimals_hold_the_largest_unsigned_number() -> None:
    assert one(Sample(a_uint64=(1 << 64) - 1))["a_uint64"] == Decimal((1 << 64) - 1)
