"""`penstock demo`: shows a broker at work, and checks that it lost nothing."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from penstock.cli.failures import CommandFailed
from penstock.cli.options import json_option
from penstock.cli.output import print_json

if TYPE_CHECKING:
    from penstock.cli.demo.run import Summary


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
    default=2_000,
    show_default=True,
    help="Readings per second, over all sensors.",
)
@click.option(
    "--sensors",
    type=click.IntRange(1, 1_000),
    metavar="N",
    default=24,
    show_default=True,
    help="How many sensors there are.",
)
@json_option
def demo(seconds: float, rate: int, sensors: int, as_json: bool) -> None:
    """Sensors send temperatures, two controllers in a group read them.

    Starts a broker of its own on a free port, with data in a temporary directory. Ends by itself
    with a summary, and fails when a reading is missing or out of order.
    """
    from penstock.cli.demo.run import run_demo

    summary = run_demo(seconds=seconds, rate=rate, sensors=sensors, quiet=as_json)
    if as_json:
        print_json(asdict(summary) | {"passed": summary.passed})
    else:
        _print(summary)
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
