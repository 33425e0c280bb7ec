"""Output of `penstock consume`."""

import io
import json
from dataclasses import replace
from typing import Any

from penstock.cli.consume_output import Writing
from penstock.cli.formats import Format
from penstock.cli.template import parse_template
from penstock.client.consumer import ConsumedRecord

RECORD = ConsumedRecord(
    topic="t",
    partition=1,
    offset=5,
    timestamp_ms=1_700_000_000_000,
    key=b"k",
    value=b"v\xff",
    headers=(("a", b"1"), ("b", None)),
)
TOMBSTONE = ConsumedRecord(
    topic="t", partition=0, offset=0, timestamp_ms=None, key=None, value=None, headers=()
)


def written(record: ConsumedRecord, **how: Any) -> bytes:
    sink = io.BytesIO()
    Writing(**how).write(record, sink)
    return sink.getvalue()


def test_a_value_is_written_byte_by_byte() -> None:
    assert written(RECORD) == b"v\xff\n"
    assert written(RECORD, value_format=Format.HEX) == b"76ff\n"


def test_a_key_is_written_when_there_is_a_separator() -> None:
    assert written(RECORD, key_separator=b"\t") == b"k\tv\xff\n"


def test_nulls_are_written_as_the_mark() -> None:
    assert written(TOMBSTONE) == b"\n"
    assert written(TOMBSTONE, null=b"NULL", key_separator=b":") == b"NULL:NULL\n"


def test_details_say_where_and_when_a_record_is() -> None:
    assert written(RECORD, details=True) == b"t-1@5 2023-11-14T22:13:20.000Z [a=1,b=] v\xff\n"
    assert written(TOMBSTONE, details=True) == b"t-0@0 - [] \n"
    far = replace(RECORD, timestamp_ms=2**62)
    assert written(far, details=True).startswith(b"t-1@5 @4611686018427387904 [")


def test_a_template_says_all_that_is_written() -> None:
    assert written(RECORD, template=parse_template("%o;")) == b"5;"


def test_json_has_everything_and_says_when_a_value_is_no_text() -> None:
    line = json.loads(written(RECORD, as_json=True))
    assert line == {
        "topic": "t",
        "partition": 1,
        "offset": 5,
        "timestamp": 1_700_000_000_000,
        "key": "k",
        "value": "dv8=",
        "value_format": "base64",
        "headers": [["a", "1"], ["b", None]],
    }
    assert json.loads(written(TOMBSTONE, as_json=True))["value"] is None


def test_no_depth_of_nesting_stops_the_output() -> None:
    """Also where a value can just be read, and not be written inside the line."""
    for depth in (10, *range(900, 1_000), 100_000):
        value = b"[" * depth + b"]" * depth
        record = replace(RECORD, value=value)
        line = written(record, as_json=True, value_format=Format.JSON)
        assert line.endswith(b"}\n")
        assert written(record, value_format=Format.JSON) == value + b"\n"
