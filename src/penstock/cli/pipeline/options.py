"""Options that the commands of `penstock pipeline` share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from penstock.cli.options import setting_pairs

Command = TypeVar("Command", bound=Callable[..., Any])


def specification_argument(command: Command) -> Command:
    """FILE, as `path`."""
    return click.argument("path", metavar="FILE", type=click.Path(path_type=Path))(command)


def parameters_option(command: Command) -> Command:
    """-p NAME=VALUE, as `parameters`."""
    return click.option(
        "--parameter",
        "-p",
        "parameters",
        multiple=True,
        metavar="NAME=VALUE",
        callback=setting_pairs,
        help="Set a parameter of the pipeline; may be repeated.",
    )(command)
