"""`penstock cluster`: look at a cluster, empty and remove nodes, spread replicas and leaders."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.cluster_metadata import export_metadata, import_metadata
from penstock.cli.cluster_status import print_status, status_of
from penstock.cli.cluster_watch import watch
from penstock.cli.failures import CommandFailed
from penstock.cli.lazy_group import CommandGroup
from penstock.cli.options import client_options
from penstock.cli.output import counted, print_json, print_table
from penstock.cli.progress import progress
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition

if TYPE_CHECKING:
    from penstock.client.cluster import ClusterClient, ClusterView
    from penstock.client.placement_plan import Move

# A topic that is created while its node is being emptied may still be put there once.
DRAIN_ROUNDS_MAX = 5
Command = TypeVar("Command", bound=Callable[..., object])


def wait_option(command: Command) -> Command:
    return click.option(
        "--wait",
        "wait_s",
        metavar="SECONDS",
        type=click.FloatRange(min=0, max=7 * 86_400),
        default=3600.0,
        show_default=True,
        help="How long to watch the moves. They continue without this command.",
    )(command)


def dry_run_option(command: Command) -> Command:
    return click.option("--dry-run", is_flag=True, help="Only show what would be moved.")(command)


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Show a cluster's state, drain and remove nodes, balance replicas, save its metadata."""


cluster.add_command(export_metadata)
cluster.add_command(import_metadata)


@cluster.command()
@click.option(
    "--watch",
    "every_s",
    metavar="[SECONDS]",
    type=click.FloatRange(min=0.2, max=3600),
    is_flag=False,
    flag_value=2.0,
    help="Refresh every 2 seconds, or every SECONDS, until Ctrl-C.",
)
@client_options
def status(every_s: float | None, bootstrap: str, timeout_s: float, as_json: bool) -> None:
    """Show nodes, roles, leaders, and partitions without a leader or a copy.

    With --watch, it keeps showing the current state, even while no node answers. With --watch
    --json, each refresh is one line of JSON.
    """

    def look() -> dict[str, Any]:
        with _client(bootstrap, timeout_s) as client:
            return status_of(client.view(), client.moving())

    if every_s is not None:
        watch(look, every_s, as_json)
    elif as_json:
        print_json(look())
    else:
        print_status(look())


