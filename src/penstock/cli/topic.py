"""`penstock topic`: create, list, describe, alter, trim and delete topics."""

from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failures import CommandFailed, Outcome, attempt_each, fail_together
from penstock.cli.lazy_group import CommandGroup
from penstock.cli.options import client_options, setting_pairs
from penstock.cli.output import counted, print_json, print_table
from penstock.cli.values import KeptType, PositionType
from penstock.client.positions import POSITION_HELP
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin import Admin
    from penstock.client.topics import TopicDescription, TopicSetting


@click.group(cls=CommandGroup)
def topic() -> None:
    """Create, list, describe, alter, trim and delete topics."""


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--partitions",
    "-p",
    type=click.IntRange(1),
    metavar="N",
    help="How many; the broker's default if not given.",
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
@click.option("--if-missing", is_flag=True, help="Do not fail if the topic already exists.")
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
    topics = _admin(bootstrap, timeout_s).topics
    outcomes = attempt_each(
        names,
        lambda name: topics.create(
            name,
            partitions=partitions or -1,
            replicas=replicas or -1,
            settings=settings,
            if_missing=if_missing,
        ),
    )
    for one in [] if as_json else outcomes:
        if one.error is None:
            click.echo(f"Topic {one.name} {'created' if one.result else 'already exists'}.")
    if as_json:
        print_json([_outcome(one, "created") for one in outcomes])
    fail_together(outcomes)


@topic.command("list")
@click.option("--internal", is_flag=True, help="Also show the broker's internal topics.")
@client_options
def list_topics(internal: bool, bootstrap: str, timeout_s: float, as_json: bool) -> None:
    """List topics with their partitions, replicas, records and size.

    The number of records comes from the offsets; a compacted topic has fewer. The size is that of
    one copy. If a broker is down, the figures that only it has are left out.
    """
    from penstock.client.inventory import Inventory
    from penstock.client.kafka_connection import KafkaConnection

    with KafkaConnection(bootstrap, timeout_s=timeout_s) as connection:
        found = [one for one in Inventory(connection).topics() if internal or not one.internal]
    if as_json:
        print_json(
            [
                {
                    "name": one.name,
                    "partitions": one.partitions,
                    "replicas": one.replicas,
                    "records": one.records,
                    "bytes": one.bytes,
                    "internal": one.internal,
                }
                for one in found
            ]
        )
    else:
        rows = [(one.name, one.partitions, one.replicas, one.records, one.bytes) for one in found]
        print_table(("topic", "partitions", "replicas", "records", "bytes"), rows)


@topic.command()
@click.argument("name")
@click.option(
    "--all-settings", is_flag=True, help="Also show settings that the topic does not set itself."
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
    "--partitions", "-p", type=click.IntRange(1), metavar="N", help="Grow to N partitions."
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
    "--reset",
    multiple=True,
    metavar="NAME",
    help="Reset a setting to its default; may be repeated.",
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
    help="Remove from a setting that is a list.",
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
    topics = _admin(bootstrap, timeout_s).topics
    outcomes = attempt_each(names, topics.delete)
    for one in [] if as_json else outcomes:
        if one.error is None:
            click.echo(f"Topic {one.name} deleted.")
    if as_json:
        print_json([_outcome(one, "deleted") for one in outcomes])
    fail_together(outcomes)


@topic.command()
@click.argument("name")
@click.option(
    "--before",
    "position",
    type=PositionType(),
    help=f"Delete all records before: {POSITION_HELP}.",
)
@click.option(
    "--keep",
    type=KeptType(),
    help="Delete all but the last N records of each partition, or those of the last 15m, 2h or 7d.",
)
@click.option(
    "--partition",
    "-p",
    "partitions",
    multiple=True,
    type=click.IntRange(0),
    metavar="N",
    help="Only this partition; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("--yes", is_flag=True, help="Do not ask before records are deleted.")
@client_options
def trim(
    name: str,
    position: Any,
    keep: Any,
    partitions: tuple[int, ...],
    dry_run: bool,
    yes: bool,
    bootstrap: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Delete the oldest records of a topic, for all its readers."""
    if (position is None) == (keep is None):
        raise click.UsageError("Give either --before POSITION or --keep AMOUNT")
    admin = _admin(bootstrap, timeout_s)
    places = _chosen(name, admin.topics.partitions(name), partitions)
    before = admin.offsets.earliest(places)
    # A time may lie before what retention has deleted already.
    after = admin.offsets.clamp(admin.offsets.resolve(position or keep, places))
    deleted = sum(after[one] - before[one] for one in places)
    if deleted and not dry_run:
        if not yes:
            _print_trimmed(before, after, as_json=False, err=True)
            question = f"Delete {counted(deleted, 'record')} of topic {name} for good"
            click.confirm(question, abort=True, err=True)
        after |= admin.offsets.trim({one: after[one] for one in places if after[one] > before[one]})
    _print_trimmed(before, after, as_json)
    if not as_json and not dry_run:
        click.echo(f"{counted(deleted, 'record')} deleted.")


def _admin(bootstrap: str, timeout_s: float) -> "Admin":
    from penstock.client.admin import Admin

    return Admin(bootstrap, timeout_s=timeout_s)


def _chosen(name: str, there: list[int], wanted: tuple[int, ...]) -> list[TopicPartition]:
    for number in wanted:
        if number not in there:
            raise CommandFailed(f"Topic {name} has no partition {number}.")
    return [TopicPartition(TopicName(name), PartitionIndex(one)) for one in wanted or there]


def _print_trimmed(
    before: dict[TopicPartition, int],
    after: dict[TopicPartition, int],
    as_json: bool,
    *,
    err: bool = False,
) -> None:
    columns = ("partition", "start before", "start after", "deleted")
    rows = [
        (one.partition, before[one], after[one], after[one] - before[one]) for one in sorted(after)
    ]
    if as_json:
        names = ("partition", "before", "after", "deleted")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows, err=err)


def _outcome(one: Outcome[Any], done: str) -> dict[str, object]:
    shown: dict[str, object] = {
        "name": one.name,
        done: one.error is None and one.result is not False,
    }
    return shown if one.error is None else shown | {"error": str(one.error)}


def _offsets(admin: "Admin", found: "TopicDescription") -> dict[int, tuple[int, int]]:
    """Start and end offset by partition."""
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
