"""`penstock work`: runs a command for each record of a queue, and acks what succeeded."""

from typing import TYPE_CHECKING

import click

from penstock.cli.options import client_options

if TYPE_CHECKING:
    from penstock.client.wire.settings import WireSettings

CONCURRENCY_MAX = 1_000
DRAIN_S = 30.0


@click.command()
@click.argument("topic")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--group", "-g", required=True, metavar="NAME", help="The queue (share group).")
@click.option(
    "--concurrency",
    "-c",
    type=click.IntRange(1, CONCURRENCY_MAX),
    default=1,
    show_default=True,
    metavar="N",
    help="How many commands run at once.",
)
@click.option(
    "--reject-on",
    "reject_on",
    multiple=True,
    type=click.IntRange(1, 255),
    metavar="CODE",
    help="An exit code that rejects the record for good; may be repeated.",
)
@click.option(
    "--drain",
    "drain_s",
    type=click.FloatRange(min=0),
    default=DRAIN_S,
    show_default=True,
    metavar="SECONDS",
    help="How long running commands may take after SIGTERM or Ctrl-C.",
)
@click.option(
    "--max", "-n", "count_max", type=click.IntRange(1), metavar="N", help="Stop after N records."
)
@click.option(
    "--idle",
    "idle_s",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Stop when nothing arrives for this long.",
)
@client_options
def work(
    topic: str,
    command: tuple[str, ...],
    group: str,
    concurrency: int,
    reject_on: tuple[int, ...],
    drain_s: float,
    count_max: int | None,
    idle_s: float | None,
    bootstrap: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Run COMMAND once for each record of TOPIC, as a worker of a queue.

    The value is on standard input. PENSTOCK_TOPIC, PENSTOCK_PARTITION, PENSTOCK_OFFSET,
    PENSTOCK_ATTEMPT, PENSTOCK_TIMESTAMP, PENSTOCK_KEY and PENSTOCK_HEADERS (JSON) are in the
    environment; a key that is not text is in PENSTOCK_KEY_BASE64. What is too long is in a file
    that PENSTOCK_KEY_FILE or PENSTOCK_HEADERS_FILE names.

    Exit code 0 acks the record. Any other releases it, so that it is tried again, up to the
    queue's delivery limit. The lease is renewed while the command runs. SIGTERM and Ctrl-C let
    running commands finish; a second one ends them.

    Each outcome is a line on standard error; with --json, a line of JSON on standard output, and
    what commands print goes to standard error.
    """
    from penstock.cli.work_pool import Policy, WorkPool
    from penstock.cli.work_process import Commands
    from penstock.client.queues import Queues
    from penstock.client.wire.cluster import WireCluster

    commands = Commands(command, is_output_ours=as_json)
    settings = _settings(bootstrap, timeout_s)
    policy = Policy(
        concurrency=concurrency,
        reject_on=frozenset(reject_on),
        drain_s=drain_s,
        count_max=count_max,
        idle_s=idle_s,
    )
    with WireCluster(settings) as cluster:
        # Before the queue is begun.
        cluster.partitions([topic])
        Queues(bootstrap, timeout_s=timeout_s).begin(group)
        with cluster.queue(group, [topic]) as reader:
            WorkPool(reader, commands, policy, as_json=as_json).run()


def _settings(bootstrap: str, timeout_s: float) -> "WireSettings":
    from penstock.client.wire.settings import WireSettings

    # An address where nobody answers at first is wrong; a broker that goes away later comes back.
    return WireSettings(bootstrap=bootstrap, first_contact_timeout_s=min(timeout_s, 0.5))
