"""`penstock pipeline run`: runs a pipeline until it is stopped, or to the end of what is there."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.options import json_option, setting_pairs
from penstock.cli.output import counted, print_json
from penstock.cli.pipeline.options import parameters_option, specification_argument
from penstock.model.endpoint import Endpoint, EndpointError, parse_endpoint

if TYPE_CHECKING:
    from penstock.pipelines.running.flows_run import FlowSummary
    from penstock.pipelines.running.runner import RunSummary
    from penstock.pipelines.running.watching import Watcher


def _endpoint(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> Endpoint | None:
    try:
        return None if text is None else parse_endpoint(text)
    except EndpointError as problem:
        raise click.BadParameter(f"{text!r}: {problem}.") from None


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
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    envvar="PENSTOCK_PIPELINE_METRICS",
    show_envvar=True,
    callback=_endpoint,
    help="Serve metrics for Prometheus there, at /metrics; port 0 picks a free one.",
)
@json_option
def run(
    path: Path,
    parameters: dict[str, str],
    once: bool,
    master: str | None,
    settings: dict[str, str],
    metrics: Endpoint | None,
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
        screen(quiet=as_json) as shown,
        stop_by_signal(gate, before_death=lambda: leave(shown)),
        _measured(pipeline.name, metrics, shown) as watcher,
    ):
        summary = run_pipeline(
            pipeline, master=master, once=once, settings=settings, gate=gate, watcher=watcher
        )
    if as_json:
        print_json(asdict(summary))
    else:
        _print(summary)


@contextmanager
def _measured(pipeline: str, endpoint: Endpoint | None, shown: "Watcher") -> Iterator["Watcher"]:
    """The watcher of a run whose metrics are served, if that is wanted."""
    from penstock.pipelines.running.metrics import MetricsWatcher, metrics_server

    if endpoint is None:
        yield shown
        return
    watcher = MetricsWatcher(pipeline, shown)
    with metrics_server(watcher, endpoint) as bound:
        shown.phase(f"Metrics are at http://{bound}/metrics.")
        yield watcher


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
