"""`penstock log`: looks for damage in a stopped node's logs, cuts it out, and says which copy of
a log is to be believed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import click

from penstock.cli.failures import CommandFailed
from penstock.cli.lazy_group import CommandGroup
from penstock.cli.options import json_option
from penstock.cli.output import counted, print_json, print_table
from penstock.model.ids import LogEnd

_DIRECTORY = click.argument(
    "directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)


class MissingTail(Protocol):
    """What the server reports about a log that could not lead."""

    @property
    def directory(self) -> Path: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def entries_max(self) -> int | None: ...

    @property
    def needed(self) -> LogEnd: ...


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


@click.group(cls=CommandGroup)
def log() -> None:
    """Check, repair and trust the logs of a stopped node."""


@log.command()
@_DIRECTORY
@json_option
def check(directory: Path, as_json: bool) -> None:
    """Look for damage in the data directory DIR; change nothing."""
    from penstock.server import check_log

    found = check_log(directory)
    _print(found, as_json)
    if found:
        raise CommandFailed(f"{directory} is damaged in {counted(len(found), 'place')}.")


@log.command()
@_DIRECTORY
@click.option("--yes", is_flag=True, help="Do not ask before giving up records.")
@json_option
def repair(directory: Path, yes: bool, as_json: bool) -> None:
    """Cut damaged logs in the data directory DIR at their first bad byte.

    Clients lose everything after that byte in the partition. The bytes are kept next to the log, in
    files whose names end in .cut.
    """
    from penstock.server import check_log, repair_log

    found = check_log(directory)
    if found and not yes:
        _print(found, as_json=False, err=True)
        click.confirm("Cut the logs there and lose everything after it", abort=True, err=True)
    cut = repair_log(directory) if found else found
    _print(cut, as_json)
    if cut and not as_json:
        lost = sum(one.lost_bytes for one in cut)
        click.echo(f"Cut; {counted(lost, 'byte')} kept in files that end in .cut.")


@log.command()
@_DIRECTORY
@click.argument("logs", metavar="[LOG]...", nargs=-1)
@click.option("--yes", is_flag=True, help="Do not ask before giving up records.")
@json_option
def trust(directory: Path, logs: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Let replicas in the data directory DIR lead although acknowledged records may be missing.

    Use this for a partition that has no leader although all its voters run, because none of them
    has every record; the node's log says so. LOG is one of the logs that this command lists, such
    as topics/9f0c.../0; without LOG, it means all that wait. At its next start, the replica asks
    the others for their votes, and wins unless one of them has more.
    """
    from penstock.server import missing_tails, trust_logs

    tails = _chosen(missing_tails(directory), directory, logs)
    rows = [
        (_log_name(tail.directory, directory), tail.end_offset, tail.entries_max, str(tail))
        for tail in tails
    ]
    if tails and not yes:
        for row in rows:
            click.echo(row[3], err=True)
        click.confirm(
            f"Give up these records in {counted(len(tails), 'log')}", abort=True, err=True
        )
    trust_logs(directory, {tail.directory: tail.needed for tail in tails})
    if as_json:
        columns = ("log", "end_offset", "records_max", "detail")
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif not tails:
        click.echo("No log here waits for missing records.")
    else:
        for row in rows:
            click.echo(row[3] if yes else f"{row[0]} may lead after its next start.")


def _log_name(log_directory: Path, directory: Path) -> str:
    return str(log_directory.relative_to(directory))


def _chosen(
    found: Sequence[MissingTail], directory: Path, logs: tuple[str, ...]
) -> list[MissingTail]:
    by_name = {_log_name(tail.directory, directory): tail for tail in found}
    names = [name.rstrip("/") for name in logs] or list(by_name)
    for name in names:
        if name not in by_name:
            waiting = ", ".join(by_name) or "none"
            raise CommandFailed(f"{name} does not wait for missing records. These do: {waiting}.")
    return [by_name[name] for name in names]


def _print(found: Sequence[Damage], as_json: bool, *, err: bool = False) -> None:
    columns = ("file", "position", "detail", "lost_bytes")
    rows = [(one.path, one.position, one.detail, one.lost_bytes) for one in found]
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        print_table(columns[:3], [row[:3] for row in rows], err=err)
    else:
        click.echo("No damage found.")
