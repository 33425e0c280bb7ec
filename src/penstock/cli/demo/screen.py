"""Shows how the demonstration is going: a live table on a terminal, plain lines elsewhere."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from penstock.cli.demo.ledger import Ledger

if TYPE_CHECKING:
    from rich.table import Table

SENSORS = "sensors"
LINE_EVERY_S = 1.0


class Screen(Protocol):
    def show(self, ledger: Ledger, elapsed_s: float) -> None: ...


class Rates:
    """Readings per second since the last look, for the sensors and for each controller."""

    def __init__(self) -> None:
        self._totals: Counter[str] = Counter()
        self._looked_s = 0.0

    def look(self, ledger: Ledger, elapsed_s: float) -> dict[str, float]:
        totals = Counter(ledger.consumed)
        totals[SENSORS] = ledger.produced
        passed = max(elapsed_s - self._looked_s, 0.001)
        rates = {name: (totals[name] - self._totals[name]) / passed for name in totals}
        self._totals, self._looked_s = totals, elapsed_s
        return rates


class PlainScreen:
    """A line each second, for logs and pipes."""

    def __init__(self) -> None:
        self._rates = Rates()
        self._next_s = LINE_EVERY_S

    def show(self, ledger: Ledger, elapsed_s: float) -> None:
        if elapsed_s < self._next_s:
            return
        self._next_s = elapsed_s + LINE_EVERY_S
        rates = self._rates.look(ledger, elapsed_s)
        parts = [f"{elapsed_s:5.1f} s", f"sensors {ledger.produced:,} ({rates[SENSORS]:,.0f}/s)"]
        parts += [
            f"{name} {ledger.consumed[name]:,} "
            f"({rates.get(name, 0):,.0f}/s, lag {ledger.lag(name):,})"
            for name in sorted(ledger.shares)
        ]
        sys.stdout.write("  ".join(parts) + "\n")
        sys.stdout.flush()


class LiveScreen:
    """A table that redraws itself; `draw` is what puts it on the terminal."""

    def __init__(self, seconds: float) -> None:
        self._rates = Rates()
        self._shown_rates: dict[str, float] = {}
        self._next_s = 0.0
        self._seconds = seconds
        self.table: Table | None = None

    def show(self, ledger: Ledger, elapsed_s: float) -> None:
        if elapsed_s >= self._next_s:
            self._next_s = elapsed_s + LINE_EVERY_S / 2
            self._shown_rates = self._rates.look(ledger, elapsed_s)
        self.table = self._draw(ledger, elapsed_s)

    def _draw(self, ledger: Ledger, elapsed_s: float) -> "Table":
        from rich.box import ROUNDED
        from rich.table import Table

        p50, p99 = (ledger.latencies.percentile(share) for share in (0.5, 0.99))
        table = Table(
            title=f"Penstock demo, {elapsed_s:.0f} of {self._seconds:.0f} s",
            caption=f"latency p50 {p50:.1f} ms, p99 {p99:.1f} ms; highest lag {ledger.lag_max}",
            box=ROUNDED,
        )
        table.add_column("who")
        for column in ("partitions", "readings", "per second", "lag"):
            table.add_column(column, justify="right")
        rate = self._shown_rates.get(SENSORS, 0)
        table.add_row(SENSORS, "", f"{ledger.produced:,}", f"{rate:,.0f}", "")
        for name, share in sorted(ledger.shares.items()):
            rate = self._shown_rates.get(name, 0)
            count, lag = ledger.consumed[name], ledger.lag(name)
            table.add_row(name, str(len(share)), f"{count:,}", f"{rate:,.0f}", str(lag))
        return table


@contextmanager
def screen(seconds: float, *, quiet: bool) -> Iterator[Screen | None]:
    """The screen that suits whoever is looking; None when nobody is."""
    if quiet:
        yield None
    elif not sys.stdout.isatty():
        yield PlainScreen()
    else:
        from rich.console import Group
        from rich.live import Live

        live_screen = LiveScreen(seconds)
        with Live(get_renderable=lambda: live_screen.table or Group(), refresh_per_second=4):
            yield live_screen
