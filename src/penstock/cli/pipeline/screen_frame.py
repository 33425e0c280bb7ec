"""One picture of a run that fits its terminal: the flows, what is wrong, and which rules broke.

Each flow takes one line. Where the terminal is too low for all flows, those that need attention
come first and the others are counted.
"""

import socket
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.cli.fitted_table import fitted_table, shortened
from penstock.cli.pipeline.screen_cells import (
    COLUMNS,
    STATE_PLACE,
    STYLES,
    broken_rules,
    cells,
    restart_line,
)
from penstock.pipelines.running.broker_watch import changes
from penstock.pipelines.running.flow_states import BY_URGENCY
from penstock.pipelines.running.run_record import Run, RunState
from penstock.pipelines.running.watching import FlowView, RunView

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

# What a server listens on, and no browser can open.
EVERY_ADDRESS = ("0.0.0.0", "::")
# The headline and the names of the columns.
LINES_ABOVE = 2
# What is wrong gets this part of a terminal that is too low for everything.
NOTES_SHARE = 3
RULES_TITLE = "Broken rules, by rows:"
RULES_INDENT = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Draws itself into the width that rich gives it and the height that is known to be there."""

    view: RunView
    height: int | None = None
    """None: as many lines as it takes."""
    has_troubles: bool = True
    """Whether it reports what went wrong; the command that ends does so itself."""
    phase: str = ""
    printed: Sequence[str] = ()
    """What was printed meanwhile: the last lines fill the rest."""

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.text import Text

        width, height = options.max_width, self.height
        notes = [self.phase] if self.phase else []
        if self.has_troubles:
            notes += trouble_lines(self.view, width)
        notes += rule_lines(self.view, width, is_whole=height is None)
        flows = by_urgency(self.view.flows, None if height is None else _room(height, len(notes)))
        yield Text(shortened(headline(self.view.run), width), style="bold")
        yield flows_table(flows, width)
        used = LINES_ABOVE + len(flows)
        if left_out := [flow for flow in self.view.flows if flow not in flows]:
            yield Text(shortened(_counted(left_out), width), style="dim")
            used += 1
        if height is not None:
            notes = _cut(notes, height - used, width)
            # One line stays empty between the run and what its flows print.
            room = height - used - len(notes) - 1
            printed = self.printed[-room:] if room > 0 else ()
            notes += [shortened(each, width) for each in ("", *printed) if printed]
        for each in notes:
            yield Text(each)


def _room(height: int, notes: int) -> int:
    """For how many flows there are lines beside the notes."""
    lines = max(0, height - LINES_ABOVE)
    return max(1, lines - min(notes, lines // NOTES_SHARE))


def flows_table(flows: Sequence[FlowView], width: int) -> "Table":
    rows = [cells(flow) for flow in flows]
    styles = {
        (number, STATE_PLACE): STYLES[flow.state]
        for number, flow in enumerate(flows)
        if flow.state in STYLES
    }
    return fitted_table(COLUMNS, rows, width, styles)


def by_urgency(flows: Sequence[FlowView], room: int | None) -> list[FlowView]:
    """All flows in their order, or the most urgent ones and a line for the others."""
    if room is None or len(flows) <= room:
        return list(flows)
    return sorted(flows, key=lambda flow: BY_URGENCY.index(flow.state))[: max(1, room - 1)]


def _counted(flows: Iterable[FlowView]) -> str:
    """Such as "and 5 more: 3 running, 2 idle"."""
    states = Counter(flow.state for flow in flows)
    ordered = sorted(states, key=BY_URGENCY.index)
    said = ", ".join(f"{states[state]} {state}" for state in ordered)
    return f"and {states.total()} more: {said}"


def trouble_lines(view: RunView, width: int) -> list[str]:
    """What went wrong and what the run waits for, in whole sentences."""
    return [
        each
        for sentence in troubles(view)
        for each in textwrap.wrap(sentence, width, subsequent_indent="  ")
    ]


def rule_lines(view: RunView, width: int, *, is_whole: bool) -> list[str]:
    """The broken rules, one line each; `is_whole` takes more lines where one is too short."""
    rules = broken_rules(view)
    lines = [RULES_TITLE] if rules else []
    name_width = min(max((len(rule.name) for rule in rules), default=0), width // 2)
    for rule in rules:
        name = shortened(rule.name, name_width, keeps_end=True).ljust(name_width)
        said = f"{RULES_INDENT}{name}  {rule.by_flow}"
        indent = " " * (len(RULES_INDENT) + name_width + 2)
        whole = textwrap.wrap(said, width, subsequent_indent=indent)
        lines += whole if is_whole else [shortened(said, width)]
    return lines


def _cut(lines: Sequence[str], room: int, width: int) -> list[str]:
    """The first lines, and how many are left out if they are not all."""
    if len(lines) <= room:
        return list(lines)
    left_out = len(lines) - max(0, room - 1)
    said = f"and {left_out} more lines: `penstock pipeline status` shows them"
    return [*lines[: max(0, room - 1)], shortened(said, width)][: max(0, room)]


def troubles(view: RunView) -> list[str]:
    """Each in a sentence."""
    failures = [
        f"The flow {flow.name} failed: {flow.failure}"
        for flow in view.flows
        if flow.failure is not None
    ]
    error = view.run.error
    others = [error] if error is not None and error not in failures else []
    return others + failures + waits(view)


def waits(view: RunView) -> list[str]:
    """What a run waits for, each in a sentence; one that was killed may have left a note of it."""
    if view.run.is_over:
        return []
    restarts = [restart_line(flow, rest) for flow, rest in view.run.resting.items()]
    return changes({}, view.run.silent) + restarts


def headline(run: Run) -> str:
    """Such as "iot: running on local[2], 65 s, http://localhost:4040"."""
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
