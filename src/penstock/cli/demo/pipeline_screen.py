"""Shows the pipeline at work: windows and alerts as they come, as tables or as plain lines."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from penstock.cli.demo.events import Alerted
from penstock.cli.demo.expectation import Window
from penstock.cli.demo.pipeline_ledger import PipelineLedger

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

LINE_EVERY_S = 1.0
SENSORS_SHOWN = 8
STARTING = "Spark is starting"


class PipelineScreen(Protocol):
    def show(self, ledger: PipelineLedger, elapsed_s: float) -> None: ...


class PlainScreen:
    """A line each second, and one for each alert; for logs and pipes."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._alerts = 0

    def show(self, ledger: PipelineLedger, elapsed_s: float) -> None:
        for alert in self._new_alerts(ledger):
            sys.stdout.write(f"{elapsed_s:5.1f} s  {alert_text(alert)}\n")
        if elapsed_s >= self._next_s:
            self._next_s = elapsed_s + LINE_EVERY_S
            sys.stdout.write(f"{elapsed_s:5.1f} s  {state_text(ledger)}\n")
        sys.stdout.flush()

    def _new_alerts(self, ledger: PipelineLedger) -> list[Alerted]:
        """The latest that were not shown yet; more than the ledger keeps are passed over."""
        total = ledger.alerts_by_controller.total()
        new, self._alerts = total - self._alerts, total
        return list(ledger.latest_alerts)[-new:] if new else []


class LiveScreen:
    """Tables that redraw themselves; `picture` is what is on the terminal."""

    def __init__(self) -> None:
        self.picture: Group | None = None

    def show(self, ledger: PipelineLedger, elapsed_s: float) -> None:
        from rich.console import Group
        from rich.text import Text

        title = Text(f"Penstock demo, {elapsed_s:.0f} s", style="bold")
        parts = [title, Text(state_text(ledger)), Text("")]
        if ledger.windows:
            parts.append(Text("Averages, from Spark's table:"))
        self.picture = Group(*parts, windows_table(ledger), Text(""), alerts_table(ledger))


def state_text(ledger: PipelineLedger) -> str:
    sent = f"sent {ledger.produced:,}"
    if not ledger.archive.rows:
        return f"{sent}  ({STARTING})"
    return (
        f"{sent}  in the table {ledger.archive.rows:,}  windows {len(ledger.windows):,}  "
        f"alerts {ledger.alerts_by_controller.total():,}"
    )


def alert_text(alert: Alerted) -> str:
    return (
        f"{alert.controller} hears: {alert.sensor} says {alert.temperature:.1f} degrees, "
        f"usual are {alert.usual:.1f}"
    )


def windows_table(ledger: PipelineLedger, shown: int = SENSORS_SHOWN) -> "Table":
    """The last window of the first sensors, as Spark wrote it into the lake."""
    from rich.box import ROUNDED
    from rich.table import Table

    table = Table(box=ROUNDED)
    table.add_column("sensor")
    table.add_column("window")
    for column in ("readings", "average", "lowest", "highest"):
        table.add_column(column, justify="right")
    windows = ledger.latest_windows()
    for window in windows[:shown]:
        table.add_row(*window_cells(window))
    if len(windows) > shown:
        table.add_row(f"and {len(windows) - shown} more", "", "", "", "", "")
    return table


def window_cells(window: Window) -> list[str]:
    times = f"{clock_text(window.begins_us)} to {clock_text(window.ends_us)}"
    degrees = (f"{value:.2f}" for value in (window.average, window.lowest, window.highest))
    return [window.sensor, times, f"{window.readings:,}", *degrees]


def clock_text(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%H:%M:%S")


def alerts_table(ledger: PipelineLedger) -> "Table":
    from rich.box import ROUNDED
    from rich.table import Table

    table = Table(box=ROUNDED)
    table.add_column("alert")
    for column in ("degrees", "usual"):
        table.add_column(column, justify="right")
    table.add_column("heard by")
    for alert in ledger.latest_alerts:
        degrees = f"{alert.temperature:.1f}", f"{alert.usual:.1f}"
        table.add_row(f"{alert.sensor}, reading {alert.number:,}", *degrees, alert.controller)
    return table


@contextmanager
def pipeline_screen(*, quiet: bool) -> Iterator[PipelineScreen | None]:
    """The screen that suits whoever is looking; None when nobody is."""
    if quiet:
        yield None
    elif not sys.stdout.isatty():
        yield PlainScreen()
    else:
        from rich.live import Live
        from rich.text import Text

        live_screen = LiveScreen()
        with Live(get_renderable=lambda: live_screen.picture or Text(""), refresh_per_second=4):
            yield live_screen
