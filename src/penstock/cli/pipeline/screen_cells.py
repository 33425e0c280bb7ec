"""What is shown of flows, as text: one list of columns for the live table, `status` and lines."""

from collections.abc import Sequence
from datetime import datetime

from penstock.pipelines.running.progress import BatchProgress
from penstock.pipelines.running.run_record import Rest, now_ms
from penstock.pipelines.running.watching import FlowView

COLUMNS = (
    "flow",
    "to",
    "state",
    "batch",
    "rows",
    "rows/s",
    "lag",
    "batch time",
    "state rows",
    "state size",
    "watermark",
    "dead letters",
    "broken rules",
)
# What is text stands on the left, all others are numbers.
TEXT_COLUMNS = frozenset({"flow", "to", "state", "watermark"})
UNITS = ("B", "kB", "MB", "GB", "TB")


def cells(flow: FlowView) -> Sequence[str]:
    """One row of the table; a flow without a finished batch has only its name and its sink."""
    begun = (flow.name, flow.sink, str(flow.state))
    batch = flow.last
    if batch is None:
        return (*begun, *[""] * (len(COLUMNS) - len(begun)))
    return (
        *begun,
        str(batch.batch),
        f"{batch.total.rows_in:,}",
        f"{batch.rate:,.0f}",
        f"{batch.lag_total:,}" if batch.lag else "",
        duration(batch.batch_ms),
        f"{batch.state_rows:,}" if batch.state_rows else "",
        size(batch.state_bytes) if batch.state_bytes else "",
        clock(batch.watermark),
        f"{batch.total.dead_letters:,}",
        f"{batch.total.broken_rules:,}",
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
        f"broken rules {batch.broken_rules:,}" if batch.broken_rules else "",
    ]
    return ", ".join(part for part in parts if part)


def restart_line(flow: str, rest: Rest) -> str:
    seconds = max(0, round((rest.again_ms - now_ms()) / 1000))
    return (
        f"The flow {flow} failed: {rest.reason} It restarts in {seconds} s"
        f" ({rest.attempt} of {rest.attempts})."
    )


def shortened(sink: str) -> str:
    """Such as "delta .../averages": a table's whole path would break the others' lines."""
    kind, slash, path = sink.partition(" /")
    return f"{kind} .../{path.rpartition('/')[2]}" if slash and "/" in path else sink


def duration(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:.1f} s"


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
