"""`penstock doctor`: looks for what would keep a node or a pipeline from working here."""

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from penstock import config as node_config
from penstock.cli.bundle import Entry, collect, pack
from penstock.cli.checks import Finding, State, all_checks
from penstock.cli.cluster_metadata import write_new
from penstock.cli.options import json_option
from penstock.cli.output import counted, print_json, print_table

_FLAGS = ("data_dir", "node", "kafka", "http", "peer", "config")
_COLOURS = {State.OK: "green", State.WARNING: "yellow", State.PROBLEM: "red"}
FOUND_A_PROBLEM = 1
# Behind the state and the name of a check.
_TEXT_FROM = 25
_TEXT_WIDTH_MIN = 20


def _setting_options(command: Any) -> Any:
    """The flags of `penstock up` that say what a node would need of this machine."""
    for setting in reversed(node_config.SETTINGS):
        if setting.name in _FLAGS:
            command = click.option(
                setting.flag,
                setting.name,
                metavar=setting.form,
                help=setting.help + (f"  [default: {setting.default}]" if setting.default else ""),
            )(command)
    return command


@click.command()
@_setting_options
@click.option(
    "--bundle",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also collect what a bug report needs, and write it to this tar.gz file.",
)
@click.option(
    "--log",
    "logs",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    multiple=True,
    help="A log file of the node, for the bundle; may be repeated.",
)
@click.option("--yes", "is_agreed", is_flag=True, help="Write the bundle without asking.")
@json_option
@click.pass_context
def doctor(
    context: click.Context,
    /,
    bundle: Path | None,
    logs: tuple[Path, ...],
    is_agreed: bool,
    as_json: bool,
    **flags: object,
) -> None:
    """Check ports, disk, clock, limits, Java, Python and Spark on this machine.

    Uses the same settings as `penstock up`. Each line is ok, a warning or a problem, with advice.
    The exit code is 1 if there is a problem.

    With --bundle it collects versions, settings, metrics, and the state of the cluster, its groups
    and queues from the node that runs with these settings. Secrets and records are left out. It
    lists the parts before it writes them, and in a terminal, it then asks for confirmation.
    """
    if logs and bundle is None:
        raise click.UsageError("--log needs --bundle")
    settings = node_config.load(flags, os.environ)
    found = []
    for check in all_checks(settings):
        for finding in check():
            found.append(finding)
            if not as_json:
                _print(finding)
    problems = sum(one.state is State.PROBLEM for one in found)
    entries = [] if bundle is None else collect(settings, found, logs)
    if as_json:
        content: dict[str, Any] = {"ok": not problems, "checks": [asdict(one) for one in found]}
        if bundle is not None:
            content["bundle"] = {one.name: len(one.content) for one in entries}
        print_json(content)
    else:
        warnings = sum(one.state is State.WARNING for one in found)
        click.echo(f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}.")
    if bundle is not None:
        _write_bundle(bundle, entries, is_agreed or as_json, as_json)
    context.exit(FOUND_A_PROBLEM if problems else 0)


def _write_bundle(file: Path, entries: Sequence[Entry], is_agreed: bool, is_quiet: bool) -> None:
    """Listed first: people should know what they are about to send to others."""
    if not is_quiet:
        click.echo()
        print_table(("part", "bytes"), [(one.name, len(one.content)) for one in entries])
    if not is_agreed and sys.stdin.isatty():
        click.confirm(f"Write these to {file}?", abort=True)
    folder = file.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    write_new(file, pack(entries, folder or "bundle"))
    if not is_quiet:
        click.echo(f"Written to {file}. Look through it before you send it to others.")


def _print(finding: Finding) -> None:
    state = click.style(f"{finding.state:<8}", fg=_COLOURS[finding.state])
    first, *more = _lines(finding.text)
    if finding.advice:
        more += _lines(finding.advice)
    click.echo(f"{state} {finding.name:<15} {first}")
    for line in more:
        click.echo(f"{'':<{_TEXT_FROM}}{line}")


def _lines(text: str) -> list[str]:
    """In a terminal as wide as there is room for; elsewhere one line, which `grep` finds."""
    if not sys.stdout.isatty():
        return [text]
    width = max(_TEXT_WIDTH_MIN, shutil.get_terminal_size().columns - _TEXT_FROM)
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
