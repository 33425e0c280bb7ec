"""`penstock queue`: list and describe queues, and change their settings.

Single messages are in queue_messages.py.
"""

from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from penstock.cli.durations import duration_ms
from penstock.cli.failures import CommandFailed
from penstock.cli.lazy_group import CommandGroup
from penstock.cli.options import client_options
from penstock.cli.output import counted, print_json, print_table
from penstock.cli.progress import progress
from penstock.cli.queue_messages import COMMANDS

if TYPE_CHECKING:
    from penstock.client.configs import ConfigValue
    from penstock.client.queues import (
        QueueDescription,
        QueueMemberView,
        QueuePartition,
        Queues,
    )

PREFIX = "share."
LETTERS_PREFIX = "errors.deadletterqueue."
# Of settings that Kafka does not have.
OWN_PREFIX = "penstock.queue."
PREFIXES = (PREFIX, LETTERS_PREFIX, OWN_PREFIX)
# Records that one request brings back.
REDRIVEN_AT_A_TIME = 1_000
# What people type, and the names of it in the protocol.
SHORT_NAMES = MappingProxyType(
    {
        "start": "share.auto.offset.reset",
        "isolation": "share.isolation.level",
        "lock.duration": "share.record.lock.duration.ms",
        "lock.limit": "share.partition.max.record.locks",
        "delivery.limit": "share.delivery.count.limit",
        "renew": "share.renew.acknowledge.enable",
        "session.timeout": "share.session.timeout.ms",
        "heartbeat.interval": "share.heartbeat.interval.ms",
        "assignment.interval": "share.assignment.interval.ms",
        "dead.letters": "errors.deadletterqueue.topic.name",
        "dead.letters.copy": "errors.deadletterqueue.copy.record.enable",
        "backoff": "penstock.queue.retry.backoff.ms",
        "backoff.max": "penstock.queue.retry.backoff.max.ms",
        "backoff.jitter": "penstock.queue.retry.backoff.jitter.percent",
        "delay": "penstock.queue.delay.enable",
        "key.order": "penstock.queue.key.order.enable",
        "consumer.limit": "penstock.queue.consumer.max.record.locks",
        "group.limit": "penstock.queue.group.max.record.locks",
        "expiry": "penstock.queue.expiry.enable",
        "expiry.after": "penstock.queue.expiry.ms",
        "expiry.letters": "penstock.queue.expiry.dead.letters.enable",
        "paused": "penstock.queue.paused.topics",
    }
)
_MILLISECONDS = ".ms"


@click.group(cls=CommandGroup)
def queue() -> None:
    """List and describe queues (share groups), change their settings, and handle messages."""


for _command in COMMANDS:
    queue.add_command(_command)


@queue.command("list")
@client_options
def list_queues(bootstrap: str, timeout_s: float, as_json: bool) -> None:
    """List queues with their topics, members and lag.

    The lag is the number of records that are not finished.
    """
    found = _queues(bootstrap, timeout_s).all()
    if as_json:
        print_json([_summary(one) for one in found])
        return
    rows = [
        (one.group, one.state, " ".join(one.topics), len(one.members), one.lag) for one in found
    ]
    print_table(("group", "state", "topics", "members", "lag"), rows)


@queue.command()
@click.argument("name", metavar="GROUP")
@click.option("--members", is_flag=True, help="Show the members instead of the partitions.")
@client_options
def describe(name: str, members: bool, bootstrap: str, timeout_s: float, as_json: bool) -> None:
    """Show how far a queue is in each partition, and its members.

    Every record before the start offset is finished. Kafka's protocol does not show which of the
    records after it are leased.
    """
    found = _queues(bootstrap, timeout_s).describe(name)
    if as_json:
        print_json(_described(found))
        return
    size = counted(len(found.members), "member")
    lag = "unknown" if found.lag is None else found.lag
    click.echo(f"Queue {found.group} is {found.state}, {size}, lag {lag}, epoch {found.epoch}")
    if members:
        _print_members(found)
        return
    rows = [
        (
            one.topic,
            one.partition,
            one.start,
            one.lag,
            _count_members(found, one),
            one.dying,
            one.dead_letters,
            one.redriven,
        )
        for one in found.partitions
    ]
    print_table(
        ("topic", "partition", "start", "lag", "members", "dying", "dead letters", "redriven"),
        rows,
    )
    for one in found.partitions:
        if one.trouble:
            click.echo(f"{one.topic}-{one.partition} can't send dead letters: {one.trouble}")
        if one.note:
            click.echo(f"{one.topic}-{one.partition}: {one.note}")


@queue.command()
@click.argument("name", metavar="GROUP")
@click.argument("topic", metavar="TOPIC")
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="Bring back at most N records; all by default.",
)
@client_options
def redrive(
    name: str, topic: str, limit: int | None, bootstrap: str, timeout_s: float, as_json: bool
) -> None:
    """Bring dead letters of TOPIC back to a queue.

    A record that is still in TOPIC is delivered again, to this queue only. A record that is no
    longer there is appended to TOPIC again, and other queues skip it. A record that was brought
    back three times, and failed each time, stays a dead letter. If the command is interrupted, run
    it again: it continues where it stopped.
    """
    queues = _queues(bootstrap, timeout_s)
    left, counts = limit, dict.fromkeys(("reopened", "copied", "skipped"), 0)
    total = None if as_json else limit
    with progress(f"Bringing back letters of {topic}", total, shown=not as_json) as advance:
        while left is None or left > 0:
            at_a_time = REDRIVEN_AT_A_TIME if left is None else min(left, REDRIVEN_AT_A_TIME)
            found = queues.redrive(name, topic, at_a_time)
            for each in counts:
                counts[each] += getattr(found, each)
            advance(found.reopened + found.copied)
            if found.is_finished:
                break
            left = None if left is None else left - found.reopened - found.copied
    if as_json:
        print_json(counts)
        return
    back = counted(counts["reopened"] + counts["copied"], "record")
    click.echo(
        f"{back} of {topic} brought back to {name}: {counts['reopened']} reopened, "
        f"{counts['copied']} copied; {counts['skipped']} skipped"
    )


