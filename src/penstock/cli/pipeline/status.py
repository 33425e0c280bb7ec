"""`penstock pipeline status`: how a pipeline is doing, seen from another terminal."""

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.options import json_option
from penstock.cli.output import print_json, print_table
from penstock.cli.pipeline.storage_options import find_storage, storage_options

if TYPE_CHECKING:
    from penstock.pipelines.running.storage import Storage
    from penstock.pipelines.running.watching import RunView

WATCH_EVERY_S = 1.0


@click.command()
@storage_options
@json_option
@click.option("--watch", is_flag=True, help="Refresh every second, until Ctrl-C.")
def status(
    path: Path | None,
    parameters: dict[str, str],
    folder: Path | None,
    as_json: bool,
    watch: bool,
) -> None:
    """Show the last run of a pipeline and the last batch of each of its flows."""
    storage = find_storage(path, parameters, folder)
    if not watch:
        _show(storage, as_json)
    elif as_json or not sys.stdout.isatty():
        while True:
            _show(storage, as_json)
            time.sleep(WATCH_EVERY_S)
    else:
        _watch(storage)


def _show(storage: "Storage", as_json: bool) -> None:
    from penstock.cli.pipeline.screen import headline, waits
    from penstock.cli.pipeline.screen_cells import COLUMNS, cells
    from penstock.pipelines.running.looking import look

    view = look(storage)
    if as_json:
        print_json(_content(view))
        return
    click.echo(headline(view.run))
    if view.run.error:
        click.echo(view.run.error)
    for sentence in waits(view):
        click.echo(sentence)
    print_table(COLUMNS, [list(cells(flow)) for flow in view.flows])
    sys.stdout.flush()


def _content(view: "RunView") -> dict[str, Any]:
    flows = {
        flow.name: {"sink": flow.sink, "state": str(flow.state), "last": _last(flow.last)}
        for flow in view.flows
    }
    return {"run": asdict(view.run), "flows": flows}


def _last(batch: Any) -> dict[str, Any] | None:
    return None if batch is None else asdict(batch) | {"lag_total": batch.lag_total}


def _watch(storage: "Storage") -> None:
    from rich.live import Live

    from penstock.cli.pipeline.screen import flows_table
    from penstock.pipelines.running.looking import look

    with Live(get_renderable=lambda: flows_table(look(storage)), refresh_per_second=1):
        while True:
            time.sleep(WATCH_EVERY_S)
