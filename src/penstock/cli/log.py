"""`penstock log`: looks for damage in a stopped node's logs, and cuts it out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import click

from penstock.cli.failures import CommandFailed
from penstock.cli.options import json_option
from penstock.cli.output import counted, print_json, print_table

_DIRECTORY = click.argument(
    "directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)


class Damage(Protocol):
    """What the server reports about one damaged place."""

    @property
    def path(self) -> str: ...

    @property
    def position(self) -> int: ...

    @property
    def detail(self) -> str: ...

    @property
    def lost_bytes(self) -> int: ...


@click.group()
def log() -> None:
    """Check and repair the logs of a stopped node."""


@log.command()
@_DIRECTORY
@json_option
def check(directory: Path, as_json: bool) -> None:
    """Look for damage in the data directory DIR; changes nothing."""
    from penstock.server import check_log

    found = check_log(directory)
    _print(found, as_json)
    if found:
        raise CommandFailed(f"{directory} is damaged in {counted(len(found), 'place')}.")


@log.command()
@_DIRECTORY
@click.option("--yes", is_flag=True, help="Do not ask before records are given up.")
@json_option
def repair(directory: Path, yes: bool, as_json: bool) -> None:
    """Cut damaged logs in the data directory DIR at their first bad byte.

    What lies behind it in that partition is gone for clients; the bytes are kept beside the log in
    files whose names end in .cut.
    """
    from penstock.server import check_log, repair_log

    found = check_log(directory)
    if found and not yes:
        _print(found, as_json=False, err=True)
        click.confirm("Cut the logs there and lose what lies behind", abort=True, err=True)
    cut = repair_log(directory) if found else found
    _print(cut, as_json)
    if cut and not as_json:
        lost = sum(one.lost_bytes for one in cut)
        click.echo(f"Cut; {counted(lost, 'byte')} put aside in files that end in .cut.")


def _print(found: Sequence[Damage], as_json: bool, *, err: bool = False) -> None:
    columns = ("file", "position", "detail", "lost_bytes")
    rows = [(one.path, one.position, one.detail, one.lost_bytes) for one in found]
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        print_table(columns[:3], [row[:3] for row in rows], err=err)
    else:
        click.echo("No damage found.")
