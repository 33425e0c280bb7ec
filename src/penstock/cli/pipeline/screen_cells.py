"""What is shown of flows, as text: one list of columns for the live screen, `status` and pipes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from penstock.cli.fitted_table import Column
from penstock.pipelines.running.flow_states import FlowState
from penstock.pipelines.running.progress import BatchProgress, RuleCounts
from penstock.pipelines.running.run_record import Rest, now_ms
from penstock.pipelines.running.watching import FlowView, RunView

UNITS = ("B", "kB", "MB", "GB", "TB")
NAME_WIDTH_MIN = 12
STATE_WIDTH_MIN = 10
STYLES = {
    FlowState.FAILED: "bold red",
    FlowState.KILLED: "bold red",
    FlowState.RESTARTING: "yellow",
    FlowState.NO_BROKER: "yellow",
    FlowState.RUNNING: "green",
}


def _of_last(text: Callable[[BatchProgress], str]) -> Callable[[FlowView], str]:
    """A cell that stays empty until a batch has ended."""
    return lambda flow: "" if flow.last is None else text(flow.last)


# In the order in which they stand; the ranks say which ones come in first on a wider terminal.
_COLUMNS: Mapping[Column, Callable[[FlowView], str]] = {
    Column(name="flow", width_min=NAME_WIDTH_MIN, keeps_end=True): lambda flow: flow.name,
    Column(name="state", width_min=STATE_WIDTH_MIN): lambda flow: state_text(flow),
    Column(name="rows/s", is_number=True): lambda flow: rate_text(flow),
    Column(name="lag", is_number=True): _of_last(
        lambda last: f"{last.lag_total:,}" if last.lag else ""
    ),
    Column(name="last batch", is_number=True): _of_last(
        lambda last: f"{age(now_ms() - last.ended_ms)} ago"
    ),
    Column(name="rows", is_number=True, rank=1): _of_last(lambda last: f"{last.total.rows_in:,}"),
    Column(name="broken rules", is_number=True, rank=2): _of_last(
        lambda last: _unless_zero(last.total.broken_rules)
    ),
    Column(name="dead letters", is_number=True, rank=3): _of_last(
        lambda last: _unless_zero(last.total.dead_letters)
    ),
    Column(name="batch time", is_number=True, rank=4): _of_last(
        lambda last: duration(last.batch_ms)
    ),
    Column(name="watermark", rank=6): _of_last(lambda last: clock(last.watermark)),
    Column(name="state rows", is_number=True, rank=7): _of_last(
        lambda last: _unless_zero(last.state_rows)
    ),
    Column(name="state size", is_number=True, rank=8): _of_last(
        lambda last: size(last.state_bytes) if last.state_bytes else ""
    ),
    Column(name="batch", is_number=True, rank=9): _of_last(lambda last: str(last.batch)),
    Column(name="to", rank=5): lambda flow: short_sink(flow.sink),
}
COLUMNS = tuple(_COLUMNS)
STATE_PLACE = [column.name for column in COLUMNS].index("state")


def cells(flow: FlowView) -> Sequence[str]:
    """One row of the table."""
    return [text(flow) for text in _COLUMNS.values()]


def state_text(flow: FlowView) -> str:
    """Such as "running" or "restarts in 4 s (attempt 3)"."""
    if flow.rest is None or flow.state is not FlowState.RESTARTING:
        return str(flow.state)
    return f"restarts {_when(flow.rest)} (attempt {flow.rest.attempt})"


def rate_text(flow: FlowView) -> str:
    """The rate of the last batch says nothing of a flow that does not run."""
    if flow.state is FlowState.IDLE:
        return "0"
    is_working = flow.state in (FlowState.RUNNING, FlowState.STOPPING)
    return f"{flow.last.rate:,.0f}" if is_working and flow.last is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    dataset: str
    rule: str
    rows: Mapping[str, int]
    """By flow, since its checkpoint began; each flow reads and counts for itself."""

    @property
    def name(self) -> str:
        return f"{self.dataset}.{self.rule}"

    @property
    def by_flow(self) -> str:
        return ", ".join(f"{count:,} in {flow}" for flow, count in self.rows.items())


def broken_rules(view: RunView) -> list[BrokenRule]:
    """Rule by rule, in the order of the file; the flow with the most rows comes first."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for flow in view.flows:
        for dataset, rule, count in broken(flow.last.total.rules if flow.last else {}):
            found.setdefault((dataset, rule), {})[flow.name] = count
    return [
        BrokenRule(
            dataset=dataset,
            rule=rule,
            rows=dict(sorted(rows.items(), key=lambda each: each[1], reverse=True)),
        )
        for (dataset, rule), rows in found.items()
    ]


def broken(rules: RuleCounts) -> Iterable[tuple[str, str, int]]:
    """Dataset, rule and rows of each rule that was broken at all."""
    return (
        (dataset, rule, count)
        for dataset, counts in rules.items()
        for rule, count in counts.items()
        if count
    )


def line(flow: str, batch: BatchProgress) -> str:
    """A finished batch, for logs and pipes."""
    parts = [
        f"{flow}: batch {batch.batch}",
        f"{batch.rows_in:,} rows in",
        f"{batch.rows_out:,} out" if batch.rows_out is not None else "",
        f"{batch.rate:,.0f}/s",
        duration(batch.batch_ms),
        f"lag {batch.lag_total:,}" if batch.lag else "",
        f"state {batch.state_rows:,} rows {size(batch.state_bytes)}" if batch.state_rows else "",
        f"watermark {batch.watermark}" if batch.watermark else "",
        f"dead letters {batch.dead_letters:,}" if batch.dead_letters else "",
        *(f"{count:,} broke {name}.{rule}" for name, rule, count in broken(batch.rules)),
    ]
    return ", ".join(part for part in parts if part)


def restart_line(flow: str, rest: Rest) -> str:
    return (
        f"The flow {flow} failed: {rest.reason} It restarts {_when(rest)}"
        f" (attempt {rest.attempt} of {rest.attempts})."
    )


def _when(rest: Rest) -> str:
    seconds = round((rest.again_ms - now_ms()) / 1000)
    return f"in {seconds} s" if seconds > 0 else "now"


def short_sink(sink: str) -> str:
    """Such as "delta .../averages": a table's whole path would take the room of three columns."""
    kind, slash, path = sink.partition(" /")
    return f"{kind} .../{path.rpartition('/')[2]}" if slash and "/" in path else sink


def duration(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:.1f} s"


def age(milliseconds: int) -> str:
    """As short as can be: how long ago something was."""
    seconds = max(0, milliseconds // 1000)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def size(count: int) -> str:
    amount = float(count)
    for unit in UNITS:
        if amount < 1000 or unit == UNITS[-1]:
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def clock(timestamp: str | None) -> str:
    """The time of day in UTC; with the day if that is not today's is too much for a column."""
    if timestamp is None:
        return ""
    return f"{datetime.fromisoformat(timestamp):%m-%d %H:%M:%S}"


def _unless_zero(count: int) -> str:
    return f"{count:,}" if count else ""
