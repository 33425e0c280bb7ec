"""What the demonstration found, as numbers and as the report at its end."""

from dataclasses import dataclass

from penstock.cli.demo.expectation import Window
from penstock.cli.demo.failover import Failover, Phase
from penstock.cli.demo.ledger import Ledger
from penstock.cli.demo.pipeline_ledger import PipelineLedger
from penstock.cli.demo.view import WINDOW_HEADS, window_cells
from penstock.cli.demo.workers import CONTROLLERS

SENSORS_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverSummary:
    # The node that was killed, and how many partitions of readings it led.
    node: int
    partitions_led: int
    writes_paused_s: float
    # From its restart until every copy was up to date.
    back_after_s: float
    is_complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSummary:
    # Rows of the table of readings.
    archived: int
    missing: int
    doubled: int
    windows: int
    windows_wrong: int
    # Windows with a reading so late that Spark may have closed them without it: not compared.
    windows_late: int
    alerts_expected: int
    alerts_wrong: int
    # Deliveries of alerts by controller; a topic may hold one twice after a task was tried again.
    alerts: dict[str, int]
    # Since the start of the demonstration.
    warm_after_s: float
    # From sensor to controller, of readings from after Spark was warm.
    latency_p50_ms: float
    latency_p99_ms: float
    # Alerts on earlier readings, whose time is not counted.
    alerts_left_out: int
    spark_starts: int
    latest: tuple[Window, ...]

    @property
    def passed(self) -> bool:
        faults = (self.missing, self.doubled, self.windows_wrong, self.alerts_wrong)
        return not any(faults) and self.windows > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    # How long the sensors sent.
    seconds: float
    produced: int
    consumed: dict[str, int]
    missing: int
    doubled: int
    redelivered: int
    out_of_order: int
    lag_max: int
    # What the group still had to read after its consumers had committed and left.
    lag_at_end: int
    acknowledged_p50_ms: float
    acknowledged_p99_ms: float
    delivered_p50_ms: float
    delivered_p99_ms: float
    failover: FailoverSummary
    pipeline: PipelineSummary | None

    @property
    def passed(self) -> bool:
        faults = (self.missing, self.doubled, self.out_of_order, self.lag_at_end)
        is_whole = not any(faults) and self.produced > 0 and self.failover.is_complete
        return is_whole and (self.pipeline is None or self.pipeline.passed)


def broker_summary(
    ledger: Ledger, *, seconds: float, lag_at_end: int, pipeline: PipelineSummary | None
) -> Summary:
    return Summary(
        seconds=round(seconds, 1),
        produced=ledger.produced,
        consumed={name: ledger.consumed[name] for name in CONTROLLERS},
        missing=ledger.missing(),
        doubled=ledger.arrivals.doubled,
        redelivered=ledger.redelivered,
        out_of_order=ledger.out_of_order,
        lag_max=ledger.lag_max,
        lag_at_end=lag_at_end,
        acknowledged_p50_ms=ledger.acknowledgements.percentile(0.5),
        acknowledged_p99_ms=ledger.acknowledgements.percentile(0.99),
        delivered_p50_ms=ledger.deliveries.percentile(0.5),
        delivered_p99_ms=ledger.deliveries.percentile(0.99),
        failover=_failover_summary(ledger.failover),
        pipeline=pipeline,
    )


def _failover_summary(failover: Failover) -> FailoverSummary:
    is_complete = failover.phase is Phase.BACK
    return FailoverSummary(
        node=failover.node,
        partitions_led=len(failover.led),
        writes_paused_s=round(failover.pause_s, 3),
        back_after_s=round(failover.return_s, 1) if is_complete else 0.0,
        is_complete=is_complete,
    )


def pipeline_summary(
    ledger: PipelineLedger, *, warm_after_s: float, spark_starts: int
) -> PipelineSummary:
    return PipelineSummary(
        archived=ledger.archive.rows,
        missing=ledger.missing(),
        doubled=ledger.archive.doubled,
        windows=len(ledger.windows),
        windows_wrong=len(ledger.wrong_windows()) + ledger.windows_repeated,
        windows_late=len(ledger.expectation.late),
        alerts_expected=len(ledger.expectation.alerts),
        alerts_wrong=len(ledger.wrong_alerts()),
        alerts={name: ledger.alerts_by_controller[name] for name in CONTROLLERS},
        warm_after_s=round(warm_after_s, 1),
        latency_p50_ms=ledger.latencies.percentile(0.5),
        latency_p99_ms=ledger.latencies.percentile(0.99),
        alerts_left_out=ledger.left_out,
        spark_starts=spark_starts,
        latest=tuple(ledger.latest_windows()),
    )


