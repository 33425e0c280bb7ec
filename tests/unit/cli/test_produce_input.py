"""Input of `penstock produce`: lines, JSON lines and whole files become records."""

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.consume_output import Writing
from penstock.cli.failures import CommandFailed
from penstock.cli.formats import Format
from penstock.cli.produce_input import Input, NewRecord, Reading
from penstock.client.consumer import ConsumedRecord


def read(data: bytes, **how: Any) -> list[NewRecord]:
    return list(Reading(**how).records(io.BytesIO(data)))


def test_each_line_is_a_value_and_the_last_needs_no_newline() -> None:
    assert [one.value for one in read(b"a\n\nb")] == [b"a", b"", b"b"]


def test_input_bytes_add_up_to_the_input() -> None:
    data = b"k:a\nk:b\n"
    assert sum(one.input_bytes for one in read(data, key_separator=b":")) == len(data)


def test_the_separator_divides_at_its_first_place() -> None:
    (record,) = read(b"a::b::c\n", key_separator=b"::")
    assert (record.key, record.value) == (b"a", b"b::c")


def test_a_line_without_separator_is_refused_with_its_number() -> None:
    with pytest.raises(CommandFailed, match="Line 2 of standard input"):
        read(b"a:1\nb\n", key_separator=b":")


def test_formats_apply_to_key_and_value() -> None:
    (record,) = read(
        b"AAE=:ff00\n", key_separator=b":", key_format=Format.BASE64, value_format=Format.HEX
    )
    assert (record.key, record.value) == (b"\x00\x01", b"\xff\x00")


def test_a_value_in_the_wrong_format_is_refused() -> None:
    with pytest.raises(CommandFailed, match=r"Line 1 .* not json"):
        read(b"{\n", value_format=Format.JSON)


def test_the_null_mark_makes_a_tombstone() -> None:
    records = read(b"k:NULL\nk:\n", key_separator=b":", null=b"NULL")
    assert [one.value for one in records] == [None, b""]


def test_the_whole_input_can_be_one_value() -> None:
    (record,) = read(b"a\nb\n", form=Input.WHOLE, key=b"k")
    assert (record.key, record.value) == (b"k", b"a\nb\n")


def test_json_lines_bring_everything() -> None:
    line = {
        "key": "k",
        "value": {"celsius": 21.5},
        "headers": [["a", "1"], ["a", None], ["b", {"base64": "/w=="}]],
        "partition": 3,
        "timestamp": 1_700_000_000_000,
    }
    (record,) = read(json.dumps(line).encode() + b"\n\n", form=Input.JSON)
    assert record.key == b"k"
    assert record.value == b'{"celsius":21.5}'
    assert record.headers == (("a", b"1"), ("a", None), ("b", b"\xff"))
    assert (record.partition, record.timestamp_ms) == (3, 1_700_000_000_000)


def test_what_a_json_line_leaves_out_comes_from_the_options() -> None:
    (record,) = read(
        b'{"value": "v"}', form=Input.JSON, key=b"k", partition=1, headers=(("h", b"1"),)
    )
    assert (record.key, record.partition, record.headers) == (b"k", 1, (("h", b"1"),))
    (record,) = read(b'{"value": "v", "key": null, "headers": {}}', form=Input.JSON, key=b"k")
    assert (record.key, record.headers) == (None, ())


def test_headers_may_be_an_object() -> None:
    (record,) = read(b'{"headers": {"a": "1", "b": 2}}', form=Input.JSON)
    assert record.headers == (("a", b"1"), ("b", b"2"))
    assert record.value is None


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "{",
        '{"partition": -1}',
        '{"partition": true}',
        '{"partition": 2147483648}',
        '{"timestamp": 9223372036854775808}',
        r'{"value": "\ud800"}',
        r'{"key": "\ud800"}',
        r'{"headers": {"\ud800": "v"}}',
        r'{"headers": {"h": "\ud800"}}',
        pytest.param("[" * 100_000, id="deep"),
        '{"timestamp": "now"}',
        '{"headers": 5}',
        '{"headers": [["a"]]}',
        '{"headers": [[1, "a"]]}',
        '{"value": "zz", "value_format": "hex"}',
        '{"value_format": "xml"}',
        '{"key_format": 1}',
    ],
)
def test_json_lines_that_make_no_sense_are_refused(line: str) -> None:
    with pytest.raises(CommandFailed, match=r"Line 1 of readings.json can.t be produced: .*\.$"):
        read(line.encode(), form=Input.JSON, name="readings.json")


@given(
    key=st.none() | st.binary(),
    value=st.none() | st.binary(),
    headers=st.lists(st.tuples(st.text(), st.none() | st.binary())),
    form=st.sampled_from(Format),
)
def test_what_consume_writes_as_json_produce_reads_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], form: Format
) -> None:
    consumed = ConsumedRecord(
        topic="t",
        partition=2,
        offset=7,
        timestamp_ms=5,
        key=key,
        value=value,
        headers=tuple(headers),
    )
    sink = io.BytesIO()
    Writing(as_json=True, key_format=Format.TEXT, value_format=form).write(consumed, sink)
    assert sink.getvalue().count(b"\n") == 1
    (record,) = read(sink.getvalue(), form=Input.JSON)
    assert record.key == key
    assert record.headers == tuple(headers)
    assert (record.partition, record.timestamp_ms) == (2, 5)
    if form is Format.JSON and value is not None:
        # JSON may be spelt differently, but it must mean the same.
        assert record.value == value or _same_json(record.value, value)
    else:
        assert record.value == value


def _same_json(one: bytes | None, other: bytes) -> bool:
    left, right = json.loads(one or b"0"), json.loads(other)
    return bool(left == right) or (left != left and right != right)


def test_a_copied_line_says_which_topic_it_comes_from() -> None:
    lines = b'{"value": "v", "topic": "a", "partition": 5}\n{"value": "v", "topic": 7}\n'
    copied, own = read(lines, form=Input.JSON)
    assert (copied.topic, copied.partition) == ("a", 5)
    assert own.topic is None
