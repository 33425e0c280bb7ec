"""Values become bytes as the HTTP door makes them; what can't be stored gets a sentence."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.client.errors import ClientError
from penstock.client.values import as_json, as_text, to_bytes, to_headers


@dataclass
class Reading:
    sensor: str
    celsius: float


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        (b"\x00\xff", b"\x00\xff"),
        (bytearray(b"x"), b"x"),
        (memoryview(b"xyz")[1:], b"yz"),
        ("größer", "größer".encode()),
        ({"a": [1, 2.5, None, True], "ü": "ß"}, '{"a":[1,2.5,null,true],"ü":"ß"}'.encode()),
        ([], b"[]"),
        (42, b"42"),
        (Reading("kitchen", 21.5), b'{"sensor":"kitchen","celsius":21.5}'),
        (datetime(2026, 5, 1, tzinfo=UTC), b'"2026-05-01T00:00:00Z"'),
    ],
)
def test_values_become_bytes(value: Any, stored: bytes | None) -> None:
    assert to_bytes(value) == stored


def _nested(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    "value",
    [object(), {"a": object()}, "\ud800", {("a", "b"): 1}, _nested(100_000)],
    ids=["object", "inside", "half a character", "name", "deep"],
)
def test_what_has_no_json_is_refused(value: Any) -> None:
    with pytest.raises(ClientError, match=r"can't be stored as .*: .*\.$"):
        to_bytes(value)


def test_headers_are_a_mapping_or_pairs() -> None:
    assert to_headers({"trace": "abc", "try": 2}) == [("trace", b"abc"), ("try", b"2")]
    assert to_headers([("a", b"1"), ("a", None)]) == [("a", b"1"), ("a", None)]


def test_bytes_are_read_as_text_and_json() -> None:
    assert (as_text(None), as_text("ü".encode())) == (None, "ü")
    assert (as_json(None), as_json(b'{"a":1}')) == (None, {"a": 1})
    with pytest.raises(ClientError, match="not UTF-8"):
        as_text(b"\xff")
    with pytest.raises(ClientError, match="not JSON"):
        as_json(b"{")
