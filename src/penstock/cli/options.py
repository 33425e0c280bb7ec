"""Options that several commands share, so that they are spelt and explained alike."""

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from penstock.cli.formats import Format
from penstock.cli.profiles import DEFAULT_BOOTSTRAP, load_profiles
from penstock.model.endpoint import parse_endpoint

Command = TypeVar("Command", bound=Callable[..., Any])
_PROFILE = "penstock.profile"


def bootstrap_option(command: Command) -> Command:
    """Where the cluster is: by its address, or by the name of a profile."""
    address = click.option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        envvar="PENSTOCK_BOOTSTRAP",
        show_envvar=True,
        callback=_chosen_bootstrap,
        help="Address of the broker; separate several with commas.",
    )
    profile = click.option(
        "--profile",
        metavar="NAME",
        envvar="PENSTOCK_PROFILE",
        show_envvar=True,
        # Before the address, which depends on it.
        is_eager=True,
        expose_value=False,
        callback=_note_profile,
        help="Name of the cluster, instead of its address; see penstock profile.",
    )
    return address(profile(command))


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
        help="How long to wait for the broker's answer.",
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


def check_addresses(given: str) -> str:
    """The same text; raises BadParameter unless it is one HOST:PORT or several."""
    for address in given.split(","):
        try:
            endpoint = parse_endpoint(address)
        except ValueError as problem:
            raise click.BadParameter(f"{address!r} can't be used: {problem}") from None
        if endpoint.port == 0:
            raise click.BadParameter(f"{address!r} has no port to connect to")
    return given


def _note_profile(context: click.Context, parameter: click.Parameter, given: str | None) -> None:
    context.meta[_PROFILE] = given or None


def _chosen_bootstrap(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """What was typed beats the environment, which beats the profile in use."""
    named: str | None = context.meta.get(_PROFILE)
    is_typed = context.get_parameter_source("bootstrap") is ParameterSource.COMMANDLINE
    is_named = context.get_parameter_source("profile") is ParameterSource.COMMANDLINE
    if is_typed and is_named:
        raise click.UsageError("--bootstrap and --profile can't be combined")
    is_set = context.get_parameter_source("bootstrap") is ParameterSource.ENVIRONMENT
    if is_typed or (is_set and not is_named):
        return check_addresses(given)
    profiles = load_profiles()
    name = named or profiles.current
    return check_addresses(given if name is None else profiles.address(name))


def key_format_option(command: Command) -> Command:
    return click.option(
        "--key-format",
        type=click.Choice([one.value for one in Format]),
        default=Format.TEXT.value,
        show_default=True,
        help="The format of keys.",
    )(command)


def format_options(command: Command) -> Command:
    """How values and keys look in what is read or printed."""
    values = click.option(
        "--format",
        "-f",
        "value_format",
        type=click.Choice([one.value for one in Format]),
        default=Format.TEXT.value,
        show_default=True,
        help="The format of values.",
    )
    return values(key_format_option(command))
