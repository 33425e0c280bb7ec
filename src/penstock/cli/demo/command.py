"""`penstock demo`: shows a cluster and the IoT pipeline at work, and checks what they did."""

from dataclasses import asdict
from pathlib import Path

import click

from penstock.cli.failures import CommandFailed
from penstock.cli.options import json_option
from penstock.cli.output import print_json

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
@click.option("--no-spark", is_flag=True, help="Show the brokers alone.")
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Also keep the last screen from while the sensors sent, as an SVG picture.",
)
@json_option
def demo(
    seconds: float,
    rate: int | None,
    sensors: int,
    no_spark: bool,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Run the live demo: sensors, three nodes, a Spark pipeline and its alerts.

    Sensors send temperatures to three nodes, on free ports, with data in a temporary directory.
    Spark runs the IoT pipeline on this machine, and two controllers read its alerts. In the middle,
    the demo kills the node that leads the most partitions with SIGKILL, shows how long the writes
    pause, and starts the node again. To get the pipeline: `penstock pipeline init --example iot`.

    The demo ends with a summary. If Spark is slow to start, that takes longer than --seconds. It
    fails if a reading is lost, duplicated or out of order, or if the tables or alerts of Spark are
    not what plain Python computes. The time from sensor to controller counts once Spark is warm.
    """
    from penstock.cli.demo.report import report
    from penstock.cli.demo.run import Wishes, run_demo
    from penstock.cli.demo.spark_process import why_no_spark

    missing = None if no_spark else why_no_spark()
    if missing is not None:
        click.echo(f"The brokers alone are shown. {missing}", err=as_json)
    with_spark = not no_spark and missing is None
    default_rate = RATE if with_spark else RATE_WITHOUT_SPARK
    wishes = Wishes(
        seconds=seconds, rate=rate or default_rate, sensors=sensors, with_spark=with_spark
    )
    summary = run_demo(wishes, quiet=as_json, picture=picture)
    if as_json:
        print_json(asdict(summary) | {"passed": summary.passed})
    else:
        click.echo(report(summary))
    if not summary.passed:
        raise CommandFailed("The check failed: see the summary above.")
