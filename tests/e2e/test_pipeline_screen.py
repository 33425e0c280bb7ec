"""Proves in a real terminal that a pipeline's screen fits each size, and leaves nothing behind.

tmux is the terminal: it resizes windows, and says what each line of them shows.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from rich.segment import Segment

from penstock.cli.pipeline.screen_frame import Frame
from tests.documents import ROOT
from tests.e2e.shown_pipeline import VIEW
from tests.waiting import wait_until

SPECIFICATION = """\
pipeline: iot
sources:
  readings: {topic: readings}
flows:
  raw: {from: readings, to: {parquet: lake/raw}}
"""
PROMPT = "ready$"
ROW = "a row of a console sink"
TIMEOUT_S = 60.0
# Smaller and larger, in one direction and in both, and back.
SIZES = [(80, 24), (120, 40), (80, 24), (200, 50), (60, 12), (61, 30), (100, 12), (80, 24)]


class Terminal:
    def __init__(self, folder: Path) -> None:
        self._socket = folder / "tmux"
        shell = f"env PS1='{PROMPT} ' sh"
        self._tmux("-f", os.devnull, "new-session", "-d", "-x", "80", "-y", "24", shell)
        self._tmux("set-option", "-g", "status", "off")

    def type(self, text: str) -> None:
        self._tmux("send-keys", text, "Enter")

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    @property
    def lines(self) -> list[str]:
        """All of the window, without blanks at the end of a line."""
        return [each.rstrip() for each in self._tmux("capture-pane", "-p").split("\n")[:-1]]

    @property
    def is_full_screen(self) -> bool:
        return self._tmux("display-message", "-p", "#{alternate_on}").strip() == "1"

    @property
    def has_prompt(self) -> bool:
        return [each for each in self.lines if each][-1:] == [PROMPT]

    def close(self) -> None:
        self._tmux("kill-server")

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-u", "-S", str(self._socket), *arguments]
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        for name in ("TMUX", "COLUMNS", "LINES"):
            environment.pop(name, None)
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("not installed: tmux")
    found = Terminal(tmp_path)
    wait_until("the shell", lambda: found.has_prompt, TIMEOUT_S)
    yield found
    found.close()


@pytest.fixture
def command(tmp_path: Path) -> str:
    file = tmp_path / "iot.yaml"
    file.write_text(SPECIFICATION)
    return f"{sys.executable} -m tests.e2e.shown_pipeline pipeline run {file}"


def expected(width: int, height: int) -> list[str]:
    """The frame in the whole window, and nothing else."""
    console = Console(width=width, markup=False, highlight=False)
    frame = Frame(view=VIEW, height=height, printed=[ROW])
    drawn = Segment.split_lines(console.render(frame))
    lines = ["".join(part.text for part in one).rstrip() for one in drawn]
    assert len(lines) <= height
    return lines + [""] * (height - len(lines))


def test_nothing_of_an_old_frame_stays_after_a_resize(terminal: Terminal, command: str) -> None:
    terminal.type(command)
    for width, height in SIZES:
        terminal.resize(width, height)
        wanted = expected(width, height)
        wait_until(
            f"the frame of {width}x{height}",
            lambda wanted=wanted: terminal.lines == wanted,  # type: ignore[misc]
            TIMEOUT_S,
        )
    assert sum(each.startswith("flow_") for each in terminal.lines) == 12

    terminal.press("C-c")
    wait_until("the prompt", lambda: terminal.has_prompt, TIMEOUT_S)
    assert not terminal.is_full_screen
    assert [each for each in terminal.lines if each][-3:] == [ROW, "Stopped after 1.0 s.", PROMPT]
    assert not any("flow_" in each for each in terminal.lines)


def test_a_run_that_is_ended_at_once_gives_the_terminal_back(
    terminal: Terminal, command: str
) -> None:
    terminal.type(f"STUBBORN=1 {command}")
    wait_until("the frame", lambda: terminal.lines == expected(80, 24), TIMEOUT_S)
    assert terminal.is_full_screen
    terminal.press("C-c")
    wait_until("the stop", lambda: terminal.lines[0].startswith("iot: stopping"), TIMEOUT_S)
    terminal.press("C-c")
    wait_until("the prompt", lambda: terminal.has_prompt, TIMEOUT_S)
    assert not terminal.is_full_screen
