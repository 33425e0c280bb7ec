"""`penstock doctor`: looks for what would keep a node or a pipeline from working here."""

import os
from dataclasses import asdict
from typing import Any

import click

from penstock import config as node_config
from penstock.cli.checks import Finding, State, all_checks
from penstock.cli.options import json_option
from penstock.cli.output import counted, print_json

_FLAGS = ("data_dir", "node", "kafka", "peer")
_COLOURS = {State.OK: "green", State.WARNING: "yellow", State.PROBLEM: "red"}
FOUND_A_PROBLEM = 1


def _setting_options(command: Any) -> Any:
    """The flags of `penstock up` that say what a node would need of this machine."""
    for setting in reversed(node_config.SETTINGS):
        if setting.name in _FLAGS:
            command = click.option(
                setting.flag,
                setting.name,
                metavar=setting.form,
                help=f"{setting.help}  [default: {setting.default}]",
            )(command)
    return command


@click.command()
@_setting_options
@json_option
@click.pass_context
def doctor(context: click.Context, /, as_json: bool, **flags: object) -> None:
    """Check ports, disk, clock, limits, Java, Python and Spark on this machine.

    Uses the same settings as `penstock up`. Each line is ok, a warning or a problem, with advice.
    The exit code is 1 if there is a problem.
    """
    settings = node_config.load(flags, os.environ)
    found = []
    for check in all_checks(settings):
        for finding in check():
            found.append(finding)
            if not as_json:
                _print(finding)
    problems = sum(one.state is State.PROBLEM for one in found)
    if as_json:
        print_json({"ok": not problems, "checks": [asdict(one) for one in found]})
    else:
        warnings = sum(one.state is State.WARNING for one in found)
        click.echo(f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}.")
    context.exit(FOUND_A_PROBLEM if problems else 0)


def _print(finding: Finding) -> None:
    state = click.style(f"{finding.state:<8}", fg=_COLOURS[finding.state])
    click.echo(f"{state} {finding.name:<15} {finding.text}")
    if finding.advice:
        click.echo(f"{'':<8} {'':<15} {finding.advice}")
