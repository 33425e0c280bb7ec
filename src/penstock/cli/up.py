"""`penstock up`: runs one node, or a cluster of several, until it is asked to stop."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import click

from penstock import config

NODES_MAX = 20


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A flag for every setting of the table; values stay text, which `config.load` checks."""
    for setting in reversed(config.SETTINGS):
        default = f"  [default: {setting.default}]" if setting.default else ""
        command = click.option(
            setting.flag,
            setting.name,
            metavar=setting.form,
            multiple=setting.name == "broker",
            help=f"{setting.help}{default}",
        )(command)
    return command


@click.command()
@setting_options
@click.option(
    "--nodes",
    "node_count",
    metavar="N",
    type=click.IntRange(1, NODES_MAX),
    help="Run a cluster of N nodes on this machine, with ports 100 apart.",
)
@click.option(
    "--stop-with-stdin",
    is_flag=True,
    help="Stop when standard input ends, as it does when the program that started the node dies.",
)
@click.pass_context
def up(
    context: click.Context, /, node_count: int | None, stop_with_stdin: bool, **flags: object
) -> None:
    """Start a node and serve until SIGTERM or Ctrl-C.

    Without flags, the node keeps its data in ./penstock-data and listens on loopback. A flag takes
    precedence over its variable PENSTOCK_*, and that over the settings file.

    With --nodes 3 it starts nodes 1 to 3 as separate processes. The first has the ports of a single
    node, and each keeps its data in its own directory below --data-dir.
    """
    settings = config.load(flags, os.environ)
    if stop_with_stdin:
        threading.Thread(target=_stop_with_stdin, name="stdin", daemon=True).start()
    if node_count is not None:
        from penstock.cli.local_cluster import run_local_cluster

        context.exit(run_local_cluster(settings, node_count))
    # Imported here so that the other commands start without the broker's code.
    from penstock.server import run

    context.exit(run(settings))


def _stop_with_stdin() -> None:
    # Not through sys.stdin, whose lock would be held here when the interpreter ends.
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
