"""Formats: whatever bytes a key or value has, they can be written down and read back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.formats import BadFormat, Format, decode, encode, from_json, to_json


@given(st.binary(), st.sampled_from([Format.HEX, Format.BASE64, Format.TEXT]))
def test_written_bytes_read_back_the_same(data: bytes, form: Format) -> None:
    assert decode(form, encode(form, data)) == data


DEEP = b"[" * 100_000 + b"]" * 100_000


@given(st.none() | st.binary(), st.sampled_from([Format.TEXT, Format.HEX, Format.BASE64]))
def test_json_holds_any_bytes_and_gives_them_back(data: bytes | None, form: Format) -> None:
    held, used = to_json(form, data)
    assert from_json(used, held) == data


def test_bytes_that_are_no_text_are_held_as_base64() -> None:
    assert to_json(Format.TEXT, b"\xff\x00") == ("/wA=", Format.BASE64)
    assert to_json(Format.JSON, b"not json") == ("bm90IGpzb24=", Format.BASE64)


@pytest.mark.parametrize("data", [b"null", b" null\n", DEEP], ids=["null", "blanks", "deep"])
def test_json_that_can_not_be_embedded_is_held_as_base64(data: bytes) -> None:
    """A value whose bytes are JSON's null is no missing value, which would delete its key."""
    held, used = to_json(Format.JSON, data)
    assert used is Format.BASE64
    assert from_json(used, held) == data
    assert to_json(Format.JSON, None) == (None, Format.JSON)


def test_half_a_character_is_refused_as_text_and_kept_in_json() -> None:
    half = json.loads(r'"a\ud800"')
    with pytest.raises(BadFormat, match=r"'\\ud800' is not a character"):
        from_json(Format.TEXT, half)
    assert from_json(Format.JSON, half) == rb'"a\ud800"'
    assert from_json(Format.TEXT, [half]) == rb'["a\ud800"]'


def test_json_values_are_embedded_not_quoted() -> None:
    assert to_json(Format.JSON, b'{"a": [1, null]}') == ({"a": [1, None]}, Format.JSON)
    assert from_json(Format.JSON, {"a": [1, None]}) == b'{"a":[1,null]}'
    assert from_json(Format.TEXT, {"a": 1}) == b'{"a":1}'
    assert from_json(Format.TEXT, 5) == b"5"


def test_json_is_written_on_one_line_and_what_is_no_json_as_it_is() -> None:
    assert encode(Format.JSON, b'{\n "a": "\xc3\xa4"}') == '{"a": "ä"}'.encode()
    assert encode(Format.JSON, b"{") == b"{"
    assert encode(Format.JSON, DEEP) == DEEP


@pytest.mark.parametrize(
    ("form", "written"),
    [
        (Format.HEX, b"0"),
        (Format.HEX, b"zz"),
        (Format.HEX, b"\xff"),
        (Format.BASE64, b"a"),
        (Format.BASE64, b"!!!!"),
        (Format.JSON, b"{"),
        (Format.JSON, b"\xff"),
        pytest.param(Format.JSON, DEEP, id="deep"),
    ],
)
def test_what_is_not_in_the_format_is_refused(form: Format, written: bytes) -> None:
    with pytest.raises(BadFormat, match=f"not {form}"):
        decode(form, written)


def test_only_strings_hold_hex_and_base64() -> None:
    with pytest.raises(BadFormat, match="string in hex"):
        from_json(Format.HEX, 5)
