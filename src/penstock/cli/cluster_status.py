"""What `penstock cluster status` shows: nodes with their roles, and what is wrong, if anything."""

import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.fitted_table import Column, print_fitted
from penstock.cli.output import counted

if TYPE_CHECKING:
    from penstock.client.cluster import ClusterView, Moving, NodeView, PartitionView

# A healthy cluster has none of these; a sick one may have thousands.
ROWS_SHOWN_MAX = 50
ROWS_SHOWN_MIN = 1
# Around the rows of a list: a blank line, its title, the names of its columns, how many are left.
LINES_AROUND = 4
# Around everything: the headline, the names of columns, the number of partitions, the prompt.
LINES_BESIDE = 4
NODE_COLUMNS = (
    Column(name="node", is_number=True),
    Column(name="address", width_min=16, keeps_end=True),
    Column(name="rack", rank=1),
    Column(name="state"),
    Column(name="role"),
    Column(name="leaders", is_number=True),
    Column(name="replicas", is_number=True),
)
# A partition's number stands at the end of its name.
PARTITION = Column(name="partition", width_min=16, keeps_end=True)
SICK_COLUMNS = (
    PARTITION,
    Column(name="leader"),
    Column(name="replicas", width_min=8),
    Column(name="in sync", width_min=7),
)
MOVING_COLUMNS = (
    PARTITION,
    Column(name="replicas", width_min=8),
    Column(name="adding", width_min=6),
    Column(name="removing", width_min=8),
)


def status_of(view: "ClusterView", moving: "Sequence[Moving]") -> dict[str, Any]:
    """The status as it is printed with --json."""
    leads = Counter(one.leader for one in view.partitions)
    held = Counter(node for one in view.partitions for node in one.replicas)
    return {
        "cluster_id": view.cluster_id,
        "controller": None if view.controller < 0 else view.controller,
        "nodes": [_node(one, view.controller, leads, held) for one in view.nodes],
        "partitions": len(view.partitions),
        "without_leader": [_partition(one) for one in view.partitions if one.leader < 0],
        "under_replicated": [_partition(one) for one in view.partitions if one.is_under_replicated],
        "moving": [
            {
                "topic": one.place.topic,
                "partition": one.place.partition,
                "replicas": list(one.replicas),
                "adding": list(one.adding),
                "removing": list(one.removing),
            }
            for one in moving
        ],
    }


def print_status(status: dict[str, Any]) -> None:
    controller = status["controller"]
    led = "without a controller" if controller is None else f"controlled by node {controller}"
    click.echo(f"Cluster {status['cluster_id']}, {counted(len(status['nodes']), 'node')}, {led}")
    rows = [
        (
            one["node"],
            one["address"],
            one["rack"],
            one["state"],
            one["role"],
            one["leaders"],
            one["replicas"],
        )
        for one in status["nodes"]
    ]
    print_fitted(NODE_COLUMNS, rows)
    _print_partitions(status)


def _print_partitions(status: dict[str, Any]) -> None:
    total = counted(status["partitions"], "partition")
    if not status["partitions"]:
        click.echo("0 partitions")
        return
    sick = status["without_leader"] or status["under_replicated"] or status["moving"]
    if not sick:
        click.echo(f"{total}, all with a leader and all copies in sync")
        return
    click.echo(total)
    rows_max = _rows_max(status)
    for title, key in (
        ("without a leader", "without_leader"),
        ("under-replicated", "under_replicated"),
    ):
        rows = [
            (_name(one), _leader(one["leader"]), _ids(one["replicas"]), _ids(one["in_sync"]))
            for one in status[key]
        ]
        _print_some(title, SICK_COLUMNS, rows, rows_max)
    moving = [
        (_name(one), _ids(one["replicas"]), _ids(one["adding"]), _ids(one["removing"]))
        for one in status["moving"]
    ]
    _print_some("being moved", MOVING_COLUMNS, moving, rows_max)


def _rows_max(status: dict[str, Any]) -> int:
    """Of each list as many rows as the terminal has lines for, so that the nodes stay in sight."""
    if not sys.stdout.isatty():
        return ROWS_SHOWN_MAX
    lists = sum(bool(status[key]) for key in ("without_leader", "under_replicated", "moving"))
    lines = shutil.get_terminal_size().lines - len(status["nodes"]) - LINES_BESIDE
    return max(ROWS_SHOWN_MIN, min(ROWS_SHOWN_MAX, lines // lists - LINES_AROUND))


def _print_some(
    title: str, columns: Sequence[Column], rows: Sequence[tuple[str, ...]], rows_max: int
) -> None:
    if not rows:
        return
    click.echo(f"\n{counted(len(rows), 'partition')} {title}")
    print_fitted(columns, rows[:rows_max])
    if len(rows) > rows_max:
        click.echo(f"... and {len(rows) - rows_max:,} more")


def _node(
    one: "NodeView", controller: int, leads: Counter[int], held: Counter[int]
) -> dict[str, Any]:
    state = "drained" if one.is_drained else "up"
    return {
        "node": one.node,
        "address": None if one.endpoint is None else str(one.endpoint),
        "rack": one.rack,
        "state": state if one.is_up else "down",
        "drained": one.is_drained,
        "role": "controller" if one.node == controller else one.role,
        "leaders": leads[one.node],
        "replicas": held[one.node],
    }


def _partition(one: "PartitionView") -> dict[str, Any]:
    return {
        "topic": one.place.topic,
        "partition": one.place.partition,
        "leader": None if one.leader < 0 else one.leader,
        "replicas": list(one.replicas),
        "in_sync": list(one.in_sync),
    }


def _name(one: dict[str, Any]) -> str:
    return f"{one['topic']}-{one['partition']}"


def _leader(leader: int | None) -> str:
    return "" if leader is None else str(leader)


def _ids(nodes: Sequence[int]) -> str:
    return ",".join(str(node) for node in nodes)
