"""`penstock config`: settings of a node before it starts, and of nodes and topics that run."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock import config as node_config
from penstock.cli.lazy_group import CommandGroup
from penstock.cli.options import client_options, json_option, setting_pairs
from penstock.cli.output import print_json, print_table
from penstock.cli.up import setting_options

if TYPE_CHECKING:
    from penstock.client.configs import Configs, ConfigValue, Resource

Command = TypeVar("Command", bound=Callable[..., Any])


def resource_options(command: Command) -> Command:
    """Whose settings; `_resource` makes one of the three options."""
    topic = click.option("--topic", "-t", metavar="NAME", help="The settings of this topic.")
    node = click.option(
        "--node", type=click.IntRange(0), metavar="N", help="The settings of this node."
    )
    every = click.option(
        "--all-nodes", is_flag=True, help="The settings that are set for all nodes."
    )
    return topic(node(every(command)))


@click.group(cls=CommandGroup)
def config() -> None:
    """Show the settings of nodes and topics, and change them while they run."""


@config.command()
@setting_options
@json_option
def show(as_json: bool, **flags: object) -> None:
    """Print what a node would start with: every setting, its value and its source.

    Takes the same flags as `penstock up`, so you can see their effect before you start a node.
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


@config.command("list")
@resource_options
@click.option("--changed", is_flag=True, help="Leave out settings that have their default value.")
@client_options
def list_settings(
    changed: bool, bootstrap: str, timeout_s: float, as_json: bool, **of: Any
) -> None:
    """List the settings of a topic or a running node, with source and default."""
    resource = _resource(of)
    with _configs(bootstrap, timeout_s) as configs:
        found = [one for one in configs.all(resource) if not changed or not one.is_default]
    if as_json:
        print_json([_described(one) for one in found])
    else:
        rows = [(one.name, one.value, one.source, one.default) for one in found]
        print_table(("setting", "value", "source", "default"), rows)


@config.command()
@click.argument("name")
@resource_options
@client_options
def get(name: str, bootstrap: str, timeout_s: float, as_json: bool, **of: Any) -> None:
    """Print the value of one setting; with --json also its source, default and meaning."""
    resource = _resource(of)
    with _configs(bootstrap, timeout_s) as configs:
        found = configs.one(resource, name)
    if as_json:
        print_json(_described(found) | {"documentation": found.documentation})
    else:
        click.echo(found.value or "")


@config.command("set")
@click.argument("pairs", nargs=-1, required=True, metavar="NAME=VALUE...", callback=setting_pairs)
@resource_options
@client_options
def set_settings(
    pairs: dict[str, str], bootstrap: str, timeout_s: float, as_json: bool, **of: Any
) -> None:
    """Change settings of a topic, of a node or of all nodes; others keep their values."""
    resource = _resource(of)
    with _configs(bootstrap, timeout_s) as configs:
        configs.alter(resource, set_to=pairs)
    if as_json:
        print_json([{"name": name, "value": value} for name, value in pairs.items()])
    else:
        for name, value in pairs.items():
            click.echo(f"Setting {name} of {resource} is now {value}.")


@config.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@resource_options
@client_options
def unset(
    names: tuple[str, ...], bootstrap: str, timeout_s: float, as_json: bool, **of: Any
) -> None:
    """Remove a setting, so that the next source or the default applies again."""
    resource = _resource(of)
    with _configs(bootstrap, timeout_s) as configs:
        configs.alter(resource, set_to={}, unset=names)
    if as_json:
        print_json([{"name": name, "unset": True} for name in names])
    else:
        for name in names:
            click.echo(f"Setting {name} of {resource} is no longer set.")


def _resource(of: dict[str, Any]) -> "Resource":
    given = [of["topic"] is not None, of["node"] is not None, of["all_nodes"]]
    if sum(given) != 1:
        raise click.UsageError("Say whose settings you mean: --topic NAME, --node N or --all-nodes")
    # Imported late: it compiles Kafka's messages, which `config show` needs none of.
    from penstock.client.configs import Resource

    return Resource(topic=of["topic"], node=of["node"], all_nodes=of["all_nodes"])


@contextmanager
def _configs(bootstrap: str, timeout_s: float) -> "Iterator[Configs]":
    from penstock.client.configs import Configs
    from penstock.client.kafka_connection import KafkaConnection

    with KafkaConnection(bootstrap, timeout_s=timeout_s) as connection:
        yield Configs(connection)


def _described(one: "ConfigValue") -> dict[str, object]:
    return {
        "name": one.name,
        "value": one.value,
        "source": one.source,
        "default": one.default,
        "read_only": one.is_read_only,
    }