def report(summary: Summary) -> str:
    lines = [] if summary.pipeline is None else ["", *windows_text(summary.pipeline)]
    lines += ["", *_broker_lines(summary)]
    if summary.pipeline is not None:
        lines += _pipeline_lines(summary.pipeline)
    if summary.passed:
        lines.append(_checked(summary))
    return "\n".join(lines)


def _broker_lines(summary: Summary) -> list[str]:
    rate = summary.produced / summary.seconds
    failover = summary.failover
    lines = [
        f"Produced    {summary.produced:,} readings in {summary.seconds:.1f} s ({rate:,.0f}/s)",
        f"            acknowledged after p50 {summary.acknowledged_p50_ms:.0f} ms, "
        f"p99 {summary.acknowledged_p99_ms:.0f} ms",
        f"Consumed    {' and '.join(f'{n:,} by {name}' for name, n in summary.consumed.items())}",
        f"            after p50 {summary.delivered_p50_ms:.0f} ms, "
        f"p99 {summary.delivered_p99_ms:.0f} ms, lag at most {summary.lag_max:,}, "
        f"{summary.lag_at_end:,} at the end",
        f"            {summary.missing:,} lost, {summary.doubled:,} doubled, "
        f"{summary.out_of_order:,} out of order",
    ]
    if summary.redelivered:
        lines.append(f"            {summary.redelivered:,} delivered again after a rebalance")
    if failover.is_complete:
        lines += [
            f"Failover    node {failover.node} was killed (SIGKILL) and led "
            f"{failover.partitions_led} of the partitions:",
            f"            writes paused {failover.writes_paused_s:.2f} s; after its restart it was "
            f"in sync in {failover.back_after_s:.1f} s",
        ]
    else:
        lines.append("Failover    not seen to its end")
    return lines


def _pipeline_lines(summary: PipelineSummary) -> list[str]:
    lines = [
        f"Archived    {summary.archived:,} readings in the table: "
        f"{summary.missing:,} missing, {summary.doubled:,} twice",
        f"Windows     {summary.windows:,}: {summary.windows_wrong:,} unlike plain Python's",
    ]
    if summary.windows_late:
        lines.append(f"            {summary.windows_late:,} with late readings were not compared")
    heard = " and ".join(f"{count:,} by {name}" for name, count in summary.alerts.items())
    lines += [
        f"Alerts      {summary.alerts_expected:,}: {summary.alerts_wrong:,} missing or wrong; "
        f"{heard}",
        f"            {_latency_text(summary)}",
        f"            {summary.alerts_left_out:,} on readings from before Spark was warm "
        f"({summary.warm_after_s:.0f} s) are not timed",
    ]
    if summary.spark_starts > 1:
        lines.append("Spark       started twice, because the machine was too busy at first")
    return lines


def _latency_text(summary: PipelineSummary) -> str:
    timed = sum(summary.alerts.values()) - summary.alerts_left_out
    if not timed:
        return "none on a reading from after Spark was warm"
    p50, p99 = summary.latency_p50_ms / 1000, summary.latency_p99_ms / 1000
    return f"{timed:,} timed from sensor to controller: p50 {p50:.1f} s, p99 {p99:.1f} s"


def _checked(summary: Summary) -> str:
    said = "Checked: every reading arrived once, and each sensor's readings in order."
    if summary.pipeline is None:
        return said
    return (
        f"{said}\n"
        f"Every reading is in the table exactly once, and all windows and alerts are those\n"
        f"that plain Python computes."
    )


def windows_text(summary: PipelineSummary) -> list[str]:
    """A table in plain text, since it may go to a file."""
    rows = [list(WINDOW_HEADS)]
    rows += [window_cells(window) for window in summary.latest[:SENSORS_SHOWN]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(WINDOW_HEADS))]
    shown = ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
    left_out = len(summary.latest) - SENSORS_SHOWN
    shown = [*shown, f"and {left_out} more"] if left_out > 0 else shown
    return ["The last averages, as Spark wrote them into the table:", "", *shown]


def _aligned(row: list[str], widths: list[int]) -> list[str]:
    """Words to the left, numbers to the right."""
    return [
        cell.ljust(width) if column < 2 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
