"""`penstock demo`: shows the IoT pipeline at work, and checks that nothing is lost or wrong."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from penstock.cli.failures import CommandFailed
from penstock.cli.options import json_option
from penstock.cli.output import print_json

if TYPE_CHECKING:
    from penstock.cli.demo.pipeline_run import PipelineSummary
    from penstock.cli.demo.run import Summary


# Spark and everything else share the cores of one machine.
RATE = 500
RATE_WITHOUT_SPARK = 2_000


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=1, max=86_400),
    metavar="SECONDS",
    default=30.0,
    show_default=True,
    envvar="DEMO_SECONDS",
    show_envvar=True,
    help="How long the sensors send.",
)
@click.option(
    "--rate",
    type=click.IntRange(1, 20_000),
    metavar="N",
    default=None,
    help=f"Readings per second, over all sensors; {RATE}, or {RATE_WITHOUT_SPARK} without Spark.",
)
@click.option(
    "--sensors",
    type=click.IntRange(1, 1_000),
    metavar="N",
    default=24,
    show_default=True,
    help="How many sensors there are.",
)
@click.option("--no-spark", is_flag=True, help="Show the broker alone.")
@json_option
def demo(seconds: float, rate: int | None, sensors: int, no_spark: bool, as_json: bool) -> None:
    """Sensors send temperatures, Spark watches them, two controllers hear its alerts.

    Starts a broker of its own on a free port and the IoT pipeline on this machine's Spark, with
    data in a temporary directory; `penstock pipeline init --example iot` gives you the pipeline.
    Ends by itself with a summary, some time after the sensors, since Spark is slow to start. Fails
    when a reading is missing in the table or there twice, or when a window or an alert is not what
    plain Python computes.

    Without Spark the controllers read what the sensors send: all of it must arrive, in order.
    """
    from penstock.cli.demo.spark_presence import why_no_spark

    missing = None if no_spark else why_no_spark()
    if missing is not None:
        click.echo(f"The broker alone is shown. {missing}", err=as_json)
    if no_spark or missing is not None:
        _show_broker(seconds, rate or RATE_WITHOUT_SPARK, sensors, as_json)
    else:
        _show_pipeline(seconds, rate or RATE, sensors, as_json)


def _show_pipeline(seconds: float, rate: int, sensors: int, as_json: bool) -> None:
    from penstock.cli.demo.pipeline_report import report
    from penstock.cli.demo.pipeline_run import run_pipeline_demo

    summary = run_pipeline_demo(seconds=seconds, rate=rate, sensors=sensors, quiet=as_json)
    if not as_json:
        click.echo(report(summary))
    _finish(summary, as_json)


def _show_broker(seconds: float, rate: int, sensors: int, as_json: bool) -> None:
    from penstock.cli.demo.run import run_demo

    summary = run_demo(seconds=seconds, rate=rate, sensors=sensors, quiet=as_json)
    if not as_json:
        _print(summary)
    _finish(summary, as_json)


def _finish(summary: "Summary | PipelineSummary", as_json: bool) -> None:
    if as_json:
        print_json(asdict(summary) | {"passed": summary.passed})
    if not summary.passed:
        raise CommandFailed("The check failed: see the summary above.")


def _print(summary: "Summary") -> None:
    rate = summary.produced / summary.seconds
    lines = [
        "",
        f"Produced    {summary.produced:,} readings in {summary.seconds:.1f} s ({rate:,.0f}/s)",
        f"Consumed    {sum(summary.consumed.values()):,} readings",
        *(f"            {count:,} by {name}" for name, count in summary.consumed.items()),
        f"Latency     p50 {summary.latency_p50_ms:.1f} ms, p99 {summary.latency_p99_ms:.1f} ms",
        f"Lag         at most {summary.lag_max:,}, {summary.lag_at_end:,} at the end",
        f"Missing     {summary.missing:,}",
        f"Disordered  {summary.out_of_order:,}",
    ]
    if summary.repeated:
        lines.append(f"Repeated    {summary.repeated:,} (a rebalance delivers again)")
    if summary.passed:
        lines.append("Checked: every reading arrived, and each sensor's readings in order.")
    click.echo("\n".join(lines))
