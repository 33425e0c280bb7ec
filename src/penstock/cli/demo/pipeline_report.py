"""What the demonstration with Spark says at its end: Spark's last result, and the checks."""

from penstock.cli.demo.pipeline_run import PipelineSummary
from penstock.cli.demo.pipeline_screen import SENSORS_SHOWN, window_cells

HEADS = ("sensor", "window (UTC)", "readings", "average", "lowest", "highest")


def report(summary: PipelineSummary) -> str:
    rate = summary.produced / summary.seconds
    p50, p99 = summary.latency_p50_ms / 1000, summary.latency_p99_ms / 1000
    lines = [
        "",
        "The last averages, as Spark wrote them into the table:",
        "",
        *windows_text(summary),
        "",
        f"Produced    {summary.produced:,} readings in {summary.seconds:.1f} s ({rate:,.0f}/s)",
        f"Archived    {summary.archived:,} readings in the table: "
        f"{summary.missing:,} missing, {summary.repeated:,} twice",
        f"Windows     {summary.windows:,}: {summary.windows_wrong:,} unlike plain Python's",
        f"Alerts      {summary.alerts_expected:,}: {summary.alerts_wrong:,} missing or wrong",
        *(f"            {count:,} heard by {name}" for name, count in summary.alerts.items()),
    ]
    if sum(summary.alerts.values()):
        lines.append(
            f"            after p50 {p50:.1f} s, p99 {p99:.1f} s from sensor to controller"
        )
    if summary.passed:
        lines.append(
            "Checked: every reading is in the table exactly once, and all windows and alerts are "
            "those that plain Python computes."
        )
    return "\n".join(lines)


def windows_text(summary: PipelineSummary) -> list[str]:
    """A table in plain text, since it may go to a file."""
    rows = [list(HEADS), *(window_cells(window) for window in summary.latest[:SENSORS_SHOWN])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    shown = ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
    left_out = len(summary.latest) - SENSORS_SHOWN
    return [*shown, f"and {left_out} more"] if left_out > 0 else shown


def _aligned(row: list[str], widths: list[int]) -> list[str]:
    """Words to the left, numbers to the right."""
    return [
        cell.ljust(width) if column < 2 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
