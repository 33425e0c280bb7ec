"""What commands share which start a Spark session of their own: options, and lines of outages."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.options import setting_pairs

if TYPE_CHECKING:
    from penstock.pipelines.running.broker_watch import BrokerWatch

Command = TypeVar("Command", bound=Callable[..., Any])


def spark_options(command: Command) -> Command:
    """`master` and `settings`."""
    master = click.option(
        "--master",
        metavar="MASTER",
        help="Where Spark runs: local[2], spark://host:7077, or another that spark-submit takes.",
    )
    settings = click.option(
        "--conf",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        callback=setting_pairs,
        help="A Spark setting; may be repeated.",
    )
    return master(settings(command))


def outage_option(command: Command) -> Command:
    return click.option(
        "--max-outage",
        "outage_s_max",
        metavar="SECONDS",
        type=click.FloatRange(min=1, max=1_000_000),
        default=600.0,
        show_default=True,
        help="How long to wait for brokers that do not answer.",
    )(command)


class OutageLines:
    """Says on stderr when brokers go away and when they are back."""

    def __init__(self, watch: "BrokerWatch") -> None:
        self._watch = watch
        self._shown: Mapping[str, str] = {}

    def tell(self) -> None:
        from penstock.pipelines.running.broker_watch import changes

        silent = self._watch.silent
        for sentence in changes(self._shown, silent):
            click.echo(sentence, err=True)
        self._shown = silent
