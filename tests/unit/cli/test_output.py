"""Tables: aligned for pipes, drawn for people."""

import sys

import pytest

from penstock.cli.output import counted, print_json, print_table


def test_columns_are_aligned_and_never_empty(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "lag"), [("a", 5), ("longer", None), ("", 12)])
    assert capsys.readouterr().out == "TOPIC   LAG\na         5\nlonger    -\n-        12\n"


def test_a_table_without_rows_is_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("a", "b"), [])
    assert capsys.readouterr().out == "A  B\n"


def test_a_terminal_gets_a_drawn_table_with_names_as_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    print_table(("topic",), [("[red]x",)])
    drawn = capsys.readouterr().out
    assert "[red]x" in drawn
    assert "─" in drawn


def test_json_is_indented_and_keeps_letters(capsys: pytest.CaptureFixture[str]) -> None:
    print_json([{"name": "ä"}])
    assert capsys.readouterr().out == '[\n  {\n    "name": "ä"\n  }\n]\n'


def test_numbers_take_their_nouns() -> None:
    assert [counted(number, "record") for number in (0, 1, 1000)] == [
        "0 records",
        "1 record",
        "1,000 records",
    ]