@queue.command()
@click.argument("name", metavar="GROUP")
@click.argument("changes", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--reset", multiple=True, metavar="NAME", help="Reset to the default.")
@client_options
def settings(
    name: str,
    changes: tuple[str, ...],
    reset: tuple[str, ...],
    bootstrap: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Show or change a queue's settings.

    NAME is a full name, as in share.record.lock.duration.ms, or short: start, isolation,
    lock.duration, lock.limit, delivery.limit, renew, session.timeout, heartbeat.interval,
    assignment.interval, dead.letters (the topic for what is given up), dead.letters.copy; and
    those that Kafka does not have: backoff, backoff.max, backoff.jitter, delay, key.order,
    consumer.limit, group.limit, expiry, expiry.after, expiry.letters, paused. Durations have a unit
    (500ms, 60s, 5m, 1h). Settings can be changed before the queue is used for the first time.
    """
    set_to = dict(_change(text) for text in changes)
    unset = [_full_name(one) for one in reset]
    if both := sorted(set_to.keys() & set(unset)):
        raise click.UsageError(f"{both[0]} can't be both changed and reset")
    from penstock.client.configs import Configs, Resource
    from penstock.client.kafka_connection import KafkaConnection

    with KafkaConnection(bootstrap, timeout_s=timeout_s) as connection:
        configs, resource = Configs(connection), Resource(group=name)
        if set_to or unset:
            configs.alter(resource, set_to=set_to, unset=unset)
        found = [one for one in configs.all(resource) if one.name.startswith(PREFIXES)]
    if not found:
        raise CommandFailed(f"The broker at {bootstrap} has no settings of queues.")
    _print_settings(found, as_json)


def _queues(bootstrap: str, timeout_s: float) -> "Queues":
    from penstock.client.queues import Queues

    return Queues(bootstrap, timeout_s=timeout_s)


def _change(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    full = _full_name(name)
    return full, _plain_value(name.strip(), full, value.strip())


def _full_name(name: str) -> str:
    name = name.strip()
    if name in SHORT_NAMES:
        return SHORT_NAMES[name]
    if name.startswith(PREFIXES):
        return name
    for prefix in PREFIXES:
        if prefix + name in SHORT_NAMES.values():
            return prefix + name
    raise click.BadParameter(f"There is no setting {name!r}; there are {', '.join(SHORT_NAMES)}")


def _plain_value(name: str, full: str, value: str) -> str:
    """Milliseconds for a duration that has a unit."""
    if not full.endswith(_MILLISECONDS):
        return value
    if (found := duration_ms(value)) is not None:
        return str(found)
    if not name.endswith(_MILLISECONDS):
        raise click.BadParameter(f"{name}={value} needs a unit, as in {name}=60s")
    return value


def _print_settings(found: "list[ConfigValue]", as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "name": one.name,
                    "value": one.value,
                    "source": one.source,
                    "default": one.default,
                }
                for one in found
            ]
        )
        return
    shown = {full: short for short, full in SHORT_NAMES.items()}
    rows = [(one.name, shown.get(one.name), one.value, one.source, one.default) for one in found]
    print_table(("setting", "short", "value", "source", "default"), rows)


def _count_members(found: "QueueDescription", at: "QueuePartition") -> int:
    place = (at.topic, at.partition)
    return sum(place in member.partitions for member in found.members)


def _print_members(found: "QueueDescription") -> None:
    rows = [
        (one.member, one.client, one.host, " ".join(map(str, one.partitions)))
        for one in found.members
    ]
    print_table(("member", "client", "host", "partitions"), rows)


def _summary(one: "QueueDescription") -> dict[str, object]:
    return {
        "group": one.group,
        "state": one.state,
        "topics": list(one.topics),
        "members": len(one.members),
        "lag": one.lag,
    }


def _described(found: "QueueDescription") -> dict[str, object]:
    return {
        "group": found.group,
        "state": found.state,
        "epoch": found.epoch,
        "assignor": found.assignor,
        "topics": list(found.topics),
        "lag": found.lag,
        "members": [_shown_member(one) for one in found.members],
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "start": one.start,
                "lag": one.lag,
                "leader_epoch": one.leader_epoch,
                "dying": one.dying,
                "dead_letters": one.dead_letters,
                "redriven": one.redriven,
                "trouble": one.trouble,
                "note": one.note,
            }
            for one in found.partitions
        ],
    }


def _shown_member(one: "QueueMemberView") -> dict[str, object]:
    return {
        "member": one.member,
        "client": one.client,
        "host": one.host,
        "epoch": one.epoch,
        "topics": list(one.topics),
        "partitions": [
            {"topic": place.topic, "partition": place.partition} for place in one.partitions
        ],
    }
