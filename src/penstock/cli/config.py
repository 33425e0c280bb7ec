"""`penstock config show`: the settings a node would run with, and where each came from."""

import os

import click

from penstock import config as node_config
from penstock.cli.options import json_option
from penstock.cli.output import print_json, print_table
from penstock.cli.up import setting_options


@click.group()
def config() -> None:
    """Look at a node's settings."""


@config.command()
@setting_options
@json_option
def show(as_json: bool, **flags: object) -> None:
    """Print every setting with its effective value and its source.

    Takes the flags of `penstock up`, so that their effect can be seen before a start.
    """
    settings = node_config.load(flags, os.environ)
    if settings.broker:
        # Only the broker's own code knows what its settings may be.
        from penstock.server import check_settings

        check_settings(settings)
    rows = settings.effective()
    if as_json:
        print_json([{"name": row[0], "value": row[1], "source": row[2]} for row in rows])
    else:
        print_table(("setting", "value", "source"), rows)
