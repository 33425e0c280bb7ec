"""`penstock group`: list, describe, reset and delete groups."""

from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failures import CommandFailed, attempt_each, fail_together
from penstock.cli.lazy_group import CommandGroup
from penstock.cli.options import client_options
from penstock.cli.output import counted, print_json, print_table
from penstock.cli.values import PositionType
from penstock.client.positions import POSITION_HELP
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin import Admin
    from penstock.client.groups import GroupDescription


@click.group(cls=CommandGroup)
def group() -> None:
    """List, describe, reset and delete consumer groups."""


@group.command("list")
@client_options
def list_groups(bootstrap: str, timeout_s: float, as_json: bool) -> None:
    """List consumer groups with their type, state, members and lag."""
    found = _admin(bootstrap, timeout_s).groups.overview()
    columns = ("group", "type", "state", "members", "lag")
    rows = [(one.group, one.type, one.state, one.members, one.lag) for one in found]
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)


@group.command()
@click.argument("name", metavar="GROUP")
@click.option("--members", is_flag=True, help="Show the members instead of the offsets.")
@client_options
def describe(name: str, members: bool, bootstrap: str, timeout_s: float, as_json: bool) -> None:
    """Show a group's committed offsets, lag and members."""
    found = _admin(bootstrap, timeout_s).groups.describe(name)
    if as_json:
        print_json(_described(found))
        return
    size = counted(len(found.members), "member")
    epoch = "" if found.epoch is None else f", epoch {found.epoch}"
    # The offsets of a share group are those of its queues.
    is_share = found.type == "share"
    lag = "" if is_share else f", lag {found.lag}"
    click.echo(f"Group {found.group} ({found.type}) is {found.state}, {size}{lag}{epoch}")
    if members or is_share:
        _print_members(found)
    else:
        _print_offsets(found)


@group.command()
@click.argument("name", metavar="GROUP")
@click.option(
    "--topic",
    "-t",
    "topics",
    multiple=True,
    metavar="TOPIC[:PARTITION,...]",
    help="What to reset; by default, every partition that the group has an offset for.",
)
@click.option("--to", "position", type=PositionType(), help=f"Where to: {POSITION_HELP}.")
@click.option("--shift", type=int, metavar="N", help="Move by N offsets; backwards if negative.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@client_options
def reset(
    name: str,
    topics: tuple[str, ...],
    position: Any,
    shift: int | None,
    dry_run: bool,
    bootstrap: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Change a group's committed offsets; the group must have no active members."""
    if (position is None) == (shift is None):
        raise click.UsageError("Give either --to POSITION or --shift N")
    admin = _admin(bootstrap, timeout_s)
    admin.groups.check_inactive(name)
    before = {one: offset for one, (offset, _) in admin.groups.committed(name).items()}
    wanted = _partitions(admin, topics) if topics else sorted(before)
    if not wanted:
        raise CommandFailed(f"Group {name} has no offsets; name a topic with --topic.")
    if shift is None:
        after = admin.offsets.resolve(position, wanted)
    else:
        after = _shifted(admin, name, wanted, before, shift)
    if not dry_run:
        admin.groups.set_offsets(name, after)
    _print_reset(before, after, as_json)


@group.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@client_options
def delete(names: tuple[str, ...], bootstrap: str, timeout_s: float, as_json: bool) -> None:
    """Delete groups and their committed offsets."""
    groups = _admin(bootstrap, timeout_s).groups
    outcomes = attempt_each(names, groups.delete)
    for one in [] if as_json else outcomes:
        if one.error is None:
            click.echo(f"Group {one.name} deleted.")
    if as_json:
        print_json(
            [
                {"group": one.name, "deleted": one.error is None}
                | ({} if one.error is None else {"error": str(one.error)})
                for one in outcomes
            ]
        )
    fail_together(outcomes)


def _admin(bootstrap: str, timeout_s: float) -> "Admin":
    from penstock.client.admin import Admin

    return Admin(bootstrap, timeout_s=timeout_s)


def _partitions(admin: "Admin", topics: tuple[str, ...]) -> list[TopicPartition]:
    """The partitions that --topic names; a topic alone means all of its partitions."""
    wanted: set[TopicPartition] = set()
    for text in topics:
        topic, _, listed = text.partition(":")
        there = admin.topics.partitions(topic)
        numbers = _numbers(text, listed) if listed else there
        for number in numbers:
            if number not in there:
                raise CommandFailed(f"Topic {topic} has no partition {number}.")
            wanted.add(TopicPartition(TopicName(topic), PartitionIndex(number)))
    return sorted(wanted)


def _numbers(text: str, listed: str) -> list[int]:
    parts = listed.split(",")
    if not all(part.isdecimal() for part in parts):
        raise click.BadParameter(f"{text!r} is not TOPIC or TOPIC:PARTITION,...")
    return [int(part) for part in parts]


def _shifted(
    admin: "Admin",
    name: str,
    wanted: list[TopicPartition],
    before: dict[TopicPartition, int],
    shift: int,
) -> dict[TopicPartition, int]:
    for one in wanted:
        if one not in before:
            raise CommandFailed(f"Group {name} has no offset for {one} that could be shifted.")
    return admin.offsets.clamp({one: before[one] + shift for one in wanted})


def _print_reset(
    before: dict[TopicPartition, int], after: dict[TopicPartition, int], as_json: bool
) -> None:
    rows = [(one.topic, one.partition, before.get(one), after[one]) for one in sorted(after)]
    columns = ("topic", "partition", "before", "after")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)


def _print_offsets(found: "GroupDescription") -> None:
    rows = [
        (one.topic, one.partition, one.committed, one.end, one.lag, one.client, one.metadata)
        for one in found.offsets
    ]
    print_table(("topic", "partition", "committed", "end", "lag", "client", "metadata"), rows)


def _print_members(found: "GroupDescription") -> None:
    columns = ["member", "instance", "client", "host", "partitions"]
    rows = [
        [one.member, one.instance, one.client, one.host, " ".join(map(str, one.partitions))]
        for one in found.members
    ]
    if found.epoch is not None:
        columns += ["epoch", "target"]
        for row, one in zip(rows, found.members, strict=True):
            row += [str(one.epoch), " ".join(map(str, one.target or ()))]
    print_table(columns, rows)


def _places(partitions: tuple[TopicPartition, ...]) -> list[dict[str, object]]:
    return [{"topic": one.topic, "partition": one.partition} for one in partitions]


def _described(found: "GroupDescription") -> dict[str, object]:
    return {
        "group": found.group,
        "type": found.type,
        "state": found.state,
        "epoch": found.epoch,
        "assignor": found.assignor,
        "coordinator": found.coordinator,
        "lag": found.lag,
        "members": [
            {
                "member": one.member,
                "instance": one.instance,
                "client": one.client,
                "host": one.host,
                "epoch": one.epoch,
                "partitions": _places(one.partitions),
                "target": None if one.target is None else _places(one.target),
            }
            for one in found.members
        ],
        "offsets": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "committed": one.committed,
                "end": one.end,
                "lag": one.lag,
                "metadata": one.metadata,
                "member": one.member,
                "client": one.client,
            }
            for one in found.offsets
        ],
    }
