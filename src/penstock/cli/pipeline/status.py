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
    from penstock.pipelines.running.watching import FlowView, RunView

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
    from penstock.pipelines.running.looking import look

    view = look(storage)
    if as_json:
        print_json(_content(view))
        return
    if sys.stdout.isatty():
        _draw(view)
    else:
        _print(view)
    sys.stdout.flush()


def _draw(view: "RunView") -> None:
    from rich.console import Console

    from penstock.cli.pipeline.screen_frame import Frame

    Console(markup=False, highlight=False).print(Frame(view=view))


def _print(view: "RunView") -> None:
    """Each column and each sentence whole, for pipes and logs."""
    from penstock.cli.pipeline.screen_cells import COLUMNS, broken_rules, cells
    from penstock.cli.pipeline.screen_frame import headline, troubles

    click.echo(headline(view.run))
    for sentence in troubles(view):
        click.echo(sentence)
    # The sink, which is last, with its whole path.
    rows = [[*cells(flow)[:-1], flow.sink] for flow in view.flows]
    print_table([column.name for column in COLUMNS], rows)
    if broken := broken_rules(view):
        click.echo("")
        counts = [
            (rule.dataset, rule.rule, flow, count)
            for rule in broken
            for flow, count in rule.rows.items()
        ]
        print_table(("dataset", "broken rule", "flow", "rows"), counts)


def _content(view: "RunView") -> dict[str, Any]:
    return {"run": asdict(view.run), "flows": {flow.name: _flow(flow) for flow in view.flows}}


def _flow(flow: "FlowView") -> dict[str, Any]:
    from penstock.cli.pipeline.screen_cells import broken

    return {
        "sink": flow.sink,
        "state": str(flow.state),
        "restart": None if flow.rest is None else asdict(flow.rest),
        "failure": flow.failure,
        "broken_rules": [
            {"dataset": dataset, "rule": rule, "rows": count}
            for dataset, rule, count in broken(flow.last.total.rules if flow.last else {})
        ],
        "last": _last(flow.last),
    }


def _last(batch: Any) -> dict[str, Any] | None:
    return None if batch is None else asdict(batch) | {"lag_total": batch.lag_total}


def _watch(storage: "Storage") -> None:
    from rich.console import Console

    from penstock.cli.pipeline.screen import full_screen
    from penstock.cli.pipeline.screen_frame import Frame
    from penstock.pipelines.running.looking import look

    view = look(storage)
    console = Console(markup=False, highlight=False)
    with full_screen(console, lambda height: Frame(view=view, height=height)):
        while True:
            time.sleep(WATCH_EVERY_S)
            view = look(storage)
