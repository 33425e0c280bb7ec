"""What a person sees of a progress bar while the work goes on, and what stays when it is done."""

import io
import re

import pytest

from penstock.cli.progress import progress

ERASED_LINE = "\x1b[2K"
STYLES = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(total: int | None, amount: int, *, shown: bool = True) -> str:
    """What the bar writes to a terminal of 80 columns, without colours."""
    screen = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stderr", screen)
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "80")
        with progress("Sending", total, shown=shown) as advance:
            advance(amount)
    return STYLES.sub("", screen.getvalue())


def test_a_bar_with_a_total_stays_on_the_screen() -> None:
    last = written(4, 4).rpartition(ERASED_LINE)[2]
    assert "Sending" in last
    assert "4/4" in last


def test_a_bar_without_a_total_counts_and_goes_when_the_work_is_done() -> None:
    text = written(None, 38)
    assert " 38 " in text
    assert "?" not in text.replace("\x1b[?25", "")
    assert text.endswith(ERASED_LINE)


def test_a_bar_that_is_not_shown_writes_nothing() -> None:
    assert written(1, 1, shown=False) == ""
