"""Shows a running pipeline: a live screen on a terminal, lines elsewhere."""

import io
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cli.pipeline.screen_cells import line, restart_line
from penstock.cli.pipeline.screen_frame import Frame
from penstock.pipelines.running.broker_watch import changes
from penstock.pipelines.running.progress import BatchProgress
from penstock.pipelines.running.run_record import Rest, RunState
from penstock.pipelines.running.watching import Nobody, RunView, Watcher

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# A flow with quick batches does not fill a log.
LINE_EVERY_S = 1.0
REFRESH_PER_SECOND = 4
# Of what flows print while the screen is theirs, that much comes onto the terminal afterwards.
PRINTED_LINES_MAX = 1_000
CANT_BE_DRAWN_ON = ("dumb", "unknown")
# The cursor is shown, and the terminal has its old content again.
LEAVE = b"\x1b[?25h\x1b[?1049l"


class PlainScreen:
    """What happens, as lines on stderr: stdout belongs to console sinks."""

    def __init__(self) -> None:
        self._next_s: dict[str, float] = {}
        self._is_stopping = False
        self._silent: Mapping[str, str] = {}
        self._resting: Mapping[str, Rest] = {}

    def phase(self, sentence: str) -> None:
        self._say(sentence)

    def show(self, view: RunView) -> None:
        if view.run.state is RunState.STOPPING and not self._is_stopping:
            self._is_stopping = True
            self._say("Stopping after the current batches.")
        for sentence in changes(self._silent, view.run.silent):
            self._say(sentence)
        self._silent = view.run.silent
        for flow, rest in view.run.resting.items():
            if rest != self._resting.get(flow):
                self._say(restart_line(flow, rest))
        self._resting = view.run.resting

    def finished(self, flow: str, batch: BatchProgress) -> None:
        now = time.monotonic()
        if now >= self._next_s.get(flow, 0.0):
            self._next_s[flow] = now + LINE_EVERY_S
            self._say(line(flow, batch))

    def _say(self, sentence: str) -> None:
        sys.stderr.write(sentence + "\n")
        sys.stderr.flush()


class Printed(io.TextIOBase):
    """Takes the place of stdout while the terminal is a screen's; keeps the last lines."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=PRINTED_LINES_MAX)
        self._begun = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *whole, self._begun = (self._begun + text).split("\n")
        self.lines.extend(whole)
        return len(text)


class LiveScreen:
    """A picture that redraws itself; `draw` makes what is on a terminal of that height."""

    def __init__(self) -> None:
        self._phase = ""
        self._view: RunView | None = None
        self.printed = Printed()

    def phase(self, sentence: str) -> None:
        self._phase = sentence

    def show(self, view: RunView) -> None:
        self._view = view
        self._phase = ""

    def finished(self, flow: str, batch: BatchProgress) -> None: ...

    def draw(self, height: int) -> "RenderableType":
        if self._view is None:
            from rich.text import Text

            return Text(self._phase)
        printed = tuple(self.printed.lines)
        return Frame(view=self._view, height=height, phase=self._phase, printed=printed)

    @property
    def failed(self) -> Frame | None:
        """The run as it was shown last, for a terminal that is nobody's screen any more."""
        if self._view is None:
            return None
        run = replace(self._view.run, state=RunState.FAILED)
        return Frame(view=replace(self._view, run=run), has_troubles=False)


@contextmanager
def screen(*, quiet: bool) -> Iterator[Watcher]:
    """The watcher for a terminal, or for a pipe or a file."""
    if quiet:
        yield Nobody()
    elif not sys.stderr.isatty() or os.environ.get("TERM") in CANT_BE_DRAWN_ON:
        yield PlainScreen()
    else:
        with _live_screen() as shown:
            yield shown


@contextmanager
def _live_screen() -> Iterator[LiveScreen]:
    from rich.console import Console

    shown = LiveScreen()
    # On stderr, so that the rows of a console sink can go elsewhere.
    console = Console(stderr=True, markup=False, highlight=False)
    stdout = sys.stdout
    try:
        with (
            full_screen(console, shown.draw),
            # Rows that go to the same terminal are shown below the flows.
            redirect_stdout(shown.printed if stdout.isatty() else stdout),
        ):
            yield shown
    except BaseException:
        if shown.failed is not None:
            console.print(shown.failed)
        raise
    finally:
        for each in shown.printed.lines:
            stdout.write(each + "\n")


@contextmanager
def full_screen(console: "Console", draw: "Callable[[int], RenderableType]") -> Iterator[None]:
    """The whole terminal, whose height `draw` gets, is drawn a few times a second.

    That is the terminal's second screen, which it does not scroll and does not wrap: every sign of
    it is written each time, so that nothing of an old picture stays after its size has changed.
    """
    from rich.live import Live

    with Live(
        get_renderable=lambda: draw(console.height),
        console=console,
        screen=True,
        refresh_per_second=REFRESH_PER_SECOND,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield


def leave(watcher: Watcher) -> None:
    """Gives the terminal back, for a process that ends without another word."""
    if isinstance(watcher, LiveScreen):
        os.write(sys.stderr.fileno(), LEAVE)
