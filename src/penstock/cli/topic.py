"""`penstock topic`: create, list, describe, alter and delete topics."""

from typing import TYPE_CHECKING

import click

from penstock.cli.options import client_options, setting_pairs
from penstock.cli.output import counted, print_json, print_table

if TYPE_CHECKING:
    from penstock.client.admin import Admin
    from penstock.client.topics import TopicDescription, TopicSetting


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--partitions",
    "-p",
    type=click.IntRange(1),
    metavar="N",
    help="How many; the broker's default if left out.",
)
@click.option(
    "--replicas", "-r", type=click.IntRange(1), metavar="N", help="Copies of each partition."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    callback=setting_pairs,
    help="A topic setting by Kafka's name; may be repeated.",
)
@click.option("--if-missing", is_flag=True, help="A topic that exists already is no failure.")
@client_options
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replicas: int | None,
    settings: dict[str, str],
    if_missing: bool,
    bootstrap: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Create one or more topics."""
    admin = _admin(bootstrap, timeout_s)
    made = [
        {
            "name": name,
            "created": admin.topics.create(
                name,
                partitions=partitions or -1,
                replicas=replicas or -1,
                settings=settings,
                if_missing=if_missing,
            ),
        }
        for name in names
    ]
    if as_json:
        print_json(made)
        return
    for one in made:
        click.echo(f"Topic {one['name']} {'created' if one['created'] else 'was there already'}.")


@topic.command("list")
@click.option("--internal", is_flag=True, help="Show the broker's own topics too.")
@client_options
def list_topics(internal: bool, bootstrap: str, timeout_s: float, as_json: bool) -> None:
    """List topics."""
    found = [
        one for one in _admin(bootstrap, timeout_s).topics.all() if internal or not one.internal
    ]
    if as_json:
        print_json(
            [
                {
                    "name": one.name,
                    "partitions": one.partitions,
                    "replicas": one.replicas,
                    "internal": one.internal,
                }
                for one in found
            ]
        )
    else:
        rows = [(one.name, one.partitions, one.replicas) for one in found]
        print_table(("topic", "partitions", "replicas"), rows)


@topic.command()
@click.argument("name")
@click.option(
    "--all-settings", is_flag=True, help="Show settings that the topic does not set itself too."
)
@client_options
def describe(
    name: str, all_settings: bool, bootstrap: str, timeout_s: float, as_json: bool
) -> None:
    """Show a topic's partitions, offsets and settings."""
    admin = _admin(bootstrap, timeout_s)
    found = admin.topics.describe(name)
    settings = [one for one in admin.topics.settings(name) if all_settings or not one.is_default]
    offsets = _offsets(admin, found)
    if as_json:
        print_json(_described(found, offsets, settings))
        return
    size = counted(len(found.partitions), "partition")
    click.echo(f"Topic {found.name}, id {found.topic_id}, {size}")
    rows = [
        (one.partition, one.leader, _ids(one.replicas), _ids(one.in_sync), *offsets[one.partition])
        for one in found.partitions
    ]
    print_table(("partition", "leader", "replicas", "in sync", "start", "end"), rows)
    if settings:
        click.echo()
        print_table(
            ("setting", "value", "source"), [(one.name, one.value, one.source) for one in settings]
        )


@topic.command()
@click.argument("name")
@click.option(
    "--partitions", "-p", type=click.IntRange(1), metavar="N", help="Grow to so many partitions."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    callback=setting_pairs,
    help="Change a setting; may be repeated.",
)
@click.option(
    "--reset", multiple=True, metavar="NAME", help="Go back to the default; may be repeated."
)
@click.option(
    "--append",
    multiple=True,
    metavar="NAME=VALUE",
    callback=setting_pairs,
    help="Add to a setting that is a list.",
)
@click.option(
    "--subtract",
    multiple=True,
    metavar="NAME=VALUE",
    callback=setting_pairs,
    help="Take out of a setting that is a list.",
)
@client_options
def alter(
    name: str,
    partitions: int | None,
    settings: dict[str, str],
    reset: tuple[str, ...],
    append: dict[str, str],
    subtract: dict[str, str],
    bootstrap: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Change a topic's settings or add partitions."""
    changes_settings = bool(settings or reset or append or subtract)
    if not changes_settings and partitions is None:
        raise click.UsageError("Give --partitions, --set, --reset, --append or --subtract")
    admin = _admin(bootstrap, timeout_s)
    if partitions is not None:
        admin.topics.add_partitions(name, partitions)
    if changes_settings:
        admin.topics.alter(name, set_to=settings, reset=reset, append=append, subtract=subtract)
    if as_json:
        print_json({"name": name, "altered": True})
    else:
        click.echo(f"Topic {name} altered.")


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@client_options
def delete(names: tuple[str, ...], bootstrap: str, timeout_s: float, as_json: bool) -> None:
    """Delete topics and all their records."""
    admin = _admin(bootstrap, timeout_s)
    for name in names:
        admin.topics.delete(name)
        if not as_json:
            click.echo(f"Topic {name} deleted.")
    if as_json:
        print_json([{"name": name, "deleted": True} for name in names])


def _admin(bootstrap: str, timeout_s: float) -> "Admin":
    from penstock.client.admin import Admin

    return Admin(bootstrap, timeout_s=timeout_s)


def _offsets(admin: "Admin", found: "TopicDescription") -> dict[int, tuple[int, int]]:
    """Start and end offset by partition."""
    from penstock.model.ids import PartitionIndex, TopicName, TopicPartition

    partitions = [
        TopicPartition(TopicName(found.name), PartitionIndex(one.partition))
        for one in found.partitions
    ]
    starts, ends = admin.offsets.earliest(partitions), admin.offsets.latest(partitions)
    return {one.partition: (starts[one], ends[one]) for one in partitions}


def _described(
    found: "TopicDescription",
    offsets: dict[int, tuple[int, int]],
    settings: "list[TopicSetting]",
) -> dict[str, object]:
    return {
        "name": found.name,
        "id": found.topic_id,
        "internal": found.internal,
        "partitions": [
            {
                "partition": one.partition,
                "leader": one.leader,
                "replicas": one.replicas,
                "in_sync": one.in_sync,
                "start": offsets[one.partition][0],
                "end": offsets[one.partition][1],
            }
            for one in found.partitions
        ],
        "settings": [
            {"name": one.name, "value": one.value, "source": one.source} for one in settings
        ],
    }


def _ids(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes))
