"""Options that several commands share, so that they are spelt and explained alike."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from penstock.cli.formats import Format
from penstock.model.endpoint import parse_endpoint

Command = TypeVar("Command", bound=Callable[..., Any])
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


def bootstrap_option(command: Command) -> Command:
    return click.option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        envvar="PENSTOCK_BOOTSTRAP",
        show_envvar=True,
        callback=_checked_bootstrap,
        help="Where the broker is; several addresses are separated by commas.",
    )(command)


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(
        command
    )


def timeout_option(command: Command) -> Command:
    return click.option(
        "--timeout",
        "timeout_s",
        metavar="SECONDS",
        type=click.FloatRange(min=0.1, max=3600),
        default=5.0,
        show_default=True,
        help="How long the broker may take to answer.",
    )(command)


def client_options(command: Command) -> Command:
    """What every command that talks to a broker understands."""
    return bootstrap_option(timeout_option(json_option(command)))


def setting_pairs(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    """NAME=VALUE as often as the option was given; a callback for click."""
    pairs = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE")
        pairs[name.strip()] = value
    return pairs


def _checked_bootstrap(context: click.Context, parameter: click.Parameter, given: str) -> str:
    for address in given.split(","):
        try:
            endpoint = parse_endpoint(address)
        except ValueError as problem:
            raise click.BadParameter(f"{address!r} can't be used: {problem}") from None
        if endpoint.port == 0:
            raise click.BadParameter(f"{address!r} has no port to connect to")
    return given


def format_options(command: Command) -> Command:
    """How values and keys look in what is read or printed."""
    choice = click.Choice([one.value for one in Format])
    keys = click.option(
        "--key-format",
        type=choice,
        default=Format.TEXT.value,
        show_default=True,
        help="How keys are written.",
    )
    values = click.option(
        "--format",
        "-f",
        "value_format",
        type=choice,
        default=Format.TEXT.value,
        show_default=True,
        help="How values are written.",
    )
    return values(keys(command))
