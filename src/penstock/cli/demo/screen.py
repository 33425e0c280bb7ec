"""Shows how the demonstration is going: a live screen on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock.cli.demo.cluster import NodeState
from penstock.cli.demo.events import Alerted
from penstock.cli.demo.failover import Phase
from penstock.cli.demo.frame import Rates, frame
from penstock.cli.demo.view import View, alert_text, failover_texts, spark_text

if TYPE_CHECKING:
    from rich.live import Live

LINE_EVERY_S = 1.0
FRAME_EVERY_S = 0.25
PICTURE_WIDTH, PICTURE_HEIGHT = 90, 28
# What rich makes of a screen, without the fonts that it would fetch from elsewhere.
PICTURE = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace;
 font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


class Screen(Protocol):
    def show(self, view: View) -> None: ...


class PlainScreen:
    """A line each second, and one for each alert and each change; for logs and pipes."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._alerts = 0
        self._rates = Rates()
        self._phase: Phase | None = None

    def show(self, view: View) -> None:
        self._rates.look(view.ledger, view.elapsed_s)
        for alert in self._new_alerts(view):
            self._say(view, alert_text(alert))
        self._say_changes(view)
        if view.elapsed_s >= self._next_s:
            self._next_s = view.elapsed_s + LINE_EVERY_S
            self._say(view, state_text(view, self._rates))
        sys.stdout.flush()

    def _say(self, view: View, text: str) -> None:
        sys.stdout.write(f"{view.elapsed_s:5.1f} s  {text}\n")

    def _say_changes(self, view: View) -> None:
        """A line for each phase of the failover, and none for what only counts up."""
        phase = view.ledger.failover.phase
        if phase is self._phase:
            return
        killed, back = failover_texts(view)
        if self._phase in (None, Phase.READY, Phase.DOWN):
            self._say(view, f"failover: {killed}")
        self._phase = phase
        if back:
            self._say(view, f"failover: {back}")

    def _new_alerts(self, view: View) -> list[Alerted]:
        """The latest that were not shown yet; more than the ledger keeps are passed over."""
        if view.pipeline is None:
            return []
        total = view.pipeline.alerts_by_controller.total()
        new, self._alerts = total - self._alerts, total
        return list(view.pipeline.latest_alerts)[-new:] if new else []


def state_text(view: View, rates: Rates) -> str:
    ledger = view.ledger
    if not ledger.produced:
        return f"nodes: {nodes_text(view)}"
    text = (
        f"sensors {ledger.produced:,} ({rates.sensors:,.0f}/s)  "
        f"controllers {ledger.arrivals.rows:,} ({rates.controllers:,.0f}/s, lag {ledger.lag():,})  "
        f"nodes {nodes_text(view)}"
    )
    return text if view.pipeline is None else f"{text}  Spark: {spark_text(view)}"


def nodes_text(view: View) -> str:
    return ", ".join(
        f"{node}" if state is NodeState.UP else f"{node} {state}"
        for node, state in view.nodes.items()
    )


class LiveScreen:
    """Draws in the main thread, which alone may look at the ledgers."""

    def __init__(self, live: "Live") -> None:
        self._live = live
        self._rates = Rates()
        self._next_s = 0.0

    def show(self, view: View) -> None:
        self._rates.look(view.ledger, view.elapsed_s)
        if view.elapsed_s < self._next_s:
            return
        self._next_s = view.elapsed_s + FRAME_EVERY_S
        # Each frame for itself, since the window may have another size by now.
        width, height = self._live.console.size
        self._live.update(frame(view, self._rates, width=width, height=height), refresh=True)


class Recorder:
    """Also keeps the screen as a picture: the last one from while the sensors sent."""

    def __init__(self, other: Screen | None, path: Path) -> None:
        self._other = other
        self._path = path
        self._rates = Rates()
        self._next_s = 0.0

    def show(self, view: View) -> None:
        if self._other is not None:
            self._other.show(view)
        self._rates.look(view.ledger, view.elapsed_s)
        if view.ledger.sent is None and view.elapsed_s >= self._next_s:
            self._next_s = view.elapsed_s + LINE_EVERY_S
            self._path.write_text(picture(view, self._rates))


def picture(view: View, rates: Rates) -> str:
    """The live screen as SVG."""
    from rich.console import Console

    width, height = PICTURE_WIDTH, PICTURE_HEIGHT
    nowhere = StringIO()
    console = Console(record=True, file=nowhere, force_terminal=True, width=width, height=height)
    console.print(frame(view, rates, width=width, height=height))
    return console.export_svg(title="make demo", code_format=PICTURE, unique_id="demo")


@contextmanager
def screen(*, quiet: bool, picture_path: Path | None = None) -> Iterator[Screen | None]:
    """The screen that suits its viewer; None when there is nobody."""
    with _screen(quiet=quiet) as shown:
        yield shown if picture_path is None else Recorder(shown, picture_path)


@contextmanager
def _screen(*, quiet: bool) -> Iterator[Screen | None]:
    if quiet:
        yield None
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        yield PlainScreen()
        return
    # The terminal's second screen is drawn as a whole, so that a new size leaves no old frame.
    with Live(console=console, screen=True, auto_refresh=False) as live:
        yield LiveScreen(live)
