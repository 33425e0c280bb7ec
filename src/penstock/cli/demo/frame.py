"""Draws the live screen: everything that matters fits into 80 by 24 characters.

A larger terminal shows more windows and more alerts. A smaller one loses windows first.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.cli.demo.cluster import NodeState
from penstock.cli.demo.failover import Phase
from penstock.cli.demo.ledger import Ledger
from penstock.cli.demo.pipeline_ledger import PipelineLedger
from penstock.cli.demo.view import (
    WINDOW_HEADS,
    View,
    alert_cells,
    alerts_text,
    failover_texts,
    leads_text,
    spark_text,
    title_text,
    window_cells,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

COLOURS = {NodeState.STARTING: "yellow", NodeState.UP: "green", NodeState.KILLED: "bold red"}
BARS = "▁▂▃▄▅▆▇█"
LABEL_WIDTH = 13
COLUMN_GAP = 2
# The title, nodes with their heads, two readings, two of the failover, Spark, alerts, blank lines.
ROWS_FIXED = 14
# The head of the windows, and how many are not shown.
ROWS_AROUND_WINDOWS = 2
WINDOWS_MAX = 10
RATE_EVERY_S = 0.5
RATES_KEPT = 60


class Rates:
    """Readings per second over the last moments, of the sensors and of the controllers."""

    def __init__(self) -> None:
        self.sensors = 0.0
        self.controllers = 0.0
        self.history: deque[float] = deque(maxlen=RATES_KEPT)
        self._totals = (0, 0)
        self._looked_s = 0.0

    def look(self, ledger: Ledger, elapsed_s: float) -> None:
        passed_s = elapsed_s - self._looked_s
        if passed_s < RATE_EVERY_S:
            return
        totals = (ledger.produced, ledger.consumed.total())
        self.sensors, self.controllers = (
            (now - before) / passed_s for now, before in zip(totals, self._totals, strict=True)
        )
        self._totals, self._looked_s = totals, elapsed_s
        self.history.append(self.sensors)


def frame(view: View, rates: Rates, *, width: int, height: int) -> "RenderableType":
    """For a terminal of that size."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [_line(title_text(view), "bold")]
    parts += [nodes_table(view), Text(""), *_broker_lines(view, rates, width)]
    if view.pipeline is not None:
        parts.append(Text(""))
        parts += _pipeline_parts(view, view.pipeline, height - ROWS_FIXED)
    return Group(*parts)


def nodes_table(view: View) -> "Table":
    table = _table()
    table.add_column("node", width=LABEL_WIDTH - COLUMN_GAP)
    table.add_column("state", width=10)
    table.add_column("leads", width=18)
    table.add_column(_copies_text(view.ledger))
    for node, state in view.nodes.items():
        table.add_row(f"{node}", f"[{COLOURS[state]}]{state}[/]", leads_text(view, node))
    return table


def _copies_text(ledger: Ledger) -> str:
    if not ledger.leaders:
        return ""
    late = ledger.under_replicated
    return f"[yellow]{late} partitions lack a copy[/]" if late else "all copies are up to date"


def _broker_lines(view: View, rates: Rates, width: int) -> "list[RenderableType]":
    ledger = view.ledger
    acknowledged, delivered = (
        f"p50 {one.percentile(0.5):.0f} ms, p99 {one.percentile(0.99):.0f} ms"
        for one in (ledger.acknowledgements, ledger.deliveries)
    )
    sent = f"{rates.sensors:,.0f}/s, {ledger.produced:,} acknowledged, {acknowledged} "
    room = max(width - LABEL_WIDTH - len(sent), 0)
    read = f"{rates.controllers:,.0f}/s, {ledger.arrivals.rows:,} read, {delivered}"
    killed, back = failover_texts(view)
    style = "bold red" if ledger.failover.phase is Phase.DOWN else ""
    return [
        _labelled("sensors", sent + bars(rates.history, room)),
        _labelled("controllers", f"{read}, lag {ledger.lag():,}"),
        _labelled("failover", killed, style),
        _labelled("", back),
    ]


def _pipeline_parts(view: View, pipeline: PipelineLedger, room: int) -> "list[RenderableType]":
    from rich.text import Text

    windows = pipeline.latest_windows()
    shown = min((room - ROWS_AROUND_WINDOWS) * 2 // 5, WINDOWS_MAX, len(windows))
    parts: list[RenderableType] = [_labelled("Spark", spark_text(view))]
    if shown > 0:
        parts.append(windows_table(pipeline, shown))
        left = len(windows) - shown
        parts.append(_line(f"and {left} more sensors" if left else "", "dim"))
        room -= shown + ROWS_AROUND_WINDOWS
    parts += [Text(""), _labelled("alerts", alerts_text(pipeline)), alerts_table(pipeline, room)]
    return parts


def windows_table(pipeline: PipelineLedger, shown: int) -> "Table":
    """The last window of the first sensors, as Spark wrote it into the lake."""
    table = _table()
    for column, head in enumerate(WINDOW_HEADS):
        table.add_column(head, justify="right" if column > 1 else "left")
    for window in pipeline.latest_windows()[:shown]:
        table.add_row(*window_cells(window))
    return table


def alerts_table(pipeline: PipelineLedger, shown: int) -> "Table":
    """The newest first."""
    table = _table()
    table.show_header = False
    for alert in list(reversed(pipeline.latest_alerts))[: max(shown, 1)]:
        table.add_row(*alert_cells(alert))
    return table


def bars(rates: Sequence[float], room: int) -> str:
    """The last rates as blocks, of which the highest is full."""
    shown = list(rates)[-room:] if room else []
    highest = max(shown, default=0.0) or 1.0
    return "".join(BARS[round(rate / highest * (len(BARS) - 1))] for rate in shown)


def _table() -> "Table":
    from rich.table import Table

    return Table(box=None, pad_edge=False, padding=(0, COLUMN_GAP, 0, 0), header_style="dim")


def _labelled(label: str, text: str, style: str = "") -> "RenderableType":
    from rich.text import Text

    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(label.ljust(LABEL_WIDTH), "dim")
    return line.append(text, style)


def _line(text: str, style: str) -> "RenderableType":
    from rich.text import Text

    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
