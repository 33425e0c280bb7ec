"""What a query needs of topics, and how bytes and errors become text."""

import json

import pyarrow as pa
import pytest

from penstock.client.errors import ClientError
from penstock.client.sql import Session, Values, one_line, only, read_query, to_text
from penstock.columns.layout import COLUMNS


@pytest.mark.parametrize(
    ("query", "tables", "columns"),
    [
        ("SELECT key FROM readings", ("readings",), ("key",)),
        ('SELECT "Offset" FROM readings', ("readings",), ("offset",)),
        ("SELECT count(*) FROM readings", ("readings",), ("offset",)),
        ("SELECT * FROM readings", ("readings",), COLUMNS),
        ("SELECT r.* FROM readings r", ("readings",), COLUMNS),
        ("SUMMARIZE readings", ("readings",), COLUMNS),
        ("SELECT decode_error FROM readings", ("readings",), ("value",)),
        ('SELECT value.a.key FROM "x-y.z"', ("x-y.z",), ("key", "value")),
        ("WITH a AS (SELECT key FROM b) SELECT * FROM a", ("b",), COLUMNS),
        ("SELECT 1 FROM a JOIN b USING (key) JOIN a c USING (key)", ("a", "b"), ("key",)),
        (
            "FROM readings SELECT timestamp WHERE partition = 1",
            ("readings",),
            ("partition", "timestamp"),
        ),
        ("SELECT 1", (), ("offset",)),
    ],
)
def test_only_what_is_named_is_read(
    query: str, tables: tuple[str, ...], columns: tuple[str, ...]
) -> None:
    found = read_query(query)
    assert (found.tables, found.columns) == (tables, columns)


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("SELECT value.a, r.value.B.c FROM r WHERE VALUE.d > 1", {"a", "b", "d"}),
        ("SELECT count(*) FROM r WHERE value.a > 1", {"a"}),
        ("SELECT key FROM r", set()),
        ("SELECT value.a, value FROM r", None),
        ("SELECT value['a'] FROM r", None),
        ("SELECT r.value FROM r", None),
        ("SELECT value.a FROM r ORDER BY value", None),
        ("SELECT * FROM r WHERE value.a > 1", None),
        ("SUMMARIZE r", None),
    ],
)
def test_only_fields_that_are_named_are_decoded(query: str, fields: set[str] | None) -> None:
    assert read_query(query).fields == fields


def test_a_structure_keeps_the_fields_that_are_named_if_all_are_there() -> None:
    structure = '{"a":"BIGINT","B":{"c":"VARCHAR"}}'
    assert json.loads(only(structure, frozenset({"b"}))) == {"B": {"c": "VARCHAR"}}
    assert only(structure, frozenset({"b", "missing"})) == structure
    assert only(structure, frozenset()) == structure
    assert only(structure, None) == structure
    assert only('["BIGINT"]', frozenset({"a"})) == '["BIGINT"]'


@pytest.mark.parametrize(
    "query", ["", "SELECT 1; SELECT 2", "DROP TABLE a", "COPY a TO 'b'", "SELECT ((", "nonsense"]
)
def test_what_is_not_one_question_is_refused(query: str) -> None:
    with pytest.raises(ClientError):
        read_query(query)


def test_an_unknown_format_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(ClientError, match="'xml' is unknown"):
        Session(bootstrap="127.0.0.1:1", values=Values(format="xml"))


def test_bytes_that_are_not_text_are_escaped() -> None:
    assert to_text(pa.array([b"a", None, b"\xff"])).values.to_pylist() == ["a", None, "\\xff"]


def test_an_error_is_shown_in_one_line_without_the_query() -> None:
    shown = one_line(ValueError("Binder Error: no\n such thing\n\nLINE 1: SELECT"))
    assert shown == "Binder Error: no such thing."
