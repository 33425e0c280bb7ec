"""What people see in a terminal of 80 columns is not torn apart; pipes get what they always got."""

import io
import sys
from collections.abc import Callable, Iterator

import click
import pytest

from penstock.cli import doctor, sql
from penstock.cli.checks import Finding, State
from penstock.server.process import _for_people

COLUMNS = 80


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines_of(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> list[str]:
    """What an action prints in a terminal."""
    terminal = Terminal()
    with monkeypatch.context() as patched:
        patched.setenv("COLUMNS", str(COLUMNS))
        patched.setattr(sys, "stdout", terminal)
        action()
    return click.unstyle(terminal.getvalue()).splitlines()


def rows(*texts: str) -> Iterator[tuple[str, ...]]:
    yield texts


def test_an_answer_that_is_too_wide_has_a_line_for_each_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = lines_of(
        monkeypatch, lambda: sql._print_table(("key", "value"), rows("k", "x" * COLUMNS))
    )
    assert lines == ["row 1", "  key    k", f"  value  {'x' * COLUMNS}"]


def test_an_answer_that_fits_is_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """One letter more, and it would not."""
    texts = ("k" * 33, "x" * (COLUMNS - 33 - 2 * sql.TABLE_GAP - 1))
    assert sql.width_of(("key", "value"), [texts]) == COLUMNS
    lines = lines_of(monkeypatch, lambda: sql._print_table(("key", "value"), rows(*texts)))
    assert any(all(text in line for text in texts) for line in lines), lines
    assert max(map(len, lines)) == COLUMNS


def test_a_pipe_gets_a_table_of_any_width(capsys: pytest.CaptureFixture[str]) -> None:
    sql._print_table(("key", "value"), rows("k", "x" * COLUMNS))
    assert capsys.readouterr().out.splitlines()[1] == f"k    {'x' * COLUMNS}"


def test_findings_of_the_doctor_stay_within_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Finding(
        name="packages", state=State.OK, text="several words " * 20, advice="do it " * 20
    )
    lines = lines_of(monkeypatch, lambda: doctor._print(found))
    assert len(lines) > 4
    assert max(map(len, lines)) <= COLUMNS
    assert all(line.startswith(" " * 25) for line in lines[1:])


def test_the_line_of_a_node_that_is_ready_breaks_between_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = "penstock node 1 ready: " + " ".join(f"door{n}=127.0.0.1:{n:05}" for n in range(6))
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    shown = _for_people(line)
    assert max(map(len, shown.splitlines())) <= COLUMNS
    assert " ".join(shown.split()) == line
