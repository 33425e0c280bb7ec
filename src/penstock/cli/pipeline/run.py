"""`penstock pipeline run`: runs a pipeline until it is stopped, or to the end of what is there."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.options import json_option, setting_pairs
from penstock.cli.output import counted, print_json
from penstock.cli.pipeline.options import parameters_option, specification_argument

if TYPE_CHECKING:
    from penstock.pipelines.running.flows_run import FlowSummary
    from penstock.pipelines.running.runner import RunSummary


@click.command()
@specification_argument
@parameters_option
@click.option("--once", is_flag=True, help="Process what is there now, then exit.")
@click.option(
    "--master",
    metavar="URL",
    envvar="PENSTOCK_SPARK_MASTER",
    show_envvar=True,
    help="Spark's master, such as spark://host:7077; this machine by default.",
)
@click.option(
    "--conf",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    callback=setting_pairs,
    help="A Spark setting, which overrides those in the file; may be repeated.",
)
@json_option
def run(
    path: Path,
    parameters: dict[str, str],
    once: bool,
    master: str | None,
    settings: dict[str, str],
    as_json: bool,
) -> None:
    """Run the pipeline that FILE describes.

    Shows the state of each flow while it runs, with rates, lag, broken rules and dead letters.
    Ctrl-C, SIGTERM and `penstock pipeline stop` end it after the current batches. The next run
    continues from there.
    """
    from penstock.cli.pipeline.screen import leave, screen
    from penstock.pipelines.running.extras import require_spark
    from penstock.pipelines.running.gate import StopGate
    from penstock.pipelines.running.runner import run_pipeline
    from penstock.pipelines.running.stop_signals import stop_by_signal
    from penstock.pipelines.specification.reading import read_pipeline

    require_spark()
    pipeline = read_pipeline(path, parameters)
    gate = StopGate()
    with (
        screen(quiet=as_json) as watcher,
        stop_by_signal(gate, before_death=lambda: leave(watcher)),
    ):
        summary = run_pipeline(
            pipeline, master=master, once=once, settings=settings, gate=gate, watcher=watcher
        )
    if as_json:
        print_json(asdict(summary))
    else:
        _print(summary)


def _print(summary: "RunSummary") -> None:
    how = "Stopped" if summary.was_stopped else "Ended"
    click.echo(f"{how} after {summary.seconds:.1f} s.", err=True)
    for flow in summary.flows:
        click.echo(_flow_line(flow), err=True)


def _flow_line(flow: "FlowSummary") -> str:
    from penstock.cli.pipeline.screen_cells import broken

    said = f"{flow.name}: {counted(flow.rows_in, 'row')} in"
    if flow.rows_out is not None:
        said += f", {counted(flow.rows_out, 'row')} to {flow.sink}"
    said += f", {flow.batches:,} {'batch' if flow.batches == 1 else 'batches'}"
    if flow.dead_letters:
        said += f", {counted(flow.dead_letters, 'dead letter')}"
    for dataset, rule, count in broken(flow.rules):
        said += f", {counted(count, 'row')} broke the rule {dataset}.{rule}"
    if flow.restarts:
        said += f", restarted {counted(flow.restarts, 'time')}"
    return said + "."
