"""`penstock pipeline stop`: ends a running pipeline after its batch, from another terminal."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.failures import CommandFailed
from penstock.cli.pipeline.storage_options import find_storage, storage_options

if TYPE_CHECKING:
    from penstock.pipelines.running.run_record import Run
    from penstock.pipelines.running.storage import Storage

POLL_S = 0.1


@click.command()
@storage_options
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=120.0,
    show_default=True,
    help="How long to wait for the end; 0 does not wait.",
)
def stop(
    path: Path | None, parameters: dict[str, str], folder: Path | None, timeout_s: float
) -> None:
    """Stop a running pipeline after its current batches.

    It may run on another machine, as long as its folder is shared.
    """
    from penstock.pipelines.running.looking import is_running

    storage = find_storage(path, parameters, folder)
    if not is_running(storage):
        raise CommandFailed(f"The pipeline in {storage.path} is not running.")
    storage.stop.touch()
    if timeout_s == 0:
        click.echo("The pipeline was asked to stop.")
        return
    ended = _wait(storage, timeout_s)
    if ended.error:
        raise CommandFailed(f"The pipeline {ended.pipeline} ended with an error: {ended.error}")
    click.echo(f"The pipeline {ended.pipeline} has ended.")


def _wait(storage: "Storage", timeout_s: float) -> "Run":
    from penstock.pipelines.running.run_record import is_locked, last_run

    deadline = time.monotonic() + timeout_s
    while True:
        run = last_run(storage)
        if run is not None and run.is_over and not is_locked(storage.lock):
            return run
        if time.monotonic() > deadline:
            raise CommandFailed(
                f"The pipeline in {storage.path} was asked to stop but still runs after "
                f"{timeout_s:g} s: its batch takes longer."
            )
        time.sleep(POLL_S)
