"""`penstock bench`: puts load on a cluster and reports throughput and latency."""

import uuid
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failures import CommandFailed
from penstock.cli.interrupts import Interrupted, Interrupts
from penstock.cli.options import client_options
from penstock.cli.output import counted, print_json, print_table
from penstock.cli.progress import progress

if TYPE_CHECKING:
    from penstock.client.admin import Admin
    from penstock.client.load import Load, Report, Result

MB = 1_000_000
WORKERS_MAX = 64
VALUE_BYTES = (16, 10 * MB)
SECONDS = 10.0


@click.command()
@click.argument("topic", required=False)
@click.option(
    "--producers",
    type=click.IntRange(1, WORKERS_MAX),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes that send.",
)
@click.option(
    "--consumers",
    type=click.IntRange(0, WORKERS_MAX),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes that read, sharing the partitions; 0 sends only.",
)
@click.option(
    "--size",
    "value_bytes",
    type=click.IntRange(*VALUE_BYTES),
    default=1000,
    show_default=True,
    metavar="BYTES",
    help="The length of each value.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Records per second of all producers together; as fast as possible by default.",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="Send N records in total.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1, max=86_400),
    metavar="SECONDS",
    help=f"How long to send; {SECONDS:g} by default, unless --count is given.",
)
@click.option(
    "--partitions",
    "-p",
    type=click.IntRange(1),
    default=6,
    show_default=True,
    metavar="N",
    help="Partitions of the topic that is created for the run.",
)
@click.option(
    "--replicas", "-r", type=click.IntRange(1), metavar="N", help="Copies of each partition."
)
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all"]),
    default="all",
    show_default=True,
    help="Which replicas must acknowledge: none, the leader, or a majority.",
)
@click.option(
    "--compression",
    "-z",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="How batches are compressed.",
)
@click.option(
    "--linger",
    "linger_ms",
    type=click.FloatRange(0, 10_000),
    default=5.0,
    show_default=True,
    metavar="MS",
    help="How long a record waits for others to share its batch.",
)
@click.option("--keep", is_flag=True, help="Do not delete the topic afterwards.")
@client_options
def bench(
    topic: str | None,
    bootstrap: str,
    timeout_s: float,
    as_json: bool,
    partitions: int,
    replicas: int | None,
    keep: bool,
    **options: Any,
) -> None:
    """Put load on a cluster and report throughput and latency.

    Creates a topic for the run and deletes it afterwards. With TOPIC, it sends to that topic
    instead. The topic must exist, and the records stay in it.
    """
    from penstock.client.admin import Admin

    if options["count"] is None and options["seconds"] is None:
        options["seconds"] = SECONDS
    admin = Admin(bootstrap, timeout_s=timeout_s)
    name = topic or f"penstock-bench-{uuid.uuid4().hex[:8]}"
    if topic is None:
        admin.topics.create(name, partitions=partitions, replicas=replicas or -1)
    try:
        load = _load(admin, name, options)
        if not as_json:
            click.echo(_announced(load), err=True)
        result, signal = _run(load, as_json)
    finally:
        if topic is None and not keep:
            admin.topics.delete(name)
    _print(load, result, as_json)
    if result.produced.failed or result.consumed.failed:
        raise _failure(result)
    if signal is not None:
        raise Interrupted(signal)
    if load.consumers and result.consumed.records < result.produced.records:
        missing = result.produced.records - result.consumed.records
        raise CommandFailed(f"{counted(missing, 'record')} did not reach the consumers in time.")


def _load(admin: "Admin", topic: str, options: dict[str, Any]) -> "Load":
    from penstock.client.load import Load
    from penstock.model.ids import PartitionIndex, TopicName, TopicPartition

    places = [
        TopicPartition(TopicName(topic), PartitionIndex(one))
        for one in admin.topics.partitions(topic)
    ]
    ends = admin.offsets.latest(places)
    return Load(
        bootstrap=admin.bootstrap,
        topic=topic,
        offsets={one.partition: end for one, end in ends.items()},
        **options,
    )


def _run(load: "Load", as_json: bool) -> "tuple[Result, int | None]":
    from penstock.client.load import run_load

    with (
        Interrupts() as interrupts,
        progress("Acknowledged (records)", load.count, shown=not as_json) as advance,
    ):
        result = run_load(load, advance=advance, is_stopped=lambda: interrupts.noted is not None)
    return result, interrupts.noted


def _announced(load: "Load") -> str:
    how_long = f"{load.seconds:g} s" if load.count is None else counted(load.count, "record")
    return (
        f"Topic {load.topic} with {counted(len(load.offsets), 'partition')}: "
        f"{counted(load.producers, 'producer')}, {counted(load.consumers, 'consumer')}, "
        f"{load.value_bytes:,} bytes each, acks={load.acks}, for {how_long}."
    )


def _failure(result: "Result") -> CommandFailed:
    produced, consumed = result.produced, result.consumed
    reason = (produced.failure or consumed.failure).rstrip(".")
    if produced.failed:
        return CommandFailed(f"{counted(produced.failed, 'record')} not delivered: {reason}.")
    return CommandFailed(f"A consumer failed: {reason}.")


def _print(load: "Load", result: "Result", as_json: bool) -> None:
    """Latency of producers is to the acknowledgement, that of consumers from the sender on."""
    reports = {"produce": result.produced}
    if load.consumers:
        reports["consume"] = result.consumed
    if as_json:
        described = {name: _described(load, one) for name, one in reports.items()}
        print_json({"topic": load.topic, "value_bytes": load.value_bytes, **described})
        return
    rows = [(name, *_row(load, one)) for name, one in reports.items()]
    columns = ("", "records", "seconds", "records/s", "MB/s")
    latencies = [f"{name} ms" for name in result.produced.latencies.summary_ms()]
    print_table((*columns, *latencies), rows)


def _described(load: "Load", report: "Report") -> dict[str, object]:
    per_second = report.records / report.seconds if report.records else 0.0
    return {
        "records": report.records,
        "failed": report.failed,
        "seconds": round(report.seconds, 3),
        "records_per_second": round(per_second, 1),
        "mb_per_second": round(per_second * load.value_bytes / MB, 3),
        "latency_ms": {
            name: round(value, 3) for name, value in report.latencies.summary_ms().items()
        },
    }


def _row(load: "Load", report: "Report") -> list[str]:
    per_second = report.records / report.seconds if report.records else 0.0
    return [
        f"{report.records}",
        f"{report.seconds:.1f}",
        f"{per_second:.0f}",
        f"{per_second * load.value_bytes / MB:.1f}",
        *(f"{value:.2f}" for value in report.latencies.summary_ms().values()),
    ]