@cluster.command()
@click.argument("node", type=click.IntRange(0))
@click.option("--undo", is_flag=True, help="Let the node take replicas again.")
@click.option(
    "--fewer-copies",
    is_flag=True,
    help="Where no other node can take a copy, continue with one copy less.",
)
@dry_run_option
@wait_option
@client_options
def drain(
    node: int,
    undo: bool,
    fewer_copies: bool,
    dry_run: bool,
    wait_s: float,
    bootstrap: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Move all replicas and leaders away from a node, and put no new ones there."""
    if undo and (fewer_copies or dry_run):
        raise click.UsageError("--undo moves nothing, so it can't be combined with other options")
    with _client(bootstrap, timeout_s) as client:
        # Before anything is changed: the node must exist, and the others must have room.
        view = client.view()
        view.node(node)
        if undo:
            client.set_drained(node, False)
            _tell(as_json, {"node": node, "drained": False}, f"Node {node} takes replicas again.")
            return
        moves = _drain_plan(view, node, fewer_copies)
        if dry_run:
            _show_plan(view, moves, as_json)
            return
        client.set_drained(node, True)
        moved = _drain(client, node, fewer_copies, wait_s)
    _tell(
        as_json,
        {"node": node, "drained": True, "moved": moved},
        f"Node {node} is empty: {counted(moved, 'partition')} moved.",
    )


@cluster.command()
@click.argument("node", type=click.IntRange(0))
@client_options
def remove(node: int, bootstrap: str, timeout_s: float, as_json: bool) -> None:
    """Remove a node that was drained, or that is gone for good, from the cluster."""
    with _client(bootstrap, timeout_s) as client:
        view = client.view()
        view.node(node)
        held = len(view.held_by(node))
        if held:
            raise CommandFailed(
                f"Node {node} still has replicas of {counted(held, 'partition')}: run "
                f"penstock cluster drain {node} first."
            )
        client.remove(node)
    _tell(as_json, {"node": node, "removed": True}, f"Node {node} is no longer in the cluster.")


@cluster.command()
@dry_run_option
@wait_option
@client_options
def rebalance(
    dry_run: bool, wait_s: float, bootstrap: str, timeout_s: float, as_json: bool
) -> None:
    """Spread replicas and leaders evenly over the nodes and their racks."""
    from penstock.client.moves import Patience, carry_out, lead_by_preferred
    from penstock.client.placement_plan import plan_rebalance

    with _client(bootstrap, timeout_s) as client:
        view = client.view()
        moves = plan_rebalance(view.sites(), view.placed())
        if dry_run:
            _show_plan(view, moves, as_json)
            return
        patience = Patience(wait_s)
        with progress("Moving partitions", len(moves), shown=not as_json) as advance:
            carry_out(client, moves, patience=patience, advance=advance)
        misled = lead_by_preferred(client, patience=Patience(min(wait_s, timeout_s)))
    text = f"{counted(len(moves), 'partition')} moved."
    if misled:
        text += f" {counted(misled, 'partition')} will get the preferred leader later."
    _tell(as_json, {"moved": len(moves), "not_led_by_preferred": misled}, text)


@cluster.command("transfer-leader")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0))
@click.option(
    "--to",
    "node",
    type=click.IntRange(0),
    metavar="NODE",
    required=True,
    help="The new leader; it must hold a replica.",
)
@client_options
def transfer_leader(
    topic: str, partition: int, node: int, bootstrap: str, timeout_s: float, as_json: bool
) -> None:
    """Make another replica the leader of a partition, now and in future."""
    from penstock.client.moves import Patience, carry_out, lead_by
    from penstock.client.placement_plan import Move

    place = TopicPartition(TopicName(topic), PartitionIndex(partition))
    with _client(bootstrap, timeout_s) as client:
        replicas = _replicas_of(client, place)
        if node not in replicas:
            raise CommandFailed(
                f"Node {node} has no replica of {place}, which is on {_listed(replicas)}."
            )
        patience = Patience(timeout_s)
        wanted = (node, *(one for one in replicas if one != node))
        moves = [Move(place, wanted)] if wanted != replicas else []
        carry_out(client, moves, patience=patience, advance=lambda amount: None)
        lead_by(client, place, node, patience=patience)
    _tell(
        as_json,
        {"topic": topic, "partition": partition, "leader": node},
        f"Node {node} leads {place}.",
    )


@contextmanager
def _client(bootstrap: str, timeout_s: float) -> "Iterator[ClusterClient]":
    from penstock.client.cluster import ClusterClient
    from penstock.client.kafka_connection import KafkaConnection

    with KafkaConnection(bootstrap, timeout_s=timeout_s) as connection:
        yield ClusterClient(connection)


def _drain(client: "ClusterClient", node: int, fewer_copies: bool, wait_s: float) -> int:
    """Moves until the node holds nothing; returns how many partitions that took."""
    from penstock.client.moves import Patience, carry_out

    patience, moved = Patience(wait_s), 0
    for _ in range(DRAIN_ROUNDS_MAX):
        moves = _drain_plan(client.view(), node, fewer_copies)
        if not moves:
            return moved
        with progress(f"Draining node {node}", len(moves), shown=True) as advance:
            carry_out(client, moves, patience=patience, advance=advance)
        moved += len(moves)
    raise CommandFailed(
        f"Node {node} keeps receiving new replicas, so something else is moving them."
    )


def _drain_plan(view: "ClusterView", node: int, fewer_copies: bool) -> "list[Move]":
    from penstock.client.placement_plan import plan_drain

    return plan_drain(node, view.sites(), view.placed(), can_shrink=fewer_copies)


def _show_plan(view: "ClusterView", moves: "Sequence[Move]", as_json: bool) -> None:
    before = view.placed()
    if as_json:
        print_json(
            [
                {
                    "topic": move.place.topic,
                    "partition": move.place.partition,
                    "from": list(before[move.place]),
                    "to": list(move.replicas),
                }
                for move in moves
            ]
        )
        return
    rows = [(str(move.place), _ids(before[move.place]), _ids(move.replicas)) for move in moves]
    print_table(("partition", "from", "to"), rows)


def _replicas_of(client: "ClusterClient", place: TopicPartition) -> tuple[int, ...]:
    for one in client.partitions():
        if one.place == place:
            return one.replicas
    raise CommandFailed(f"There is no partition {place}.")


def _tell(as_json: bool, content: dict[str, object], sentence: str) -> None:
    if as_json:
        print_json(content)
    else:
        click.echo(sentence)


def _ids(nodes: Sequence[int]) -> str:
    return ",".join(str(node) for node in nodes)


def _listed(nodes: Sequence[int]) -> str:
    return f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {', '.join(map(str, nodes))}"
