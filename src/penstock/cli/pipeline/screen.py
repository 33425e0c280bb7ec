"""Shows a running pipeline: a live table on a terminal, lines elsewhere."""

import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.cli.pipeline.screen_cells import (
    COLUMNS,
    TEXT_COLUMNS,
    cells,
    line,
    restart_line,
    shortened,
)
from penstock.pipelines.running.broker_watch import changes
from penstock.pipelines.running.progress import BatchProgress
from penstock.pipelines.running.run_record import Rest, Run, RunState
from penstock.pipelines.running.watching import Nobody, RunView, Watcher

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

# A flow with quick batches does not fill a log.
LINE_EVERY_S = 1.0
REFRESH_PER_SECOND = 4
# What a server listens on, and no browser can open.
EVERY_ADDRESS = ("0.0.0.0", "::")


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


class LiveScreen:
    """A table that redraws itself; `drawn` is what is on the terminal."""

    def __init__(self) -> None:
        self._phase = ""
        self._view: RunView | None = None

    def phase(self, sentence: str) -> None:
        self._phase = sentence

    def show(self, view: RunView) -> None:
        self._view = view
        self._phase = ""

    def finished(self, flow: str, batch: BatchProgress) -> None: ...

    @property
    def drawn(self) -> "RenderableType":
        if self._view is None:
            from rich.spinner import Spinner

            return Spinner("dots", text=self._phase)
        table = flows_table(self._view)
        if self._phase:
            table.caption = self._phase
        return table


def flows_table(view: RunView) -> "Table":
    """All flows with all that is known of them."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        title=headline(view.run),
        caption="\n".join(waits(view)) or None,
        box=SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        pad_edge=False,
    )
    rows = [cells(replace(flow, sink=shortened(flow.sink))) for flow in view.flows]
    # A column that has nothing to say takes no room.
    shown = [index for index in range(len(COLUMNS)) if any(row[index] for row in rows)]
    for index in shown:
        is_text = COLUMNS[index] in TEXT_COLUMNS
        table.add_column(COLUMNS[index], justify="left" if is_text else "right", overflow="fold")
    for row in rows:
        table.add_row(*(row[index] for index in shown))
    return table


def waits(view: RunView) -> list[str]:
    """What a run waits for, each in a sentence; one that was killed may have left a note of it."""
    if view.run.is_over:
        return []
    restarts = [restart_line(flow, rest) for flow, rest in view.run.resting.items()]
    return changes({}, view.run.silent) + restarts


def headline(run: Run) -> str:
    """Such as "iot, running on local[2] for 65 s, http://localhost:4040"."""
    seconds = ((run.ended_ms or time.time() * 1000) - run.started_ms) / 1000
    where = f" on {run.master}" if run.master else ""
    said = f"{run.pipeline}: {run.state}{where}"
    if run.state is not RunState.KILLED:
        said += f", {seconds:.0f} s"
    pages = web_pages(run)
    return f"{said}, {pages}" if pages and not run.is_over else said


def web_pages(run: Run) -> str | None:
    """The address of Spark's own pages, if it can be opened from this machine.

    Spark listens on loopback where a run has one machine, and that is another one elsewhere.
    """
    parts = urlsplit(run.ui or "")
    if not parts.hostname:
        return None
    is_loopback = parts.hostname in ("localhost", "::1") or parts.hostname.startswith("127.")
    if parts.hostname not in EVERY_ADDRESS and not is_loopback:
        return run.ui
    if run.host != socket.gethostname():
        return None
    return run.ui if is_loopback else f"{parts.scheme}://127.0.0.1:{parts.port}"


@contextmanager
def screen(*, quiet: bool) -> Iterator[Watcher]:
    """The watcher for a terminal, or for a pipe or a file."""
    if quiet:
        yield Nobody()
    elif not sys.stderr.isatty():
        yield PlainScreen()
    else:
        from rich.console import Console
        from rich.live import Live

        shown = LiveScreen()
        # On stderr, so that the rows of a console sink can go elsewhere.
        console = Console(stderr=True, markup=False, highlight=False)
        with Live(
            get_renderable=lambda: shown.drawn,
            console=console,
            refresh_per_second=REFRESH_PER_SECOND,
            # What is printed on the same terminal goes above the table.
            redirect_stdout=sys.stdout.isatty(),
        ):
            yield shown
