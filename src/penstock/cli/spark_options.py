"""Options that commands share which start a Spark session of their own."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from penstock.cli.options import setting_pairs

Command = TypeVar("Command", bound=Callable[..., Any])


def spark_options(command: Command) -> Command:
    """`master` and `settings`."""
    master = click.option(
        "--master",
        metavar="MASTER",
        help="Where Spark runs: local[2], spark://host:7077, or whatever spark-submit takes.",
    )
    settings = click.option(
        "--conf",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        callback=setting_pairs,
        help="A setting of Spark; may be repeated.",
    )
    return master(settings(command))
